"""Ranks on too few cores."""

from dataclasses import replace

from tests.support.evidence import PROCESS, machine, planted, with_ranks

PLANTS = [
    planted("all ranks on one core", with_ranks(machine("cpus"), 4, cpulist="3")).finds(
        "ranks 0-3", "4 ranks share core 3"
    ),
    planted(
        "one rank on a core of its own",
        with_ranks(machine("dgx1v"), 8, cpulist=lambda rank: "7" if rank == 2 else "0-79"),
    ).finds("rank 2", "is bound to one core (7)"),
    planted(
        "a core for each rank, without GPUs", with_ranks(machine("cpus"), 4, cpulist=str)
    ).finds("ranks 0-3", "each is bound to one core (0,1,2,3)", "remark"),
    planted("taskset", replace(machine("cpus"), processes=(replace(PROCESS, cpulist="0"),))).finds(
        "this process", "is bound to one core (0)"
    ),
]
