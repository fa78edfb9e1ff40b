"""Small limits of locked memory beside RDMA devices."""

from tests.support.evidence import Plant, evidence, machine, with_ranks

PLANTS = [
    Plant(
        name="the limit of old systems",
        evidence=evidence(with_ranks(machine("hgx_h100"), 8, memlock_bytes=64 << 10)),
        subject="ranks 0-7",
        words="may lock 64K of memory, and mlx5_0 is an RDMA device",
        severity="fault",
    ),
    Plant(
        name="the limit of one rank",
        evidence=evidence(
            with_ranks(
                machine("hgx_h100"), 8, memlock_bytes=lambda rank: (256 << 20) if rank == 5 else -1
            )
        ),
        subject="rank 5",
        words="may lock 256M",
    ),
    Plant(
        name="root of a user namespace",
        evidence=evidence(
            with_ranks(
                machine("dgx1v"),
                8,
                memlock_bytes=8 << 20,
                can_lock=True,
                namespaces={"user": "user:[4026532281]"},
            )
        ),
        subject="ranks 0-7",
        words="may lock 8M",
        severity="fault",
    ),
]
