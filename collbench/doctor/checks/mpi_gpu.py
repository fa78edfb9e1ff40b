"""Whether MPI takes memory of GPUs."""

from collections.abc import Iterable

from collbench.doctor.checks._ranks import alike
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen

NEEDS: tuple[Need, ...] = ("gpus", "ranks")


def find(evidence: Evidence) -> Iterable[Seen]:
    for subject, host, processes, has_cuda in alike(evidence, lambda one: one.mpi_has_cuda):
        if host.gpus and not has_cuda:
            library = processes[0].mpi_library or "MPI"
            yield seen("without", subject, library=" ".join(library.split()))
