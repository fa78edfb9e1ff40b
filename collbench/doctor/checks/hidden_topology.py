"""Whether a hypervisor hides how GPUs and NICs are joined."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._siblings import bridges_above
from collbench.machine.discovery.recording import Recording


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        if host.system is not None and host.system.is_wsl:
            yield told(
                "wsl",
                evidence.name(host),
                "it is the Windows Subsystem for Linux (/proc/version names Microsoft)",
            )
        elif host.processor.has_hypervisor and _is_flat(host):
            numa = f" and {len(host.numa)} NUMA node" + "s" * (len(host.numa) > 1)
            yield told(
                "flat-tree",
                evidence.name(host),
                f"a hypervisor shows a flat PCIe tree{numa if host.numa else ''}: which"
                " switches and sockets GPUs and NICs share is hidden",
            )


def _is_flat(host: Recording) -> bool:
    """No bridge is above any of several GPUs, or of a GPU beside an RDMA device."""
    above = [bridges_above(host, gpu.address or "") for gpu in host.usable_gpus]
    has_others = len(above) > 1 or any(nic.is_rdma for nic in host.nics)
    return has_others and bool(above) and all(one == [] for one in above)
