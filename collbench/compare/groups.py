"""Which rows changed together: the fewest groups that say what changed: of a backend, a collective,
an algorithm, a protocol, a band of sizes.

The group that explains most is named first: that in whose rows a change of the whole is likelier
than none by the most, so neither a larger group, whose other rows did not change, nor a part of it.
What it explains is taken out, and the rest is asked again. A group's change is held against that of
like rows outside it, because a session moves all rows; how far groups move against each other by
chance is read from the files themselves, drawn towards the prior. Last come single rows of which a
group has more than chance gives it, though the group as a whole did not change.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collbench.compare.bands import BANDS, BEYOND
from collbench.compare.noise import Noise, Places
from collbench.compare.priors import LATENCY_UP_TO
from collbench.core.limits import (
    FALSE_GROUPS,
    LEAST_CELL,
    LEAST_GROUP,
    LEAST_OUTSIDE,
    LEAST_SHARED,
    MAD_FREEDOM,
    MAD_TO_SD,
    MINOR,
    MOST_CALLS,
    MOST_EXPECTED,
    MOST_FREEDOM,
    PRIOR_FREEDOM,
    PURE,
    SINGLE_LEVELS,
    SINGLE_Z,
    TAIL_FREEDOM,
)
from collbench.core.units import format_size
from collbench.core.verdict import VERDICTS, Array, Verdict, middle_of, t_of_z, z_of_t

# with each band of sizes, too; _CUT: and from each size on, and below it
LEVELS = (
    (),
    ("backend",),
    ("op",),
    ("backend", "algo"),
    ("op", "backend"),
    ("op", "backend", "algo"),
    ("op", "backend", "algo", "proto"),
)
_CUT = ((), ("backend",), ("op",), ("op", "backend"))
_CELL = ("op", "backend", "algo", "proto")  # rows of one band of it show how far groups move


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Rows taken together: what names them, and which sizes, "" for all; ratio: of times, new over
    base; places: which rows. several: of how many rows these are the ones that changed; 0 where all
    did.
    """

    names: tuple[str, ...]
    sizes: str
    places: Places
    ratio: float
    low: float
    high: float
    verdict: Verdict
    several: int = 0

    @property
    def rows(self) -> int:
        return len(self.places)

    @property
    def title(self) -> str:
        """What was judged, in words."""
        name = " ".join([*self.names, self.sizes]).strip() or "everything"
        if not self.several:
            return name
        return f"{self.rows} of the {self.several} rows of {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rows to judge together: see Change."""

    names: tuple[str, ...]
    sizes: str
    places: Places


class _Middle:
    """The change of a group's rows: its middle, against that of like rows outside it, the standard
    errors of both, and whether most of its rows share it.
    """

    __slots__ = ("error", "freedom", "half", "has_changed", "middle", "z")

    def __init__(self, places: Places, judge: "_Judge") -> None:
        change = judge.change[places]
        self.middle = middle_of(change)
        away = np.abs(change - self.middle)
        own = max(MAD_TO_SD * middle_of(away), middle_of(judge.scale[places]))
        own2 = own**2 * math.pi / 2 / len(places)
        relative, shared2, shared_freedom = judge.relative(places, self.middle)
        variance = own2 + shared2
        # of a sum of two variances (Satterthwaite 1946)
        self.freedom = variance**2 / (
            own2**2 / (len(places) + 2.0) + shared2**2 / shared_freedom + 1e-300
        )
        self.error = math.sqrt(variance)
        signed = relative if self.middle > 0 else -relative
        t = np.array([max(signed, 0.0) / self.error])
        self.z = min(float(z_of_t(t, np.array(self.freedom))[0]), judge.rare_z(places, signed))
        self.half = float(t_of_z(SINGLE_Z, np.array(self.freedom))) * self.error
        is_pure = bool((away < np.abs(change)).mean() >= PURE)
        self.has_changed = is_pure and abs(self.middle) >= MINOR


