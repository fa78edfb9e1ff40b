"""The contract of a check: a module of collbench/doctor/checks with these members."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from collbench.bench.experiment import Experiment
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Finding, Seen, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingWords:
    """The words of a kind of finding, in which {name} is a value."""

    seen: str = ""
    why: str = ""
    change: str = ""
    risk: str = ""
    severity: Severity = "risk"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckWords:
    """title: what it looks at, in a line. explanation: for people who do not know the thing: what
    it is, how it is read, what it does to communication, how to change it and how to be sure;
    Markdown in three paragraphs or more. unmeasured: why nothing shows what a finding costs on this
    machine. seen, why, change, risk: of the kinds of findings that have none of their own.
    """

    title: str
    explanation: str
    findings: Mapping[str, FindingWords]
    unmeasured: str = ""
    seen: str = ""
    why: str = ""
    change: str = ""
    risk: str = ""


class Check(Protocol):
    """NEEDS: without which it sees nothing. Each has a planted fault: PLANTS of
    tests/doctor/plants/NAME.py.

    Its words are in profiles/checks/NAME.toml, as CheckWords has them. One whose cause can be
    switched has `experiment`, the others there `unmeasured`.
    """

    NEEDS: tuple[Need, ...]

    def find(self, evidence: Evidence) -> Iterable[Seen]:
        """What is wrong. Pure; a value that is unknown is no finding."""
        ...


class ExperimentingCheck(Check, Protocol):
    """A check whose cause can be switched."""

    def experiment(self, finding: Finding, evidence: Evidence) -> Experiment | str:
        """What shows the cost of a finding on this machine, or why nothing can."""
        ...
