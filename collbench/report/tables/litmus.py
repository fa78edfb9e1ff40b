"""Litmus tests as a table: of each test and link the trials, the outcomes and what they mean."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from textwrap import wrap

from collbench.report.tables.text import wrapped
from collbench.spec.litmus import Litmus, LitmusResult

_FORMAT = "collbench litmus 1"
_ROW = "{:<17}{:>11}  {:<18}{:>10}  {:<11}{}"
_HEADING = _ROW.format("test", "trials", "in question", "seen", "model", "needed by")


def heading(link: str, model: str) -> list[str]:
    """The lines above the rows of a link."""
    return ["", f"{link}, memory model {model}", _HEADING]


def row(result: LitmusResult) -> str:
    """A test on a link, in a line."""
    test = result.litmus
    word = "allows it" if test.is_allowed(test.weak, result.model) else "forbids it"
    needed = ", ".join(test.needed_by) or "nothing"
    cells = test.name, result.trials, test.weak, result.weak_count, word, needed
    return _ROW.format(*cells) + verdict(result)


def verdict(result: LitmusResult) -> str:
    """What is wrong, if anything is."""
    if result.broken:
        return " <- BROKEN"
    return " <- against the model" if result.breaks_model else ""


def outcome_lines(results: Sequence[LitmusResult], columns: int) -> list[str]:
    """The counts of all outcomes."""
    lines = ["", "All outcomes:"]
    for result in results:
        counts = zip(result.litmus.outcomes, result.counts, strict=True)
        text = "; ".join(f"{name} {count}" for name, count in counts)
        lines += wrapped(f"  {result.test:<18}{text}", columns, " " * 20)
    return lines


def conclusion(results: Sequence[LitmusResult], columns: int) -> list[str]:
    """What the tests together mean for the protocols."""
    broken = sorted({name for result in results for name in result.broken})
    tested = sorted({name for result in results for name in result.litmus.needed_by})
    sound = [name for name in tested if name not in broken]
    lines = [
        f"{name} is not safe here: {result.test} on {result.link} showed"
        f' "{result.litmus.weak}" {result.weak_count} times in {result.trials} trials.'
        for name in broken
        for result in results
        if name in result.broken
    ]
    if sound:
        lines.append(
            f"Nothing was seen that {', '.join(sound)} could not stand. Trials never prove that it"
            " cannot happen."
        )
    lines += [
        f"{result.test} showed what {result.model} forbids; no protocol relies on it."
        for result in results
        if result.breaks_model and not result.broken
    ]
    idle = [result.test for result in results if not result.chance_count]
    alike = [
        result.test
        for result in results
        if result.chance_count
        and not result.litmus.is_waited
        and sum(count > 0 for count in result.counts) < 2
    ]
    if idle:
        lines.append(
            f"No trial of {', '.join(dict.fromkeys(idle))} could show the outcome in question: one"
            " side never saw what the other wrote. These tests say nothing here."
        )
    if alike:
        lines.append(
            f"Every trial of {', '.join(dict.fromkeys(alike))} ended the same, so the sides did not"
            " race: other programs had the cores, or there were too few trials."
        )
    return ["", *(part for line in lines for part in wrap(line, columns, subsequent_indent="  "))]


def list_lines(tests: Iterable[Litmus], columns: int) -> list[str]:
    """The catalogue."""
    lines: list[str] = []
    for kind, members in groupby(tests, lambda test: test.kind):
        lines += ["", {"cpu": "Between CPU cores", "gpu": "On GPUs"}[kind]]
        for test in members:
            by = ", ".join(sorted(test.allowed_by)) or "no model"
            needed = ", ".join(test.needed_by) or "nothing"
            text = (
                f"{test.name}: {test.sides[0]} | {test.sides[1]}. {test.access},"
                f" {test.width} bytes. In question: {test.weak}; allowed by {by}; must not happen"
                f" for {needed}."
            )
            lines += wrap(text, columns, initial_indent="  ", subsequent_indent="      ")
    return lines[1:]


def litmus_json(results: Sequence[LitmusResult]) -> str:
    """All results as JSON, with what each means."""
    rows = [
        {
            **asdict(result),
            "counts": dict(zip(result.litmus.outcomes, result.counts, strict=True)),
            "in_question": result.litmus.weak,
            "is_allowed": result.litmus.is_allowed(result.litmus.weak, result.model),
            "needed_by": list(result.litmus.needed_by),
            "broken": list(result.broken),
        }
        for result in results
    ]
    return json.dumps({"format": _FORMAT, "results": rows}, indent=1) + "\n"
