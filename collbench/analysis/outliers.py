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

from collbench.analysis.best import Summary, configurations
from collbench.analysis.rows import DISTURBED, Row
from collbench.results.statistics import is_noisy

# Times the time expected from the neighbours of a point: a choice, not a measurement.
FAR_FROM_CURVE = 1.5
_FAR_LOG = math.log(FAR_FROM_CURVE)
# of the ceiling: its rates are what kernels usually get, and rows a little above are known
MOST_PERCENT = 110.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A row and why it looks wrong. kind: a key of KIND_NAMES."""

    row: Row
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
        if row.method.status in ("wrong", "error")
    ]
    for line in configurations(summary).values():
        strange += [
            Suspect(row=line[place], kind="curve", why=why) for place, why in _off_curve(line)
        ]
    for row in summary.rows:
        if not row.times_us or row.method.status != "ok":
            continue
        if row.percent > MOST_PERCENT:
            strange.append(
                Suspect(row=row, kind="ceiling", why=f"{row.percent:.0f}% of what the links allow")
            )
        if row.is_noise or row.is_disturbed:
            strange.append(Suspect(row=row, kind="spread", why=_spread(row)))
    order = list(KIND_NAMES)
    return sorted(strange, key=lambda one: order.index(one.kind))


def _spread(row: Row) -> str:
    """Why the repeats of a row are hard to compare."""
    notes = [word for word in row.notes.split() if word.startswith(DISTURBED)]
    if not notes and not is_noisy(row.times_us):
        notes = ["other processes were busy"]
    if len(row.times_us) == 1:
        return ", ".join([*notes, f"one repeat of {row.times_us[0]:.4g} us"])
    spread = f"repeats {min(row.times_us):.4g} to {max(row.times_us):.4g} us"
    return ", ".join([*notes, spread])


def _off_curve(line: Sequence[Row]) -> list[tuple[int, str]]:
    """The places of rows far off the curve of the others; none if a size occurs twice."""
    sizes = [row.size_bytes for row in line]
    if len(line) < 4 or len(set(sizes)) < len(sizes) or sizes[0] <= 0:
        return []
    times = [row.time_us if row.time_us == row.time_us else row.times_us[0] for row in line]
    x, y = [math.log(size) for size in sizes], [math.log(time) for time in times]
    places: list[tuple[int, str]] = []
    for place in range(len(line)):
        excess = 0.0 if _is_near(x, y, place) else y[place] - _expected(x, y, place)
        if excess > _FAR_LOG:
            factor = math.exp(excess)
            places.append((place, f"{factor:.1f} times the time expected from its neighbours"))
        elif (
            place > 0
            and y[place - 1] - y[place] > _FAR_LOG
            and (not places or places[-1][0] != place - 1)
        ):
            factor = times[place - 1] / times[place]
            places.append((place, f"{factor:.1f} times as fast as the smaller size before it"))
    return places


def _line(x: Sequence[float], y: Sequence[float], place: int, a: int, b: int) -> float:
    """The time at a place on the line through two others."""
    return y[a] + (y[b] - y[a]) * (x[place] - x[a]) / (x[b] - x[a])


def _is_near(x: Sequence[float], y: Sequence[float], place: int) -> bool:
    """Whether a point is surely not far off: two of its four lines are no further below it, so the
    second highest is not. Most points are settled by this.
    """
    if not 2 <= place < len(x) - 2:
        return False
    if y[place] - min(y[place - 1], y[place + 1], y[place - 2], y[place + 2]) <= _FAR_LOG:
        return True
    near = _line(x, y, place, place - 1, place + 1)
    wide = _line(x, y, place, place - 2, place + 2)
    return y[place] - min(near, wide) <= _FAR_LOG


def _expected(x: Sequence[float], y: Sequence[float], place: int) -> float:
    """The longest time expected from the neighbours of a point, all logarithms; two on each side,
    so that one of them may itself be wrong.
    """
    before, after = range(max(0, place - 2), place), range(place + 1, min(len(x), place + 3))
    if not before:
        return max(y[k] for k in after)  # no size takes longer than a larger one
    if not after:
        # nor more than in proportion to the bytes
        return max(y[k] + x[place] - x[k] for k in before)
    lines = sorted([_line(x, y, place, a, b) for a in before for b in after])
    # of four, two miss a neighbour that is wrong; the widest cuts bends off
    return lines[-2] if len(lines) == 4 else lines[-1]
