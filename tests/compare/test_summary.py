"""What one file says, on frames whose answers are worked out by hand, and on the sweep that
ships.
"""

import math
from collections.abc import Sequence

import pytest

from collbench.compare.best import summarise
from collbench.compare.curves import curves
from collbench.compare.join import join
from collbench.compare.load import load
from collbench.compare.outliers import suspects
from collbench.compare.tables.summary import summary_lines
from collbench.core import record
from collbench.core.frame import frame_of
from collbench.core.knobs import UNASKED
from collbench.core.record import Record
from collbench.core.rows import KNOB_FIELDS, KNOB_NAMES
from collbench.core.verdict import is_separated
from tests.support import frames
from tests.support.frames import records, row
from tests.support.results import DATA
from tests.support.tiers import tiered


def text_of(given: Sequence[Record], columns: int = 80, *, show_all: bool = False) -> str:
    return "\n".join(summary_lines(given, columns, show_all))


def three(time_us: float) -> tuple[float, float, float]:
    return time_us, time_us * 1.001, time_us * 0.999


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


def test_off_curve_points_are_told_and_bends_are_not() -> None:
    sizes = [1 << k for k in range(10, 28, 2)]
    smooth = [5.0, 5.0, 5.2, 6.0, 10.0, 30.0, 110.0, 430.0, 1710.0]

    def strange(change: dict[int, float]) -> list[tuple[int, str]]:
        times = [change.get(k, time_us) for k, time_us in enumerate(smooth)]
        given = records(
            *[
                row(three(time_us), size_bytes=size)
                for size, time_us in zip(sizes, times, strict=True)
            ]
        )
        return [(sizes.index(one.row.size_bytes), one.kind) for one in suspects(summarise(given))]

    assert strange({}) == []
    for place in range(9):
        # a spike anywhere, both ends too
        assert strange({place: 3 * smooth[place]}) == [(place, "curve")]
    assert strange({2: 1.0}) == [(2, "curve")]  # faster than a smaller size
    assert strange({8: 200.0}) == [(7, "curve")]  # of the last two nothing tells which is off


def test_single_repeats_tell_nothing_apart() -> None:
    assert not is_separated([1.0], [9.0])
    [sizes] = summarise(records(row((1.0,)), row((9.0,), algo="tree"))).best.values()
    assert sizes[1024].gain is not None
    assert math.isnan(sizes[1024].gain.low)


def test_many_knobs_stay_within_the_columns() -> None:
    knobs = {
        "channels": 16,
        "threads": 512,
        "chunk": 1 << 20,
        "buffsize": 1 << 23,
        "slots": 8,
        "slices": 2,
        "unroll": 8,
        "p2p": "push",
    }
    rows = [row((10.0, 10.0, 10.1), algo="oneshot", proto="ll128", **knobs)]
    rows += [
        row(
            (12.0, 12.0, 12.1),
            algo="oneshot",
            proto="ll128",
            **(knobs | {name: 1 if name != "p2p" else "pull"}),
        )
        for name in knobs
    ]
    rows += [row((20.0, 20.0, 20.0), backend=peer) for peer in ("nccl", "mpi")]
    lines = summary_lines(records(*rows), 80, False)
    assert max(map(len, lines)) <= 80
    # whole: its end tells it from the others
    place = next(k for k, line in enumerate(lines) if line.startswith("  size  best"))
    first, *more = lines[place + 1 :]
    assert first.split()[-5:] == ["10.0", "0.15", "+20%", "2.00", "2.00"]
    assert " ".join([*first.split()[:-5], *" ".join(more).split()]) == (
        "1K oneshot ll128 ch 16 thr 512 chunk 1M buffer 8M slots 8 slices 2 unroll 8 p2p push"
    )


def test_the_screen_names_the_slowest_pair_and_all_shows_each() -> None:
    rows = load(DATA / "nvbandwidth.txt").records
    few, every = (summary_lines(rows, 80, show_all) for show_all in (False, True))
    place = few.index("sendrecv, 2 ranks, copy-read-ce one-way, 12 pairs of GPUs")
    assert few[place + 1] == "  slowest pair    200.0 GB/s by gpus-0-3"
    assert len([line for line in every if line.endswith("gpus-0-3 one-way")]) > 1


@pytest.fixture(scope="module")
def h200() -> list[Record]:
    return record.read(frames.H200)


@pytest.mark.exhaustive
def test_shipped_sweep(h200: Sequence[Record]) -> None:
    lines = summary_lines(h200, 80, False)
    said = "\n".join(lines)
    assert " ".join(" ".join(lines[:2]).split()) == (
        "1443 rows: 1399 ok, 44 waived; 4 x NVIDIA H200; 2026-11-21;"
        " NCCL 2.28.9 on plain buffers with NVLS off"
    )
    assert max(map(len, lines)) <= 80
    assert "protocol        ll to 64K, ll128 256K-4M, simple from 16M" in said
    assert "algorithm       oneshot to 256K, ring from 1M" in said
    assert "No row looks wrong" in said
    # Of 13 sizes of 9 operations, 5 cannot do 8 bytes with 4 blocks.
    assert len(summarise(h200).every_best) == 9 * 13 - 5
    assert len(summary_lines(h200, 120, True)) > 1399
