"""MPI for fewer threads."""

from tests.support.evidence import Plant, evidence, machine, with_ranks

PLANTS = [
    Plant(
        name="two hosts",
        evidence=evidence(
            with_ranks(machine("cpus", "a"), 4, 0, 8, mpi_thread_level=1),
            with_ranks(machine("cpus", "b"), 4, 4, 8, mpi_thread_level=3),
        ),
        subject="ranks 0-3 of a",
        words="thread level is funneled",
    ),
    Plant(
        name="GPUs",
        evidence=evidence(with_ranks(machine("dgx1v"), 8, mpi_thread_level=2)),
        subject="ranks 0-7",
        words="thread level is serialized",
    ),
]
