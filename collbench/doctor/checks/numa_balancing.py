"""Whether the kernel moves pages between NUMA nodes while ranks communicate."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, host, system in evidence.systems():
        value = system.numa_balancing
        if value and len(host.numa) > 1:
            yield told(
                "numa-balancing",
                name,
                f"kernel.numa_balancing is {value}, on {len(host.numa)} NUMA nodes",
            )
