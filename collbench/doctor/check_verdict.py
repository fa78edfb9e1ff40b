"""Whether what was measured is as good as what is known of its machine. Pure.

A number is held against everything that is known: its share of each expectation is graded, and the
worst grade counts. Repeats that disagree do not fail a machine: only a number whose fastest repeat
is too slow fails; one whose median alone is too slow is a warning. Noise that does not pass is
UNKNOWN, as it says nothing, and so is what nothing is known of, and a whole of which most lines
are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from collbench.core.files import WholeVerdict
from collbench.core.limits import BEHIND_SHARE, FAIL_SHARE, LEAST_JUDGED

# UNKNOWN: nothing to judge by, or noise. SKIP: of a line, what the machine cannot do.
Verdict = WholeVerdict | Literal["SKIP"]
CheckUnit = Literal["", "us", "GB/s"]
NO_REFERENCE = "no reference yet"
SEVERITY: tuple[Verdict, ...] = ("FAIL", "WARN", "SKIP", "UNKNOWN", "PASS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A number to hold a measurement against, where it is from, and the shares of its speed from
    which on a measurement passes, or is a warning and no failure.
    """

    value: float
    source: str
    passes_from: float = BEHIND_SHARE
    warns_from: float = FAIL_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLine:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A number. fastest: of its repeats. is_noisy: they disagree, or other processes had the
    machine.
    """

    name: str
    value: float
    unit: CheckUnit
    fastest: float | None = None
    is_noisy: bool = False


def judge(number: Measured, expectations: Sequence[Expectation]) -> CheckLine:
    """The finding of a measured number.

    >>> step, expected = (
    ...     Measured(name="step", value=15.0, unit="us"),
    ...     Expectation(value=10.0, source="h200x4"),
    ... )
    >>> judge(step, [expected]).verdict, judge(step, []).verdict
    ('FAIL', 'UNKNOWN')
    """
    value, unit = number.value, number.unit
    graded = [(_verdict(number, one), _share(value, unit, one.value), one) for one in expectations]
    if not graded:
        detail = "~ " * number.is_noisy + NO_REFERENCE
        return CheckLine(name=number.name, verdict="UNKNOWN", unit=unit, value=value, detail=detail)
    verdict, share, worst = min(graded, key=lambda grade: (SEVERITY.index(grade[0]), grade[1]))
    if verdict != "PASS" and number.is_noisy:
        verdict = "UNKNOWN"
    return CheckLine(
        name=number.name,
        verdict=verdict,
        unit=unit,
        value=value,
        expected=worst.value,
        source=worst.source,
        detail="" if verdict == "PASS" else f"{'~' * number.is_noisy}{100 * share:.0f}%",
    )


def judged_lines(verdicts: Sequence[Verdict]) -> int:
    """How many lines were judged."""
    return sum(one in ("PASS", "WARN", "FAIL") for one in verdicts)


def whole(verdicts: Sequence[Verdict]) -> WholeVerdict:
    """The verdict of all lines: FAIL if one failed; UNKNOWN if most were not judged; else WARN if
    one warns, or PASS.

    >>> whole(["PASS", "WARN", "UNKNOWN"]), whole(["PASS", "UNKNOWN", "UNKNOWN"]), whole([])
    ('WARN', 'UNKNOWN', 'UNKNOWN')
    """
    if "FAIL" in verdicts:
        return "FAIL"
    if not verdicts or judged_lines(verdicts) < LEAST_JUDGED * len(verdicts):
        return "UNKNOWN"
    return "WARN" if "WARN" in verdicts else "PASS"


def _share(value: float, unit: CheckUnit, expected: float) -> float:
    """The share of the expected speed."""
    return expected / value if unit == "us" else value / expected


def _verdict(number: Measured, expectation: Expectation) -> Verdict:
    fastest = number.value if number.fastest is None else number.fastest
    middle, best = (_share(one, number.unit, expectation.value) for one in (number.value, fastest))
    if best < expectation.warns_from:
        return "FAIL"
    return "PASS" if min(middle, best) >= expectation.passes_from else "WARN"