class _Judge:
    """What all groups are judged by. left: rows that are evidence and that no group explains."""

    def __init__(self, rows: pd.DataFrame, noise: Noise, groups: Sequence[Group]) -> None:
        self.left = np.zeros(len(rows), dtype=np.bool_)
        for group in groups:
            self.left[group.places] = True
        self.change, self.scale, self._prior = noise.change, noise.scale, noise.prior
        self._assumed = noise.assumed
        self.is_latency = (rows["size_bytes"] <= LATENCY_UP_TO).to_numpy()
        day2 = noise.prior.together**2 if noise.is_far else noise.prior.together_soon**2
        # a machine on which rows scatter more than the prior says drifts more, too
        self.prior2 = np.maximum(day2, (LEAST_SHARED * noise.spread) ** 2) * noise.share
        self.shared2, self.freedom = np.empty(len(rows)), np.empty(len(rows))
        cells = _cells(rows)
        self.configuration = rows.groupby(list(_CELL)).ngroup().to_numpy()
        for part in (True, False):
            here = self.is_latency == part
            if here.any():
                self.shared2[here], self.freedom[here] = self._scatter(cells, part)

    def _scatter(self, cells: Sequence[Places], part: bool) -> tuple[float, float]:
        """The variance by which groups of one part of the sizes move against each other."""
        here = self.is_latency == part
        prior2 = middle_of(self.prior2[here])
        mine = [cell for cell in cells if self.is_latency[cell[0]] == part]
        if len(mine) < 2:
            return prior2, PRIOR_FREEDOM
        middles = np.array([middle_of(self.change[cell]) for cell in mine])
        own2 = np.array([middle_of(self.scale[cell]) ** 2 / len(cell) for cell in mine])
        spread = MAD_TO_SD * middle_of(np.abs(middles - middle_of(middles)))
        seen2 = max(spread**2 - math.pi / 2 * middle_of(own2), 0.0)
        # rows share no more than they differ by: beyond it most groups changed, each otherwise
        seen2 = min(seen2, middle_of(self.scale[here] ** 2))
        # bands of one configuration move together
        apart = len({self.configuration[cell[0]] for cell in mine})
        freedom = min(MAD_FREEDOM * (apart - 1.0), MOST_FREEDOM - PRIOR_FREEDOM)
        both = PRIOR_FREEDOM + freedom
        return (PRIOR_FREEDOM * prior2 + freedom * seen2) / both, both

    def left_of(self, group: Group) -> Places:
        """The rows of a group that no other explains."""
        places: Places = group.places[self.left[group.places]]
        return places

    def relative(self, places: Places, middle: float) -> tuple[float, float, float]:
        """The change against that of rows of like sizes outside, the variance of what groups share
        by chance, and its degrees of freedom.
        """
        is_outside = self.left.copy()
        is_outside[places] = False
        kinds = np.unique(self.is_latency[places])
        if len(kinds) == 1:
            is_outside &= self.is_latency == kinds[0]
        outside = self.change[is_outside]
        if len(outside) < LEAST_OUTSIDE:
            return middle, middle_of(self.prior2[places]), PRIOR_FREEDOM
        shared2, freedom = middle_of(self.shared2[places]), middle_of(self.freedom[places])
        return middle - middle_of(outside), shared2, freedom

    def rare_z(self, places: Places, change: float) -> float:
        """The normal deviate as unlikely as that a group was placed otherwise; infinite where runs
        show what happens.
        """
        if not self._assumed[places].any():
            return math.inf
        scale = middle_of(self.scale[places])
        chance = self._prior.rare_group(places, change, scale)
        return -NormalDist().inv_cdf(chance / 2) if chance > 0 else math.inf

    def support(self, places: Places, middle: float) -> float:
        """How much likelier the rows are if all changed by so much than if none did, as a
        logarithm: of Student's t, so that no row counts for more than it can.
        """
        change, scale2 = self.change[places], TAIL_FREEDOM * self.scale[places] ** 2
        none, all_of_it = (np.log1p((change - by) ** 2 / scale2) for by in (0.0, middle))
        return float((none - all_of_it).sum()) * (TAIL_FREEDOM + 1) / 2


