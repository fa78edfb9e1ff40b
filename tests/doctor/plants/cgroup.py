"""Control groups that allow less than the machine has."""

from tests.support.evidence import GIB, Plant, evidence, machine, with_ranks, with_system

PLANTS = [
    Plant(
        name="a share of the time of all cores",
        evidence=evidence(with_system(with_ranks(machine("hgx_h100"), 8), cgroup_cpus=16.0)),
        words="16 CPUs' worth of time on 112 cores",
    ),
    Plant(
        name="memory",
        evidence=evidence(with_system(machine("h200_vm"), cgroup_memory_bytes=64 * GIB)),
        words="64G of 512G of memory",
        severity="remark",
    ),
    Plant(
        name="hardly any memory for its ranks",
        evidence=evidence(with_system(with_ranks(machine("cpus"), 8), cgroup_memory_bytes=4 * GIB)),
        words="4G of 512G of memory",
    ),
]
