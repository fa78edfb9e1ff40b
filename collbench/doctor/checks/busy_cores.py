"""Whether other processes use the cores that ranks need."""

from collections.abc import Iterable

from collbench.core.text import counted
from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._ranks import cores_of
from collbench.machine.topology.model import members, numbered

_LEAST = 0.5  # cores' worth of time that is worth a word
_SHARE = 0.1  # of the cores


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, host, system in evidence.systems():
        cores = cores_of(host)
        everywhere = members(host.cpus) if host.cpus else cores
        if system.busy_cpus is None or not cores:
            continue
        # while one rank records, the others wait for it, which takes a core each
        foreign = system.busy_cpus - (len(host.processes) - 1)
        busy = cores.intersection(members(system.busy_cpulist or ""))
        within = min(foreign, len(busy)) if system.busy_cpulist is not None else foreign
        needed = max(2, len(host.processes))
        if within >= _LEAST and len(cores) - within < min(needed, len(cores)):
            is_risk = True
        elif foreign >= max(_LEAST, _SHARE * len(everywhere)):
            is_risk = False
        else:
            continue
        is_shown = busy and is_risk
        where = f"; busy among those of ours: {numbered('core', busy)}" if is_shown else ""
        yield told(
            "busy-cores",
            name,
            f"other processes use {foreign:.1f} of {counted(len(everywhere), 'core')}{where}",
            severity="risk" if is_risk else "remark",
        )
