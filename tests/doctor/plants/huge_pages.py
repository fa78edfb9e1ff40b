"""Shared memory in small pages."""

from tests.support.evidence import machine, planted, with_system

PLANTS = [
    planted(word, with_system(machine("cpus"), shm_huge=word)).finds(
        "this host", f"shmem_enabled is {word}", "remark"
    )
    for word in ("never", "deny")
]
