"""The findings of a check: a line each, a summary, and documents for programs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from collbench.core.assessment import AssessedLine, Assessment, Grade
from collbench.core.files import result_json
from collbench.core.text import GAP, NARROW_COLUMNS, counted, table, wrapped
from collbench.core.units import format_rate, format_time_us
from collbench.doctor.check_verdict import SEVERITY, CheckLine, Verdict, judged_lines, whole

_LEAST = (7, 24, 10, 10)  # columns of verdict, name, measured and expected
_HEADS = ("", "what", "measured", "expected", "from")
_WIDE = 72  # columns from which on there is room for all of them


def heading(columns: int) -> str:
    """The line above the findings; empty where they have no room beside each other."""
    return "\n".join(table(_HEADS, [], (2, 3), columns, _LEAST)) if columns >= _WIDE else ""


def line(finding: CheckLine, columns: int = NARROW_COLUMNS) -> str:
    """A finding in a line, or more where the screen is narrow."""
    source = ", ".join(filter(None, (finding.source, finding.detail)))
    numbers = [_number(value, finding.unit) for value in (finding.value, finding.expected)]
    if columns < _WIDE:
        seen = f"{numbers[0]}, {f'expected {numbers[1]}, ' * (finding.expected is not None)}"
        text = f"{finding.verdict:{_LEAST[0]}}  {finding.name}: "
        text += finding.detail if finding.value is None else seen + source
        return "\n".join(wrapped(text, columns, " " * (_LEAST[0] + GAP)))
    if finding.value is None:
        told = (finding.verdict, finding.name, finding.detail)
        return "\n".join(table(("",) * 3, [told], (), columns, _LEAST[:2]))
    cells = (finding.verdict, finding.name, *numbers, source)
    return "\n".join(table(("",) * len(cells), [cells], (2, 3), columns, _LEAST))


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{format_time_us(value) if unit == 'us' else format_rate(value)} {unit}"


def summary(findings: Sequence[CheckLine], results: int, duration: str) -> str:
    """The line below the findings: the verdict of the whole first. results: how many were
    compared, element by element.
    """
    verdicts = [one.verdict for one in findings]
    judged = f"{judged_lines(verdicts)} of {counted(len(verdicts), 'line')} judged"
    counts = f"{judged} ({counts_text(findings)})"
    every = f"every element of {results} results compared"
    return f"{whole(verdicts)}: {counts}, {duration}; {every}."


def counts_text(findings: Sequence[CheckLine]) -> str:
    """How many findings there are of each verdict.

    >>> counts_text([CheckLine(name="a", verdict="PASS"), CheckLine(name="b", verdict="FAIL")])
    '1 passed, 0 warnings, 1 failed'
    """
    count = _counts(findings)
    texts = [f"{count['PASS']} passed", counted(count["WARN"], "warning")]
    texts.append(f"{count['FAIL']} failed")
    rest = {"skipped": count["SKIP"], "unknown": count["UNKNOWN"]}
    return ", ".join([*texts, *(f"{number} {what}" for what, number in rest.items() if number)])


def _counts(findings: Sequence[CheckLine]) -> dict[Verdict, int]:
    return {verdict: sum(one.verdict == verdict for one in findings) for verdict in SEVERITY}


def as_json(
    findings: Sequence[CheckLine], device: str, hosts: Sequence[str], started: str, seconds: float
) -> str:
    """The findings as a JSON object."""
    verdicts = [one.verdict for one in findings]
    document = {
        "lines": len(verdicts),
        "judged": judged_lines(verdicts),
        "counts": _counts(findings),
        "hosts": hosts,
        "started": started,
        "seconds": round(seconds, 3),
        "checks": [asdict(one) for one in findings],
    }
    return result_json(document, machine=device, verdict=whole(verdicts))


_GRADES: Mapping[Verdict, Grade] = {
    "PASS": "good",
    "WARN": "good",
    "FAIL": "bad",
    "SKIP": "skipped",
    "UNKNOWN": "unknown",
}


def assessment_of(
    findings: Sequence[CheckLine], device: str, host: str, seconds: float
) -> Assessment:
    """The findings as an assessment: warnings are good, and say so; only a whole that is UNKNOWN is
    an error. host: "" if the ranks are on several.
    """
    verdicts = [one.verdict for one in findings]
    verdict = whole(verdicts)
    return Assessment(
        command="check",
        subject=device,
        grade=_GRADES[verdict],
        why=f"{verdict}: {judged_lines(verdicts)} of {len(verdicts)} lines judged",
        lines=[
            AssessedLine(
                name=one.name,
                grade=_GRADES[one.verdict],
                text=(
                    one.detail
                    if one.verdict in ("SKIP", "UNKNOWN") and one.expected is None
                    else line(one)
                ),
                host=host,
                unit=one.unit,
                value=one.value,
                expected=one.expected,
                is_needed=False,
            )
            for one in findings
        ],
        host=host,
        seconds=seconds,
        ended_s=time.time(),
    )
