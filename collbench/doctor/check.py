"""Checks of `collbench doctor`: what they read and find, and which there are.

A check is a module of collbench/doctor/checks with the members of Check. It reads Evidence:
recordings at rest, under load and after it, and measurements. A finding costs if it is a fault by
itself, or if a paired experiment shows that it slows this machine down by more than chance does.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal, Protocol, cast

from collbench.bench.experiment import Cost, Experiment
from collbench.bench.pairs import RankPair
from collbench.core import catalog
from collbench.core.errors import unknown
from collbench.core.limits import LEAST_JUDGED
from collbench.core.registry import Family
from collbench.doctor import checks
from collbench.machine.discovery import topology_of
from collbench.machine.discovery.recording import GpuRecord, ProcessRecord, Recording, SystemRecord
from collbench.machine.topology.model import Topology

_OF_VARIABLES = "settings"
_SEE_MORE = ("gpu-clocks", "pcie-link")  # at rest, too, but more under load
FAMILY = Family(checks.__name__, list(checks.__path__), "check")
# What a check needs to see anything, besides a recording.
Need = Literal[
    "gpus",
    "two gpus",
    "condition",
    "nics",
    "system",
    "core times",
    "processes",
    "ranks",
    "hosts",
    "load",
    "host copies",
    "pairs",
    "left out",
]
# what takes more than reading, and where evidence has it
_MEASURED_AS: Mapping[Need, str] = {
    "load": "loaded",
    "host copies": "alone",
    "pairs": "pairs",
    "left out": "left_out",
}
MEASURED = tuple(_MEASURED_AS)
# GPUs that one host must have
_LEAST_GPUS: Mapping[Need, int] = {
    "gpus": 1,
    "condition": 1,
    "load": 1,
    "host copies": 1,
    "two gpus": 2,
    "pairs": 2,
    "left out": 3,
}
_REASONS: Mapping[Need, str] = {
    "condition": "the recording has no states of GPUs: record it again",
    "nics": "no NIC is a PCI device here",
    "system": "the recording has nothing about the system: record it again",
    "core times": "/proc/stat does not say how long cores were in use",
    "processes": "the recording has nothing about processes: record it again",
    "ranks": "no launcher started several ranks",
    "hosts": "there is one host",
    "load": "nothing was measured",
    "host copies": "no copies through the host were measured",
    "pairs": "pairs were not measured",
    "left out": "no rank was left out",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Bus bandwidths of a collective without one GPU, in rounds; gpu None: with all of them."""

    gpu: int | None
    busbw_gbs: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """hosts: at rest. loaded, after: the same hosts under the load of our own traffic and after it;
    empty where there was none. alone, together: GB/s of GPUs of the first host through the host,
    one after the other and all at once, by CUDA's numbers, as those of `pairs`. will_measure: what
    takes more than reading comes later.
    """

    hosts: tuple[Recording, ...]
    loaded: tuple[Recording, ...] = ()
    after: tuple[Recording, ...] = ()
    alone: Mapping[int, float] = field(default_factory=dict)
    together: Mapping[int, float] = field(default_factory=dict)
    pairs: tuple[RankPair, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    missing: Mapping[Need, str] = field(default_factory=dict)
    will_measure: bool = False

    @cached_property
    def topology(self) -> Topology:
        """The graph of all hosts."""
        return topology_of(self.hosts)

    @cached_property
    def topologies(self) -> tuple[Topology, ...]:
        """The graph of each host alone."""
        return tuple(topology_of((host,)) for host in self.hosts)

    def why_not(self, need: Need) -> str:
        """Why a need is not met; nothing if it is."""
        if need in self.missing:
            return self.missing[need]
        is_later = self.will_measure and need in MEASURED
        if need in _LEAST_GPUS and (is_later or need not in MEASURED) and self.is_absent(need):
            gpus = self._count("gpus")
            return f"NVML shows {gpus or 'no'} GPU{'s' * (gpus > 1)} here"
        return "" if is_later or self._is_seen(need) else _REASONS[need]

    def is_absent(self, need: Need) -> bool:
        """Whether a need is not met because there is no such thing here, so that nothing of it can
        be wrong unseen.
        """
        if need in _LEAST_GPUS:
            return self._count("gpus") < _LEAST_GPUS[need]
        return need in ("nics", "ranks", "hosts") and not self._is_seen(need)

    def _count(self, part: Literal["gpus", "nics", "processes"]) -> int:
        """Of the host that has the most."""
        return max((len(getattr(host, part)) for host in self.hosts), default=0)

    def _is_seen(self, need: Need) -> bool:
        """Only what the need is about is read."""
        match need:
            case "condition":
                return any(gpu.condition is not None for _, gpu in self.gpus())
            case "nics" | "processes":
                return self._count(need) > 0
            case "system":
                return any(host.system is not None for host in self.hosts)
            case "core times":
                return any(system.busy_cpus is not None for *_, system in self.systems())
            case "ranks":
                return sum(len(host.processes) for host in self.hosts) > 1
            case "hosts":
                return len(self.hosts) > 1
            case "load" | "host copies" | "pairs" | "left out":
                return bool(getattr(self, _MEASURED_AS[need]))
        return True

    def gpus(self, hosts: Sequence[Recording] | None = None) -> Iterator[tuple[str, GpuRecord]]:
        """All GPUs that NVML can ask, with what people call them; hosts: `loaded` or `after`."""
        for place, host in enumerate(self.hosts if hosts is None else hosts):
            for gpu in host.gpus:
                if "handle" not in gpu.unknown:
                    yield self.on(f"GPU {gpu.index}", self.hosts[place]), gpu

    def systems(self) -> Iterator[tuple[str, Recording, SystemRecord]]:
        """All hosts whose system is known, and what people call them."""
        for host in self.hosts:
            if host.system is not None:
                yield self.name(host), host, host.system

    def processes(self) -> Iterator[tuple[str, Recording, ProcessRecord]]:
        """All ranks with their hosts, and what people call them."""
        for host in self.hosts:
            for process in host.processes:
                name = f"rank {process.rank}" if process.ranks > 1 else "this process"
                yield self.on(name, host), host, process

    def on(self, what: str, host: Recording) -> str:
        """A part of a host by its name, with the host's where there are several."""
        return f"{what} of {self.name(host)}" if len(self.hosts) > 1 else what

    def name(self, host: Recording) -> str:
        """What a host is called."""
        if len(self.hosts) == 1:
            return "this host"
        return self._names[id(host)]

    @cached_property
    def _names(self) -> Mapping[int, str]:
        """Of several hosts, by identity: two may be equal."""
        counts = Counter(host.hostname for host in self.hosts)
        return {
            id(host): host.hostname
            if host.hostname and counts[host.hostname] == 1
            else f"host {place}"
            for place, host in enumerate(self.hosts)
        }


# fault: slower, or wrong, whatever an experiment says. risk: costs on some machines; an experiment
# decides. remark: worth knowing, costs nothing by itself.
Severity = Literal["fault", "risk", "remark"]
SEVERITIES: tuple[Severity, ...] = ("fault", "risk", "remark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """subject: what is affected, such as GPU 2, rank 3 or a host. seen: the value, and where it was
    read. why: what it does. change: a command or a setting; risk: what else that changes. check:
    its name, which find() fills in. costs: measured ones. unmeasured: why there are
    none. is_general: it says that something failed, and follows from what says why.
    """

    subject: str
    seen: str
    why: str
    change: str
    check: str = ""
    risk: str = ""
    severity: Severity = "risk"
    costs: tuple[Cost, ...] = ()
    unmeasured: str = ""
    is_general: bool = False

    @property
    def is_cost(self) -> bool:
        """Whether it costs speed, or results, here."""
        return self.severity == "fault" or any(cost.is_real for cost in self.costs)

    @property
    def is_cleared(self) -> bool:
        """Whether it was measured, and cost nothing at any size."""
        return bool(self.costs) and all(cost.is_none for cost in self.costs)

    @property
    def percent(self) -> float:
        """The largest measured cost in percent; 0 if none was measured that is real."""
        return max((100 * (one.ratio.median - 1) for one in self.costs if one.is_real), default=0.0)


def told(
    row: str,
    subject: str,
    seen: str,
    *,
    severity: Severity | None = None,
    change: str = "",
    more: str = "",
    table: Literal["doctor", "findings"] = "doctor",
) -> Finding:
    """A finding in the words of its row in a table of profiles/causes. severity, change: where they
    are not the row's; more: what is added to why it matters.
    """
    rows = _words_in(table)
    words = rows.get(rows[row].get("like"), {}) | rows[row]
    return Finding(
        subject=subject,
        seen=seen,
        why=words["why"] + more,
        change=change or words["change"],
        risk=words.get("risk", ""),
        severity=severity or words.get("severity", "risk"),
    )


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Worst first: what costs, what follows from others behind it, by its largest cost; then by
    severity; then as they came.

    >>> one = Finding(check="a", subject="x", seen="", why="", change="")
    >>> other = Finding(check="b", subject="y", seen="", why="", change="", severity="fault")
    >>> [finding.check for finding in ranked([one, other])]
    ['b', 'a']
    """
    return sorted(
        findings,
        key=lambda one: (
            not one.is_cost,
            one.is_cost and one.is_general,
            -one.percent,
            SEVERITIES.index(one.severity),
        ),
    )


class Check(Protocol):
    """Each has a table in profiles/causes/checks.toml, and a planted fault in
    tests/doctor/plants.toml. One whose cause can be switched has `experiment`.
    """

    def find(self, evidence: Evidence) -> Iterable[Finding]:
        """What is wrong. Pure; a value that is unknown is no finding."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDescription:
    """The table of a check in profiles/causes/checks.toml, which says what its fields are."""

    title: str
    needs: Sequence[Need] = ()
    explanation: str
    no_experiment: str = ""


class ExperimentingCheck(Check, Protocol):
    """A check whose cause can be switched."""

    def experiment(self, finding: Finding, evidence: Evidence) -> Experiment | str:
        """What shows the cost of a finding on this machine, or why nothing can."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """A check of the list: whether it looked, and why not. is_absent: there is nothing to see."""

    identifier: str
    title: str
    reason: str = ""
    is_absent: bool = False


def identifiers() -> tuple[str, ...]:
    """All checks as the command line names them, sorted."""
    return tuple(name.replace("_", "-") for name in FAMILY)


def check(identifier: str) -> Check:
    """A check by its identifier. Raises UsageError if there is none of that name."""
    if identifier not in identifiers():
        raise unknown("check", identifier, identifiers())
    return cast("Check", FAMILY.load(identifier.replace("-", "_")))


def description(identifier: str) -> CheckDescription:
    """What a check looks at, and needs. Raises UsageError if there is none of that name."""
    if identifier not in identifiers():
        raise unknown("check", identifier, identifiers())
    return CheckDescription(**_words_in("checks")[identifier])


@cache
def _words_in(table: str) -> dict[str, Any]:  # Any: values of TOML
    return catalog.load("causes", table)


def experiment(finding: Finding, evidence: Evidence) -> Experiment | str:
    """What shows the cost of a finding on this machine, or why nothing can."""
    found = check(finding.check)
    if hasattr(found, "experiment"):
        return cast("ExperimentingCheck", found).experiment(finding, evidence)
    return description(finding.check).no_experiment


def why_not_run(identifier: str, evidence: Evidence) -> str:
    """Why a check cannot see anything; nothing if it can."""
    return next(filter(None, map(evidence.why_not, description(identifier).needs)), "")


def wants_measurements(identifier: str) -> bool:
    """Whether a check looks at what takes more than reading, or sees more under load."""
    return identifier in _SEE_MORE or bool(set(description(identifier).needs) & set(MEASURED))


def find(evidence: Evidence, only: Sequence[str] = ()) -> list[Finding]:
    """The findings of all checks that can see anything, or of some of them. What the check of a
    thing says about a variable is not said again by the check of all variables.
    """
    findings = [
        replace(finding, check=identifier)
        for identifier in only or identifiers()
        if not why_not_run(identifier, evidence)
        for finding in check(identifier).find(evidence)
    ]
    said = {one.seen.partition("=")[0] for one in findings if one.check != _OF_VARIABLES}
    return [
        one
        for one in findings
        if one.check != _OF_VARIABLES or one.subject.partition(" (")[0] not in said
    ]


def run_of(identifier: str, evidence: Evidence) -> CheckRun:
    """Whether a check looks at the evidence, and why not."""
    described = description(identifier)
    return CheckRun(
        identifier=identifier,
        title=described.title,
        reason=why_not_run(identifier, evidence),
        is_absent=any(map(evidence.is_absent, described.needs)),
    )


def is_unknown(runs: Sequence[CheckRun]) -> bool:
    """Whether most checks of what is here could not look: then nothing found says nothing.

    >>> seen, hidden = (CheckRun(identifier="a", title="A", reason=why) for why in ("", "hidden"))
    >>> is_unknown([seen, hidden]), is_unknown([seen, hidden, hidden])
    (False, True)
    """
    looked, _, could_not = tally(runs)
    return looked < LEAST_JUDGED * (looked + could_not)


def tally(runs: Sequence[CheckRun]) -> tuple[int, int, int]:
    """How many checks looked, are of what is not here, and could not."""
    looked = sum(not run.reason for run in runs)
    absent = sum(bool(run.reason) and run.is_absent for run in runs)
    return looked, absent, len(runs) - looked - absent
