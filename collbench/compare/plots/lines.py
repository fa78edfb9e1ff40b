"""Which curves a picture shows, and in what role: few enough to be told apart. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from collbench.compare.curves import Curve, automatic, envelope

# Configurations; more are hard to tell apart, and few hues are distinct to every reader.
MOST_COLORED = 6
MOST_PEERS = 3
# The speed over a library's best, the percent of the ceiling, bandwidths, the time.
Kind = Literal["peer", "wire", "busbw", "algbw", "time"]
Role = Literal["other", "best", "one", "peer", "auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLine:
    """A curve in a picture. other: thin and without a name. color: its place among the colours."""

    curve: Curve
    role: Role
    color: int = 0


def lines(curves: Sequence[Curve]) -> list[PlotLine]:
    """The lines of one group; those that are best at the most sizes have colours."""
    ours = [curve for curve in curves if not curve.is_peer] or list(curves)
    peers = [curve for curve in curves if curve.is_peer] if len(ours) < len(curves) else []
    # a library's own choice first
    named = sorted(peers, key=lambda curve: curve.name != curve.backend)[:MOST_PEERS]
    few = (
        ours
        if len(ours) <= MOST_COLORED
        else sorted((curve for curve in ours if curve.best), key=lambda curve: -len(curve.best))[
            :MOST_COLORED
        ]
    )
    drawn = [
        PlotLine(curve=curve, role="other")
        for curve in curves
        if curve not in few and curve not in named
    ]
    if len(ours) > 1:
        drawn += [PlotLine(curve=curve, role="best") for curve in envelope(ours)]
    drawn += [PlotLine(curve=curve, role="one", color=place) for place, curve in enumerate(few)]
    drawn += [PlotLine(curve=curve, role="peer", color=place) for place, curve in enumerate(named)]
    return drawn + [PlotLine(curve=curve, role="auto") for curve in automatic(ours)]


def rivals(curves: Sequence[Curve]) -> dict[int, float]:
    """The least time of a library's own choice at each size, in microseconds."""
    least: dict[int, float] = {}
    for curve in curves:
        for point in curve.points if curve.is_own_choice else ():
            least[point.bytes] = min(least.get(point.bytes, math.inf), point.time_us)
    return least


def kinds(curves: Sequence[Curve]) -> list[Kind]:
    """What can be drawn of curves: the distance from a library's best, if there is anything else,
    and from the ceiling first; always two or more.
    """
    points = [point for curve in curves for point in curve.points]
    has_rival = any(curve.is_own_choice for curve in curves) and not all(
        curve.is_peer for curve in curves
    )
    found: list[Kind] = ["peer"] if has_rival else []
    found += ["wire"] if any(point.busbw_gbs / point.ceiling_gbs > 0 for point in points) else []
    found += ["busbw"] if any(point.busbw_gbs > 0 for point in points) else ["algbw"]
    return [*found, "time"]


def values(
    curve: Curve, kind: Kind, rival_us: Mapping[int, float]
) -> list[tuple[int, float, float, float]]:
    """(bytes, value, low, high) of the points that have one; bounds are NaN without repeats."""
    found = []
    for point in curve.points:
        of_time: dict[Kind, float] = {
            "peer": rival_us.get(point.bytes, math.nan),
            "wire": 100 * point.busbw_gbs / point.ceiling_gbs * point.time_us,
            "busbw": point.busbw_gbs * point.time_us,
            "algbw": point.algbw_gbs * point.time_us,
        }
        times = (point.time_us, point.time_high_us, point.time_low_us)
        if kind == "time":
            value, low, high = point.time_us, point.time_low_us, point.time_high_us
        else:
            value, low, high = (of_time[kind] / time for time in times)
        if point.bytes > 0 and value > 0:
            found.append((point.bytes, value, low, high))
    return found
