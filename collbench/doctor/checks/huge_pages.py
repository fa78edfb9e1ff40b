"""Whether shared memory may have huge pages."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need

NEEDS: tuple[Need, ...] = ("system",)


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, _, system in evidence.systems():
        chosen = system.shm_huge
        if chosen in ("never", "deny"):
            yield Finding(
                subject=name,
                seen=f"shared memory has pages of 4 KiB (shmem_enabled is {chosen})",
                why="The first access to large buffers takes longer; copies hardly differ.",
                change="echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, as root",
                risk="Huge pages take memory that a program may not use.",
                severity="remark",
            )
