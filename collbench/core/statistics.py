"""Intervals of medians."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

COVERAGE = 0.95


class Interval(NamedTuple):
    """A value with the bounds between which the true median lies."""

    median: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """Median and the tightest pair of order statistics that covers the true median with COVERAGE;
    with fewer than 6 values, all of them.

    Distribution-free: the k-th smallest and the k-th largest of n values miss the median with
    probability 2 P(B <= k-1), B ~ Binomial(n, 1/2).

    >>> interval([3.0, 1.0, 2.0])
    Interval(median=2.0, low=1.0, high=3.0)
    """
    return Interval(*bounds(values))


def bounds(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, low and high of an interval, which takes longer to make."""
    ordered, n = sorted(values), len(values)
    drop, half = _dropped(n) if n > 5 else 0, n // 2
    middle = ordered[half] if n % 2 else (ordered[half - 1] + ordered[half]) / 2
    return middle, ordered[drop], ordered[n - 1 - drop]


@cache
def _dropped(n: int) -> int:
    """How many of n values lie outside of their interval on each side."""
    part, whole = (1 - COVERAGE).as_integer_ratio()
    drop, limit = 0, (part << n) // (2 * whole)  # of the 2**n ways to be above or below the median
    ways, missed = n, 1 + n  # by the second smallest value
    while missed <= limit:
        drop += 1
        ways = ways * (n - drop) // (drop + 1)
        missed += ways
    return drop
