"""Whether MPI was started for as many threads as several hosts and GPUs need."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need
from collbench.doctor.checks._ranks import alike

NEEDS: tuple[Need, ...] = ("ranks",)

_LEVELS = ("single", "funneled", "serialized", "multiple")


def find(evidence: Evidence) -> Iterable[Finding]:
    for subject, host, _, level in alike(evidence, lambda one: one.mpi_thread_level):
        if not 0 <= level < len(_LEVELS) - 1 or not (len(evidence.hosts) > 1 or host.gpus):
            continue
        yield Finding(
            subject=subject,
            seen=f"MPI's thread level is {_LEVELS[level]}",
            why="A thread in the background cannot call MPI: data of GPUs and of other hosts moves"
            " later, and lost ranks are not noticed.",
            change="unset MPI4PY_RC_THREAD_LEVEL, or MPI_Init_thread with MPI_THREAD_MULTIPLE",
            risk="MPI then takes locks, which small messages feel.",
        )
