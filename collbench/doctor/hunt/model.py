"""The model of the rates of pairs: places, by their effects on rows, fitted by least squares.

A row is a pair and direction, with the median of its repeats in the logarithm of time. Constants
here bound the work of a search; those that verdicts are decided by are in core/limits.py.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from collbench.core.limits import PAIR_FLOOR, SURE_NOISE, UNEVEN
from collbench.doctor.hunt.places import BETWEEN, RECEIVER, SENDER, Bools, Family, Floats, Ints

AHEAD = 3  # places that are added though the last one was not sure: the next may explain more
GAPS = 8  # widest gaps of the slowness of hosts that are tried
HUGE = 100_000  # rows, of which only plain steps are made, in seconds
MOST = 256  # places
CELLS = 4e6  # of rows by places: more takes seconds
_MANY = 20  # repeats, of which the median deviation tells hiccups
_CLIP = 3.0  # standard deviations of repeats, from which on one is a hiccup
PATHS = ("path", "pair", "group")
NORMAL = NormalDist()
INTERVAL = 0.975  # on each side: 95 of 100 between


@dataclass(frozen=True, slots=True)
class Rows:
    """Pairs and directions. slow: medians of repeats, between least and most; variance: expected of
    each. degrees: of freedom that repeats have for it.
    """

    slow: Floats
    least: Floats
    most: Floats
    variance: Floats
    degrees: int


@dataclass(frozen=True, slots=True)
class Term:
    """A place in the model: its family, its rows, and which of their ends it slows."""

    family: int
    group: int
    rows: Ints
    ends: Ints


@dataclass(frozen=True, slots=True)
class Model:
    """Terms with their effects and errors. residuals: of all rows. degrees: of freedom of scale,
    the factor on the expected variance. chances: of each term, before Bonferroni's correction.
    bare: rows without a cause. adds_up: whether rows with slow places at both ends show both.
    """

    terms: tuple[Term, ...]
    level: float
    effects: Floats
    errors: Floats
    chances: Floats
    residuals: Floats
    squares: float
    scale: float
    degrees: int
    bare: int
    adds_up: bool


def rows_of(slow: Floats, pairs: Family) -> Rows:
    """The rows of samples, with the variance that the repeats of all of them show."""
    values, sizes = slow[pairs.members], np.diff(pairs.starts)
    in_order = values[np.lexsort((values, pairs.groups))]
    first = pairs.starts[:-1]
    medians = (in_order[first + (sizes - 1) // 2] + in_order[first + sizes // 2]) / 2
    steps = np.diff(values)[np.diff(pairs.groups) == 0] / math.sqrt(2)  # between repeats
    noise = _spread(steps)
    # a median of normal values varies by pi / 2 times as much as their mean
    shares = np.where(sizes < 3, 1.0, math.pi / 2) / sizes
    return Rows(
        slow=medians,
        least=in_order[first],
        most=in_order[first + sizes - 1],
        variance=np.maximum(PAIR_FLOOR**2, noise**2 * shares),
        degrees=len(steps),
    )


def by_rows(family: Family, pairs: Family) -> Family:
    """A family of samples as one of rows, by the first sample of each."""
    row = np.full(len(pairs.members), -1, np.int64)
    row[pairs.members[pairs.starts[:-1]]] = np.arange(len(pairs.starts) - 1)
    rows = row[family.members]
    kept = rows >= 0
    groups = family.groups[kept]
    starts = np.searchsorted(groups, np.arange(len(family.starts)))
    return Family(
        family.kind, family.flow, rows[kept], groups, starts, family.key_of, family.ends[kept]
    )


def _spread(values: Floats) -> float:
    """The standard deviation of values about 0, with hiccups clipped."""
    if not len(values):
        return 0.0
    typical = float(np.median(np.abs(values))) / NORMAL.inv_cdf(0.75)
    bound = _CLIP * typical if typical and len(values) >= _MANY else math.inf
    return math.sqrt(float(np.mean(np.minimum(np.abs(values), bound) ** 2)))


def least_squares(rows: Rows, terms: Sequence[Term]) -> Model:
    """The least squares of some terms. A row with slow places at both ends judges neither, unless
    such rows show that both count.
    """
    slow, variance = rows.slow, rows.variance
    m, k = len(slow), len(terms)
    design = np.zeros((m, k + 1))
    design[:, k] = 1
    for number, term in enumerate(terms):
        design[term.rows, number] = 1
    ends = covered(terms, m)
    is_free = ~(ends[SENDER] & ends[RECEIVER])
    values, inverse = _solved(slow, variance, design, is_free)
    residuals, adds_up = slow - design @ values, False
    if not is_free.all():
        between, adds_up = _between(slow, values, terms, ~is_free)
        if adds_up:
            is_free[:] = True
            values, inverse = _solved(slow, variance, design, is_free)
            residuals = slow - design @ values
        else:
            residuals[~is_free] = between
    squares = float((residuals**2 / variance).sum())
    # about half of the rows with two slow ends lie beyond what the two explain
    left = int(is_free.sum()) - k - 1 + int((~is_free).sum()) // 2
    scale, degrees = _scale(rows, squares, left)
    sds = np.sqrt(scale * np.diag(inverse)[:k])
    own = design[is_free, :k].sum(axis=0)
    # nothing but its overlap with others tells of a term without rows of its own
    sds = np.where(own > 0, sds, math.inf)
    sure_sds = sds * max(1.0, SURE_NOISE / math.sqrt(scale * float(variance.min())))
    chances = [
        min(_tail(effect / sd, degrees), NORMAL.cdf(-effect / sure))
        for effect, sd, sure in zip(values[:k], sds, sure_sds, strict=True)
    ]
    return Model(
        terms=tuple(terms),
        level=float(values[k]),
        effects=values[:k],
        errors=sds,
        chances=np.array(chances),
        residuals=residuals,
        squares=squares,
        scale=scale,
        degrees=degrees,
        bare=int((design[:, :k].sum(axis=1) == 0).sum()),
        adds_up=adds_up,
    )


def _solved(slow: Floats, variance: Floats, design: Floats, chosen: Bools) -> tuple[Floats, Floats]:
    """The effects and the level, and the inverse of the normal equations."""
    weighted = design[chosen] / variance[chosen, None]
    inverse = np.linalg.pinv(weighted.T @ design[chosen], hermitian=True).astype(np.float64)
    return inverse @ (weighted.T @ slow[chosen]), inverse


def _scale(rows: Rows, squares: float, left: int) -> tuple[float, int]:
    """How many times as much as expected the rows vary, and the degrees of freedom of that: the
    residuals alone, where they vary by more than repeats do, or without repeats; else of both.
    """
    of_repeats = rows.degrees
    least = PAIR_FLOOR**2 / float(rows.variance.min())
    if left < 1:
        return 1.0, of_repeats
    scale = squares / left
    if not of_repeats or _deviate_of_ratio(scale, left, of_repeats) > NORMAL.inv_cdf(UNEVEN):
        return max(least, scale), left
    pooled = (squares + of_repeats) / (left + of_repeats)
    return max(least, pooled), left + of_repeats


def covered(terms: Sequence[Term], m: int) -> tuple[Bools, Bools]:
    """Whether a place slows the sender's end of each row, and the receiver's end."""
    ends = np.zeros(m, bool), np.zeros(m, bool)
    for term in terms:
        for end in (SENDER, RECEIVER):
            ends[end][term.rows[term.ends == end]] = True
    return ends


def other_end_covered(rows: Ints, ends: Ints, terms: Sequence[Term], m: int) -> Bools:
    """Whether the end that a place does not slow is slowed by another place already."""
    sent, received = covered(terms, m)
    hidden: Bools = ((ends == SENDER) & received[rows]) | ((ends == RECEIVER) & sent[rows])
    return hidden


def _between(
    slow: Floats, values: Floats, terms: Sequence[Term], chosen: Bools
) -> tuple[Floats, bool]:
    """The residuals of rows with slow places at both ends: from the slower one, or from both; and
    whether it is rather both.
    """
    parts = np.zeros((3, len(slow)))  # by the sender, by the receiver, and by the path
    for term, effect in zip(terms, values[:-1], strict=True):
        np.add.at(parts, (term.ends, term.rows), effect)
    over = (slow - values[-1] - parts[BETWEEN])[chosen]
    sent, received = parts[SENDER][chosen], parts[RECEIVER][chosen]
    most, both = np.maximum(sent, received), sent + received
    adds_up = bool(np.median((over - most) - (both - over)) > 0)
    return over - np.clip(over, most, both), adds_up


def _deviate_of_ratio(ratio: float, above: int, below: int) -> float:
    """The normal deviate as unlikely as a ratio of two variances, by their degrees of freedom
    (Paulson 1942).

    >>> round(_deviate_of_ratio(9.15, 4, 6), 1)  # exceeded by 1 of 100
    2.3
    """
    a, b, root = 2 / (9 * above), 2 / (9 * below), ratio ** (1 / 3)
    return float(((1 - b) * root - (1 - a)) / math.sqrt(b * root * root + a))


def _tail(t: float, degrees: int) -> float:
    """The chance of a larger Student's t (Wallace 1959; from 2 degrees on within 0.1 deviates, and
    never less by much).

    >>> round(_tail(8.61, 4), 4), round(_tail(3.29, 10000), 4), _tail(100.0, 0)
    (0.0006, 0.0005, 1.0)
    """
    if degrees < 1 or t <= 0:
        return 1.0
    if math.isinf(t):
        return 0.0
    shrink = (8 * degrees + 1) / (8 * degrees + 3)
    return NORMAL.cdf(-shrink * math.sqrt(degrees * math.log1p(t * t / degrees)))


def deviate(normal: float, degrees: int) -> float:
    """The Student's t as unlikely as a normal deviate: the inverse of _tail().

    >>> round(deviate(1.96, 10), 1), deviate(1.96, 0)
    (2.2, inf)
    """
    if degrees < 1:
        return math.inf
    grown = normal * (8 * degrees + 3) / (8 * degrees + 1)
    return math.sqrt(degrees * math.expm1(min(grown * grown / degrees, 500.0)))
