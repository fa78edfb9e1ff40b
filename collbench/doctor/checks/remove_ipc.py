"""Whether logind removes shared memory while a job still uses it."""

from collections.abc import Iterable

from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen

NEEDS: tuple[Need, ...] = ("system",)


def find(evidence: Evidence) -> Iterable[Seen]:
    for name, _, system in evidence.systems():
        if system.removes_ipc:
            yield seen("on", name)
