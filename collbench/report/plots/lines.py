"""Which curves a picture shows, and in what role: few enough to be told apart. Pure: draws
nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from collbench.analysis.curves import Curve, CurvePair, CurvePoint, automatic, envelope
from collbench.analysis.rows import LEAST_GAIN

# Configurations; more are hard to tell apart, and few hues are distinct to every reader.
MOST_COLORED = 6
MOST_PEERS = 3
MOST_CHANGED = 3  # configurations beside the envelopes of two files
Role = Literal["other", "best", "one", "peer", "auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A curve in a picture. other: thin and without a name. color: its place among the colours."""

    curve: Curve
    role: Role
    color: int = 0


def lines(curves: Sequence[Curve]) -> list[Line]:
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
        Line(curve=curve, role="other")
        for curve in curves
        if curve not in few and curve not in named
    ]
    if len(ours) > 1:
        drawn += [Line(curve=curve, role="best") for curve in envelope(ours)]
    drawn += [Line(curve=curve, role="one", color=place) for place, curve in enumerate(few)]
    drawn += [Line(curve=curve, role="peer", color=place) for place, curve in enumerate(named)]
    return drawn + [Line(curve=curve, role="auto") for curve in automatic(ours)]


def ceiling(curves: Sequence[Curve]) -> list[tuple[int, float]]:
    """The highest ceiling at each size, where one is known: (bytes, GB/s of bus bandwidth)."""
    most: dict[int, float] = {}
    for curve in curves:
        for point in curve.points:
            if not math.isnan(point.ceiling_gbs):
                most[point.bytes] = max(most.get(point.bytes, 0.0), point.ceiling_gbs)
    return sorted(most.items())


def ratios(pair: CurvePair) -> list[tuple[int, float, float, float]]:
    """(bytes, ratio, low, high) of the times, new over base; bounds are NaN without repeats."""
    base = {point.bytes: point for point in pair.base.points}
    return [
        (point.bytes, *_ratio(point, base[point.bytes]))
        for point in pair.new.points
        if point.bytes in base
    ]


def _ratio(new: CurvePoint, base: CurvePoint) -> tuple[float, float, float]:
    return (
        new.time_us / base.time_us,
        new.time_low_us / base.time_high_us,
        new.time_high_us / base.time_low_us,
    )


def shown(pairs: Sequence[CurvePair]) -> list[CurvePair]:
    """The pairs that are drawn in colour: the envelopes, libraries, and what changed most."""
    rest = [pair for pair in pairs[1:] if not pair.new.is_peer]
    peers = [pair for pair in pairs[1:] if pair.new.is_peer and pair.new.name == pair.new.backend][
        :MOST_PEERS
    ]
    if len(rest) <= MOST_CHANGED:
        return [*([pairs[0]] if len(rest) != 1 else []), *rest, *peers]
    changed = sorted(rest, key=lambda pair: -_change(pair))[:MOST_CHANGED]
    return [pairs[0], *[pair for pair in changed if _change(pair) >= math.log(LEAST_GAIN)], *peers]


def _change(pair: CurvePair) -> float:
    """How far the middle of a pair's ratios lies from no change."""
    return abs(math.log(median(ratio for _, ratio, _, _ in ratios(pair))))
