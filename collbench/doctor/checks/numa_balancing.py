"""Whether the kernel moves pages between NUMA nodes while ranks communicate."""

from collections.abc import Iterable

from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen

NEEDS: tuple[Need, ...] = ("system",)


def find(evidence: Evidence) -> Iterable[Seen]:
    for name, host, system in evidence.systems():
        value = system.numa_balancing
        if value and len(host.numa) > 1:
            yield seen("on", name, value=value, nodes=len(host.numa))
