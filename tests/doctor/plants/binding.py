"""Ranks on too few cores."""

from dataclasses import replace

from tests.support.evidence import PROCESS, Plant, evidence, machine, with_ranks

PLANTS = [
    Plant(
        name="all ranks on one core",
        evidence=evidence(with_ranks(machine("cpus"), 4, cpulist="3")),
        subject="ranks 0-3",
        words="4 ranks share core 3",
    ),
    Plant(
        name="one rank on a core of its own",
        evidence=evidence(
            with_ranks(machine("dgx1v"), 8, cpulist=lambda rank: "7" if rank == 2 else "0-79")
        ),
        subject="rank 2",
        words="is bound to one core (7)",
    ),
    Plant(
        name="a core for each rank, without GPUs",
        evidence=evidence(with_ranks(machine("cpus"), 4, cpulist=str)),
        subject="ranks 0-3",
        words="each is bound to one core (0,1,2,3)",
        severity="remark",
    ),
    Plant(
        name="taskset",
        evidence=evidence(replace(machine("cpus"), processes=(replace(PROCESS, cpulist="0"),))),
        subject="this process",
        words="is bound to one core (0)",
    ),
]
