"""Shared memory in small pages."""

from tests.support.evidence import Plant, evidence, machine, with_system

PLANTS = [
    Plant(
        name=word,
        evidence=evidence(with_system(machine("cpus"), shm_huge=word)),
        words=f"shmem_enabled is {word}",
        severity="remark",
    )
    for word in ("never", "deny")
]
