"""The PCIe tree of a recording: which switches are above a function, which NUMA node is near, and
what each link between them can do.

A root port is no switch; the upstream port of a switch and the downstream port beneath it are one
switch. What kinds of ports bridges are only root may read, so this follows from their order: below
the root port they come in pairs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collbench.machine.discovery._sysfs import addresses
from collbench.machine.discovery.recording import GpuRecord, PciDevice, Recording
from collbench.machine.topology.rates import pcie_generation

_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)  # of PCIe's; ports that do not know theirs say 0, 63 or 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Generation and lanes, 0 for unknown."""

    generation: int = 0
    lanes: int = 0

    def __str__(self) -> str:
        return f"generation {self.generation or '?'} x{self.lanes or '?'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeHop:
    """A PCIe link by what is at its ends: 'root', the address of a switch's upstream port, or of a
    function; most: what both ends can.
    """

    above: str
    below: str
    most: Speed
    now: Speed


@dataclass(frozen=True, slots=True, kw_only=True)
class PciePlace:
    """Where a function hangs: its host bridge, the switches above it (by upstream ports) from the
    root down, and the hops to it.
    """

    bridge: str
    switches: tuple[str, ...]
    hops: tuple[TreeHop, ...]


class PcieTree:
    """PCI functions of one host."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.devices: Mapping[str, PciDevice] = {device.address: device for device in recording.pci}
        self._gpus: Mapping[str, GpuRecord] = {
            gpu.address: gpu for gpu in recording.gpus if gpu.address
        }

    def place(self, address: str) -> PciePlace | None:
        """Where a function hangs; None if sysfs does not show it."""
        device = self.devices.get(address)
        if device is None:
            return None
        bridge, ports = chain(device.path)
        ports = ports[:-1]  # the last is the function itself
        below = ports[1:]
        pairs = [below[k : k + 2] for k in range(0, len(below), 2)]
        hops: list[TreeHop] = []
        above, upper_port = "root", ports[0] if ports else ""
        for pair in pairs:
            hops.append(self._hop(above, pair[0], upper_port, pair[0]))
            above, upper_port = pair[0], pair[-1]
        hops.append(self._hop(above, address, upper_port, address))
        return PciePlace(bridge=bridge, switches=tuple(pair[0] for pair in pairs), hops=tuple(hops))

    def numa_of(self, address: str) -> int | None:
        """The NUMA node near a function, as the first of these that knows it reports: the function
        itself, a bridge above it, its list of near cores, others on its bus. None if none does.
        """
        device = self.devices.get(address)
        if device is None:
            return None
        bridge, ports = chain(device.path)
        for one in (device, *(self.devices.get(port) for port in reversed(ports))):
            if one is not None and one.numa_node is not None and one.numa_node >= 0:
                return one.numa_node
        gpu = self._gpus.get(address)
        cores = {device.local_cpulist, gpu.cpu_affinity if gpu is not None else None}
        near = [node.index for node in self.recording.numa if node.cpulist in cores]
        if len(near) == 1 < len(self.recording.numa):
            return near[0]
        siblings = {
            one.numa_node
            for one in self.recording.pci
            if (one.numa_node or 0) >= 0 and chain(one.path)[0] == bridge
        } - {None}
        return siblings.pop() if len(siblings) == 1 else None

    def _hop(self, above: str, below: str, upper_port: str, lower_port: str) -> TreeHop:
        """A link between two ports; the upper one may be no function at all."""
        upper, lower = self.devices.get(upper_port), self.devices.get(lower_port)
        ends = [
            _speed(device.max_link_speed, device.max_link_width)
            for device in (upper, lower)
            if device is not None
        ]
        now = Speed()
        if lower is not None:
            now = _speed(lower.current_link_speed, lower.current_link_width)
        gpu = self._gpus.get(lower_port)
        if gpu is not None:
            ends.append(
                Speed(generation=gpu.pcie_max_generation or 0, lanes=_lanes(gpu.pcie_max_width))
            )
            if now == Speed():
                now = Speed(generation=gpu.pcie_generation or 0, lanes=_lanes(gpu.pcie_width))
        # A port that claims less than what runs over it is a hypervisor's invention, as QEMU's are.
        real = [
            end
            for end in ends
            if (not end.generation or end.generation >= now.generation)
            and (not end.lanes or end.lanes >= now.lanes)
        ]
        most = Speed(
            generation=min((end.generation for end in real if end.generation), default=0),
            lanes=min((end.lanes for end in real if end.lanes), default=0),
        )
        return TreeHop(above=above, below=below, most=most, now=now)


def chain(path: str) -> tuple[str, Sequence[str]]:
    """The host bridge on a path of sysfs, and the functions below it from the top down.

    >>> chain("devices/pci0000:16/0000:16:01.0/0000:17:00.0")
    ('pci0000:16', ['0000:16:01.0', '0000:17:00.0'])
    """
    parts = path.split("/")
    last = max(
        (number for number, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)), default=-1
    )
    return (parts[last] if last >= 0 else ""), addresses("/".join(parts[last + 1 :]))


def _speed(speed: str | None, width: int | None) -> Speed:
    return Speed(generation=pcie_generation(speed or ""), lanes=_lanes(width))


def _lanes(width: int | None) -> int:
    return width if width in _WIDTHS else 0
