"""Whether the kernel moves pages between NUMA nodes while ranks communicate."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need

NEEDS: tuple[Need, ...] = ("system",)


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, host, system in evidence.systems():
        value = system.numa_balancing
        if value and len(host.numa) > 1:
            yield Finding(
                subject=name,
                seen=f"kernel.numa_balancing is {value}, on {len(host.numa)} NUMA nodes",
                why="The kernel takes pages away to see who uses them: now and then a message"
                " waits for milliseconds.",
                change="sysctl kernel.numa_balancing=0, as root; or numactl --membind in front of"
                " the program",
                risk="Programs that are not bound to a node may lose speed.",
            )
