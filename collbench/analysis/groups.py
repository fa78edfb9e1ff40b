"""Rows judged together, by their median: those of a backend, an algorithm, a collective or a band
of sizes. A change of 2 % that no single row shows is seen in all of them.

What such rows share by chance, because they were measured within seconds of each other or by one
session, is estimated from the runs where there are several, and else from the prior.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collbench.analysis.bands import BANDS
from collbench.analysis.noise import MAD_TO_SD, Array, Noise, Places, are_sure
from collbench.analysis.priors import LATENCY_UP_TO
from collbench.util.units import format_size

Verdict = Literal["better", "worse", "same", "cannot tell"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
MINOR = 0.01  # a change too small to mention
LEAST_GROUP = 4  # rows that make a group
LEVELS = (
    (),
    ("backend",),
    ("op",),
    ("backend", "algo"),
    ("op", "backend"),
    ("op", "backend", "algo"),
    ("op", "backend", "algo", "proto"),
)
_BANDED = ((), ("backend",))  # levels that are also judged by sizes
# Of all comparisons in which nothing changed, in how many any group may be called
_FALSE_CALLS = 0.01
_SINGLE_Z = 1.96  # of one interval by itself, which covers 95 of 100
# degrees of freedom that the prior's knowledge of what rows share counts for
_PRIOR_FREEDOM, _DAY_FREEDOM = 10.0, 4.0
# how rare a change is that counts among single rows, and how many times as many such rows as that
# says may be chance
_SINGLE_LEVELS, _MOST_EXPECTED = (0.001, 0.01), 4.0
_LEAST_SHARING = 8  # rows that show what they share
_LEAST_SHARED = 0.3  # of the spread of a row, what rows share, where the files do not show it


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Rows taken together: what names them, and which sizes, "" for all; ratio: of times, new over
    base; places: which rows; sureness: the normal deviate that is as unlikely as the change;
    purity: the share of the rows whose change is nearer to the group's than to none. is_named:
    whether its rows have something in common but that they changed.
    """

    names: tuple[str, ...]
    sizes: str
    places: Places
    ratio: float
    low: float
    high: float
    verdict: Verdict
    sureness: float
    purity: float
    is_named: bool = True

    @property
    def rows(self) -> int:
        return len(self.places)

    @property
    def title(self) -> str:
        """What was judged, in words."""
        return " ".join([*self.names, self.sizes]).strip() or "everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rows to judge together: see Change."""

    names: tuple[str, ...]
    sizes: str
    places: Places


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


def changes_of_groups(
    groups: Sequence[Group], rows: pd.DataFrame, noise: Noise, same: float
) -> tuple[Change, ...]:
    """Judge groups of rows. same: the logarithm up to which a change is none."""
    if not groups:
        return ()
    together2, freedom_of_row = _together(rows, noise)
    middles, errors, freedom = np.empty(len(groups)), np.empty(len(groups)), np.empty(len(groups))
    for k, group in enumerate(groups):
        places = group.places
        change = noise.change[places]
        middles[k] = np.median(change)
        scatter = MAD_TO_SD * float(np.median(np.abs(change - middles[k])))
        own = max(scatter, float(np.median(noise.scale[places])))
        shared2 = float(np.median(together2[places]))
        own2 = own**2 * math.pi / 2 / len(places)
        errors[k] = math.sqrt(own2 + shared2)
        # of a sum of two variances (Satterthwaite 1946)
        own_freedom, shared_freedom = len(places) + 2.0, float(np.median(freedom_of_row[places]))
        freedom[k] = (own2 + shared2) ** 2 / (own2**2 / own_freedom + shared2**2 / shared_freedom)
    sureness = z_of_t(np.abs(middles) / errors, freedom)
    chances = np.array([math.erfc(z / math.sqrt(2)) for z in sureness])
    half = t_of_z(_SINGLE_Z, freedom) * errors
    verdicts = verdicts_of(middles, half, are_sure(chances, _FALSE_CALLS), same)
    together = tuple(
        Change(
            names=group.names,
            sizes=group.sizes,
            places=group.places,
            ratio=math.exp(middles[k]),
            low=math.exp(middles[k] - half[k]),
            high=math.exp(middles[k] + half[k]),
            verdict=verdicts[k],
            sureness=float(sureness[k]),
            purity=_purity(noise.change[group.places], middles[k]),
        )
        for k, group in enumerate(groups)
    )
    return (*together, *_single_rows(rows, noise))


