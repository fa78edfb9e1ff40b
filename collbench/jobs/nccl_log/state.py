"""What tools print of the state of a machine, as it is pasted beside a log: ports (ibstat,
ibstatus, ibv_devinfo), GPUs (nvidia-smi -q), and versions (PyTorch's collect_env).
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collbench.core import catalog
from collbench.jobs.log_errors import KnownError, error_of
from collbench.jobs.nccl_log.model import LogReport
from collbench.jobs.nccl_log.places import LogPlace, Seen

_MOST_LINES = 400  # of a GPU or a port behind its first line
_MOST_LINES_OF_PORT = 12
_MOST_PORTS = 1000
_DEVICE = re.compile(
    r"\s*(?:CA '(?P<ibstat>\w{1,40})'|Infiniband device '(?P<ibstatus>\w{1,40})' port (?P<port>\d+)"
    r"|hca_id:\s+(?P<devinfo>\w{1,40}))"
)
# of rdma link, and of ibdev2netdev
_LINK = re.compile(
    r"\s*(?:link )?(?P<device>\w{1,40})(?:/| +port +)(?P<port>\d{1,3})"
    r"(?: (?=.*physical_state ).{0,120}?\bstate (?P<state>\w+)| +==> +(?!ib)\S+ +\((?P<is>\w+)\))"
)
_PORT = re.compile(r"\s*[Pp]ort:?\s+(\d{1,3}):?\s*\Z")
_VALUE = re.compile(
    r"\s*(?P<key>state|phys(?:ical)? state|rate|link[_ ]layer|node[_ ]guid|phys_state):\s*"
    r"(?:\d{1,2}: )?(?P<value>\S.{0,60})",
    re.IGNORECASE,
)
_GPU = re.compile(
    r"(?:GPU |(?P<excerpt>Bus Id +: ))(?P<bus>[\dA-Fa-f]{4,8}:[\dA-Fa-f]{2}:[\dA-Fa-f]{2}\.\d)\s*\Z"
)
_KEY = re.compile(
    r"(?P<indent>\s*)(?P<key>[A-Za-z][\w /()-]{0,60}?)\s*(?::\s*(?P<value>.{0,80}))?\Z"
)
_WHEEL = re.compile(r"\bnvidia[-_]nccl[-_]cu\d\d[= ]{1,40}(?P<version>\d+\.\d+\.\d+)")
_FACT = re.compile(
    r"\s*(?P<name>PyTorch version|Nvidia driver version|CUDA used to build PyTorch|"
    r"CUDA runtime version|Driver Version)\s*: (?P<value>\S.{0,80})"
)
STATE_WORDS = (
    "CA '", "nfiniband device", "hca_id", "nvidia-nccl", "nvidia_nccl", "PyTorch version",
    "driver version", "CUDA used", "CUDA runtime version", "GPU 0", "Bus Id ",
    "physical_state", "==> ", "Port 1:",
)  # fmt: skip


@dataclass(slots=True)
class Port:
    """A port as it is told; rate_gbits: 0 if it is not told. link: the state of the wire."""

    name: str
    place: LogPlace
    state: str = ""
    link: str = ""
    has_guid: bool = True
    layer: str = ""
    rate_gbits: float = 0.0


class StateReader:
    """Feed it the lines; what is wrong goes to the report's states, other facts to its facts."""

    def __init__(self, report: LogReport) -> None:
        self._report = report
        self._left = 0
        self._device = self._gpu = ""
        self._ports: dict[str, Port] = {}
        self._port: Port | None = None
        self._sections: list[tuple[int, str]] = []
        self._most = 0

    @property
    def is_reading(self) -> bool:
        """Whether a port or a GPU may go on."""
        return self._left > 0

    def is_awake(self, line: str) -> bool:
        """Whether a line may be of a state; keep it fast."""
        return self.is_reading or any(word in line for word in STATE_WORDS)

    def take(self, line: str, place: LogPlace) -> bool:
        """Read a line; whether it says something of a state."""
        self._left -= 1
        if device := _DEVICE.match(line):
            self._left, self._gpu = _MOST_LINES, ""
            self._device = next(filter(None, device.group("ibstat", "ibstatus", "devinfo")))
            self._port = self._begin(device["port"] or "1", place)
        elif link := _LINK.match(line):
            port = self._begin(link["port"], place, link["device"])
            self._take_port(
                port, "state", link["state"] or {"Up": "ACTIVE"}.get(link["is"], "DOWN")
            )
        elif (found := _PORT.match(line)) and (self._device or line.rstrip().endswith(":")):
            # an excerpt may not have the device
            self._left = max(self._left, _MOST_LINES_OF_PORT)
            if self._port and self._port.state and self._port.name.endswith(f"port {found[1]}"):
                self._device = ""  # the line of another CA is missing
            self._port = self._begin(found[1], place)
        elif self._port is not None and not self._gpu and (value := _VALUE.match(line)):
            self._take_port(self._port, value["key"].lower(), value["value"].strip())
        elif (gpu := _GPU.search(line.rstrip())) and (not self._gpu or not gpu["excerpt"]):
            self._left, self._gpu, self._device = _MOST_LINES, gpu["bus"], ""
            self._sections = []
        elif wheel := _WHEEL.search(line):
            self._report.versions.setdefault(f"NCCL {wheel['version']}", Seen()).add(place)
        elif fact := _FACT.match(line):
            self._report.facts.setdefault(f"{fact['name']} {fact['value']}", Seen()).add(place)
        elif self._gpu and line[:1].isspace() and (key := _KEY.match(line)):
            self._take_gpu(key, place)
        else:
            self._gpu = self._gpu if not line.strip() else ""  # its lines are indented
            return False
        self._report.told += 1
        return True

    def _begin(self, number: str, place: LogPlace, device: str = "") -> Port:
        name = f"{device or self._device} port {number}".lstrip()
        known = self._ports.get(name)
        if known is not None and known.state and not device:  # of another host, or without its CA
            self._ports[f"{name} {place}"] = self._ports.pop(name)
        if len(self._ports) < _MOST_PORTS:
            return self._ports.setdefault(name, Port(name, place))
        return Port(name, place)

    def _take_port(self, port: Port, key: str, value: str) -> None:
        if key == "state":
            port.state = value.upper().removeprefix("PORT_")
        elif key == "rate":
            number = re.match(r"\d{1,6}(?:\.\d{1,3})?", value)
            port.rate_gbits = float(number[0]) if number else 0.0
        elif key in ("link_layer", "link layer"):
            port.layer = value
        elif key.startswith("phys"):
            port.link = value.lower()
        else:
            port.has_guid = re.search("[1-9a-f]", value.lower().removeprefix("0x")) is not None

    def _take_gpu(self, match: re.Match[str], place: LogPlace) -> None:
        indent, key = len(match["indent"]), match["key"].strip()
        while self._sections and self._sections[-1][0] >= indent:
            self._sections.pop()
        value = (match["value"] or "").strip()
        if not value:
            self._sections.append((indent, key))
            return
        sections = {name for _, name in self._sections}
        if "Link Width" in sections and key in ("Max", "Current"):
            self._take_link("gpu-pcie", value, "{} of {} lanes", place, is_most=key == "Max")
        elif "PCIe Generation" in sections and key in ("Device Max", "Host Max"):
            is_most = key == "Device Max"
            self._take_link("gpu-pcie-slot", value, "generation {} of {}", place, is_most=is_most)
        for name, state in _states().items():
            is_asked = key in state.get("keys", ()) and state.get("section", "") in {"", *sections}
            if is_asked and not re.fullmatch(state["good"], value):
                self._keep(name, f"GPU {self._gpu} {key}: {value}", place)

    def _take_link(
        self, name: str, value: str, text: str, place: LogPlace, *, is_most: bool
    ) -> None:
        number = int(value.rstrip("x")) if value.rstrip("x").isdecimal() else 0
        if 0 < number < self._most and not is_most:
            self._keep(name, f"GPU {self._gpu}: {text.format(number, self._most)}", place)
        self._most = number if is_most else 0

    def _keep(self, name: str, text: str, place: LogPlace) -> None:
        self._report.states.setdefault((name, text), Seen()).add(place)

    def finish(self) -> None:
        """What the ports say together."""
        ports = [port for port in self._ports.values() if port.state]
        up = [port for port in ports if port.state.startswith("ACTIVE")]
        for port in ports:
            is_down = port.state.startswith(("DOWN", "POLLING", "DISABLED"))
            if port not in up and not port.has_guid:
                self._keep("port-without-guid", f"{port.name}: {port.state}", port.place)
            elif is_down:
                name = "port-held-down" if port.link.startswith("linkup") else "port-down"
                self._keep(name, f"{port.name}: {port.state}", port.place)
            elif port.state.startswith(("INIT", "ARMED")):
                self._keep("port-initializing", f"{port.name}: {port.state}", port.place)
        for port in up:
            rate = f" {port.rate_gbits:g} Gb/s" if port.rate_gbits else ""
            self._report.facts.setdefault(f"{port.name} {port.layer}{rate}", Seen()).add(port.place)
        layers = {port.layer for port in up if port.layer}
        if len(layers) > 1:
            self._keep("ports-mixed", _listed(up, lambda port: port.layer), up[0].place)
        for layer in sorted(layers):
            same = [port for port in up if port.layer == layer and port.rate_gbits]
            if len({port.rate_gbits for port in same}) > 1:
                text = _listed(same, lambda port: f"{port.rate_gbits:g} Gb/s")
                self._keep("port-rates", text, same[0].place)


def _listed(ports: list[Port], value: Any) -> str:  # Any: a function of a port
    return ", ".join(list(dict.fromkeys(f"{port.name} {value(port)}" for port in ports))[:8])


@functools.cache
def _states() -> Mapping[str, Mapping[str, Any]]:  # Any: values of TOML
    tables = catalog.load("causes", "states")
    return {name: table for name, table in tables.items() if isinstance(table, dict)}


def known_state(name: str) -> KnownError:
    """What a state means.

    >>> known_state("gpu-fabric").severity
    'fault'
    """
    return error_of({"name": name, **_states()[name]})
