"""Variables that keep MPI from shared memory or RDMA."""

from tests.support.evidence import machine, planted, with_ranks

_LOCAL = (
    ("OMPI_MCA_btl", "tcp,self", "Open MPI v5.0.11, package: x"),
    ("OMPI_MCA_btl", "^vader", None),
    ("UCX_TLS", "tcp,self", None),
    ("UCX_TLS", "^sm", None),
    ("I_MPI_FABRICS", "ofi", "Intel(R) MPI Library 2021.11"),
    ("I_MPI_SHM", "off", None),
    ("MPIR_CVAR_NOLOCAL", "1", "MPICH Version:      5.0.2"),
    ("MPIR_CVAR_ODD_EVEN_CLIQUES", "1", None),
)
PLANTS = [
    *(
        planted(
            f"{name}={value}",
            with_ranks(machine("cpus"), 4, environment={name: value}, mpi_library=library),
        ).finds("ranks 0-3", f"{name}={value} ")
        for name, value, library in _LOCAL
    ),
    *(
        planted(
            f"{name}={value} beside RDMA",
            with_ranks(machine("hgx_h100", "a"), 8, 0, 16, environment={name: value}),
            with_ranks(machine("hgx_h100", "b"), 8, 8, 16),
        ).finds("ranks 0-7 of a", words)
        for name, value, words in (
            ("FI_PROVIDER", "tcp", "forces TCP"),
            ("UCX_TLS", "self,sm,tcp", "leaves RDMA out"),
        )
    ),
    planted(
        "TCP where there is nothing else",
        with_ranks(machine("cpus"), 4, environment={"FI_PROVIDER": "sockets"}),
    ).finds("ranks 0-3", "FI_PROVIDER=sockets forces TCP", "remark"),
]
