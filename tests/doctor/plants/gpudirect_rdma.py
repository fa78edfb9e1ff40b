"""NICs that cannot reach the memory of GPUs, or only through the processor."""

from dataclasses import replace

from collbench.machine.discovery.recording import RdmaSupport
from tests.doctor.plants.peer_access import A_CARD, denied
from tests.support.evidence import Plant, evidence, machine

NEITHER = RdmaSupport(has_peermem=False, has_open_driver=False)
PLANTS = [
    Plant(
        name="no module",
        evidence=evidence(replace(machine("hgx_h100"), rdma=NEITHER)),
        words="GPUs 0-7 and 8 RDMA devices, but neither nvidia_peermem nor",
    ),
    Plant(
        name="no module on one of two hosts",
        evidence=evidence(
            replace(machine("hgx_h100", "node1"), rdma=RdmaSupport(has_peermem=True)),
            replace(machine("hgx_h100", "node2"), rdma=NEITHER),
        ),
        subject="node2",
        words="neither nvidia_peermem nor",
        severity="fault",
    ),
    Plant(
        name="a NIC at a root port of its own",
        evidence=evidence(
            replace(
                denied(A_CARD, lambda a, b: False),
                pci=tuple(
                    replace(one, path="devices/pci0000:16/0000:30:00.0", numa_node=0)
                    if one.address == "0000:30:00.0"
                    else one
                    for one in A_CARD.pci
                ),
            )
        ),
        subject="GPUs 0-3",
        words="through the CPU's host bridge",
    ),
]
