"""Small and full file systems for shared memory."""

from tests.support.evidence import GIB, Plant, evidence, machine, with_ranks, with_system

PLANTS = [
    Plant(
        name="Docker's default",
        evidence=evidence(
            with_system(machine("dgx1v"), shm_bytes=64 << 20, shm_free_bytes=60 << 20)
        ),
        words="/dev/shm is small: 60M of 64M are free",
        severity="fault",
    ),
    Plant(
        name="full",
        evidence=evidence(with_system(machine("dgx1v"), shm_free_bytes=1 * GIB)),
        words="/dev/shm is in use",
    ),
    Plant(
        name="full to the last",
        evidence=evidence(with_system(machine("dgx1v"), shm_free_bytes=0)),
        words="/dev/shm is in use: 0 of 256G are free",
        severity="fault",
    ),
    Plant(
        name="none",
        evidence=evidence(
            with_system(
                machine("cpus"),
                shm_bytes=None,
                shm_free_bytes=None,
                unknown={"shm_bytes": "No such file or directory"},
            )
        ),
        words="there is no /dev/shm",
        severity="fault",
    ),
    Plant(
        name="small on one of two hosts",
        severity="fault",
        evidence=evidence(
            with_ranks(machine("hgx_h100", "node1"), 8, 0, 16),
            with_ranks(
                with_system(machine("hgx_h100", "node2"), shm_bytes=0, shm_free_bytes=0), 8, 8, 16
            ),
        ),
        subject="node2",
        words="0 of 0",
    ),
]
