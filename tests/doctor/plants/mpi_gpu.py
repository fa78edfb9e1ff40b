"""An MPI without CUDA."""

from tests.support.evidence import machine, planted, with_ranks

PLANTS = [
    planted(
        "pip's MPICH",
        with_ranks(
            machine("dgx1v"), 8, mpi_library="MPICH Version:      5.0.2", mpi_has_cuda=False
        ),
    ).finds("ranks 0-7", "MPICH Version: 5.0.2 takes no memory of GPUs", "remark")
]