def _single_rows(rows: pd.DataFrame, noise: Noise) -> Iterator[Change]:
    """Rows that nothing joins but that too many of them changed: none of them is sure, and all of
    them cannot be chance. What the rows of a backend share counts for nothing here.
    """
    is_latency = rows["size_bytes"] <= LATENCY_UP_TO
    shared = pd.Series(noise.change).groupby([rows["backend"].to_numpy(), is_latency.to_numpy()])
    own = noise.change - shared.transform("median").to_numpy()
    chances = replace(noise, change=own).chance()
    signs: tuple[tuple[int, Verdict], ...] = ((1, "worse"), (-1, "better"))
    for sign, verdict in signs:
        for level in _SINGLE_LEVELS:
            places = np.flatnonzero((chances <= level) & (sign * own > 0))
            expected = _MOST_EXPECTED * level * len(rows)
            if len(places) < LEAST_GROUP or len(places) <= expected:
                continue
            # of a sum of rare events (Chernoff 1952)
            log_chance = len(places) - expected + len(places) * math.log(expected / len(places))
            if log_chance > math.log(_FALSE_CALLS / 4):
                continue
            change = noise.change[places]
            low, middle, high = np.exp(np.quantile(change, (0.25, 0.5, 0.75)))
            yield Change(
                names=(f"{len(places)} single rows",),
                sizes="",
                places=places,
                ratio=float(middle),
                low=float(low),
                high=float(high),
                verdict=verdict if abs(math.log(middle)) >= MINOR else "same",
                sureness=math.sqrt(-2 * log_chance),
                purity=1.0,
                is_named=False,
            )
            break


def _purity(change: Array, middle: float) -> float:
    return float((np.abs(change - middle) < np.abs(change)).mean())


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


def groups_of(rows: pd.DataFrame) -> Iterator[Group]:
    """Every group of at least LEAST_GROUP rows, once."""
    if "backend_base" in rows:  # matched by the workload: another backend is a group of its own
        is_like = rows["backend"] == rows["backend_base"]
        both = rows["backend"] + " vs " + rows["backend_base"]
        rows = rows.assign(backend=rows["backend"].where(is_like, both))
    sizes = rows["size_bytes"].to_numpy(dtype=np.float64)
    known: set[bytes] = set()
    for level in LEVELS:
        for names, places in _parts(rows, level):
            parts = [("", places)]
            if level in _BANDED:
                parts += list(_by_size(sizes, places))
            for title, part in parts:
                # the same rows need no second test
                if len(part) >= LEAST_GROUP and part.tobytes() not in known:
                    known.add(part.tobytes())
                    yield Group(names=names, sizes=title, places=part)


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


def _by_size(sizes: Array, places: Places) -> Iterator[tuple[str, Places]]:
    """The bands of sizes, and all from each power of two on and below it."""
    mine = sizes[places]
    below = 0
    for last, name in BANDS:
        yield name, places[(mine > below) & (mine <= last)]
        below = last
    for size in np.unique(2.0 ** np.floor(np.log2(np.maximum(mine, 1.0))))[1:]:
        yield f"from {format_size(int(size))} on", places[mine >= size]
        yield f"below {format_size(int(size))}", places[mine < size]


def _together(rows: pd.DataFrame, noise: Noise) -> tuple[Array, Array]:
    """Of the change of each row, the variance of what it shares with its group, and its degrees of
    freedom: the prior's, to which runs that are there add what their groups show.
    """
    prior = noise.prior
    day2, soon2 = prior.together**2, prior.together_soon**2
    freedom = np.full(len(rows), _PRIOR_FREEDOM)
    if noise.held_out.shape[1]:
        is_latency = rows["size_bytes"].to_numpy() <= LATENCY_UP_TO
        shown = {part: _shared_by_runs(rows, noise, is_latency == part) for part in (True, False)}
        for part, squares in shown.items():
            here = is_latency == part
            count = _PRIOR_FREEDOM + len(squares)
            soon2[here] = (_PRIOR_FREEDOM * soon2[here] + max(sum(squares), 0.0)) / count
            freedom[here] = count
    # a machine on which rows scatter more than the prior says drifts more, too
    days2 = 2 * np.maximum(day2, (_LEAST_SHARED * noise.spread) ** 2)  # of both sides
    return (
        soon2 * noise.share + np.where(noise.assumed, days2, 0.0),
        np.where(noise.assumed, _DAY_FREEDOM, freedom),
    )


def _shared_by_runs(rows: pd.DataFrame, noise: Noise, here: NDArray[np.bool_]) -> list[float]:
    """What the rows of each backend share in each run, squared, beyond what chance gives them."""
    squares = []
    backends = rows["backend"].to_numpy(dtype=object)
    for backend in np.unique(backends[here].astype(str)):
        mine = noise.held_out[here & (backends == backend)]
        for change in mine.T:
            change = change[np.isfinite(change)]
            if len(change) < _LEAST_SHARING:
                continue
            middle = float(np.median(change))
            scatter = MAD_TO_SD * float(np.median(np.abs(change - middle)))
            squares.append(middle**2 - scatter**2 * math.pi / 2 / len(change))
    return squares
