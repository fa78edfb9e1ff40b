"""How numbers of a check are graded: by the worst of all that is expected, and noise not at all."""

from typing import Any

import pytest

from collbench.doctor.check_verdict import (
    CheckLine,
    CheckUnit,
    Expectation,
    Measured,
    Verdict,
    judge,
    whole,
)
from collbench.doctor.tables.check import as_json, counts_text
from tests.support.commands import result_of
from tests.support.tables import cells_of, values_of

REFERENCE = Expectation(value=100.0, source="h200x4")


@pytest.mark.parametrize(("value", "unit", "verdict"), cells_of(__file__, "numbers.tsv"))
def test_a_number_is_held_against_its_expectation(
    value: str, unit: CheckUnit, verdict: Verdict
) -> None:
    found = judge(Measured(name="link", value=float(value), unit=unit), [REFERENCE])
    assert (found.verdict, found.expected, found.source) == (verdict, 100.0, "h200x4")
    assert bool(found.detail) == (verdict != "PASS")


def test_the_worst_of_all_expectations_counts() -> None:
    before = Expectation(value=140.0, source="check of 2026-11-22")
    links = Expectation(value=150.0, source="the links", passes_from=0.6, warns_from=0.5)
    found = judge(
        Measured(name="allreduce 1G", value=100.0, unit="GB/s"), [REFERENCE, before, links]
    )
    assert (found.verdict, found.source, found.detail) == ("FAIL", before.source, "71%")


@pytest.mark.parametrize(
    ("fastest", "is_noisy", "verdict"),
    [
        (70.0, False, "FAIL"), (76.0, False, "WARN"), (100.0, False, "WARN"),
        (70.0, True, "UNKNOWN"), (100.0, True, "UNKNOWN"),
    ],
)  # fmt: skip
def test_repeats_that_disagree_do_not_fail_and_noise_is_not_judged(
    fastest: float, is_noisy: bool, verdict: Verdict
) -> None:
    found = judge(
        Measured(name="x", value=60.0, unit="GB/s", fastest=fastest, is_noisy=is_noisy), [REFERENCE]
    )
    assert (found.verdict, found.detail) == (verdict, "~60%" if is_noisy else "60%")
    assert (found.value, found.expected) == (60.0, 100.0)


@pytest.mark.parametrize(
    ("is_noisy", "detail"), [(False, "no reference yet"), (True, "~ no reference yet")]
)
def test_without_expectation_it_is_not_judged(is_noisy: bool, detail: str) -> None:
    found = judge(Measured(name="x", value=1.0, unit="us", is_noisy=is_noisy), [])
    assert (found.verdict, found.expected) == ("UNKNOWN", None)
    assert found.detail == detail
    right = CheckLine(name="topology", verdict="PASS")
    assert counts_text([right, found]) == "1 passed, 0 warnings, 0 failed, 1 unknown"
    document = result_of(as_json([right, found], "device", ["h1"], "now", 1.0))
    assert (document["verdict"], document["judged"], document["lines"]) == ("PASS", 1, 2)
    assert document["counts"] == {"PASS": 1, "WARN": 0, "FAIL": 0, "SKIP": 0, "UNKNOWN": 1}


@pytest.mark.parametrize(("lines", "verdict"), cells_of(__file__, "wholes.tsv"))
def test_the_whole_passes_only_where_most_lines_were_judged(lines: str, verdict: Verdict) -> None:
    judged: Any = [one for one, count in values_of(lines).items() for _ in range(count)]
    assert whole(judged) == verdict
