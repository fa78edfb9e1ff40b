"""Whether a control group allows the ranks less than the machine has."""

from collections.abc import Iterable

from collbench.core.text import counted
from collbench.core.units import format_size
from collbench.doctor.check import Evidence, Finding, Need
from collbench.doctor.checks._ranks import cores_of

TITLE = "Time of cores and memory that control groups allow"
NEEDS: tuple[Need, ...] = ("system",)
NO_EXPERIMENT = "a process cannot leave the limits of its control group"
EXPLANATION = """
A container runs in a control group, which may limit its time of cores (`docker run --cpus`, the
limit `cpu` of Kubernetes) without taking cores away. The processes then see all cores, start as
many threads, and use up their time of a tenth of a second in the first part of it; for the rest all
of them stand still. Ranks that wait for each other do so by looking again and again, which uses the
time up as well. Messages that take microseconds then take tens of milliseconds now and then.

The check reads `cpu.max` of the control groups of the process and of those above it (of version 1
`cpu.cfs_quota_us`), and compares it with the cores that the ranks may run on (`sched_getaffinity`).
Of memory it reads `memory.max`: less than the machine has is only a remark, but less than 1 GiB for
every rank is a risk, because shared memory in `/dev/shm` and the pages of files count as well. A
process beyond the limit is killed.

Give the container cores instead of time: `--cpuset-cpus=0-15`, or in Kubernetes whole cores with
equal requests and limits and the static policy of the CPU manager; leave the limit out otherwise.
To be sure, look at `nr_throttled` and `throttled_usec` in `cpu.stat` of the control group: they
must not grow while the program runs.
"""

_PER_RANK_BYTES = 1 << 30


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, host, system in evidence.systems():
        cores = len(cores_of(host))
        if system.cgroup_cpus is not None and system.cgroup_cpus < cores:
            yield Finding(
                subject=name,
                seen=f"the control group allows {system.cgroup_cpus:g} CPUs' worth of time on"
                f" {counted(cores, 'core')} (cpu.max)",
                why="When the time is used up, all ranks stand still until the next tenth of a"
                " second.",
                change="docker run --cpuset-cpus instead of --cpus; in Kubernetes equal requests"
                " and limits with the static CPU manager, or no limit",
                risk="Without a limit the ranks may take time from other containers.",
            )
        limit, memory = system.cgroup_memory_bytes, system.memory_bytes
        if limit is not None and memory is not None and limit < memory:
            is_tight = limit < _PER_RANK_BYTES * max(1, len(host.processes))
            yield Finding(
                subject=name,
                seen=f"the control group allows {format_size(limit >> 20 << 20)} of"
                f" {format_size(memory >> 20 << 20)} of memory (memory.max)",
                why="Shared memory counts as well; beyond the limit a process is killed.",
                change="docker run --memory, or the limit memory of the container in Kubernetes",
                severity="risk" if is_tight else "remark",
            )
