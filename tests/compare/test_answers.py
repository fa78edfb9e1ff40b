"""What one file says is best, how certain that is, and what looks wrong, worked out by hand
(answers.toml); curves of more configurations than a picture has colours for.
"""

import tomllib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

from collbench.compare.best import Best, Summary, summarise
from collbench.compare.curves import automatic, curves, envelope
from collbench.compare.outliers import suspects
from collbench.compare.plots.lines import MOST_COLORED, kinds, lines
from collbench.compare.tables.summary import summary_lines
from collbench.core.record import Record
from collbench.core.rows import label
from collbench.core.units import format_size
from tests.support.frames import records, row, rows_of

CASES = tomllib.loads(Path(__file__).with_name("answers.toml").read_text())


def answers(found: Summary) -> Iterator[str]:
    """The decision at each size, with what is next to it, what the tool chooses and libraries."""
    for best in found.every_best:
        names = ", ".join(label(one, found.knobs) for one in best.leaders)
        size = format_size(best.row.size_bytes)
        more = "".join(f", {what} {number:.4g}" for what, number in numbers(best))
        yield f"{size} {best.certainty}: {names} {best.time_us:.4g} us of {len(best.rows)}{more}"


def numbers(best: Best) -> Iterator[tuple[str, float]]:
    yield from (("GB/s", best.busbw_gbs),) if best.busbw_gbs else ()
    yield from (("percent", best.percent),) if best.percent else ()
    if best.runner_up is not None and best.gain is not None:
        yield f"before {best.runner_up.algo}", best.gain.median
    if best.excess is not None:
        yield "chosen", best.excess.median
    yield from ((peer, ratio.median) for peer, ratio in best.peers.items())


def curve_lines(given: Sequence[Record]) -> Iterator[str]:
    """The curves of rows, of the best and of what is chosen, and which of them a picture has."""
    found = curves(given)
    for curve in (*found, *envelope(found), *automatic(found)):
        points = ", ".join(
            f"{point.bytes} {point.time_us:.4g} us ({point.time_low_us:.4g} to"
            f" {point.time_high_us:.4g}) {point.busbw_gbs:.4g} of {point.ceiling_gbs:.4g} GB/s"
            f" {point.note or '-'}"
            for point in curve.points
        )
        best = f", best at {' '.join(map(str, curve.best))}" if curve.best else ""
        yield f"{curve.name}{' of a library' * curve.is_peer}: {points}{best}"
    drawn = ", ".join(f"{line.role} {line.curve.name}" for line in lines(found))
    yield f"drawn: {drawn}; {' '.join(kinds(found))}"


@pytest.mark.parametrize("what", CASES)
def test_answers(what: str) -> None:
    case = CASES[what]
    given = rows_of(case["rows"])
    found = summarise(given)
    assert list(answers(found)) == case["best"]
    wrong = [f"{one.kind} {one.row.algo} {one.row.size_bytes}" for one in suspects(found)]
    assert wrong == case.get("wrong", [])
    if "curves" in case:
        assert list(curve_lines(given)) == case["curves"]
    report = summary_lines(given, 80, case.get("all", False))
    assert max(map(len, report)) <= 80
    text = " ".join(" ".join(report).split())
    assert text.startswith(case.get("starts", ""))
    for words in (*case.get("says", ()), *case.get("silent", ())):
        assert (words in text) == (words in case.get("says", ())), text


def test_of_many_configurations_the_best_have_a_colour() -> None:
    many = records(
        *[
            row((10.0 + channels + size,), channels=channels, size_bytes=1024 << size)
            for channels, size in product(range(1, 20), range(3))
        ]
    )
    drawn = lines(curves(many))
    assert [line.curve.name for line in drawn if line.role == "one"] == ["ring simple ch 1"]
    assert sum(line.role == "other" for line in drawn) == 18
    wide = records(
        *[
            row((10.0 + (channels - size) ** 2,), channels=channels, size_bytes=1024 << size)
            for channels, size in product(range(1, 20), range(1, 20))
        ]
    )
    assert sum(line.role == "one" for line in lines(curves(wide))) == MOST_COLORED
