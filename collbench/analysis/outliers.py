"""Rows that look wrong: wrong data, times that no smooth curve explains, and repeats that disagree
too much to tell. Pure.

Time against size of one configuration bends upwards: flat while latency rules, then in proportion
to the bytes. So, on logarithmic axes, a point well above the line between its neighbours, or a size
slower than a larger one, is told; a point below the line is a bend like any other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from collbench.analysis.best import Answers, curves
from collbench.analysis.rows import Row
from collbench.results.statistics import NOISY_SPREAD, is_noisy

FAR = 1.5  # times the time that the neighbours of a point let expect: a choice, not a measurement
_FAR_LOG = math.log(FAR)
_AGREE = 1 + NOISY_SPREAD  # the slowest over the fastest: up to here repeats cannot be noisy
# of the ceiling: its rates are what kernels usually get, and rows a little above are known
MOST_PERCENT = 110.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A row and why it looks wrong. kind: wrong, curve, ceiling or spread, worst first."""

    row: Row
    kind: str
    why: str


KINDS = ("wrong", "curve", "ceiling", "spread")


def suspects(found: Answers) -> list[Suspect]:
    """All rows that look wrong, by kind, then in the order of the file."""
    said = [
        Suspect(row=row, kind="wrong", why=row.reason or f"status {row.status}")
        for row in found.rows
        if row.status in ("wrong", "error")
    ]
    for line in curves(found).values():
        said += [Suspect(row=line[place], kind="curve", why=why) for place, why in _off_curve(line)]
    for row in found.rows:
        if row.status != "ok" or not row.times_us:
            continue
        if row.percent > MOST_PERCENT:
            said.append(
                Suspect(row=row, kind="ceiling", why=f"{row.percent:.0f}% of what the wires allow")
            )
        if (
            row.is_disturbed
            or row.has_note("noisy")
            or (max(row.times_us) > _AGREE * min(row.times_us) and is_noisy(row.times_us))
        ):
            said.append(Suspect(row=row, kind="spread", why=_spread(row)))
    return sorted(said, key=lambda one: KINDS.index(one.kind))


def _spread(row: Row) -> str:
    """Why a row's repeats cannot tell much."""
    notes = [
        word
        for word in row.notes.split()
        if word.startswith(("throttled", "clocks-low", "other-processes"))
    ]
    spread = f"repeats {min(row.times_us):.4g} to {max(row.times_us):.4g} us"
    return ", ".join([*notes, spread])


def _off_curve(line: Sequence[Row]) -> list[tuple[int, str]]:
    """Places of rows that are far off the curve that the others make; sizes that occur twice end
    the search, as they show no curve.
    """
    sizes = [row.size_bytes for row in line]
    if len(line) < 4 or len(set(sizes)) < len(sizes) or sizes[0] <= 0:
        return []
    times = [row.time_us if row.time_us == row.time_us else row.times_us[0] for row in line]
    x, y = [math.log(size) for size in sizes], [math.log(time) for time in times]
    found: list[tuple[int, str]] = []
    for place in range(len(line)):
        excess = y[place] - _wanted(x, y, place)
        if excess > _FAR_LOG:
            found.append(
                (place, f"{math.exp(excess):.1f} times the time that its neighbours let expect")
            )
        elif (
            place > 0
            and y[place - 1] - y[place] > _FAR_LOG
            and (not found or found[-1][0] != place - 1)
        ):
            found.append(
                (
                    place,
                    (
                        f"{times[place - 1] / times[place]:.1f} times as fast as the smaller size"
                        " before it"
                    ),
                )
            )
    return found


def _wanted(x: Sequence[float], y: Sequence[float], place: int) -> float:
    """The longest time that the neighbours of a point let expect, all logarithms; two on each side,
    so that one of them may itself be wrong.
    """
    before, after = range(max(0, place - 2), place), range(place + 1, min(len(x), place + 3))
    if not before:
        return max(y[k] for k in after)  # no size takes longer than a larger one
    if not after:
        # nor more than in proportion to the bytes
        return max(y[k] + x[place] - x[k] for k in before)
    lines = sorted(
        [y[a] + (y[b] - y[a]) * (x[place] - x[a]) / (x[b] - x[a]) for a in before for b in after]
    )
    # of four, two miss a neighbour that is wrong; the widest cuts bends off
    return lines[-2] if len(lines) == 4 else lines[-1]
