"""Whether shared memory may have huge pages."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, _, system in evidence.systems():
        chosen = system.shm_huge
        if chosen in ("never", "deny"):
            yield told(
                "huge-pages", name, f"shared memory has pages of 4 KiB (shmem_enabled is {chosen})"
            )
