"""Control groups that allow less than the machine has."""

from tests.support.evidence import GIB, machine, planted, with_ranks, with_system

PLANTS = [
    planted(
        "a share of the time of all cores",
        with_system(with_ranks(machine("hgx_h100"), 8), cgroup_cpus=16.0),
    ).finds("this host", "16 CPUs' worth of time on 112 cores"),
    planted("memory", with_system(machine("h200_vm"), cgroup_memory_bytes=64 * GIB)).finds(
        "this host", "64G of 512G of memory", "remark"
    ),
    planted(
        "hardly any memory for its ranks",
        with_system(with_ranks(machine("cpus"), 8), cgroup_memory_bytes=4 * GIB),
    ).finds("this host", "4G of 512G of memory"),
]
