"""Is A slower than B, which is best, and is that sure: the statistics that every command asks. What
they decide by is in core/limits.py.

Changes are logarithms of ratios of times: 0.01 is one percent. A time is the median of its repeats,
and how far repeats differ is read from the closest half of them, so that no single repeat makes a
statement. What repeats of one run cannot show, how far a row moves from one run to the next
(placement of buffers, order of processes, clocks), has tails heavier than the normal
distribution's: Student's t. Many questions are answered at once, so each has a part of the chance
of a false answer (Holm 1979). How often the answers are right is in docs/results/comparisons.md.
"""

import math
from bisect import insort
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from statistics import NormalDist
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from collbench.core.limits import (
    FALSE_CLAIM,
    FAR,
    LEAST_DEVIATE,
    LEAST_GAIN,
    LEAST_SCALE,
    LEAST_SEGMENT,
    MAD_TO_SD,
    NEIGHBOUR_FREEDOM,
    NOISY_SCALE,
    OUTLIER_MOVES,
    PENALTY,
    SINGLE_Z,
    SURE_Z,
)

Array: TypeAlias = NDArray[np.float64]
Verdict = Literal["better", "worse", "same", "cannot tell"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

_NORMAL = NormalDist()
_LENGTHS = (1, 2, 4, 8)  # neighbouring sizes judged together; longer: what a process has in common
# of t with 3 degrees of freedom: of its scale in its standard deviation; and of the scale of a
# difference of two such values, whose tails, which decide, are twice as heavy as those of one
_SCALE_OF_SD = 1 / math.sqrt(3)
_SCALE_OF_TWO = 2 ** (1 / 3)
_LEAST_TAIL = 1e-300
# Of n normal values: the standard deviation over the width of the closest half, by its mean square
# and by its median (simulated); of more, by the normal quartiles.
_BY_SQUARE = (math.nan, math.nan, 0.706, 1.701, 0.876, 1.341, 0.918, 1.197, 0.921, 1.115)
_BY_MEDIAN = (math.nan, math.nan, 1.045, 2.769, 1.106, 1.690, 1.068, 1.389, 1.030, 1.244)
_OF_MANY = 0.741
# of the median of n normal values, in variances
_MEDIAN_VARIANCE = (math.nan, 1.0, 0.5, 0.4487, 0.2982, 0.2868, 0.2147, 0.2104)
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


def middle(values: Sequence[float]) -> float:
    """The median of numbers that are there, in a third of the time of `statistics`."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def middle_time(times: Sequence[float]) -> float:
    """The median of times as comparisons take it: of two in the middle, the geometric mean."""
    return math.exp(middle(list(map(math.log, times))))


def middle_of(values: Array) -> float:
    """The median of an array without NaN, in a fifth of the time of numpy's.

    >>> middle_of(np.array([3.0, 1.0, 2.0])), middle_of(np.array([4.0, 1.0, 2.0, 3.0]))
    (2.0, 2.5)
    """
    half = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, half)[half])
    below, above = np.partition(values, (half - 1, half))[half - 1 : half + 1]
    return float(below + above) / 2


def closest_half(table: Array) -> Array:
    """Of each row of sorted logarithms the width of its closest half: see repeat_scale."""
    half = table.shape[1] // 2 + 1
    width: Array = (table[:, half - 1 :] - table[:, : table.shape[1] - half + 1]).min(axis=1)
    return width


def by_square(repeats: int) -> float:
    """The standard deviation over the width of the closest half of so many values."""
    return _BY_SQUARE[repeats] if repeats < len(_BY_SQUARE) else _OF_MANY


def by_median(repeats: int) -> float:
    """The same for a median of many such widths."""
    return _BY_MEDIAN[repeats] if repeats < len(_BY_MEDIAN) else _OF_MANY


def repeat_scale(times: Sequence[float]) -> float:
    """How far repeats differ, as a standard deviation of logarithms: from the closest half of them,
    so that one outlier of three says nothing. NaN of one repeat.

    >>> round(repeat_scale([1.0, 1.01, 1.02]), 3), round(repeat_scale([1.0, 1.01, 10.0]), 3)
    (0.017, 0.017)
    """
    if len(times) < 2:
        return math.nan
    ordered = sorted(map(math.log, times))
    half = len(ordered) // 2 + 1
    width = min(high - low for low, high in zip(ordered, ordered[half - 1 :], strict=False))
    return width * by_square(len(ordered))


def is_noisy(times: Sequence[float]) -> bool:
    """Whether repeats disagree: by more than NOISY_SCALE, whatever one of them is.

    >>> is_noisy([1.0, 1.05, 1.6]), is_noisy([1.0, 1.3, 1.6])
    (False, True)
    """
    return len(times) > 1 and repeat_scale(times) > NOISY_SCALE


def may_move(times: Sequence[float]) -> bool:
    """Whether one repeat that is far off moves the median by more than OUTLIER_MOVES, so that more
    repeats are wanted.

    >>> (
    ...     may_move([1.0, 1.01, 1.02]),
    ...     may_move([1.0, 1.01, 9.0]),
    ...     may_move([1.0, 1.01, 9.0, 1.02, 1.0]),
    ... )
    (False, True, False)
    """
    ordered, half = sorted(times), len(times) // 2
    if len(ordered) < 2:
        return False
    slower = ordered[min(half + 1, len(ordered) - 1)]
    return max(slower / ordered[half], ordered[half] / ordered[half - 1]) > OUTLIER_MOVES


def moderated(own: float, repeats: int, typical: float) -> float:
    """The standard deviation of the median of a row's repeats: its own, drawn towards that of like
    rows (moderated variance, Smyth 2004). typical is NaN where there are no like rows.
    """
    freedom = (repeats + 1) / 4  # of the closest half; simulated
    if typical != typical:
        spread = own
    elif own != own:
        spread = typical
    else:
        both = NEIGHBOUR_FREEDOM * typical**2 + freedom * own**2
        spread = math.sqrt(both / (NEIGHBOUR_FREEDOM + freedom))
    return spread * math.sqrt(_median_share(repeats))


@cache
def _median_share(repeats: int) -> float:
    return float(median_variance(np.array([float(repeats)]))[0])


def scale_of_two(one: Sequence[float], other: Sequence[float]) -> float:
    """The standard deviation of the ratio of two medians, from their own repeats alone, all taken
    together; NaN where neither has two.
    """
    known = [
        (repeat_scale(times), (len(times) + 1) / 4) for times in (one, other) if len(times) > 1
    ]
    if not known:
        return math.nan
    variance = sum(own**2 * freedom for own, freedom in known) / sum(part for _, part in known)
    return math.sqrt(variance * (_median_share(len(one)) + _median_share(len(other))))


def is_separated(faster: Sequence[float], slower: Sequence[float]) -> bool:
    """Whether repeats show that one is faster, where nothing else is known: at least two of each,
    and the medians differ by SURE_Z of what the repeats allow.

    >>> (
    ...     is_separated([1.0, 1.1], [1.5, 1.6]),
    ...     is_separated([1.0, 1.25], [1.2, 1.3]),
    ...     is_separated([1.0], [2.0]),
    ... )
    (True, False, False)
    """
    if min(len(faster), len(slower)) < 2:
        return False
    return math.log(middle(slower) / middle(faster)) > SURE_Z * scale_of_two(faster, slower)


def ratio_of(ratio: float, scale: float) -> Interval:
    """A ratio with the interval that covers 95 of 100.

    >>> ratio_of(2.0, 0.0)
    Interval(median=2.0, low=2.0, high=2.0)
    """
    half = math.exp(SINGLE_Z * scale)
    return Interval(ratio, ratio / half, ratio * half)


def verdict_of(speedup: Interval | None, *, is_certain: bool = True) -> Verdict:
    """Whether something is faster, by its speedup: better or worse where the interval excludes that
    it is not, and by LEAST_GAIN; same where it is less for sure.

    >>> verdict_of(Interval(1.5, 1.4, 1.6)), verdict_of(Interval(1.01, 1.005, 1.015))
    ('better', 'same')
    >>> verdict_of(Interval(0.9, 0.8, 1.1)), verdict_of(Interval(0.9, math.nan, math.nan))
    ('cannot tell', 'cannot tell')
    """
    if speedup is None or not is_certain or speedup.low != speedup.low:
        return "cannot tell"
    if speedup.low > 1 and speedup.median >= LEAST_GAIN:
        return "better"
    if speedup.high < 1 and speedup.median * LEAST_GAIN <= 1:
        return "worse"
    is_near = speedup.low * LEAST_GAIN >= 1 and speedup.high <= LEAST_GAIN
    return "same" if is_near or speedup.low > 1 or speedup.high < 1 else "cannot tell"


def luck(scale: float, rivals: int) -> float:
    """By how much the fastest of so many like rows is too fast by chance: the mean of the largest
    of so many normal values (Blom 1958).

    >>> luck(0.01, 1), round(luck(0.01, 10), 4)
    (0.0, 0.0155)
    """
    return scale * _NORMAL.inv_cdf((rivals - 0.375) / (rivals + 0.25)) if rivals > 1 else 0.0


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


def z_of_f(ratio: float, above: float, below: float) -> float:
    """The normal deviate as unlikely as a ratio of two variances, by their degrees of freedom
    (Paulson 1942).

    >>> round(z_of_f(9.15, 4, 6), 1)  # exceeded by 1 of 100
    2.3
    """
    a, b, root = 2 / (9 * above), 2 / (9 * below), ratio ** (1 / 3)
    return float(((1 - b) * root - (1 - a)) / math.sqrt(b * root * root + a))


def are_sure(chances: Array, level: float) -> NDArray[np.bool_]:
    """Which chances count, of so many tested together: a call anywhere by chance in `level` of all
    comparisons (Holm 1979).

    >>> are_sure(np.array([0.001, 0.02, 0.5]), 0.05).tolist()
    [True, True, False]
    >>> are_sure(np.array([0.03, 0.5]), 0.05).tolist()
    [False, False]
    """
    order = np.argsort(chances, kind="stable")
    passed = chances[order] * np.arange(len(chances), 0, -1) <= level
    first = int(np.argmin(passed)) if not passed.all() else len(passed)
    sure = np.zeros(len(chances), dtype=np.bool_)
    sure[order[:first]] = True
    return sure


def scale_of(between: float, *times: Sequence[float]) -> float:
    """The scale of t of a change between medians of repeats: from the standard deviation of one of
    them between runs and from the repeats of each side, which show their own spread if they are two
    or more.

    >>> round(scale_of(0.03), 4), round(scale_of(0.03, [1.0, 1.01, 0.99], [2.0]), 4)
    (0.0218, 0.0228)
    """
    variance = (_SCALE_OF_TWO * between) ** 2
    for side in times:
        if len(side) > 1:
            variance += repeat_scale(side) ** 2 * _median_share(len(side))
    return math.sqrt(variance) * _SCALE_OF_SD


def deviate(change: float, scale: float) -> float:
    """The normal deviate that is as unlikely as a change of Student's t with 3 degrees of freedom.

    >>> [round(deviate(change, 1.0), 2) for change in (0.0, 3.1824, -3.1824, 1000.0)]
    [0.0, 1.96, -1.96, 5.98]
    """
    x = abs(change) / scale * _SCALE_OF_SD
    # beyond it the difference below loses its digits
    tail = (
        (math.atan(1 / x) - x / (1 + x * x)) / math.pi
        if 0 < x < 1e3
        else 0.5
        if x < 1
        else 2 / (3 * math.pi * x**3)
    )
    return math.copysign(-_NORMAL.inv_cdf(max(tail, _LEAST_TAIL)), change)


def beyond_chance(curves: Sequence[Sequence[float]]) -> list[list[bool]]:
    """Of every value of every curve whether it belongs to a run of neighbours that chance does not
    explain, and is no small one among them.

    One size among many that were tried is easily the luckiest. Neighbouring sizes are not lucky
    together: their normal deviates are added (Stouffer 1949, over the root of their number), for
    runs of 1, 2, 4 and 8. Each length has half of FALSE_CLAIM, because runs of different lengths
    share their sizes, divided by the number of its runs (Bonferroni).

    curves: the normal deviates of neighbouring sizes; NaN where nothing is known ends a run.

    >>> beyond_chance([[2.0, math.nan, 3.5, 0.1], [0.1, 0.1, 1.5, 1.5]])
    [[False, False, True, False], [False, False, False, False]]
    >>> beyond_chance([[0.1, 0.1, 1.9, 1.9, 0.1, 1.9, 1.9, 1.9]])
    [[False, False, True, True, False, True, True, True]]
    """
    longest = max(map(len, curves), default=0)
    sure = [[False] * len(curve) for curve in curves]
    lengths = [length for length in _LENGTHS if length <= longest]
    level = FALSE_CLAIM / min(2, max(1, len(lengths)))
    for length in lengths:
        tested = sum(max(0, len(curve) - length + 1) for curve in curves)
        least = -_NORMAL.inv_cdf(level / tested) * math.sqrt(length)
        for curve, marks in zip(curves, sure, strict=True):
            for first in range(len(curve) - length + 1):
                # a sum with NaN is no more than anything
                if sum(curve[first : first + length]) > least:
                    marks[first : first + length] = [True] * length
    return [
        [mark and one >= LEAST_DEVIATE for one, mark in zip(curve, marks, strict=True)]
        for curve, marks in zip(curves, sure, strict=True)
    ]


def noise_scale(series: Array) -> float:
    """The scale of noise of logarithms, by how neighbours that are no NaN differ."""
    steps = np.abs(np.diff(series[~np.isnan(series)]))
    return max(MAD_TO_SD * float(np.median(steps)) / math.sqrt(2), LEAST_SCALE)


def segments(values: Sequence[float], scale: float) -> tuple[list[int], list[float]]:
    """Where a series of logarithms takes another level and stays there, and the level of each
    segment: its median. Changes below LEAST_GAIN are none.

    By optimal partitioning with the biweight cost (P. Fearnhead and G. Rigaill, "Changepoint
    Detection in the Presence of Outliers", JASA 114, 2019): a segment costs the sum of
    min(z^2, FAR^2), z the distance from its median in scales of noise; each change costs PENALTY.
    So one or two values that are off are no change; three alike are.

    >>> segments([0.0, 0.01, 0.0, 0.01, 0.5, 0.51, 0.5], 0.01)
    ([4], [0.005, 0.5])
    >>> segments([0.0, 0.01, 0.0, 0.9, 0.0, 0.01, 0.0], 0.01)
    ([], [0.0])
    """
    data = np.asarray(values, dtype=np.float64)
    count = len(data)
    least = np.full(count + 1, math.inf)
    least[0] = 0.0
    began = [0] * (count + 1)
    for start in range(count - LEAST_SEGMENT + 1):
        if least[start] == math.inf:
            continue
        costs = _costs(data[start:], scale)
        if not start and costs[-1] <= PENALTY:  # which no change can save
            return [], [float(np.median(data))]
        for end in range(start + LEAST_SEGMENT, count + 1):
            cost = least[start] + costs[end - start - 1] + (PENALTY if start else 0.0)
            if cost < least[end]:
                least[end], began[end] = cost, start
    starts, end = [], count
    while end:
        end = began[end]
        starts.append(end)
    bounds = [*reversed(starts), count]
    changes, levels = [], [float(np.median(data[: bounds[1]]))]
    for start, end in pairwise(bounds[1:]):
        level = float(np.median(data[start:end]))
        if abs(level - levels[-1]) >= math.log(LEAST_GAIN):
            changes.append(start)
            levels.append(level)
    return changes, levels


def _costs(part: Array, scale: float) -> Array:
    """The biweight cost of each segment that begins where the part does: of one value, of two, and
    so on.
    """
    ordered: list[float] = []
    middles = np.empty(len(part))
    for place, value in enumerate(part.tolist()):
        insort(ordered, value)
        middles[place] = (ordered[place // 2] + ordered[(place + 1) // 2]) / 2
    far = (part - middles[:, None]) / scale
    costs: Array = np.tril(np.minimum(far * far, FAR * FAR)).sum(axis=1)
    return costs
