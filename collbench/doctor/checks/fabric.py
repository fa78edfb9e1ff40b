"""Whether the NVLink fabric (NVSwitches, several hosts) is complete and healthy."""

from collections.abc import Iterable

from collbench.doctor.checks._siblings import difference, named, numbered
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen
from collbench.machine.discovery.links import has_switch
from collbench.machine.discovery.recording import FABRIC_COMPLETED, Fabric, Recording

NEEDS: tuple[Need, ...] = ("gpus",)

# NVML_GPU_FABRIC_STATE_NOT_STARTED, _IN_PROGRESS, FABRIC_COMPLETED
_STATES = {1: "not started", 2: "in progress"}
# NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_*, the value in two bits that is a fault, its kind
_HEALTH = (
    (0, 1, "degraded"),
    (2, 1, "recovering"),
    (4, 1, "unhealthy"),
    (6, 1, "timeout"),
    (12, 2, "unassigned"),
    (14, 2, "disconnected"),
)
_CONFIGURATION_SHIFT, _CONFIGURATION_BITS = 8, 0xF
# NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_*; 0: not supported, 1: none
_CONFIGURATION = {
    2: "another system GUID",
    3: "another serial number of the chassis",
    4: "no partition",
    5: "too few NVLinks",
    6: "firmware of the GPU that does not fit",
    7: "a wrong location",
    8: "an invalid state of the GPU",
}


def find(evidence: Evidence) -> Iterable[Seen]:
    for host in evidence.hosts:
        yield from _of_gpus(evidence, host)
        yield from _cliques(evidence, host)
        yield from _manager(evidence, host)
    yield from _hosts(evidence)


def _of_gpus(evidence: Evidence, host: Recording) -> Iterable[Seen]:
    """Registration and health, those that are equal in one finding."""
    by_fault: dict[tuple[str, str | int], list[int]] = {}
    for gpu in host.usable_gpus:
        if gpu.fabric is not None:
            for fault in _faults(gpu.fabric):
                by_fault.setdefault(fault, []).append(gpu.index)
    for (kind, value), gpus in by_fault.items():
        yield seen(kind, evidence.on(numbered("GPU", gpus), host), value=value)


def _faults(fabric: Fabric) -> Iterable[tuple[str, str | int]]:
    """Kinds of faults, each with its value."""
    if fabric.state in _STATES:
        yield "state", _STATES[fabric.state]
    if fabric.state == FABRIC_COMPLETED and fabric.status:
        yield "failed", fabric.status
    mask = fabric.health_mask or 0
    for shift, value, kind in _HEALTH:
        if mask >> shift & 0b11 == value:
            yield kind, mask
    wrong = mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_BITS
    if wrong > 1:
        what = _CONFIGURATION.get(wrong, f"code {wrong}")
        yield "configuration", f"{what} (health mask {mask:#x})"


def _cliques(evidence: Evidence, host: Recording) -> Iterable[Seen]:
    """GPUs of one host that cannot reach each other."""
    cliques = {gpu.index: gpu.fabric.domain for gpu in host.usable_gpus if gpu.fabric is not None}
    found = difference(cliques)
    for (cluster, clique), gpus in found.odd.items() if found is not None else ():
        subject = evidence.on(numbered("GPU", gpus), host)
        yield seen("clique", subject, clique=clique, cluster=cluster[:8])


def _manager(evidence: Evidence, host: Recording) -> Iterable[Seen]:
    """A machine with NVSwitches whose fabric manager does not run. In racks it runs elsewhere."""
    fabrics = [gpu.fabric for gpu in host.usable_gpus if gpu.fabric is not None]
    is_rack = any((fabric.cluster or "").strip("0") for fabric in fabrics)
    if (
        host.system is None
        or host.system.has_fabric_manager is not False
        or host.processor.has_hypervisor is not False
        or is_rack
        or not has_switch(host)
    ):
        return
    registered = any(fabric.state == FABRIC_COMPLETED for fabric in fabrics)
    but = ", though the GPUs registered with one" if registered else ""
    yield seen("manager", evidence.name(host), "risk" if registered else "fault", but=but)


def _hosts(evidence: Evidence) -> Iterable[Seen]:
    """Hosts of one cluster: their cliques, and the IMEX channels that they need."""
    clusters: dict[str, dict[int, int]] = {}  # cluster -> host -> clique
    for number, host in enumerate(evidence.hosts):
        if host.domain is not None:
            cluster, clique = host.domain
            clusters.setdefault(cluster, {})[number] = clique
    for cliques in clusters.values():
        found = difference(cliques)
        for clique, numbers in found.odd.items() if found is not None else ():
            subject = named([evidence.name(evidence.hosts[number]) for number in numbers])
            yield seen("hosts", subject, clique=clique)
        shared = [n for n, clique in cliques.items() if list(cliques.values()).count(clique) > 1]
        without = [
            host
            for host in map(evidence.hosts.__getitem__, shared)
            if host.system is not None and host.system.imex_channels == 0
        ]
        if without:
            yield seen("imex", named([evidence.name(host) for host in without]))
