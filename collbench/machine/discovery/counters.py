"""Counters of what passed the links of this host: NVLinks and PCIe links of GPUs by NVML, network
interfaces and InfiniBand ports by sysfs, and the TCP sockets of a process.

    read() -> Reading: every counter that can be read, and why others cannot

Counters only grow. Sources: nvml.h (NVML_FI_DEV_NVLINK_THROUGHPUT_*: KiB, the scope is the link;
NVML_FI_DEV_PCIE_COUNT_*_BYTES: bytes), the kernel's ABI/testing/sysfs-class-net-statistics (bytes),
ABI/stable/sysfs-class-infiniband (port_*_data: four bytes each), linux/tcp.h (struct tcp_info).
"""

import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from collbench.core.host import has_nvidia_gpus
from collbench.machine.discovery import _nvml
from collbench.machine.gpus import nvml_refusal

_KIB = 1 << 10
# NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _DATA_RX, _RAW_TX, _RAW_RX; NVML_FI_DEV_PCIE_COUNT_TX_BYTES
# and _RX_BYTES
_DATA, _RAW, _PCIE = (138, 139), (140, 141), (197, 198)
_TRIES, _PAUSE_S = 5, 0.004  # of a field that is not answered
_IB_WORD = 4  # bytes that port_xmit_data and port_rcv_data count as one
_IB_NETDEV = "32"  # type of an interface whose bytes its InfiniBand port counts, too
_LOOPBACK = "772"
# In struct tcp_info: tcpi_bytes_acked.
_ACKED_AT, _TCP_INFO_BYTES = 120, 256


class CountedLink(NamedTuple):
    """A link with a counter of its own. source: the name of what reads it. device: a GPU's UUID, an
    interface, or a port of InfiniBand. number: of the NVLink; -1 of what has one.
    """

    source: str
    device: str
    number: int = -1


class Passed(NamedTuple):
    """Bytes that left by a link, and that came in."""

    out: int
    into: int

    def since(self, before: "Passed") -> "Passed":
        return Passed(self.out - before.out, self.into - before.into)


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterReading:
    """The counters of a host at a moment. unread: why a source has none, by its name. labels: GPUs
    by their UUIDs, as people call them. mtus: bytes of the largest packet of each interface. acked:
    bytes that peers have taken from the TCP sockets of this process.
    """

    host: str
    passed: dict[CountedLink, Passed] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    mtus: dict[str, int] = field(default_factory=dict)
    acked: int = 0


def read(root: Path = Path("/"), *, has_links: bool = True) -> CounterReading:
    """All counters of this host, now; without has_links only those of this process's sockets. root:
    the folder that has sys.
    """
    reading = CounterReading(host=socket.gethostname(), acked=_acked())
    if has_links:
        for name, source in SOURCES.items():
            source(name, root, reading)
    return reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What passed the links of all hosts while so many launches ran. passed: by host and link.
    sockets: bytes that went through TCP sockets of the ranks. ranks: the host of each rank, and the
    UUID of its GPU if it has one.
    """

    launches: int
    passed: dict[tuple[str, CountedLink], Passed]
    unread: dict[str, str]
    labels: dict[str, str]
    mtus: dict[str, int]
    sockets: int
    ranks: tuple[tuple[str, str], ...]

    def and_then(self, other: "Moved") -> "Moved":
        """Both together."""
        passed = {
            link: Passed(one.out + other.passed[link].out, one.into + other.passed[link].into)
            for link, one in self.passed.items()
            if link in other.passed
        }
        return replace(
            self,
            launches=self.launches + other.launches,
            passed=passed,
            sockets=self.sockets + other.sockets,
        )


def moved(
    before: Sequence[CounterReading],
    after: Sequence[CounterReading],
    launches: int,
    gpus: Sequence[str] = (),
) -> Moved:
    """What passed between two readings of all ranks; gpus: the UUID of each rank's."""
    first: dict[str, tuple[CounterReading, CounterReading]] = {}
    for one, other in zip(before, after, strict=True):
        first.setdefault(one.host, (one, other))
    return Moved(
        launches=launches,
        passed={
            (host, link): passed.since(one.passed[link])
            for host, (one, other) in first.items()
            for link, passed in other.passed.items()
            if link in one.passed
        },
        unread={name: why for one, _ in first.values() for name, why in one.unread.items()},
        labels={uuid: name for one, _ in first.values() for uuid, name in one.labels.items()},
        mtus={name: mtu for one, _ in first.values() for name, mtu in one.mtus.items()},
        sockets=sum(two.acked - one.acked for one, two in zip(before, after, strict=True)),
        ranks=tuple(zip((one.host for one in before), gpus or [""] * len(before), strict=True)),
    )


