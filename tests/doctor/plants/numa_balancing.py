"""Pages that are moved between nodes."""

from tests.support.evidence import Plant, evidence, machine, with_system

PLANTS = [
    Plant(
        name="on two nodes",
        evidence=evidence(with_system(machine("hgx_h100"), numa_balancing=1)),
        words="kernel.numa_balancing is 1, on 2 NUMA nodes",
    )
]
