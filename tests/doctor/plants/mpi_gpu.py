"""An MPI without CUDA."""

from tests.support.evidence import Plant, evidence, machine, with_ranks

PLANTS = [
    Plant(
        name="pip's MPICH",
        evidence=evidence(
            with_ranks(
                machine("dgx1v"), 8, mpi_library="MPICH Version:      5.0.2", mpi_has_cuda=False
            )
        ),
        subject="ranks 0-7",
        words="MPICH Version: 5.0.2 takes no memory of GPUs",
        severity="remark",
    )
]