def _gpus(reading: CounterReading) -> Iterator[tuple[str, object]]:
    """NVML's handles of the GPUs by their UUIDs, and their names for people."""
    for index, handle in _nvml.handles().items():
        if isinstance(handle, str):
            reading.unread[f"GPU {index}"] = handle
            continue
        uuid = _nvml.reader().read("uuid", _nvml.call, "nvmlDeviceGetUUID", handle)
        if uuid is not None:
            reading.labels[uuid] = f"GPU {index}"
            yield uuid, handle


def _nvidia(name: str, root: Path, reading: CounterReading) -> None:
    """The counters of PCIe links of GPUs, or NVLinks: of data, or of all that passes (raw)."""
    why = nvml_refusal() if has_nvidia_gpus() else "this host has no NVIDIA GPU"
    if why is not None:
        reading.unread[name] = why
        return
    for uuid, handle in _gpus(reading):
        if name == "pcie":
            links, unit = range(-1, 0), 1
            values = _nvml.fields_of(handle, [(id_, None) for id_ in _PCIE])
        else:
            links, unit = range(_nvml.link_count(handle)), _KIB
            fields = _RAW if name == "nvlink-raw" else _DATA
            values = _answers(handle, [(id_, link) for link in links for id_ in fields])
        for link, out, into in zip(links, values[::2], values[1::2], strict=True):
            if isinstance(out, str) or isinstance(into, str):
                reading.unread[name] = str(out if isinstance(out, str) else into)
            else:
                reading.passed[CountedLink(name, uuid, link)] = Passed(out * unit, into * unit)


def _answers(handle: object, requests: Sequence[tuple[int, int]]) -> list[int | str]:
    """The values of fields, asked again where one is missing: drivers say now and then that they do
    not support what they answer a moment later.
    """
    for _ in range(_TRIES):
        values = _nvml.fields_of(handle, requests)
        if not any(isinstance(value, str) for value in values):
            break
        time.sleep(_PAUSE_S)
    return values


def _interfaces(name: str, root: Path, reading: CounterReading) -> None:
    """The interfaces of hardware, or all where none is: what a bridge or a bond of others carries
    would count twice.
    """
    folder = root / "sys/class/net"
    try:
        found = sorted(folder.iterdir())
    except OSError as error:
        reading.unread[name] = error.strerror or str(error)
        return
    others = [one for one in found if _text(one / "type") not in (_LOOPBACK, _IB_NETDEV)]
    physical = [one for one in others if (one / "device").exists()] or others
    wanted = (
        physical if name == "nic" else [one for one in found if _text(one / "type") == _LOOPBACK]
    )
    for one in wanted:
        try:
            numbers = [int((one / f"statistics/{way}_bytes").read_text()) for way in ("tx", "rx")]
            reading.mtus[one.name] = int((one / "mtu").read_text())
        except (OSError, ValueError) as error:
            reading.unread[one.name] = getattr(error, "strerror", None) or str(error)
        else:
            reading.passed[CountedLink(name, one.name)] = Passed(*numbers)


def _infiniband(name: str, root: Path, reading: CounterReading) -> None:
    ports = sorted(root.glob("sys/class/infiniband/*/ports/*"))
    if not ports:
        reading.unread[name] = "this host has no InfiniBand port"
    for port in ports:
        device = f"{port.parent.parent.name}/{port.name}"
        try:
            numbers = [
                _IB_WORD * int((port / f"counters/port_{way}_data").read_text())
                for way in ("xmit", "rcv")
            ]
        except (OSError, ValueError) as error:
            reading.unread[device] = getattr(error, "strerror", None) or str(error)
        else:
            reading.passed[CountedLink(name, device)] = Passed(*numbers)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _acked() -> int:
    """Bytes that peers have taken from the TCP sockets that this process has open."""
    total = 0
    with suppress(OSError):
        for file in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                total += _acked_by(int(file.name))
    return total


def _acked_by(descriptor: int) -> int:
    """Bytes of one socket. Raises OSError for what is no TCP socket."""
    one = socket.socket(fileno=descriptor)
    try:
        info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    finally:
        one.detach()  # it is not ours to close
    if len(info) < _ACKED_AT + 8:
        return 0
    acked: int = struct.unpack_from("<Q", info, _ACKED_AT)[0]
    return max(0, acked - 1)  # the first is that of the connection itself


SOURCES: dict[str, Callable[[str, Path, CounterReading], None]] = {
    "nvlink": _nvidia,
    "nvlink-raw": _nvidia,
    "pcie": _nvidia,
    "lo": _interfaces,
    "nic": _interfaces,
    "infiniband": _infiniband,
}
