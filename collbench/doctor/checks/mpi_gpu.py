"""Whether MPI takes memory of GPUs."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._ranks import alike


def find(evidence: Evidence) -> Iterable[Finding]:
    for subject, host, processes, has_cuda in alike(evidence, lambda one: one.mpi_has_cuda):
        if host.gpus and not has_cuda:
            library = processes[0].mpi_library or "MPI"
            yield told("mpi-gpu", subject, f"{' '.join(library.split())} takes no memory of GPUs")
