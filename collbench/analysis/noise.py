"""How far two runs of one thing may differ by chance, row by row: the statistics below `changes`.

A row has three repeats or so, too few to know its spread; so rows share theirs. The spread
of a row is drawn towards that of rows of like size and the same backend (moderated variance,
Smyth 2004, "Linear models and empirical Bayes methods", section 4). What repeats within one run
cannot show, the difference between two runs of the same thing, is taken from how far the rows'
ratios scatter around their neighbours', on the assumption that most rows did not change. Rows are
judged together by the step-up rule of Benjamini and Hochberg (1995). Logarithms of times
throughout: 0.01 is one percent.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from collbench.results.statistics import COVERAGE

Array: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.intp]
Names: TypeAlias = NDArray[np.str_]

MAD_TO_SD = 1.4826  # of a normal distribution
# rows of like size that a spread or a drift is taken from: a median absolute deviation of fewer is
# off by a third
WINDOW_ROWS = 24
# of the rows called better or worse, how many may be so by chance (Benjamini and Hochberg's q)
FALSE_SHARE = 0.05
# that all rows of like size may share between two runs without anything having changed, where
# repeats spread less than this
DRIFT = 0.015
MOST_DRIFT = 0.25
# between runs, where rows cannot show it because they are not of the same thing
UNSEEN_SPREAD = 0.01
ONE_SHOT_SPREAD = 0.03  # the same where there are no repeats either
# times the repeats' spread: rows that scatter more than this between two runs changed, each in its
# own way
MOST_BETWEEN = 3.0
MOST_INFLATION = 3.0
SINGLE_Z = NormalDist().inv_cdf(1 - (1 - COVERAGE) / 2)  # of one interval by itself
MOST_DF, LEAST_DF = 200.0, 2.0
_TINY = 1e-5  # spread of times that are equal in the six digits of a CSV file
# of the median of n normal values, in variances
_MEDIAN_VARIANCE = (math.nan, 1.0, 0.5, 0.4487, 0.2982, 0.2868, 0.2147, 0.2104)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Joined rows as numbers: change = ln(new/base); spread = of one repeat, NaN without repeats,
    with `freedom` degrees; share = of a spread's variance.
    """

    change: Array
    variance: Array
    freedom: Array
    share: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Of every row: the standard error of its change, degrees of freedom, and the drift it shares
    with its neighbours; and the typical repeat's spread.
    """

    error: Array
    freedom: Array
    drift: Array
    repeat_spread: float
    between_spread: float


def median_variance(counts: Array) -> Array:
    """Variance of the median of so many repeats, as a share of one repeat's.

    >>> [round(float(share), 3) for share in median_variance(np.array([1.0, 3.0, 20.0]))]
    [1.0, 0.449, 0.079]
    """
    known = np.array(_MEDIAN_VARIANCE)
    places = np.minimum(counts, len(known) - 1).astype(int)
    return np.where(counts < len(known), known[places], math.pi / 2 / np.maximum(counts, 1.0))


def z_of_t(t: Array, freedom: Array) -> Array:
    """The normal deviate as unlikely as Student's t (Wallace 1959); its inverse is t_of_z.

    >>> round(float(z_of_t(np.array([2.776]), np.array([4.0]))[0]), 2)
    1.95
    """
    return np.sqrt(freedom * np.log1p(t * t / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)


def t_of_z(z: float, freedom: Array) -> Array:
    """Student's t as unlikely as a normal deviate.

    >>> round(float(t_of_z(1.96, np.array([4.0]))[0]), 1)
    2.8
    """
    scaled = z * (8 * freedom + 3) / (8 * freedom + 1)
    return np.sqrt(freedom * np.expm1(np.minimum(scaled * scaled / freedom, 50.0)))


def is_sure(z: Array) -> NDArray[np.bool_]:
    """Which deviates count, of so many tested together (Benjamini and Hochberg).

    >>> (
    ...     is_sure(np.array([2.0])).tolist(),
    ...     is_sure(np.array([2.0, 0.1, 0.1])).tolist(),
    ...     is_sure(np.array([2.5, 2.5, 0.1])).tolist(),
    ... )
    ([True], [False, False, False], [True, True, False])
    """
    chance = np.array([math.erfc(value / math.sqrt(2)) for value in z])
    ordered = np.sort(chance)
    passed = np.flatnonzero(ordered <= FALSE_SHARE * np.arange(1, len(z) + 1) / max(len(z), 1))
    return chance <= ordered[passed[-1]] if len(passed) else np.zeros(len(z), dtype=np.bool_)


def noise(sides: Sides, sizes: Array, backends: Names, groups: Places, *, is_alike: bool) -> Noise:
    """What chance does to every row. is_alike: both sides measured the same things, so that most
    rows should agree.

    groups: a number for rows that may have changed together, whose common change is no scatter.
    """
    rows = len(sides.change)
    windows, places = _windows(sizes, backends)
    spread2, freedom = _moderated(sides, windows, places)
    has_repeats = bool(np.isfinite(spread2).any())
    within2 = np.where(np.isfinite(spread2), spread2, 0.0) * sides.share
    repeat_spread = float(np.sqrt(np.nanmedian(spread2))) if has_repeats else math.nan
    if not is_alike:
        between = UNSEEN_SPREAD if has_repeats else ONE_SHOT_SPREAD
        error = np.sqrt(within2 + between**2)
        return Noise(
            error=error,
            freedom=freedom,
            drift=np.zeros(rows),
            repeat_spread=repeat_spread,
            between_spread=between,
        )
    allowed = min(max(DRIFT, repeat_spread), MOST_DRIFT) if has_repeats else ONE_SHOT_SPREAD
    centre = np.array([np.median(sides.change[window]) for window in windows])[places]
    rest = _without_groups(sides.change - centre, groups)
    between2 = np.empty(len(windows))
    for number, window in enumerate(windows):
        scatter2 = (
            MAD_TO_SD * float(np.median(np.abs(rest[window] - np.median(rest[window]))))
        ) ** 2
        own = (
            float(np.sqrt(np.nanmedian(spread2[window])))
            if np.isfinite(spread2[window]).any()
            else 0.0
        )
        most = max(DRIFT, MOST_BETWEEN * own) if own else max(ONE_SHOT_SPREAD, allowed)
        between2[number] = min(max(scatter2 - float(np.median(within2[window])), 0.0), most**2)
    error = np.sqrt(within2 + between2[places] + _TINY**2)
    freedom = np.minimum(freedom, max(LEAST_DF, rows - 1.0)) if not has_repeats else freedom
    wide = float(np.quantile(z_of_t(rest / error, freedom), 0.8)) / NormalDist().inv_cdf(0.9)
    error = error * min(max(wide, 1.0), MOST_INFLATION)
    return Noise(
        error=error,
        freedom=freedom,
        drift=np.clip(centre, -allowed, allowed),
        repeat_spread=repeat_spread,
        between_spread=float(np.sqrt(np.median(between2[places]))),
    )


def _without_groups(rest: Array, groups: Places) -> Array:
    """What is left when every group of some size is moved to its median."""
    order = np.argsort(groups, kind="stable")
    moved = rest.copy()
    for part in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        if len(part) >= 8:  # of fewer, the median would take their own scatter away
            moved[part] -= np.median(rest[part])
    return moved


def _windows(sizes: Array, backends: Names) -> tuple[list[Places], Places]:
    """Rows of one backend (of all, if it has few) and similar size; the window of each row."""
    windows: list[Places] = []
    places = np.zeros(len(sizes), dtype=np.intp)
    everyone = np.argsort(sizes, kind="stable")
    for backend in np.unique(backends):
        mine = everyone[backends[everyone] == backend]
        pool = mine if len(mine) >= WINDOW_ROWS else everyone
        sorted_sizes = sizes[pool]
        for size in np.unique(sizes[mine]):
            low = int(np.searchsorted(sorted_sizes, size, "left"))
            high = int(np.searchsorted(sorted_sizes, size, "right"))
            missing = max(0, WINDOW_ROWS - (high - low))
            low, high = max(0, low - (missing + 1) // 2), min(len(pool), high + (missing + 1) // 2)
            if high - low < WINDOW_ROWS:  # at an end of the sizes
                low, high = (
                    (0, min(len(pool), WINDOW_ROWS))
                    if low == 0
                    else (max(0, high - WINDOW_ROWS), high)
                )
            places[mine[sizes[mine] == size]] = len(windows)
            windows.append(pool[low:high])
    return windows, places


def _moderated(sides: Sides, windows: list[Places], places: Places) -> tuple[Array, Array]:
    """The variance of a repeat, drawn towards its window's, and its degrees of freedom."""
    has_repeats = sides.freedom > 0
    floored = np.maximum(sides.variance, _TINY**2)
    # the median of chi square over its mean (Wilson and Hilferty 1931)
    unbiased = floored / (1 - 2 / (9 * np.maximum(sides.freedom, 1.0))) ** 3
    everyone = float(np.median(unbiased[has_repeats])) if has_repeats.any() else math.nan
    typical = np.array(
        [
            (
                np.median(unbiased[window[has_repeats[window]]])
                if has_repeats[window].any()
                else everyone
            )
            for window in windows
        ]
    )[places]
    if not has_repeats.any():
        return typical, np.full(len(places), MOST_DF)
    prior = _prior_freedom((floored / typical)[has_repeats], sides.freedom[has_repeats])
    total = sides.freedom + prior
    return (prior * typical + np.where(has_repeats, sides.freedom * floored, 0.0)) / total, np.clip(
        total, LEAST_DF, MOST_DF
    )


def _prior_freedom(ratio: Array, freedom: Array) -> float:
    """The weight of the neighbours' spread, in degrees of freedom."""
    kinds, counts = np.unique(freedom, return_counts=True)
    expected = sum(
        _trigamma(float(kind) / 2) * int(count) for kind, count in zip(kinds, counts, strict=True)
    ) / max(len(ratio), 1)
    excess = float(np.var(np.log(ratio))) - expected
    if excess <= _trigamma(MOST_DF / 2):
        return MOST_DF
    low, high = 0.5, MOST_DF
    for _ in range(60):  # trigamma falls
        middle = (low + high) / 2
        low, high = (middle, high) if _trigamma(middle / 2) > excess else (low, middle)
    return low


def _trigamma(x: float) -> float:
    """The second derivative of ln gamma, to six digits (Abramowitz and Stegun 6.4.6 and 6.4.12).

    >>> round(_trigamma(1.0), 5)
    1.64493
    """
    total = 0.0
    while x < 6:
        total, x = total + 1 / x**2, x + 1
    return total + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5)
