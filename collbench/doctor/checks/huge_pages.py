"""Whether shared memory may have huge pages."""

from collections.abc import Iterable

from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen

NEEDS: tuple[Need, ...] = ("system",)


def find(evidence: Evidence) -> Iterable[Seen]:
    for name, _, system in evidence.systems():
        chosen = system.shm_huge
        if chosen in ("never", "deny"):
            yield seen("small", name, chosen=chosen)
