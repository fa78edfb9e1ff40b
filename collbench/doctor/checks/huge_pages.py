"""Whether shared memory may have huge pages."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need

TITLE = "Huge pages of shared memory"
NEEDS: tuple[Need, ...] = ("system",)
NO_EXPERIMENT = "only root can change the pages of shared memory"
EXPLANATION = """
The kernel hands out memory in pages of 4 KiB. A processor remembers the places of one or two
thousand pages; beyond that it looks each one up in memory, which costs time in every access. In
huge pages of 2 MiB the same number covers gigabytes, and the first access to new memory is much
cheaper as well, because there are 512 times fewer pages to clear and to enter. Shared memory, which
ranks of a host use for their messages, has huge pages only where the administrator allows it.

The check reads the chosen word of `/sys/kernel/mm/transparent_hugepage/shmem_enabled`. `never`, the
kernel's default, and `deny` mean small pages. It is a remark, because copies of large blocks, as in
collectives, hardly differ: the processor fetches what follows ahead of time. What does differ is
the start, when buffers of gigabytes are touched for the first time. The number of bytes in huge
pages is `ShmemHugePages` in `/proc/meminfo`.

As root, `echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled` allows them to programs
that ask for them, and `within_size` or `always` to all. The setting is for the mappings of
anonymous shared memory; files in `/dev/shm` need the mount option `huge=advise` besides. To be
sure, measure a large collective of CPU ranks before and after: `collbench compare`.
"""


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
