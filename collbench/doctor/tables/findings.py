"""What the doctor found: findings as text and as documents, and the list of all checks."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collbench import __version__
from collbench.core.limits import LEAST_JUDGED
from collbench.core.table import table, wrapped
from collbench.core.text import counted
from collbench.doctor.finding import Cost, Finding

_JSON_VERSION = 1
_LABEL = 8  # of the lines of a finding
_SUBJECTS = 8  # that a finding names
_FACTOR_FROM = 2.0  # costs from which on they are shown as factors


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """A check of the list: whether it looked, and why not. is_absent: there is nothing to see."""

    identifier: str
    title: str
    reason: str = ""
    is_absent: bool = False


def mark(finding: Finding) -> str:
    """COST, RISK or NOTE, as it stands before a finding."""
    if finding.is_cost:
        return "COST"
    return "NOTE" if finding.severity == "remark" or finding.is_cleared else "RISK"


def cost_texts(finding: Finding) -> list[str]:
    """What a finding costs, a line for each size, or why that is not known."""
    if not finding.costs:
        return [f"not measured: {finding.unmeasured or 'no experiment was run'}"]
    return [cost_text(cost) for cost in finding.costs]


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
    lines = wrapped(f"{mark(finding)}  {finding.check}: {finding.subject}", columns, " " * 6)
    parts = [
        ("seen", [finding.seen]),
        ("why", [finding.why]),
        ("costs", cost_texts(finding)),
        ("change", [finding.change]),
        ("risk", [finding.risk]),
        ("more", [f"collbench doctor --explain {finding.check}"]),
    ]
    for label, texts in parts:
        for place, text in enumerate(filter(None, texts)):
            start = f"{'':6}{label if place == 0 else '':<{_LABEL}}"
            lines += wrapped(start + text, columns, " " * (6 + _LABEL))
    return lines


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """The findings in their order, those as one that differ in their subjects alone, as on all
    hosts of a cluster.

    >>> one, other = (
    ...     Finding(check="a", subject=name, seen="", why="", change="") for name in ("x", "y")
    ... )
    >>> [finding.subject for finding in merged([one, other])]
    ['x, y']
    """
    subjects: dict[Finding, list[str]] = {}
    for finding in findings:
        subjects.setdefault(replace(finding, subject=""), []).append(finding.subject)
    return [replace(one, subject=_few(names)) for one, names in subjects.items()]


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SUBJECTS} more" if len(names) > _SUBJECTS else ""
    return ", ".join(names[:_SUBJECTS]) + more


def is_unknown(runs: Sequence[CheckRun]) -> bool:
    """Whether most checks of what is here could not look: then nothing found says nothing.

    >>> seen, hidden = (CheckRun(identifier="a", title="A", reason=why) for why in ("", "hidden"))
    >>> is_unknown([seen, hidden]), is_unknown([seen, hidden, hidden])
    (False, True)
    """
    concerned = [run for run in runs if not (run.reason and run.is_absent)]
    looked = sum(not run.reason for run in concerned)
    return looked < LEAST_JUDGED * len(concerned)


def summary(
    findings: Sequence[Finding], runs: Sequence[CheckRun], duration: str, list_command: str
) -> str:
    """The last line. list_command: what says why checks could not look."""
    looked = sum(not run.reason for run in runs)
    marks = [mark(one) for one in findings]
    costs = marks.count("COST")
    numbers = {
        "that costs" if costs == 1 else "that cost": costs,
        "that may cost": marks.count("RISK"),
        "to know": marks.count("NOTE"),
    }
    parts = [f"{number} {what}" for what, number in numbers.items() if number]
    found = (
        f"{counted(len(findings), 'finding')}: {', '.join(parts)}"
        if findings
        else "Nothing was found"
    )
    absent = sum(bool(run.reason) and run.is_absent for run in runs)
    could_not = len(runs) - looked - absent
    more = f", {absent} are of what is not here" if absent else ""
    more += f", {could_not} could not" if could_not else ""
    more += f" ({list_command} says why)" if more else ""
    most = " UNKNOWN: most of what is here was not looked at." if is_unknown(runs) else ""
    return f"{found}. {counted(looked, 'check')} looked{more}, {duration}.{most}"


def runs_table(runs: Sequence[CheckRun], columns: int) -> list[str]:
    """Every check: whether it looks here, and why not."""
    rows = [(run.identifier, "no" if run.reason else "yes", run.title, run.reason) for run in runs]
    heads = ("check", "looks", "at", "why not")
    lines = table(heads, rows)
    if max(map(len, lines)) <= columns:
        return lines
    lines = []
    for identifier, looks, title, reason in rows:
        lines += wrapped(f"{identifier}: {title}", columns)
        lines += wrapped(f"  looks: {looks}" + (f", {reason}" if reason else ""), columns, " " * 4)
    return lines


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
    costs, looked = any(one.is_cost for one in findings), sum(not run.reason for run in runs)
    absent = sum(bool(run.reason) and run.is_absent for run in runs)
    calm = "unknown" if is_unknown(runs) else "clean"
    has_risk = is_failed or any(mark(one) == "RISK" for one in findings)
    document = {
        "format": "collbench-doctor",
        "version": _JSON_VERSION,
        "collbench": __version__,
        "hosts": list(hosts),
        "verdict": "costs" if costs else "risks" if has_risk else calm,
        "looked": looked,
        "not_here": absent,
        "could_not": len(runs) - looked - absent,
        "seconds": round(seconds, 3),
        "findings": [finding_facts(one) for one in findings],
        "checks": [
            {"id": run.identifier, "title": run.title, "looked": not run.reason,
             "reason": run.reason}
            for run in runs
        ],
    }  # fmt: skip
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
