"""Whether MPI was started for as many threads as several hosts and GPUs need."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._ranks import alike

_LEVELS = ("single", "funneled", "serialized", "multiple")


def find(evidence: Evidence) -> Iterable[Finding]:
    for subject, host, _, level in alike(evidence, lambda one: one.mpi_thread_level):
        if not 0 <= level < len(_LEVELS) - 1 or not (len(evidence.hosts) > 1 or host.gpus):
            continue
        yield told("mpi-threads", subject, f"MPI's thread level is {_LEVELS[level]}")
