"""An IOMMU that translates."""

from dataclasses import replace

from collbench.machine.discovery.recording import RdmaSupport
from tests.doctor.plants.peer_access import A_CARD, denied
from tests.support.evidence import machine, planted

PLANTS = [
    planted(
        "peer access over PCIe",
        replace(denied(A_CARD, lambda a, b: False), rdma=RdmaSupport(iommu="translated")),
    ).finds("this host", "GPUs 0-7 use peer access over PCIe"),
    planted(
        "GPUDirect RDMA",
        replace(machine("hgx_h100"), rdma=RdmaSupport(iommu="translated", has_open_driver=True)),
    ).finds("this host", "NICs reach GPUs by GPUDirect RDMA"),
]
