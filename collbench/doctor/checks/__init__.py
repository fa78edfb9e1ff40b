"""The checks of `collbench doctor`: one file each, with the members that doctor/check.py names.

The name of a file, with hyphens, is the check's identifier on the command line.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from collbench.bench.experiment import Experiment
from collbench.core.errors import unknown
from collbench.core.registry import Family
from collbench.doctor.check import Check, ExperimentingCheck
from collbench.doctor.evidence import MEASURED, Evidence
from collbench.doctor.finding import Finding

_OF_VARIABLES = "settings"
_SEE_MORE = ("gpu-clocks", "pcie-link")  # at rest, too, but more under load
FAMILY = Family(__name__, list(__path__), "check")


def identifiers() -> tuple[str, ...]:
    """All checks as the command line names them, sorted."""
    return tuple(name.replace("_", "-") for name in FAMILY)


def check(identifier: str) -> Check:
    """A check by its identifier. Raises UsageError if there is none of that name."""
    if identifier not in identifiers():
        raise unknown("check", identifier, identifiers())
    return cast("Check", FAMILY.load(identifier.replace("-", "_")))


def experiment(finding: Finding, evidence: Evidence) -> Experiment | str:
    """What shows the cost of a finding on this machine, or why nothing can."""
    found = check(finding.check)
    if hasattr(found, "experiment"):
        return cast("ExperimentingCheck", found).experiment(finding, evidence)
    return str(vars(found)["NO_EXPERIMENT"])


def why_not_run(identifier: str, evidence: Evidence) -> str:
    """Why a check cannot see anything; nothing if it can."""
    return next(filter(None, map(evidence.why_not, check(identifier).NEEDS)), "")


def is_absent(identifier: str, evidence: Evidence) -> bool:
    """Whether what a check looks at is not there at all."""
    return any(map(evidence.is_absent, check(identifier).NEEDS))


def wants_measurements(identifier: str) -> bool:
    """Whether a check looks at what takes more than reading, or sees more under load."""
    return identifier in _SEE_MORE or bool(set(check(identifier).NEEDS) & set(MEASURED))


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
