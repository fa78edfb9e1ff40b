"""Whether ranks are bound to too few cores, or several to the same one."""

from collections import Counter
from collections.abc import Iterable

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
those of the host. The experiment measures an allreduce of CPU ranks on these cores and on all cores
of the host, in turns.

Start the ranks with `mpirun --bind-to numa` (Open MPI), `-bind-to numa` (MPICH, Intel MPI) or `srun
--cpu-bind=ldoms`, or give each rank several cores (`--cpus-per-task`).
"""

_SIZES = (1 << 10, 64 << 10, 1 << 20)
_CHANGE = (
    "mpirun --bind-to numa (Open MPI), mpirun -bind-to numa (MPICH), srun --cpu-bind=ldoms, or"
    " leave taskset out"
)


def find(evidence: Evidence) -> Iterable[Finding]:
    shared: set[tuple[int, str]] = set()
    for name, host, process in evidence.processes():
        cores = members(process.cpulist or "")
        others = [one for one in host.processes if one.cpulist == process.cpulist]
        if not cores or len(members(host.cpus or "")) < 2:
            continue
        if len(others) > len(cores) and len(cores) < len(members(host.cpus or "")):
            key = id(host), process.cpulist or ""
            if key not in shared:
                shared.add(key)
                ranks = spans(one.rank for one in others)
                yield _finding(
                    evidence.on(f"ranks {ranks}", host),
                    f"{len(others)} ranks share core{'s' * (len(cores) > 1)} {process.cpulist}"
                    f" of {host.cpus}",
                )
        elif len(cores) == 1:
            yield _finding(name, f"is bound to core {process.cpulist} of {host.cpus}")


def _finding(subject: str, seen: str) -> Finding:
    return Finding(
        check="binding",
        subject=subject,
        seen=seen,
        why="A thread that communicates and one that computes, or two ranks, take turns on a core.",
        change=_CHANGE,
        risk="Threads may then move between cores, which costs a little where each had its own.",
    )


def experiment(finding: Finding, evidence: Evidence) -> Experiment | str:
    host, here = _crowded(evidence)
    cores = members(host.cpus or "")
    return Experiment(
        backend="cpu",
        ranks=max(2, min(len(host.processes), len(cores), 8)),
        sizes=_SIZES,
        found=Arm(cpulist=here.cpulist or ""),
        changed=Arm(cpulist=spans(cores)),
    )


def _crowded(evidence: Evidence) -> tuple[Recording, ProcessRecord]:
    """The rank of the first host with the fewest cores for those who share them."""
    host = evidence.hosts[0]
    sharing = Counter(one.cpulist for one in host.processes)
    return host, min(
        host.processes, key=lambda one: len(members(one.cpulist or "")) / sharing[one.cpulist]
    )
