"""The history of a machine: where points changed for good, and how often that is a false alarm."""

from collections.abc import Callable

import numpy as np
import pytest

from collbench.compare.history import History, Run, history, segments
from collbench.core.limits import HISTORY_RUNS
from collbench.core.verdict import Array
from tests.support.frames import frame, repeats, row

SCALE = 0.02
Draw = Callable[[np.random.Generator, tuple[int, int]], Array]
# Shapes of noise: near normal, heavy tails, and one run in twenty that was disturbed.
NOISE: dict[str, Draw] = {
    "normal": lambda random, shape: random.normal(size=shape),
    "t3": lambda random, shape: random.standard_t(3, size=shape),
    "disturbed": lambda random, shape: (
        random.normal(size=shape) + 20 * (random.random(shape) < 0.05)
    ),
}


def over(times: Array) -> History | None:
    """The history of points (rows) over runs (columns), in microseconds."""
    points = frame(*[row((1.0,), size_bytes=8 << k) for k in range(len(times))])
    frames = [
        points.assign(time_us=column, repeat_times_us=repeats([(time,) for time in column]))
        for column in times.T
    ]
    runs = [Run(f"@{len(frames) - k}", f"2026-01-{k + 1:02}", one) for k, one in enumerate(frames)]
    return history(runs, frames[-1])


@pytest.mark.daily(3)
@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("runs", [5, 8, 20])
def test_at_most_one_false_alarm_in_a_hundred_points(kind: str, runs: int) -> None:
    noise = NOISE[kind](np.random.default_rng(runs), (200, runs))
    known = over(10 * np.exp(SCALE * noise))
    assert known is not None
    assert len(known.changed) <= 2


@pytest.mark.parametrize("kind", NOISE)
def test_a_shift_of_eight_scales_is_found_where_it_is(kind: str) -> None:
    noise = NOISE[kind](np.random.default_rng(3), (40, 12))
    noise[:20, 7:] += 8
    known = over(10 * np.exp(SCALE * noise))
    assert known is not None
    found = [one for one in known.changed if one.point["size_bytes"] < 8 << 20]
    assert len(found) >= 17
    assert sum(7 in one.changes for one in found) >= 17
    worst = max(known.events, key=lambda event: event.slower)
    assert (worst.run, worst.faster) == (7, 0)
    assert worst.ratio == pytest.approx(np.exp(8 * SCALE), rel=0.03)


def test_two_slow_runs_are_no_change_and_three_are() -> None:
    for slow, wanted in ((2, []), (3, [5])):
        values = [0.0, 0.01, 0.0, 0.01, 0.0, *[0.5] * slow]
        assert segments(values, 0.01)[0] == wanted


def test_few_runs_or_other_points_are_no_history() -> None:
    flat = np.full((3, HISTORY_RUNS), 10.0)
    assert over(flat) is not None
    assert over(flat[:, 1:]) is None
    runs = [Run("@1", "", frame(row((10.0,), size_bytes=1 << k))) for k in range(8)]
    assert history(runs, frame(row((10.0,), size_bytes=3))) is None
