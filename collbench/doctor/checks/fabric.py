"""Whether the NVLink fabric (NVSwitches, several hosts) is complete and healthy."""

from collections.abc import Iterable

from collbench.core.text import listed
from collbench.doctor.check import Evidence, Finding, Severity, told
from collbench.doctor.checks._siblings import difference
from collbench.machine.discovery.links import has_switch
from collbench.machine.discovery.recording import FABRIC_COMPLETED, Fabric, Recording
from collbench.machine.topology.model import numbered

# NVML_GPU_FABRIC_STATE_NOT_STARTED, _IN_PROGRESS, FABRIC_COMPLETED
_STATES = {1: "not started", 2: "in progress"}
# NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_*, the value in two bits that is a fault, what it means
_HEALTH: tuple[tuple[int, int, str, Severity], ...] = (
    (0, 1, "its NVLinks have a reduced rate (DEGRADED_BW)", "fault"),
    (2, 1, "its routes are being recovered (ROUTE_RECOVERY)", "fault"),
    (4, 1, "its routes do not work (ROUTE_UNHEALTHY)", "fault"),
    (6, 1, "memory at the other end does not answer (ACCESS_TIMEOUT_RECOVERY)", "fault"),
    (12, 2, "it belongs to no partition (PARTITION_ASSIGNED is false)", "risk"),
    (14, 2, "it lost the global fabric manager (GFM_STATE is disconnected)", "risk"),
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


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        yield from _of_gpus(evidence, host)
        yield from _cliques(evidence, host)
        yield from _manager(evidence, host)
    yield from _hosts(evidence)


def _of_gpus(evidence: Evidence, host: Recording) -> Iterable[Finding]:
    """Registration and health, those that are equal in one finding."""
    by_fault: dict[tuple[str, Severity], list[int]] = {}
    for gpu in host.usable_gpus:
        if gpu.fabric is not None:
            for fault in _faults(gpu.fabric):
                by_fault.setdefault(fault, []).append(gpu.index)
    for (seen, severity), gpus in by_fault.items():
        yield told(
            "fabric-state", evidence.on(numbered("GPU", gpus), host), seen, severity=severity
        )


def _faults(fabric: Fabric) -> Iterable[tuple[str, Severity]]:
    if fabric.state in _STATES:
        yield f"its registration with the NVLink fabric is {_STATES[fabric.state]}", "fault"
    if fabric.state == FABRIC_COMPLETED and fabric.status:
        yield f"its registration with the NVLink fabric failed: NVML error {fabric.status}", "fault"
    mask = fabric.health_mask or 0
    for shift, value, meaning, severity in _HEALTH:
        if mask >> shift & 0b11 == value:
            yield f"{meaning}: health mask {mask:#x}", severity
    wrong = mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_BITS
    if wrong > 1:
        what = _CONFIGURATION.get(wrong, f"code {wrong}")
        yield f"its fabric is configured wrongly: {what} (health mask {mask:#x})", "fault"


def _cliques(evidence: Evidence, host: Recording) -> Iterable[Finding]:
    """GPUs of one host that cannot reach each other."""
    cliques = {gpu.index: gpu.fabric.domain for gpu in host.usable_gpus if gpu.fabric is not None}
    found = difference(cliques)
    for (cluster, clique), gpus in found.odd.items() if found is not None else ():
        yield told(
            "clique-of-gpus",
            evidence.on(numbered("GPU", gpus), host),
            f"in clique {clique} of cluster {cluster[:8]}, where other GPUs of this"
            " host are elsewhere",
        )


def _manager(evidence: Evidence, host: Recording) -> Iterable[Finding]:
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
    yield told(
        "fabric-manager",
        evidence.name(host),
        "the NVLinks lead to NVSwitches, and no fabric manager runs"
        + (", though the GPUs registered with one" if registered else ""),
        severity="risk" if registered else "fault",
    )


def _hosts(evidence: Evidence) -> Iterable[Finding]:
    """Hosts of one cluster: their cliques, and the IMEX channels that they need."""
    clusters: dict[str, dict[int, int]] = {}  # cluster -> host -> clique
    for number, host in enumerate(evidence.hosts):
        if host.domain is not None:
            cluster, clique = host.domain
            clusters.setdefault(cluster, {})[number] = clique
    for cliques in clusters.values():
        found = difference(cliques)
        for clique, numbers in found.odd.items() if found is not None else ():
            yield told(
                "clique-of-hosts",
                listed([evidence.name(evidence.hosts[number]) for number in numbers]),
                f"its GPUs are in clique {clique}, those of other hosts of the cluster in"
                " another one",
            )
        shared = [n for n, clique in cliques.items() if list(cliques.values()).count(clique) > 1]
        without = [
            host
            for host in map(evidence.hosts.__getitem__, shared)
            if host.system is not None and host.system.imex_channels == 0
        ]
        if without:
            yield told(
                "imex",
                listed([evidence.name(host) for host in without]),
                "its GPUs share an NVLink clique with other hosts, and there is no IMEX"
                " channel in /dev/nvidia-caps-imex-channels",
            )
