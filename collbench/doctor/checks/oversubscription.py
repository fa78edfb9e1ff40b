"""Whether a host has more ranks than cores."""

from collections.abc import Iterable

from collbench.core.text import counted
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen
from collbench.machine.topology.model import members

NEEDS: tuple[Need, ...] = ("ranks",)


def find(evidence: Evidence) -> Iterable[Seen]:
    for host in evidence.hosts:
        ranks, cores = len(host.processes), len(members(host.cpus or ""))
        time = host.system.cgroup_cpus if host.system else None
        if not cores or ranks < 2:
            continue
        if ranks > cores:
            yield seen("cores", evidence.name(host), ranks=ranks, cores=counted(cores, "core"))
        elif time is not None and ranks > time:
            yield seen("time", evidence.name(host), ranks=ranks, time=time)
