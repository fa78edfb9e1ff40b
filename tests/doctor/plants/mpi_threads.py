"""MPI for fewer threads."""

from tests.support.evidence import machine, planted, with_ranks

PLANTS = [
    planted(
        "two hosts",
        with_ranks(machine("cpus", "a"), 4, 0, 8, mpi_thread_level=1),
        with_ranks(machine("cpus", "b"), 4, 4, 8, mpi_thread_level=3),
    ).finds("ranks 0-3 of a", "thread level is funneled"),
    planted("GPUs", with_ranks(machine("dgx1v"), 8, mpi_thread_level=2)).finds(
        "ranks 0-7", "thread level is serialized"
    ),
]
