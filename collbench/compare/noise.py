"""How far two measurements of one thing may differ by chance, row by row: the statistics below
`changes`.

A run is a session: what it measured shares clocks, placement of buffers and temperature, so repeats
within it agree better than runs do. Where a side has several runs, their scatter shows how far runs
differ: the variance of a row is drawn towards that of rows of similar size and the same backend
(moderated variance, Smyth 2004, "Linear models and empirical Bayes methods", section 4), and how
rare large deviations are is read from the runs themselves, each held against the others. With one
run a side, both come from a prior: what was seen between runs of machines of this kind. Logarithms
of times throughout: 0.01 is one percent.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from collbench.compare.priors import Prior
from collbench.core.limits import (
    MAD_TO_SD,
    MANY_DEVIATES,
    NEIGHBOUR_FREEDOM,
    SURE_SCALES,
    TAIL_FREEDOM,
    TAILS,
    WINDOW_ROWS,
)
from collbench.core.verdict import Array, median_variance

Places: TypeAlias = NDArray[np.intp]
Names: TypeAlias = NDArray[np.str_]

_LEAST_BEYOND = 2  # deviations beyond a share's quantile, to extrapolate from it
_TINY = 1e-5  # spread of times that are equal in the six digits of a CSV file


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Rows of one side as numbers. runs: rows x runs, the logarithm of the median of a run's
    repeats, NaN where a run lacks the row; squares: of the deviations of all repeats within their
    runs, with `freedom` degrees; share: the variance of a run's median over that of a repeat.
    """

    runs: Array
    squares: Array
    freedom: Array
    share: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Of every row: its change, and the scale of what chance does to it.

    spread: the scale of one run; share: the variance of the change over that of one run; tail: the
    change of each run against the other runs of its side, in scales, of all rows. assumed: rows
    whose spread comes from the prior. is_far: the sides are of different days.
    """

    change: Array
    scale: Array
    spread: Array
    share: Array
    tail: Array
    assumed: NDArray[np.bool_]
    prior: Prior
    repeat_spread: float
    is_far: bool

    def chance_of(self, change: Array) -> Array:
        """How likely changes of the rows are where nothing changed."""
        known = tail_chance(np.abs(change) / self.scale, self.tail)
        return np.where(self.assumed, np.maximum(known, self.prior.rare(change)), known)

    def half_interval(self) -> Array:
        """Half of the interval that covers 95 of 100 changes, of each row by itself."""
        is_shown = len(self.tail) >= MANY_DEVIATES
        return (np.quantile(self.tail, 0.95) if is_shown else SURE_SCALES) * self.scale

    def least_change(self, chance: float) -> Array:
        """The change of each row from which on it is less likely than `chance`."""
        low, high = np.full(len(self.scale), _TINY), np.full(len(self.scale), 5.0)
        for _ in range(30):
            middle = np.sqrt(low * high)
            is_rarer = self.chance_of(middle) <= chance
            low, high = np.where(is_rarer, low, middle), np.where(is_rarer, middle, high)
        return high


def tail_chance(deviates: Array, seen: Array) -> Array:
    """How likely deviates so large are, judged by those that were seen, of which there are many, or
    else also by Student's t of TAIL_FREEDOM.

    >>> tail_chance(np.array([3.182]), np.zeros(0)).round(3).tolist()
    [0.05]
    >>> tail_chance(np.array([5.0, 10.0, 20.0]), np.full(100, 10.0)).round(4).tolist()
    [0.8, 0.1, 0.0125]
    """
    chance = np.zeros(len(deviates))
    if len(seen) < MANY_DEVIATES:
        x = deviates / math.sqrt(TAIL_FREEDOM)
        chance = np.clip(1 - 2 / math.pi * (x / (1 + x * x) + np.arctan(x)), 0.0, 1.0)
    ordered = np.sort(seen)[::-1]
    is_outlier_shown = False
    for share, power in TAILS:
        place = int(share * len(ordered))
        is_outlier_shown = place >= _LEAST_BEYOND
        if is_outlier_shown:
            ratio = np.maximum(deviates, _TINY) / max(float(ordered[place]), _TINY)
            chance = np.maximum(chance, np.minimum(share * ratio**-power, 1.0))
    if len(ordered) and not is_outlier_shown:  # so few that one outlier is in no share above
        ratio = np.maximum(deviates, _TINY) / max(float(ordered[0]), _TINY)
        chance = np.maximum(chance, np.minimum(ratio ** -TAILS[-1][1] / len(ordered), 1.0))
    return chance


def row_noise(
    new: Side,
    base: Side,
    sizes: Array,
    backends: Names,
    ops: Names,
    prior: Prior,
    *,
    is_alike: bool,
    is_far: bool,
) -> Noise:
    """What chance does to every row. is_alike: both sides measured the same things, so that most
    rows should agree. is_far: the runs of a side were measured together, and those of the other on
    another day, or nobody knows when, so that they do not show how far days differ.
    """
    windows, places = _windows(sizes, backends)
    change = medians(new.runs) - medians(base.runs)
    counts, counts_base = (_counts(side.runs) for side in (new, base))
    share = median_variance(counts) + median_variance(counts_base)
    repeats = new.squares + base.squares, new.freedom + base.freedom
    repeat2 = _repeat_variance(*repeats, prior, windows, places)
    freedom = counts + counts_base - 2
    squares = _squares(new.runs) + _squares(base.runs)
    has_runs = freedom > 0
    typical2 = _typical(squares, freedom, windows, places)
    run2 = (NEIGHBOUR_FREEDOM * typical2 + squares) / (NEIGHBOUR_FREEDOM + freedom)
    # where repeats make the new side's medians less sure than those which show the spread
    own2, base2 = (
        _repeat_variance(side.squares, side.freedom, prior, windows, places) * side.share
        for side in (new, base)
    )
    run2 += np.maximum(own2 - base2, 0.0)
    days2 = 2 * prior.row**2 if is_far else 0.0  # of both sides
    curves = np.char.add(backends, ops)
    scatter2 = _scatter(change, curves, windows, places) ** 2 / share if is_alike else 0.0 * change
    one_run2 = prior.row**2 + repeat2 * (new.share + base.share) / 2
    spread2 = np.where(has_runs, run2, np.maximum(one_run2, scatter2))
    tail = _held_out((new, base), typical2)
    return Noise(
        change=change,
        scale=np.sqrt(spread2 * share + np.where(has_runs, days2, 0.0) + _TINY**2),
        spread=np.sqrt(spread2),
        share=share,
        tail=tail,
        assumed=~has_runs | is_far,
        prior=prior,
        repeat_spread=float(np.sqrt(np.median(repeat2))),
        is_far=is_far,
    )


def medians(runs: Array) -> Array:
    """The median of each row's values, those that are not NaN.

    >>> medians(np.array([[3.0, 1.0, math.nan], [1.0, 5.0, 2.0]])).tolist()
    [2.0, 2.0]
    """
    ordered, counts = np.sort(runs, axis=1), _counts(runs).astype(int)
    rows = np.arange(len(runs))
    upper = np.clip(counts // 2, 0, runs.shape[1] - 1)
    lower = np.maximum(counts - 1, 0) // 2
    middle: Array = (ordered[rows, lower] + ordered[rows, upper]) / 2
    return middle


def _counts(runs: Array) -> Array:
    counts: Array = np.isfinite(runs).sum(axis=1).astype(np.float64)
    return counts


def _squares(runs: Array) -> Array:
    """Squared deviations of each row's runs from their mean."""
    is_there = np.isfinite(runs)
    counts = np.maximum(is_there.sum(axis=1), 1)
    mean = np.where(is_there, runs, 0.0).sum(axis=1) / counts
    deviations = np.where(is_there, runs - mean[:, None], 0.0)
    squares: Array = (deviations**2).sum(axis=1)
    return squares