def changes_of_groups(
    groups: Sequence[Group], rows: pd.DataFrame, noise: Noise, same: float
) -> tuple[Change, ...]:
    """The groups that changed, those that explain most first; then the others, which are the same
    or cannot be told. same: the logarithm up to which a change is none.
    """
    if not groups:
        return ()
    judge = _Judge(rows, noise, groups)
    # that a group must reach among so many, in both directions
    least_z = -NormalDist().inv_cdf(FALSE_GROUPS / len(groups) / 2)
    first = [_Middle(group.places, judge) for group in groups]
    candidates = {k: one for k, one in enumerate(first) if one.has_changed}
    called: dict[int, Change] = {}
    while len(called) < MOST_CALLS:
        able = {k: one for k, one in candidates.items() if one.z >= least_z}
        if not able:
            break
        score = {k: judge.support(judge.left_of(groups[k]), one.middle) for k, one in able.items()}
        best = max(score, key=score.__getitem__)
        places = judge.left_of(groups[best])
        called[best] = _change(groups[best], able[best], same, is_called=True, places=places)
        judge.left[places] = False
        # what is left of the others is held against like rows that are left
        rest = {k: judge.left_of(groups[k]) for k in candidates if k != best}
        again = {k: _Middle(one, judge) for k, one in rest.items() if len(one) >= LEAST_GROUP}
        candidates = {k: one for k, one in again.items() if one.has_changed}
    others = [
        _change(group, one, same, is_called=False)
        for k, (group, one) in enumerate(zip(groups, first, strict=True))
        if k not in called
    ]
    return (*called.values(), *_single_rows(groups, noise, judge), *others)


def _change(
    group: Group, found: _Middle, same: float, *, is_called: bool, places: Places | None = None
) -> Change:
    low, high = found.middle - found.half, found.middle + found.half
    quiet: Verdict = "same" if -same <= low and high <= same else "cannot tell"
    return Change(
        names=group.names,
        sizes=group.sizes,
        places=group.places if places is None else places,
        ratio=math.exp(found.middle),
        low=math.exp(low),
        high=math.exp(high),
        verdict=("worse" if found.middle > 0 else "better") if is_called else quiet,
    )


def _single_rows(groups: Sequence[Group], noise: Noise, judge: _Judge) -> Iterator[Change]:
    """Rows of a group that are too many to have changed by chance, though the group did not: each
    is rare by itself, and together they cannot be. What rows of like sizes share counts for
    nothing.
    """
    own, left = noise.change.copy(), judge.left.copy()
    for part in (True, False):
        here = left & (judge.is_latency == part)
        own[judge.is_latency == part] -= middle_of(own[here]) if here.any() else 0.0
    chances = noise.chance_of(own)
    for _ in range(MOST_CALLS):
        found: tuple[float, Places, Group, int] | None = None
        for sign, level in product((1, -1), SINGLE_LEVELS):
            is_rare = left & (chances <= level) & (sign * own > MINOR)
            is_rare &= sign * noise.change > MINOR
            if is_rare.sum() < LEAST_GROUP:
                continue
            for group in groups:
                places = group.places[is_rare[group.places]]
                surprise = _surprise(len(places), MOST_EXPECTED * level * len(group.places))
                if len(places) >= LEAST_GROUP and (found is None or surprise > found[0]):
                    found = surprise, places, group, len(group.places)
        if found is None or found[0] < -math.log(FALSE_GROUPS / 4 / len(groups)):
            return
        _, places, group, count = found
        left[places] = False
        low, half, high = np.exp(np.quantile(noise.change[places], (0.25, 0.5, 0.75)))
        yield Change(
            names=group.names,
            sizes=group.sizes,
            places=places,
            ratio=float(half),
            low=float(low),
            high=float(high),
            verdict="worse" if half > 1 else "better",
            several=count if len(places) < count else 0,
        )


