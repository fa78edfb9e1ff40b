"""What `tune` shows: points that are tuned, what is taken there, and what it gains. Pure text."""

from collections.abc import Sequence
from statistics import median

from collbench.core.text import counted, table
from collbench.core.units import format_size
from collbench.tune.store import TunedPoint

_HEADS = ("collective", "size", "ranks", "choice", "instead of", "gain", "95 %")


def point_line(point: TunedPoint) -> str:
    """A point as it is found."""
    where = f"{point.op} {format_size(point.size)}, {point.ranks} ranks"
    if point.values:
        return (
            f"{where}: {point.choice}, {_gain(point)} x ({_bounds(point)}) as fast as"
            f" {point.former}"
        )
    if not point.pairs:
        return f"{where}: {point.former} stays: nothing of {point.tried} candidates was faster"
    why = ", which is not told apart" if point.is_open else ""
    return (
        f"{where}: {point.former} stays: {point.choice} is {_gain(point)} x ({_bounds(point)}) as"
        f" fast{why}"
    )


def tuned_lines(points: Sequence[TunedPoint], columns: int) -> list[str]:
    """The table of points."""
    rows = [
        (
            point.op + (f" ({point.asked})" if point.asked != "auto" else ""),
            format_size(point.size),
            str(point.ranks) + (f" on {point.hosts} hosts" if point.hosts > 1 else ""),
            point.choice if point.values else point.former,
            point.former if point.values else "",
            f"{_gain(point)} x" if point.values else "not told apart" if point.is_open else "stays",
            _bounds(point) if point.values or point.is_open else "",
        )
        for point in points
    ]
    return table(_HEADS, rows, {1, 2}, columns)


def gain_line(points: Sequence[TunedPoint]) -> str:
    """What the points gain, in a sentence."""
    gains = [point.gain for point in points if point.values]
    count = counted(len(points), "point")
    unclear = sum(point.is_open for point in points)
    them = "it" if unclear == 1 else "them"
    more = f" {unclear} not told apart: tune goes on with {them}." if unclear else ""
    if not gains:
        return f"{count}: the choice before stays everywhere.{more}"
    if len(gains) == 1:
        return f"1 of {count} gains: {gains[0]:.2f} x.{more}"
    return (
        f"{len(gains)} of {count} gain: {median(gains):.2f} x in the median, up to"
        f" {max(gains):.2f} x.{more}"
    )


def _gain(point: TunedPoint) -> str:
    return f"{point.gain:.2f}"


def _bounds(point: TunedPoint) -> str:
    return f"{point.gain_low:.2f} to {point.gain_high:.2f}"
