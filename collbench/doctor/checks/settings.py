"""Settings of communication libraries: names, values, contradictions, and what each costs."""

from collections.abc import Iterable, Sequence

from collbench.bench.experiment import Arm, Experiment
from collbench.doctor.check import Evidence, Finding, Severity, told
from collbench.doctor.checks._ranks import CPU_SIZES, MOST_RANKS
from collbench.machine.discovery.recording import ProcessRecord
from collbench.machine.settings.files import ENVIRONMENT, SYSTEM_FILE, USER_FILE, Setting, gather
from collbench.machine.settings.judge import SettingProblem, judge
from collbench.machine.settings.table import Fact, known
from collbench.machine.topology.model import numbered

_SEVERITY: dict[str, Severity] = {"error": "risk", "cost": "risk", "remark": "remark"}
_GPU_SIZES = (8 << 10, 1 << 20, 16 << 20)
_MOST_GPUS = 8


def find(evidence: Evidence) -> Iterable[Finding]:
    ranks_of: dict[SettingProblem, list[int]] = {}
    facts = _facts(evidence)
    for _, _, process in evidence.processes():
        for problem in judge(_settings(process), process.nccl_version, facts):
            ranks_of.setdefault(problem, []).append(process.rank)
    everyone = sum(len(host.processes) for host in evidence.hosts)
    yield from _unread(evidence)
    for problem, ranks in ranks_of.items():
        where = "" if len(ranks) == everyone else f" ({numbered('rank', ranks)} of {everyone})"
        yield Finding(
            subject=" and ".join(problem.names) + where,
            seen=problem.seen,
            why=problem.why,
            change=problem.fix.rstrip("."),
            severity=_SEVERITY[problem.severity],
        )


def _unread(evidence: Evidence) -> Iterable[Finding]:
    """Files of settings that are there and cannot be read."""
    reasons: dict[tuple[str, str], list[int]] = {}
    for _, _, process in evidence.processes():
        named = process.environment.get("NCCL_CONF_FILE")
        for name, why in process.unknown.items():
            if name in (named, SYSTEM_FILE) or name.endswith(f"/{USER_FILE}"):
                reasons.setdefault((name, why), []).append(process.rank)
    for (name, why), ranks in reasons.items():
        yield told(
            "settings-unread",
            name,
            f"{numbered('rank', ranks)} cannot read {name}: {why}",
            change=f"let the user of the job read it: chmod a+r {name}",
        )


def _settings(process: ProcessRecord) -> Sequence[Setting]:
    """What wins first: the environment, then the files in their order."""
    return gather(process.environment, [(file.path, file.text) for file in process.files])


def _facts(evidence: Evidence) -> list[Fact]:
    facts: list[Fact] = ["several hosts"] if len(evidence.hosts) > 1 else []
    return facts + (["mixed GPUs"] if len({gpu.name for _, gpu in evidence.gpus()}) > 1 else [])


def experiment(finding: Finding, evidence: Evidence) -> Experiment | str:
    names = finding.subject.partition(" (")[0].split(" and ")
    facts = _facts(evidence)
    problem = next(
        (
            one
            for _, _, process in evidence.processes()
            for one in judge(_settings(process), process.nccl_version, facts)
            if list(one.names) == names and one.may_cost and finding.seen == one.seen
        ),
        None,
    )
    if problem is None:
        return "it changes no speed by itself"
    if problem.source != ENVIRONMENT:
        return f"it is set in {problem.source}, which no process can be started without"
    name = problem.names[0]
    variable = known().find(name)
    if variable is not None and variable.is_deliberate:
        return "it is often set on purpose, so it is left as it is"
    if variable is not None and variable.use == "network" and len(evidence.hosts) == 1:
        return "it concerns the network between hosts, and there is one host"
    is_of_gpus = name.startswith(("NCCL_", "CUDA_"))
    here = evidence.hosts[0]
    gpus = min(len(here.cuda or ()), _MOST_GPUS)
    if is_of_gpus and gpus < 2:
        return "it takes two GPUs to measure"
    return Experiment(
        backend="nccl" if is_of_gpus else "mpi",
        ranks=gpus if is_of_gpus else max(2, min(len(here.processes), MOST_RANKS)),
        sizes=_GPU_SIZES if is_of_gpus else CPU_SIZES,
        found=Arm(environment={name: problem.value}),
        changed=Arm(environment={name: None}),
        knobs={"buffers": "plain"} if is_of_gpus else {},
    )
