"""Whether ranks are bound to too few cores, or several to the same one."""

from collections.abc import Iterable, Sequence

from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.experiment import Arm, Experiment
from collbench.doctor.finding import Finding
from collbench.machine.discovery.recording import ProcessRecord, Recording
from collbench.machine.topology.model import members, spans

TITLE = "Cores that ranks are bound to"
NEEDS: tuple[Need, ...] = ("processes",)
EXPLANATION = """
A rank has a thread that communicates beside the one that computes. Where a launcher, a batch system
or `taskset` binds a rank to one core, both take turns, and every message waits for the next turn.
Two ranks on one core wait for each other all the time. Launchers differ: Open MPI binds each rank
to one core if there are at most two ranks, Slurm's `--cpu-bind` and Kubernetes' CPU manager bind as
they are told.

The check reads the cores that each rank may run on (`sched_getaffinity`) and compares them with
those of the host. Ranks with one core each are only a remark where there is no GPU: programs with
one thread a rank are best bound so. The experiment measures an allreduce of CPU ranks on these
cores and on all cores of the host, in turns.

Start the ranks with `mpirun --bind-to numa` (Open MPI), `-bind-to numa` (MPICH, Intel MPI) or `srun
--cpu-bind=ldoms`, or give each rank several cores (`--cpus-per-task`).
"""

_MOST_RANKS = 8
_SIZES = (1 << 10, 64 << 10, 1 << 20)
_CHANGE = (
    "mpirun --bind-to numa (Open MPI), mpirun -bind-to numa (MPICH), srun --cpu-bind=ldoms, or"
    " leave taskset out"
)


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        cores = len(members(host.cpus or ""))
        alone = []
        for cpulist, ranks in _ranks_of(host).items():
            own = len(members(cpulist))
            if len(ranks) > own and own < cores and len(host.processes) > 1:
                yield Finding(
                    check="binding",
                    subject=_named(evidence, host, ranks),
                    seen=f"{len(ranks)} ranks share core{'s' * (own > 1)} {cpulist} of {host.cpus}",
                    why="Ranks that share a core take turns on it, and every message waits for the"
                    " next turn.",
                    change=_CHANGE,
                )
            elif own == 1 and cores > 1:
                alone += ranks
        if alone:
            yield _of_one_core(evidence, host, alone)


def _of_one_core(evidence: Evidence, host: Recording, ranks: Sequence[ProcessRecord]) -> Finding:
    """Ranks with a core each. Without GPUs that is how ranks of one thread are best bound."""
    lists = ",".join(str(one.cpulist) for one in ranks)
    is_several = len(ranks) > 1
    return Finding(
        check="binding",
        subject=_named(evidence, host, ranks),
        seen=f"{'each is' if is_several else 'is'} bound to one core ({lists}) of {host.cpus}",
        why="A thread that communicates and one that computes take turns on that core.",
        change=_CHANGE,
        risk="Threads may then move between cores, which costs a little where each has its own.",
        severity="risk" if host.gpus or len(host.processes) == 1 else "remark",
    )


def _ranks_of(host: Recording) -> dict[str, list[ProcessRecord]]:
    """The ranks that may run on the same cores, by the list of these."""
    ranks: dict[str, list[ProcessRecord]] = {}
    for process in host.processes:
        if members(process.cpulist or ""):
            ranks.setdefault(process.cpulist or "", []).append(process)
    return ranks


def _named(evidence: Evidence, host: Recording, ranks: Sequence[ProcessRecord]) -> str:
    if ranks[0].ranks == 1:
        return evidence.on("this process", host)
    numbers = spans(one.rank for one in ranks)
    return evidence.on(f"rank{'s' * (len(ranks) > 1)} {numbers}", host)


def experiment(finding: Finding, evidence: Evidence) -> Experiment | str:
    for host in evidence.hosts:
        for cpulist, ranks in _ranks_of(host).items():
            if _named(evidence, host, ranks) == finding.subject and host is evidence.hosts[0]:
                cores = members(host.cpus or "")
                return Experiment(
                    backend="cpu",
                    ranks=max(2, min(len(ranks), len(cores), _MOST_RANKS)),
                    sizes=_SIZES,
                    found=Arm(cpulist=cpulist),
                    changed=Arm(cpulist=spans(cores)),
                )
    return "what it costs depends on the threads of the program"
