"""Pages that are moved between nodes."""

from tests.support.evidence import machine, planted, with_system

PLANTS = [
    planted("on two nodes", with_system(machine("hgx_h100"), numa_balancing=1)).finds(
        "this host", "kernel.numa_balancing is 1, on 2 NUMA nodes"
    )
]
