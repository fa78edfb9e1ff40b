"""Rows that look wrong: wrong data, times that no smooth curve explains, and repeats that disagree
too much to compare them. Pure.

Time against size of one configuration bends upwards: flat while latency dominates, then in
proportion to the bytes. So, on logarithmic axes, a point well above the line between its
neighbours, or a size slower than a larger one, looks wrong; a point below the line is a bend like
any other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from collbench.compare.best import Summary, configurations
from collbench.compare.noise import Places
from collbench.core.limits import FAR_FROM_CURVE, MOST_PERCENT
from collbench.core.record import NOT_TRUE, Record
from collbench.core.rows import DISTURBED, is_noise, is_timed, names_disturbance, times_of
from collbench.core.verdict import Array, is_noisy

_FAR_LOG = math.log(FAR_FROM_CURVE)
_NEAR = 2  # neighbours on each side that a point is held against
_LEAST_POINTS = 4  # of a line, to judge any of them
_LINES_AT_ONCE = 10_000  # so that little memory is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A row and why it looks wrong. kind: a key of KIND_NAMES."""

    row: Record
    kind: str
    why: str


# Worst first.
KIND_NAMES = {
    "wrong": "wrong or failed",
    "curve": "far from a smooth curve",
    "ceiling": "above the ceiling",
    "spread": "too noisy to compare",
}


def suspects(summary: Summary) -> list[Suspect]:
    """All rows that look wrong, by kind, then in the order of the file."""
    strange = [
        Suspect(row=row, kind="wrong", why=row.reason or f"status {row.status}")
        for row in summary.rows
        if row.status in (*NOT_TRUE, "error")
    ]
    lines = [line for line in configurations(summary).values() if len(line) >= _LEAST_POINTS]
    for first in range(0, len(lines), _LINES_AT_ONCE):
        strange += [
            Suspect(row=row, kind="curve", why=why)
            for row, why in _off_curve(lines[first : first + _LINES_AT_ONCE])
        ]
    for row in summary.rows:
        is_doubtful = is_noise(row) or names_disturbance(row.notes)
        is_too_fast = (row.percent or 0.0) > MOST_PERCENT
        if not (is_doubtful or is_too_fast) or not is_timed(row):
            continue
        if is_too_fast:
            strange.append(
                Suspect(row=row, kind="ceiling", why=f"{row.percent:.0f}% of what the links allow")
            )
        if is_doubtful:
            strange.append(Suspect(row=row, kind="spread", why=_spread(row)))
    order = list(KIND_NAMES)
    return sorted(strange, key=lambda one: order.index(one.kind))


def _spread(row: Record) -> str:
    """Why the repeats of a row are hard to compare."""
    notes = [word for word in row.notes.split() if word.startswith(DISTURBED)]
    if not notes and not is_noisy(times_of(row)):
        notes = ["other processes were busy"]
    if len(times_of(row)) == 1:
        return ", ".join([*notes, f"one repeat of {times_of(row)[0]:.4g} us"])
    spread = f"repeats {min(times_of(row)):.4g} to {max(times_of(row)):.4g} us"
    return ", ".join([*notes, spread])


def _off_curve(lines: Sequence[Sequence[Record]]) -> list[tuple[Record, str]]:
    """The rows far off the curve of the others of their line, and why; none of a line in which a
    size occurs twice. In a line sizes ascend.
    """
    rows = list(chain.from_iterable(lines))
    line = np.repeat(np.arange(len(lines)), [len(one) for one in lines])
    sizes = np.array([row.size_bytes for row in rows], dtype=np.float64)
    times = np.array([row.time_us or times_of(row)[0] for row in rows], dtype=np.float64)
    is_curve = ~np.isin(line, line[(sizes <= 0) | (sizes == _beside(line, sizes, 1))])
    x, y = (np.log(np.where(is_curve, values, math.nan)) for values in (sizes, times))
    excess = y - _expected(line, x, y)
    is_far, is_drop = excess > _FAR_LOG, _beside(line, y, -1) - y > _FAR_LOG
    off: list[tuple[Record, str]] = []
    last = -1
    for place in np.flatnonzero(is_far | is_drop).tolist():
        if is_far[place]:
            factor = math.exp(excess[place])
            why = f"{factor:.1f} times the time expected from its neighbours"
        elif last != place - 1:  # else the size before it is off
            factor = times[place - 1] / times[place]
            why = f"{factor:.1f} times as fast as the smaller size before it"
        else:
            continue
        off.append((rows[place], why))
        last = place
    return off


def _beside(line: Places, values: Array, steps: int) -> Array:
    """Of each point what the point so many places on in its line has; NaN where there is none."""
    here = slice(_NEAR + steps, _NEAR + steps + len(values))
    is_there = np.pad(line, _NEAR, constant_values=-1)[here] == line
    return np.where(is_there, np.pad(values, _NEAR)[here], math.nan)


def _expected(line: Places, x: Array, y: Array) -> Array:
    """The longest time expected from the neighbours of each point, all logarithms; two on each
    side, so that one of them may itself be wrong.
    """
    before, after = (
        [(_beside(line, x, steps), _beside(line, y, steps)) for steps in side]
        for side in ((-1, -2), (1, 2))
    )
    lines = np.sort(
        [ya + (yb - ya) * (x - xa) / (xb - xa) for xa, ya in before for xb, yb in after], axis=0
    )
    # of four, two miss a neighbour that is wrong; the widest cuts bends off
    between = np.where(np.isnan(lines[-1]), np.fmax.reduce(lines), lines[-2])
    # no size takes longer than a larger one, nor more than in proportion to the bytes
    first = np.fmax(*(yb for _, yb in after))
    last = np.fmax(*(ya + x - xa for xa, ya in before))
    return np.where(np.isnan(before[0][1]), first, np.where(np.isnan(after[0][1]), last, between))
