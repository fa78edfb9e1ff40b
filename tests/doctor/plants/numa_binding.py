"""Ranks and memory on the other socket than their GPU."""

from tests.support.evidence import machine, planted, with_ranks

SOCKETS = ("0-55", "56-111")
PLANTS = [
    planted(
        "one rank on the other socket",
        with_ranks(machine("hgx_h100"), 8, cpulist=lambda rank: SOCKETS[rank > 3 or rank == 2]),
    ).finds("rank 2", "runs on cores 56-111 of node 1, GPU 2 is at node 0"),
    planted(
        "all ranks on the first socket, each with one GPU",
        with_ranks(machine("hgx_h100"), 8, cpulist=SOCKETS[0], cuda=lambda rank: (rank,)),
    ).finds("rank 6", "GPU 6 is at node 1"),
    planted(
        "another node of the same socket",
        with_ranks(machine("dgx_a100"), 8, cpulist=lambda rank: ("0-63", "64-79")[rank > 3]),
    ).finds("rank 4", "GPU 4 is at node 7 of the same socket", "remark"),
    planted(
        "memory of the other node", with_ranks(machine("cpus"), 2, cpulist="0-15", mems="1")
    ).finds("rank 1", "may take memory from node 1 alone"),
]
