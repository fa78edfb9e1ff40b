"""Other processes on the cores."""

from dataclasses import replace

from tests.support.evidence import PROCESS, Plant, evidence, machine, with_ranks, with_system

PLANTS = [
    Plant(
        name="a busy machine",
        evidence=evidence(
            with_system(with_ranks(machine("dgx1v"), 8), busy_cpus=87.0, busy_cpulist="0-79")
        ),
        words="other processes use 80.0 of 80 cores",
    ),
    Plant(
        name="one busy process where ranks are bound",
        evidence=evidence(
            with_system(
                with_ranks(machine("cpus"), 4, cpulist="0-3"), busy_cpus=4.0, busy_cpulist="0-3"
            )
        ),
        words="other processes use 1.0 of 32 cores; busy among those of ours: cores 0-3",
    ),
    Plant(
        name="beside a single process",
        evidence=evidence(
            with_system(
                replace(machine("cpus"), cpus="0-1", processes=(replace(PROCESS, cpulist="0-1"),)),
                busy_cpus=0.9,
                busy_cpulist="1",
            )
        ),
        words="other processes use 0.9 of 2 cores; busy among those of ours: core 1",
    ),
    Plant(
        name="elsewhere",
        evidence=evidence(
            with_system(
                with_ranks(machine("cpus"), 2, cpulist="0-3"), busy_cpus=9.0, busy_cpulist="8-15"
            )
        ),
        words="other processes use 8.0 of 32 cores",
        severity="remark",
    ),
]
