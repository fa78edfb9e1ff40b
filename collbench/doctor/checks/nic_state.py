"""Whether NICs are up, as fast as their siblings, and on the sockets of the GPUs."""

import re
from collections.abc import Iterable, Mapping

from collbench.core.grouping import grouped
from collbench.doctor.check import Evidence, Finding, Severity, told
from collbench.doctor.checks._siblings import are_all_beside, bridges_above, nearest_nics
from collbench.machine.discovery.recording import Nic, Port, Recording
from collbench.machine.topology.model import numbered

_ACTIVE, _INIT, _DOWN = "ACTIVE", "INIT", "DOWN"
_CABLE = (
    "look at the cable, the transceiver and the port of the switch: mlxlink -d NIC, ethtool NAME"
)
_Fault = tuple[str, str, str, Severity]  # subject, seen, change
_ONE_LANE = re.compile(r"\(1X \w+\)")


def find(evidence: Evidence) -> Iterable[Finding]:
    for number, host in enumerate(evidence.hosts):
        models = {one.address: (one.vendor, one.device, one.subsystem_device) for one in host.pci}
        nics_there = (nic for nic in host.nics if not nic.is_virtual and nic.address in models)
        groups = grouped(((models[nic.address], nic.is_rdma), nic) for nic in nics_there)
        for nics in groups.values():
            faults = _ports(nics) if nics[0].is_rdma else _interfaces(host, nics)
            for subject, seen, change, severity in faults:
                yield told(
                    "nic-state", evidence.on(subject, host), seen, severity=severity, change=change
                )
        yield from _sockets(evidence, number)


def _ports(nics: Iterable[Nic]) -> Iterable[_Fault]:
    """RDMA ports of NICs of one model."""
    ports = {f"{nic.name} port {port.number}": port for nic in nics for port in nic.ports}
    active = {name: port for name, port in ports.items() if port.state_name == _ACTIVE}
    for name, port in ports.items():
        if port.state_name == _INIT and port.link_layer == "InfiniBand":
            yield (
                name,
                "in the state INIT: it waits for a subnet manager",
                "start a subnet manager (opensm), or connect it to the others' network",
                "fault" if active else "risk",
            )
        elif port.state_name in (_INIT, _DOWN):
            some = f"{len(active)} other port{'s' * (len(active) > 1)} of its model"
            yield (
                name,
                f"the port is down ({port.state})" + (f", where {some} are up" if active else ""),
                f"{_CABLE}; nothing, if it is not meant to be used",
                "risk" if 2 * len(active) > len(ports) else "remark",
            )
        elif _ONE_LANE.search(port.rate or "") and port.link_layer == "InfiniBand":
            yield (name, f"it runs at {port.rate}: one lane", _CABLE, "fault")
    rates = {name: rate for name, port in active.items() if (rate := port.gbps)}
    yield from _slower(rates)


def _interfaces(host: Recording, nics: Iterable[Nic]) -> Iterable[_Fault]:
    """Network interfaces of NICs of one model."""
    active = {
        nic.address: f"{nic.name} port {port.number}"
        for nic in host.nics
        for port in nic.ports
        if nic.is_rdma and port.state_name == _ACTIVE and port.link_layer == "Ethernet"
    }
    of_rdma = {nic.address for nic in host.nics if nic.is_rdma}
    every = list(nics)
    up = [nic for nic in every if nic.operstate == "up"]
    for nic in every:
        is_only = all(one.address != nic.address for one in up)
        if nic.operstate == "down" and nic.address in active and is_only:
            yield (
                nic.name,
                f"the interface is down, while {active[nic.address]} over the same Ethernet is"
                " ACTIVE",
                f"ip link set {nic.name} up, with an address, as root",
                "fault",
            )
    speeds = {
        nic.name: nic.speed_mbps / 1000
        for nic in up
        if nic.speed_mbps and nic.address not in of_rdma
    }
    yield from _slower(speeds)
    mtus = {nic.name: nic.mtu for nic in up if nic.mtu}
    for name, mtu in mtus.items():
        if mtu < max(mtus.values()):
            yield (
                name,
                f"its MTU is {mtu}, where others of its model have {max(mtus.values())}",
                f"ip link set {name} mtu {max(mtus.values())}, as root, on all ends and switches",
                "risk",
            )


def _slower(gbps: Mapping[str, float]) -> Iterable[_Fault]:
    """Those below the fastest of their model: a fault where most are faster."""
    most = max(gbps.values(), default=0.0)
    fast = sum(one == most for one in gbps.values())
    for name, one in gbps.items():
        if one < most:
            yield (
                name,
                f"it runs at {one:g} Gb/s, where {fast} other{'s' * (fast > 1)} of its model"
                f" run{'s' * (fast == 1)} at {most:g} Gb/s",
                _CABLE,
                "fault" if 2 * fast > len(gbps) else "risk",
            )


def _sockets(evidence: Evidence, number: int) -> Iterable[Finding]:
    """GPUs whose nearest NIC that is up is at another NUMA node."""
    host = evidence.hosts[number]
    devices = [nic for nic in host.nics if nic.is_rdma and any(map(_may_be_up, nic.ports))]
    if not devices or are_all_beside(host, devices):
        return
    topology, up_at = evidence.topologies[number], {nic.address for nic in devices}
    count = len({nic.address for nic in host.nics if nic.is_rdma and not nic.is_virtual})
    far = []
    for gpu, ways in nearest_nics(host, topology):
        nics = {way.b: topology.by_id[way.b] for way in ways}
        up = [way for way in ways if nics[way.b].address in up_at]
        places = [_numa(host, node.address) for node in (gpu, *nics.values())]
        if up and up[0].kind == "SYS" and None not in places:
            far.append(int(gpu.fact("nvml")))
    if far:
        yield told(
            "nic-far",
            evidence.on(numbered("GPU", far), host),
            "no RDMA device that is up is on the same NUMA node"
            + (": the host has one only" if count == 1 else ""),
            severity="risk" if count > 1 else "remark",
        )


def _may_be_up(port: Port) -> bool:
    return port.state is None or port.state_name == _ACTIVE


def _numa(host: Recording, address: str) -> int | None:
    """The NUMA node of a PCI function, or of the nearest bridge above it that has one."""
    own = [one for one in host.pci if one.address == address]
    above = own + (bridges_above(host, address) or [])[::-1]
    nodes = (one.numa_node for one in above)
    return next((node for node in nodes if node is not None and node >= 0), None)
