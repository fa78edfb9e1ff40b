"""What the doctor found: findings as text and as documents, and the list of all checks."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from collbench.bench.experiment import Cost
from collbench.core.assessment import AssessedLine, Assessment, Grade
from collbench.core.files import WholeVerdict, result_json
from collbench.core.grouping import grouped
from collbench.core.text import counted, some_of, table, titled, wrapped
from collbench.doctor.check import CheckRun, Finding, is_unknown, tally

_LABEL = 8  # of the lines of a finding
_SUBJECTS = 8  # that a finding names
_FACTOR_FROM = 2.0  # costs from which on they are shown as factors


def mark(finding: Finding) -> str:
    """COST, RISK or NOTE, as it stands before a finding."""
    if finding.is_cost:
        return "COST"
    return "NOTE" if finding.severity == "remark" or finding.is_cleared else "RISK"


def cost_text(cost: Cost) -> str:
    """A cost in words, with its interval."""
    ratio = cost.ratio
    if cost.is_noisy:
        return f"{cost.what}: {_times(*ratio)}, but other processes were busy: measure again"
    if cost.is_none:
        return f"{cost.what}: no cost, {_times(*ratio)}"
    if not cost.is_real:
        return f"{cost.what}: uncertain, {_times(*ratio)}: measure again with --deep"
    return f"{cost.what}: {_times(*ratio)}"


def _times(median: float, low: float, high: float) -> str:
    """A ratio of times as people say it.

    >>> _times(11.2, 10.9, 11.4), _times(1.12, 1.08, 1.15)
    ('11.2 x (10.9 to 11.4)', '+12 % (+8 to +15)')
    """
    if median >= _FACTOR_FROM:
        return f"{median:.3g} x ({low:.3g} to {high:.3g})"
    return " ".join(
        (f"{100 * (median - 1):+.0f} %", f"({100 * (low - 1):+.0f} to {100 * (high - 1):+.0f})")
    )


def finding_lines(finding: Finding, columns: int) -> list[str]:
    """A finding as a block of lines."""
    head = f"{mark(finding)}  {finding.check}: {finding.subject}"
    why_not = f"not measured: {finding.unmeasured or 'no experiment was run'}"
    costs = [*map(cost_text, finding.costs)] or [why_not]
    parts = [
        ("seen", finding.seen),
        ("why", finding.why),
        *zip(("costs", *[""] * len(costs)), costs, strict=False),
        ("change", finding.change),
        ("risk", finding.risk),
        ("more", f"collbench doctor --explain {finding.check}"),
    ]
    return block(head, parts, columns)


def block(head: str, parts: Iterable[tuple[str, str]], columns: int) -> list[str]:
    """Lines of a finding: its head, then what is said of it."""
    lead = head.index(" ") + 2
    told = titled(((title, text) for title, text in parts if text), _LABEL, columns, lead)
    return [*wrapped(head, columns, " " * lead), *told]


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """The findings in their order, those as one that differ in their subjects alone, as on all
    hosts of a cluster.

    >>> one, other = (
    ...     Finding(check="a", subject=name, seen="", why="", change="") for name in ("x", "y")
    ... )
    >>> [finding.subject for finding in merged([one, other])]
    ['x, y']
    """
    subjects = grouped((replace(one, subject=""), one.subject) for one in findings)
    return [replace(one, subject=some_of(names, _SUBJECTS)) for one, names in subjects.items()]


def found_text(numbers: Mapping[str, int]) -> str:
    """How many findings there are of each kind.

    >>> found_text({"to know": 1, "that cost": 0})
    '1 finding: 1 to know'
    """
    parts = ", ".join(f"{number} {what}" for what, number in numbers.items() if number)
    return f"{counted(sum(numbers.values()), 'finding')}: {parts}"


def runs_table(runs: Sequence[CheckRun], columns: int) -> list[str]:
    """Every check: whether it looks here, and why not."""
    rows = [(run.identifier, "no" if run.reason else "yes", run.title, run.reason) for run in runs]
    return table(("check", "looks", "at", "why not"), rows, columns=columns)


def finding_facts(one: Finding) -> dict[str, object]:
    """A finding as a JSON object."""
    return {
        "check": one.check,
        "mark": mark(one),
        "severity": one.severity,
        "subject": one.subject,
        "seen": one.seen,
        "why": one.why,
        "change": one.change,
        "risk": one.risk,
        "costs": [
            {
                "what": cost.what,
                "ratio": round(cost.ratio.median, 4),
                "low": round(cost.ratio.low, 4),
                "high": round(cost.ratio.high, 4),
                "is_real": cost.is_real,
                "is_noisy": cost.is_noisy,
            }
            for cost in one.costs
        ],
        "unmeasured": one.unmeasured,
    }


def as_json(
    findings: Sequence[Finding],
    runs: Sequence[CheckRun],
    hosts: Sequence[str],
    seconds: float,
    *,
    is_failed: bool,
) -> str:
    """The findings and the checks as a JSON object. is_failed: whether the exit code is 1."""
    costs = any(one.is_cost for one in findings)
    looked, absent, could_not = tally(runs)
    calm: WholeVerdict = "UNKNOWN" if is_unknown(runs) else "PASS"
    has_risk = is_failed or any(mark(one) == "RISK" for one in findings)
    document = {
        "hosts": list(hosts),
        "looked": looked,
        "not_here": absent,
        "could_not": could_not,
        "seconds": round(seconds, 3),
        "findings": [finding_facts(one) for one in findings],
        "checks": [
            {
                "id": run.identifier,
                "title": run.title,
                "looked": not run.reason,
                "reason": run.reason,
            }
            for run in runs
        ],
    }
    verdict = "FAIL" if costs else "WARN" if has_risk else calm
    return result_json(document, machine=", ".join(hosts), verdict=verdict)


def assessment_of(
    findings: Sequence[Finding],
    failing: Sequence[Finding],
    runs: Sequence[CheckRun],
    hosts: Sequence[str],
    seconds: float,
) -> Assessment:
    """The findings as an assessment. failing: those that make the exit code 1. A check that could
    not look is skipped, and so is the whole unknown where most could not.
    """
    found = {one.check for one in findings}
    lines = [
        AssessedLine(
            name=f"{one.check}: {one.subject}",
            grade="bad" if one in failing else "good",
            text=f"{mark(one)}: {one.seen}",
            host=_host_of(one, hosts),
        )
        for one in findings
    ]
    lines += [
        AssessedLine(
            name=run.identifier, grade="skipped" if run.reason else "good", text=run.reason
        )
        for run in runs
        if run.identifier not in found
    ]
    calm: Grade = "unknown" if is_unknown(runs) else "good"
    return Assessment(
        command="doctor",
        subject=some_of(hosts, _SUBJECTS),
        grade="bad" if failing else calm,
        why=f"{counted(len(failing), 'finding')} of {len(findings)} fail",
        lines=lines,
        host=hosts[0] if len(hosts) == 1 else "",
        seconds=seconds,
        ended_s=time.time(),
    )


def _host_of(one: Finding, hosts: Sequence[str]) -> str:
    """The one host that a finding is about, "" if there are several or it cannot be told. What a
    process was given, its variables, or how many there are is its job's: no host is to be drained
    for it.
    """
    is_of_job = one.check in ("settings", "oversubscription")
    if is_of_job or one.subject.startswith(("this process", "rank ", "ranks ")):
        return ""
    named = hosts if len(hosts) == 1 else set(re.split(r"[\s,]+", one.subject)) & set(hosts)
    return next(iter(named)) if len(named) == 1 else ""
