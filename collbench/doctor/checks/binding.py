"""Whether ranks are bound to too few cores, or several to the same one."""

from collections.abc import Iterable, Sequence

from collbench.bench.experiment import Arm, Experiment
from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._ranks import CPU_SIZES, MOST_RANKS, alike, named
from collbench.machine.discovery.recording import ProcessRecord, Recording
from collbench.machine.topology.model import members, spans


def find(evidence: Evidence) -> Iterable[Finding]:
    alone: dict[int, list[ProcessRecord]] = {}
    for subject, host, ranks, cpulist in alike(evidence, lambda one: one.cpulist or None):
        own, cores = len(members(cpulist)), len(members(host.cpus or ""))
        if len(ranks) > own > 0 and own < cores and len(host.processes) > 1:
            yield told(
                "binding-shared",
                subject,
                f"{len(ranks)} ranks share core{'s' * (own > 1)} {cpulist} of {host.cpus}",
            )
        elif own == 1 and cores > 1:
            alone.setdefault(id(host), []).extend(ranks)
    for host in evidence.hosts:
        if id(host) in alone:
            yield _of_one_core(evidence, host, alone[id(host)])


def _of_one_core(evidence: Evidence, host: Recording, ranks: Sequence[ProcessRecord]) -> Finding:
    """Ranks with a core each. Without GPUs that is how ranks of one thread are best bound."""
    lists = ",".join(str(one.cpulist) for one in ranks)
    is_several = len(ranks) > 1
    return told(
        "binding-one-core",
        named(evidence, host, ranks),
        f"{'each is' if is_several else 'is'} bound to one core ({lists}) of {host.cpus}",
        severity="risk" if host.gpus or len(host.processes) == 1 else "remark",
    )


def experiment(finding: Finding, evidence: Evidence) -> Experiment | str:
    for subject, host, ranks, cpulist in alike(evidence, lambda one: one.cpulist or None):
        if subject == finding.subject and host is evidence.hosts[0]:
            cores = members(host.cpus or "")
            return Experiment(
                backend="cpu",
                ranks=max(2, min(len(ranks), len(cores), MOST_RANKS)),
                sizes=CPU_SIZES,
                found=Arm(cpulist=cpulist),
                changed=Arm(cpulist=spans(cores)),
            )
    return "what it costs depends on the threads of the program"
