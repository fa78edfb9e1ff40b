"""What one file says, on frames whose answers are worked out by hand, and on the sweep that
ships.
"""

import math
from collections.abc import Sequence

from collbench.compare.best import summarise
from collbench.compare.curves import curves
from collbench.compare.join import join
from collbench.compare.load import load
from collbench.compare.tables.summary import summary_lines
from collbench.core.frame import frame_of
from collbench.core.knobs import UNASKED
from collbench.core.record import Record
from collbench.core.rows import KNOB_FIELDS, KNOB_NAMES
from collbench.core.verdict import is_separated
from tests.support.frames import records, row
from tests.support.results import DATA
from tests.support.tiers import tiered


def text_of(given: Sequence[Record], columns: int = 80, *, show_all: bool = False) -> str:
    return "\n".join(summary_lines(given, columns, show_all))


@tiered("knob", KNOB_FIELDS, 5)
def test_every_knob_is_told_everywhere(knob: str) -> None:
    values = (1, 4) if isinstance(UNASKED[knob], int) else ("on", "off")
    given = records(
        *[
            row((10.0 * (1 + place), 10.1 * (1 + place)), **{knob: value})
            for place, value in enumerate(values)
        ]
    )
    said, name = text_of(given), KNOB_NAMES.get(knob, knob)
    assert f"effect          {name} up to 2.00x at 1K" in said  # one file: 20.1 over 10.05
    # page's filters
    assert {
        tuple(value for key, value in curve.knobs if key == name) for curve in curves(given)
    } == {(str(value),) for value in values}
    # two files: a row joins its own value only
    assert {
        key[-1]
        for key in join(frame_of(given), [frame_of(given[1:])]).compared[[knob]].itertuples()
    } == {values[1]}


def test_single_repeats_tell_nothing_apart() -> None:
    assert not is_separated([1.0], [9.0])
    [sizes] = summarise(records(row((1.0,)), row((9.0,), algo="tree"))).best.values()
    assert sizes[1024].gain is not None
    assert math.isnan(sizes[1024].gain.low)


def test_the_screen_names_the_slowest_pair_and_all_shows_each() -> None:
    rows = load(DATA / "nvbandwidth.txt").records
    few, every = (summary_lines(rows, 80, show_all) for show_all in (False, True))
    place = few.index("sendrecv, 2 ranks, copy-read-ce one-way, 12 pairs of GPUs")
    assert few[place + 1] == "  slowest pair    200.0 GB/s by gpus-0-3"
    assert len([line for line in every if line.endswith("gpus-0-3 one-way")]) > 1
