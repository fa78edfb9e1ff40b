"""Whether an IOMMU translates addresses where GPUs and NICs reach each other over PCIe."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told
from collbench.machine.discovery.links import states
from collbench.machine.discovery.recording import Recording
from collbench.machine.topology.model import numbered

_OK = 0  # NVML_P2P_STATUS_OK


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        if host.rdma.iommu != "translated" or host.processor.has_hypervisor is not False:
            continue
        users = _users(host)
        if users:
            yield told(
                "iommu",
                evidence.name(host),
                "its IOMMU translates addresses (/sys/kernel/iommu_groups/*/type is not"
                f" identity), and {users}",
            )


def _users(host: Recording) -> str:
    """Who sends from device to device over PCIe; nothing if nobody is known to."""
    linked = {gpu.index for gpu in host.usable_gpus if any(states(gpu).values())}
    peers = {
        end
        for pair in host.pairs
        if pair.read == _OK and not {pair.a, pair.b} <= linked
        for end in (pair.a, pair.b)
    }
    if peers:
        return f"{numbered('GPU', peers)} use peer access over PCIe"
    has_rdma = any(nic.is_rdma for nic in host.nics)
    can_rdma = host.rdma.has_peermem or host.rdma.has_open_driver
    return "NICs reach GPUs by GPUDirect RDMA" if has_rdma and can_rdma else ""
