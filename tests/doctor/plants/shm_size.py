"""Small and full file systems for shared memory."""

from tests.support.evidence import GIB, machine, planted, with_ranks, with_system

PLANTS = [
    planted(
        "Docker's default",
        with_system(machine("dgx1v"), shm_bytes=64 << 20, shm_free_bytes=60 << 20),
    ).finds("this host", "/dev/shm is small: 60M of 64M are free", "fault"),
    planted("full", with_system(machine("dgx1v"), shm_free_bytes=1 * GIB)).finds(
        "this host", "/dev/shm is in use"
    ),
    planted("full to the last", with_system(machine("dgx1v"), shm_free_bytes=0)).finds(
        "this host", "/dev/shm is in use: 0 of 256G are free", "fault"
    ),
    planted(
        "none",
        with_system(
            machine("cpus"),
            shm_bytes=None,
            shm_free_bytes=None,
            unknown={"shm_bytes": "No such file or directory"},
        ),
    ).finds("this host", "there is no /dev/shm", "fault"),
    planted(
        "small on one of two hosts",
        with_ranks(machine("hgx_h100", "node1"), 8, 0, 16),
        with_ranks(
            with_system(machine("hgx_h100", "node2"), shm_bytes=0, shm_free_bytes=0), 8, 8, 16
        ),
    ).finds("node2", "0 of 0", "fault"),
]