def _held_out(sides: tuple[Side, ...], typical2: Array) -> Array:
    """Each run against the other runs of its side: the changes of all rows, in scales."""
    deviates = []
    for side in sides:
        for place in range(side.runs.shape[1] if side.runs.shape[1] > 1 else 0):
            others = np.delete(side.runs, place, axis=1)
            counts = _counts(others)
            change = side.runs[:, place] - medians(others)
            freedom = np.maximum(counts - 1, 0.0)
            run2 = (NEIGHBOUR_FREEDOM * typical2 + _squares(others)) / (NEIGHBOUR_FREEDOM + freedom)
            # of two runs each says the same of the other
            if not (side.runs.shape[1] == 2 and place):
                scale = np.sqrt(run2 * (1 + median_variance(counts)) + _TINY**2)
                deviates.append((np.abs(change) / scale)[np.isfinite(change)])
    return np.concatenate(deviates) if deviates else np.zeros(0)


def _scatter(change: Array, curves: Names, windows: list[Places], places: Places) -> Array:
    """How far rows' changes scatter around their neighbours': a robust standard deviation, around
    the median or from each size of a curve to the next, whichever is less. A part of the rows that
    changed, such as all large ones or all of a library, is no scatter.
    """
    scatter = []
    for window in windows:
        whole = np.median(np.abs(change[window] - np.median(change[window])))
        in_turn = change[window[np.argsort(curves[window], kind="stable")]]
        steps = np.median(np.abs(np.diff(in_turn))) if len(window) > 1 else 0.0
        scatter.append(MAD_TO_SD * float(min(whole, steps / math.sqrt(2))))
    return np.array(scatter)[places]


def _typical(squares: Array, freedom: Array, windows: list[Places], places: Places) -> Array:
    """The variance that is typical of each row's neighbours, of those with degrees of freedom."""
    has_freedom = freedom > 0
    if not has_freedom.any():
        return np.zeros(len(squares))
    # the median of chi square over its mean (Wilson and Hilferty 1931)
    safe = np.maximum(freedom, 1.0)
    unbiased = squares / safe / np.maximum(1 - 2 / (9 * safe), 0.1) ** 3
    everyone = float(np.median(unbiased[has_freedom]))
    typical = [
        np.median(unbiased[window][has_freedom[window]]) if has_freedom[window].any() else everyone
        for window in windows
    ]
    return np.array(typical)[places]


def _repeat_variance(
    squares: Array, freedom: Array, prior: Prior, windows: list[Places], places: Places
) -> Array:
    """The variance of one repeat within a run, drawn towards its neighbours'; the prior's where no
    row has two repeats. squares, freedom: as in Side.
    """
    if not (freedom > 0).any():
        return prior.repeat**2
    typical = _typical(squares, freedom, windows, places)
    return (NEIGHBOUR_FREEDOM * typical + squares) / (NEIGHBOUR_FREEDOM + freedom)


def _windows(sizes: Array, backends: Names) -> tuple[list[Places], Places]:
    """Rows of one backend (of all, if it has few) and similar size; the window of each row."""
    windows: list[Places] = []
    places = np.zeros(len(sizes), dtype=np.intp)
    everyone = np.argsort(sizes, kind="stable")
    for backend in np.unique(backends):
        here = np.flatnonzero(backends == backend)
        mine = everyone[backends[everyone] == backend]
        pool = mine if len(mine) >= WINDOW_ROWS else everyone
        sorted_sizes = sizes[pool]
        for size in np.unique(sizes[here]):
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
            places[here[sizes[here] == size]] = len(windows)
            windows.append(pool[low:high])
    return windows, places
