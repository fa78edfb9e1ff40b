"""Whether a control group allows the ranks less than the machine has."""

from collections.abc import Iterable

from collbench.core.text import counted
from collbench.core.units import format_size
from collbench.doctor.checks._ranks import cores_of
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen

NEEDS: tuple[Need, ...] = ("system",)

_PER_RANK_BYTES = 1 << 30


def find(evidence: Evidence) -> Iterable[Seen]:
    for name, host, system in evidence.systems():
        cores, allowed = len(cores_of(host)), system.cgroup_cpus
        if allowed is not None and allowed < cores:
            yield seen("cpus", name, allowed=allowed, cores=counted(cores, "core"))
        limit, memory = system.cgroup_memory_bytes, system.memory_bytes
        if limit is not None and memory is not None and limit < memory:
            is_tight = limit < _PER_RANK_BYTES * max(1, len(host.processes))
            yield seen(
                "memory",
                name,
                "risk" if is_tight else "remark",
                limit=format_size(limit >> 20 << 20),
                memory=format_size(memory >> 20 << 20),
            )
