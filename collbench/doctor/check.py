"""The contract of a check: a module of collbench/doctor/checks with these members."""

from collections.abc import Iterable
from typing import Protocol

from collbench.bench.experiment import Experiment
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Finding


class Check(Protocol):
    """TITLE: what it looks at, in a line. NEEDS: without which it sees nothing. EXPLANATION: for
    people who do not know the thing: what it is, how it is read, what it does to communication, how
    to change it and how to be sure; Markdown in three paragraphs or more.

    Each has a planted fault: PLANTS of tests/doctor/plants/NAME.py.

    One whose cause can be switched has `experiment`, the others NO_EXPERIMENT: why nothing shows
    what a finding costs on this machine.
    """

    TITLE: str
    NEEDS: tuple[Need, ...]
    EXPLANATION: str

    def find(self, evidence: Evidence) -> Iterable[Finding]:
        """What is wrong. Pure; a value that is unknown is no finding."""
        ...


class ExperimentingCheck(Check, Protocol):
    """A check whose cause can be switched."""

    def experiment(self, finding: Finding, evidence: Evidence) -> Experiment | str:
        """What shows the cost of a finding on this machine, or why nothing can."""
        ...
