"""Whether MPI takes memory of GPUs."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need
from collbench.doctor.checks._ranks import alike

NEEDS: tuple[Need, ...] = ("gpus", "ranks")


def find(evidence: Evidence) -> Iterable[Finding]:
    for subject, host, processes, has_cuda in alike(evidence, lambda one: one.mpi_has_cuda):
        if host.gpus and not has_cuda:
            library = processes[0].mpi_library or "MPI"
            yield Finding(
                subject=subject,
                seen=f"{' '.join(library.split())} takes no memory of GPUs",
                why="Programs that send GPU data by MPI must copy it to the host and back.",
                change="load an MPI that was built with CUDA, and give it to mpi4py by"
                " MPI4PY_LIBMPI",
                severity="remark",
            )
