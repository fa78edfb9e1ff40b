"""Ranks and memory on the other socket than their GPU."""

from tests.support.evidence import Plant, evidence, machine, with_ranks

SOCKETS = ("0-55", "56-111")
PLANTS = [
    Plant(
        name="one rank on the other socket",
        evidence=evidence(
            with_ranks(machine("hgx_h100"), 8, cpulist=lambda rank: SOCKETS[rank > 3 or rank == 2])
        ),
        subject="rank 2",
        words="runs on cores 56-111 of node 1, GPU 2 is at node 0",
    ),
    Plant(
        name="all ranks on the first socket, each with one GPU",
        evidence=evidence(
            with_ranks(machine("hgx_h100"), 8, cpulist=SOCKETS[0], cuda=lambda rank: (rank,))
        ),
        subject="rank 6",
        words="GPU 6 is at node 1",
    ),
    Plant(
        name="another node of the same socket",
        evidence=evidence(
            with_ranks(machine("dgx_a100"), 8, cpulist=lambda rank: ("0-63", "64-79")[rank > 3])
        ),
        subject="rank 4",
        words="GPU 4 is at node 7 of the same socket",
        severity="remark",
    ),
    Plant(
        name="memory of the other node",
        evidence=evidence(with_ranks(machine("cpus"), 2, cpulist="0-15", mems="1")),
        subject="rank 1",
        words="may take memory from node 1 alone",
    ),
]
