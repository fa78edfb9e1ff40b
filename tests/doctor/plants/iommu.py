"""An IOMMU that translates."""

from dataclasses import replace

from collbench.machine.discovery.recording import RdmaSupport
from tests.doctor.plants.peer_access import A_CARD, denied
from tests.support.evidence import Plant, evidence, machine

PLANTS = [
    Plant(
        name="peer access over PCIe",
        evidence=evidence(
            replace(denied(A_CARD, lambda a, b: False), rdma=RdmaSupport(iommu="translated"))
        ),
        words="GPUs 0-7 use peer access over PCIe",
    ),
    Plant(
        name="GPUDirect RDMA",
        evidence=evidence(
            replace(machine("hgx_h100"), rdma=RdmaSupport(iommu="translated", has_open_driver=True))
        ),
        words="NICs reach GPUs by GPUDirect RDMA",
    ),
]
