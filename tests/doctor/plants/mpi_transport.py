"""Variables that keep MPI from shared memory or RDMA."""

from tests.support.evidence import Plant, evidence, machine, with_ranks

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
        Plant(
            name=f"{name}={value}",
            evidence=evidence(
                with_ranks(machine("cpus"), 4, environment={name: value}, mpi_library=library)
            ),
            subject="ranks 0-3",
            words=f"{name}={value} ",
        )
        for name, value, library in _LOCAL
    ),
    *(
        Plant(
            name=f"{name}={value} beside RDMA",
            evidence=evidence(
                with_ranks(machine("hgx_h100", "a"), 8, 0, 16, environment={name: value}),
                with_ranks(machine("hgx_h100", "b"), 8, 8, 16),
            ),
            subject="ranks 0-7 of a",
            words=words,
        )
        for name, value, words in (
            ("FI_PROVIDER", "tcp", "forces TCP"),
            ("UCX_TLS", "self,sm,tcp", "leaves RDMA out"),
        )
    ),
    Plant(
        name="TCP where there is nothing else",
        evidence=evidence(with_ranks(machine("cpus"), 4, environment={"FI_PROVIDER": "sockets"})),
        subject="ranks 0-3",
        words="FI_PROVIDER=sockets forces TCP",
        severity="remark",
    ),
]
