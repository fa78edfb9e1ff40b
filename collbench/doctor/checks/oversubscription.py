"""Whether a host has more ranks than cores."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told
from collbench.machine.topology.model import members


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        ranks, cores = len(host.processes), len(members(host.cpus or ""))
        time = host.system.cgroup_cpus if host.system else None
        if not cores or ranks < 2:
            continue
        if ranks > cores:
            seen = f"{ranks} ranks run on {cores} core{'s' * (cores > 1)}"
        elif time is not None and ranks > time:
            seen = f"{ranks} ranks have {time:g} CPUs' worth of time, as the control group allows"
        else:
            continue
        yield told("oversubscription", evidence.name(host), seen)
