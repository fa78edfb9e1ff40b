"""Other processes on the cores."""

from dataclasses import replace

from tests.support.evidence import PROCESS, machine, planted, with_ranks, with_system

PLANTS = [
    planted(
        "a busy machine",
        with_system(with_ranks(machine("dgx1v"), 8), busy_cpus=87.0, busy_cpulist="0-79"),
    ).finds("this host", "other processes use 80.0 of 80 cores"),
    planted(
        "one busy process where ranks are bound",
        with_system(
            with_ranks(machine("cpus"), 4, cpulist="0-3"), busy_cpus=4.0, busy_cpulist="0-3"
        ),
    ).finds(
        "this host", "other processes use 1.0 of 32 cores; busy among those of ours: cores 0-3"
    ),
    planted(
        "beside a single process",
        with_system(
            replace(machine("cpus"), cpus="0-1", processes=(replace(PROCESS, cpulist="0-1"),)),
            busy_cpus=0.9,
            busy_cpulist="1",
        ),
    ).finds("this host", "other processes use 0.9 of 2 cores; busy among those of ours: core 1"),
    planted(
        "elsewhere",
        with_system(
            with_ranks(machine("cpus"), 2, cpulist="0-3"), busy_cpus=9.0, busy_cpulist="8-15"
        ),
    ).finds("this host", "other processes use 8.0 of 32 cores", "remark"),
]
