"""NICs that cannot reach the memory of GPUs, or only through the processor."""

from dataclasses import replace

from collbench.machine.discovery.recording import RdmaSupport
from tests.doctor.plants.peer_access import A_CARD, denied
from tests.support.evidence import machine, planted

NEITHER = RdmaSupport(has_peermem=False, has_open_driver=False)
PLANTS = [
    planted("no module", replace(machine("hgx_h100"), rdma=NEITHER)).finds(
        "this host", "GPUs 0-7 and 8 RDMA devices, but neither nvidia_peermem nor"
    ),
    planted(
        "no module on one of two hosts",
        replace(machine("hgx_h100", "node1"), rdma=RdmaSupport(has_peermem=True)),
        replace(machine("hgx_h100", "node2"), rdma=NEITHER),
    ).finds("node2", "neither nvidia_peermem nor", "fault"),
    planted(
        "a NIC at a root port of its own",
        replace(
            denied(A_CARD, lambda a, b: False),
            pci=tuple(
                replace(one, path="devices/pci0000:16/0000:30:00.0", numa_node=0)
                if one.address == "0000:30:00.0"
                else one
                for one in A_CARD.pci
            ),
        ),
    ).finds("GPUs 0-3", "through the CPU's host bridge"),
]
