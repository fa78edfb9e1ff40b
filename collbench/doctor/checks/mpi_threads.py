"""Whether MPI was started for as many threads as several hosts and GPUs need."""

from collections.abc import Iterable

from collbench.doctor.checks._ranks import alike
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen

NEEDS: tuple[Need, ...] = ("ranks",)

_LEVELS = ("single", "funneled", "serialized", "multiple")


def find(evidence: Evidence) -> Iterable[Seen]:
    for subject, host, _, level in alike(evidence, lambda one: one.mpi_thread_level):
        if 0 <= level < len(_LEVELS) - 1 and (len(evidence.hosts) > 1 or host.gpus):
            yield seen("level", subject, level=_LEVELS[level])
