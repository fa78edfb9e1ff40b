"""Whether what was measured is as good as what is known of its machine. Pure.

A number is held against everything that is known: its share of each expectation is graded, and the
worst grade counts. Repeats that disagree do not fail a machine: only a number whose fastest repeat
is too slow fails; one whose median alone is too slow, or that is noise, is a warning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["PASS", "WARN", "FAIL", "SKIP"]
CheckUnit = Literal["", "us", "GB/s"]
SEVERITY: tuple[Verdict, ...] = ("FAIL", "WARN", "SKIP", "PASS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A number to hold a measurement against, where it is from, and the shares of its speed from
    which on a measurement passes, or is a warning and no failure.
    """

    value: float
    source: str
    passes_from: float = 0.9
    warns_from: float = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A line of a check. value and expected have the unit; None where there is no number. source:
    of the expectation. detail: the share of the expected speed where that is no PASS (~: noise), or
    what was found where there is no number.
    """

    name: str
    verdict: Verdict
    unit: CheckUnit = ""
    value: float | None = None
    expected: float | None = None
    source: str = ""
    detail: str = ""


def judge(
    name: str,
    value: float,
    unit: CheckUnit,
    expectations: Sequence[Expectation],
    *,
    fastest: float | None = None,
    is_noisy: bool = False,
) -> Finding:
    """The finding of a measured number. fastest: of its repeats. is_noisy: they disagree, or other
    processes had the machine: too slow is a warning then.

    >>> judge("link", 95.0, "GB/s", [Expectation(value=100.0, source="rated")]).verdict
    'PASS'
    >>> judge("step", 15.0, "us", [Expectation(value=10.0, source="h200x4")], fastest=14.0).verdict
    'FAIL'
    >>> judge("step", 15.0, "us", [Expectation(value=10.0, source="h200x4")], fastest=10.0).verdict
    'WARN'
    """
    graded = [
        (_verdict(value, value if fastest is None else fastest, unit, one), share, one)
        for one in expectations
        for share in [_share(value, unit, one.value)]
    ]
    if not graded:
        detail = "no reference yet"
        return Finding(name=name, verdict="PASS", unit=unit, value=value, detail=detail)
    verdict, share, worst = min(graded, key=lambda grade: (SEVERITY.index(grade[0]), grade[1]))
    if verdict == "FAIL" and is_noisy:
        verdict = "WARN"
    return Finding(
        name=name,
        verdict=verdict,
        unit=unit,
        value=value,
        expected=worst.value,
        source=worst.source,
        detail="" if verdict == "PASS" else f"{'~' * is_noisy}{100 * share:.0f}%",
    )


def _share(value: float, unit: CheckUnit, expected: float) -> float:
    """The share of the expected speed."""
    return expected / value if unit == "us" else value / expected


def _verdict(value: float, fastest: float, unit: CheckUnit, expectation: Expectation) -> Verdict:
    middle, best = (_share(one, unit, expectation.value) for one in (value, fastest))
    if best < expectation.warns_from:
        return "FAIL"
    return "PASS" if min(middle, best) >= expectation.passes_from else "WARN"


def counts_text(findings: Sequence[Finding]) -> str:
    """How many findings there are of each verdict.

    >>> counts_text([Finding(name="a", verdict="PASS"), Finding(name="b", verdict="FAIL")])
    '1 passed, 0 warnings, 1 failed'
    """
    count = {verdict: sum(one.verdict == verdict for one in findings) for verdict in SEVERITY}
    skipped = [f"{count['SKIP']} skipped"] if count["SKIP"] else []
    warnings = f"{count['WARN']} warning{'s' * (count['WARN'] != 1)}"
    return ", ".join([f"{count['PASS']} passed", warnings, f"{count['FAIL']} failed", *skipped])
