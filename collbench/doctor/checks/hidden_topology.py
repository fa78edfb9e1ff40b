"""Whether a hypervisor hides how GPUs and NICs are joined."""

from collections.abc import Iterable

from collbench.core.text import counted
from collbench.doctor.checks._siblings import bridges_above
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen
from collbench.machine.discovery.recording import Recording

NEEDS: tuple[Need, ...] = ("gpus",)


def find(evidence: Evidence) -> Iterable[Seen]:
    for host in evidence.hosts:
        if host.system is not None and host.system.is_wsl:
            yield seen("wsl", evidence.name(host))
        elif host.processor.has_hypervisor and _is_flat(host):
            numa = f" and {counted(len(host.numa), 'NUMA node')}" if host.numa else ""
            yield seen("flat", evidence.name(host), numa=numa)


def _is_flat(host: Recording) -> bool:
    """No bridge is above any of several GPUs, or of a GPU beside an RDMA device."""
    above = [bridges_above(host, gpu.address or "") for gpu in host.usable_gpus]
    has_others = len(above) > 1 or any(nic.is_rdma for nic in host.nics)
    return has_others and bool(above) and all(one == [] for one in above)
