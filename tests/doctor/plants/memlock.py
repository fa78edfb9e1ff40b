"""Small limits of locked memory beside RDMA devices."""

from tests.support.evidence import machine, planted, with_ranks

PLANTS = [
    planted(
        "the limit of old systems", with_ranks(machine("hgx_h100"), 8, memlock_bytes=64 << 10)
    ).finds("ranks 0-7", "may lock 64K of memory, and mlx5_0 is an RDMA device", "fault"),
    planted(
        "the limit of one rank",
        with_ranks(
            machine("hgx_h100"), 8, memlock_bytes=lambda rank: (256 << 20) if rank == 5 else -1
        ),
    ).finds("rank 5", "may lock 256M"),
    planted(
        "root of a user namespace",
        with_ranks(
            machine("dgx1v"),
            8,
            memlock_bytes=8 << 20,
            can_lock=True,
            namespaces={"user": "user:[4026532281]"},
        ),
    ).finds("ranks 0-7", "may lock 8M", "fault"),
]
