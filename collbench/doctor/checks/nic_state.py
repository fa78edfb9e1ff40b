"""Whether NICs are up, as fast as their siblings, and on the sockets of the GPUs."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from collbench.core.text import counted
from collbench.doctor.checks._siblings import are_all_beside, bridges_above, nearest_nics, numbered
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, Severity, seen
from collbench.machine.discovery.recording import Nic, Port, Recording

NEEDS: tuple[Need, ...] = ("nics",)

_ACTIVE, _INIT, _DOWN = "ACTIVE", "INIT", "DOWN"
_ONE_LANE = re.compile(r"\(1X \w+\)")


def find(evidence: Evidence) -> Iterable[Seen]:
    for number, host in enumerate(evidence.hosts):
        models = {one.address: (one.vendor, one.device, one.subsystem_device) for one in host.pci}
        groups: dict[object, list[Nic]] = {}
        for nic in host.nics:
            if not nic.is_virtual and nic.address in models:
                groups.setdefault((models[nic.address], nic.is_rdma), []).append(nic)
        for nics in groups.values():
            faults = _ports(nics) if nics[0].is_rdma else _interfaces(host, nics)
            for one in faults:
                yield replace(one, subject=evidence.on(one.subject, host))
        yield from _sockets(evidence, number)


def _ports(nics: Iterable[Nic]) -> Iterable[Seen]:
    """RDMA ports of NICs of one model."""
    ports = {f"{nic.name} port {port.number}": port for nic in nics for port in nic.ports}
    active = {name: port for name, port in ports.items() if port.state_name == _ACTIVE}
    for name, port in ports.items():
        if port.state_name == _INIT and port.link_layer == "InfiniBand":
            yield seen("init", name, "fault" if active else "risk")
        elif port.state_name in (_INIT, _DOWN):
            some = f"{counted(len(active), 'other port')} of its model"
            yield seen(
                "down",
                name,
                "risk" if 2 * len(active) > len(ports) else "remark",
                state=port.state,
                others=f", where {some} are up" if active else "",
            )
        elif _ONE_LANE.search(port.rate or "") and port.link_layer == "InfiniBand":
            yield seen("one-lane", name, rate=port.rate)
    rates = {name: rate for name, port in active.items() if (rate := port.gbps)}
    yield from _slower(rates)


def _interfaces(host: Recording, nics: Iterable[Nic]) -> Iterable[Seen]:
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
            yield seen("interface", nic.name, port=active[nic.address], name=nic.name)
    speeds = {
        nic.name: nic.speed_mbps / 1000
        for nic in up
        if nic.speed_mbps and nic.address not in of_rdma
    }
    yield from _slower(speeds)
    mtus = {nic.name: nic.mtu for nic in up if nic.mtu}
    for name, mtu in mtus.items():
        if mtu < max(mtus.values()):
            yield seen("mtu", name, name=name, mtu=mtu, most=max(mtus.values()))


def _slower(gbps: Mapping[str, float]) -> Iterable[Seen]:
    """Those below the fastest of their model: a fault where most are faster."""
    most = max(gbps.values(), default=0.0)
    fast = sum(one == most for one in gbps.values())
    for name, one in gbps.items():
        if one < most:
            others = f"{counted(fast, 'other')} of its model run{'s' * (fast == 1)}"
            severity: Severity = "fault" if 2 * fast > len(gbps) else "risk"
            yield seen("slower", name, severity, gbps=one, others=others, most=most)


def _sockets(evidence: Evidence, number: int) -> Iterable[Seen]:
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
        yield seen(
            "far",
            evidence.on(numbered("GPU", far), host),
            "risk" if count > 1 else "remark",
            only=": the host has one only" if count == 1 else "",
        )


def _may_be_up(port: Port) -> bool:
    return port.state is None or port.state_name == _ACTIVE


def _numa(host: Recording, address: str) -> int | None:
    """The NUMA node of a PCI function, or of the nearest bridge above it that has one."""
    own = [one for one in host.pci if one.address == address]
    above = own + (bridges_above(host, address) or [])[::-1]
    nodes = (one.numa_node for one in above)
    return next((node for node in nodes if node is not None and node >= 0), None)
