"""Which of many numbers that were tried lie beyond what chance does. Pure.

What repeats of one run cannot show, how far a row moves from one run to the next (placement of
buffers, order of processes, clocks), has tails heavier than the normal distribution's: Student's t
with 3 degrees of freedom, whose distribution has a closed form. Changes are logarithms of ratios of
times: 0.01 is one percent.

One size among many that were tried is easily the luckiest. Neighbouring sizes are not lucky
together: their normal deviates are added (Stouffer 1949, over the root of their number), for every
run of 1, 2, 4 and 8 neighbours of every curve. The level of each length is half of FALSE_CLAIM,
because runs of different lengths share their sizes (all of it where there is one length), and is
divided by the number of its runs (Bonferroni). What comes of it in simulated files is in
docs/explanation/statistics.md.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, stdev

# that anything at all is claimed in a file in which nothing differs
FALSE_CLAIM = 0.05
# of Student's t with 3 degrees of freedom: 95 of 100 values lie within so many scales of 0
SURE_SCALES = 3.1824
# neighbours that are judged together; longer runs would find what a whole process has in common
_LENGTHS = (1, 2, 4, 8)
# what one in six shows by chance is no claim, however unlikely its neighbours are
_LEAST_DEVIATE = 1.0
# of t with 3 degrees of freedom: of its scale in its standard deviation; and of the scale of a
# difference of two such values, whose tails, which decide, are twice as heavy as those of one
_SCALE_OF_SD = 1 / math.sqrt(3)
_SCALE_OF_TWO = 2 ** (1 / 3)
_LEAST_TAIL = 1e-300
_NORMAL = NormalDist()


def scale_of(between: float, *times: Sequence[float]) -> float:
    """The scale of t of a change between medians of repeats: from the standard deviation of one of
    them between runs and from the repeats of each side, which show their own spread if they are two
    or more.

    >>> round(scale_of(0.03), 4), round(scale_of(0.03, [1.0, 1.01, 0.99], [2.0]), 4)
    (0.0218, 0.0222)
    """
    variance = (_SCALE_OF_TWO * between) ** 2
    for side in times:
        if len(side) > 1:
            # of the median of normal values
            variance += stdev(map(math.log, side)) ** 2 * math.pi / 2 / len(side)
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
        [mark and one >= _LEAST_DEVIATE for one, mark in zip(curve, marks, strict=True)]
        for curve, marks in zip(curves, sure, strict=True)
    ]
