"""Whether a control group allows the ranks less than the machine has."""

from collections.abc import Iterable

from collbench.core.text import counted
from collbench.core.units import format_size
from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._ranks import cores_of

_PER_RANK_BYTES = 1 << 30


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, host, system in evidence.systems():
        cores = len(cores_of(host))
        if system.cgroup_cpus is not None and system.cgroup_cpus < cores:
            yield told(
                "cgroup-time",
                name,
                f"the control group allows {system.cgroup_cpus:g} CPUs' worth of time on"
                f" {counted(cores, 'core')} (cpu.max)",
            )
        limit, memory = system.cgroup_memory_bytes, system.memory_bytes
        if limit is not None and memory is not None and limit < memory:
            is_tight = limit < _PER_RANK_BYTES * max(1, len(host.processes))
            yield told(
                "cgroup-memory",
                name,
                f"the control group allows {format_size(limit >> 20 << 20)} of"
                f" {format_size(memory >> 20 << 20)} of memory (memory.max)",
                severity="risk" if is_tight else "remark",
            )
