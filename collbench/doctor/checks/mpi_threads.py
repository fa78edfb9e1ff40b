"""Whether MPI was started for as many threads as several hosts and GPUs need."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need
from collbench.doctor.checks._ranks import alike

TITLE = "MPI's thread level"
NEEDS: tuple[Need, ...] = ("ranks",)
NO_EXPERIMENT = "ranks of one host without GPUs, which could be compared, need no other level"
EXPLANATION = """
A program tells MPI at the start how many of its threads call it: single, funneled, serialized or
multiple. With `multiple` any thread may call at any time, and the library takes locks. Programs
that send data of GPUs by MPI need it, because a thread of their own moves the data while the main
thread goes on; so do programs that look for lost ranks in the background. With a lower level these
threads must not call: data is moved later, by the main thread, or not at all.

The check reads the level that the library granted (`MPI_Query_thread`), which may be lower than
what was asked for. It says something where there are several hosts or GPUs, and the level is not
`multiple`. On one host without GPUs a lower level is right, and spares the locks.

Python programs set the level by `MPI4PY_RC_THREAD_LEVEL`: unset it, because `multiple` is the
default. C programs call `MPI_Init_thread` with `MPI_THREAD_MULTIPLE`. A library that was built
without threads grants no more than it can: Open MPI before 3 needs `--enable-mpi-thread-multiple`.
To be sure, run `mpirun -n 2 python -c 'from mpi4py import MPI; print(MPI.Query_thread())'`, which
prints 3.
"""

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