def _surprise(count: int, expected: float) -> float:
    """Minus the logarithm of how likely so many rare events are, at most (Chernoff 1952)."""
    return count * math.log(count / expected) - count + expected if count > expected else 0.0


def verdicts_of(
    change: Array, half: Array, sure: NDArray[np.bool_], same: float
) -> Sequence[Verdict]:
    """Better and worse where that is sure and no trifle; same where the whole interval lies within
    `same`; else it cannot be told.

    >>> verdicts_of(
    ...     np.array([0.08, 0.001, 0.001, 0.004]),
    ...     np.array([0.01, 0.02, 0.07, 0.001]),
    ...     np.array([True, False, False, True]),
    ...     0.05,
    ... )
    ['worse', 'same', 'cannot tell', 'same']
    """
    is_near = (change - half >= -same) & (change + half <= same)
    codes = np.where(
        sure & (np.abs(change) >= MINOR), np.where(change > 0, 1, 0), np.where(is_near, 2, 3)
    )
    return [VERDICTS[code] for code in codes]


def groups_of(rows: pd.DataFrame, without: NDArray[np.bool_] | None = None) -> Iterator[Group]:
    """Every group of at least LEAST_GROUP rows, once. without: rows that are no evidence."""
    is_left = np.ones(len(rows), dtype=np.bool_) if without is None else ~without
    if "backend_base" in rows:  # matched by the workload: another backend is a group of its own
        is_like = rows["backend"] == rows["backend_base"]
        both = rows["backend"] + " vs " + rows["backend_base"]
        rows = rows.assign(backend=rows["backend"].where(is_like, both))
    sizes = rows["size_bytes"].to_numpy(dtype=np.float64)
    known: set[bytes] = set()
    for level in LEVELS:
        for names, places in _parts(rows, level):
            parts = [("", places), *_by_band(sizes, places)]
            if level in _CUT:
                parts += list(_by_size(sizes, places))
            for title, every in parts:
                part = every[is_left[every]]
                # the same rows need no second test
                if len(part) >= LEAST_GROUP and part.tobytes() not in known:
                    known.add(part.tobytes())
                    yield Group(names=names, sizes=title, places=part)


def _cells(rows: pd.DataFrame) -> list[Places]:
    """Rows of one configuration and band of sizes, none of them in two cells."""
    sizes = rows["size_bytes"].to_numpy(dtype=np.float64)
    return [
        part
        for _, places in _parts(rows, _CELL)
        for _, part in _by_band(sizes, places)
        if len(part) >= LEAST_CELL
    ]


def _parts(rows: pd.DataFrame, level: Sequence[str]) -> Iterator[tuple[tuple[str, ...], Places]]:
    if not level:
        yield (), np.arange(len(rows), dtype=np.intp)
        return
    numbered = rows.groupby(list(level), sort=True).ngroup().to_numpy(dtype=np.intp)
    order = np.argsort(numbered, kind="stable")
    values = [rows[name].to_numpy(dtype=object) for name in level]
    for places in np.split(order, np.flatnonzero(np.diff(numbered[order])) + 1):
        names = (str(column[places[0]]) for column in values)
        yield tuple(name for name in names if name), places


def _by_band(sizes: Array, places: Places) -> Iterator[tuple[str, Places]]:
    mine, below = sizes[places], 0.0
    for last, name in (*BANDS, (math.inf, BEYOND)):
        yield name, places[(mine > below) & (mine <= last)]
        below = last


def _by_size(sizes: Array, places: Places) -> Iterator[tuple[str, Places]]:
    """All from each power of two on and below it."""
    mine = sizes[places]
    for size in np.unique(2.0 ** np.floor(np.log2(np.maximum(mine, 1.0))))[1:]:
        yield f"from {format_size(int(size))} on", places[mine >= size]
        yield f"below {format_size(int(size))}", places[mine < size]
