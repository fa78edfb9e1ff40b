"""What changed between two sweeps: a verdict for every row and for every algorithm, with the
interval that the ratio of times lies in.

What is assumed, because two runs cannot show it:
- A shift that rows of like size share, up to DRIFT (or the spread of one repeat, if that is more),
  may be drift between the runs: clocks, temperature, neighbours. The interval includes it, on its
  side only. A larger shift counts as a change, by what exceeds that.
- Most rows of like size did not change, so their scatter is what the same thing does in two runs;
  but at most MOST_BETWEEN times the spread of the repeats counts as such.
- Logarithms of repeats are near normal, or have tails like Student's t.
Intervals cover 95 of 100 true ratios, each by itself. Better and worse take the number of rows into
account, so that one in twenty of the rows called so is expected to be so by chance; where nothing
changed, one such row in twenty comparisons. Changes under MINOR are called same even where they are
certain.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd

from collbench.analysis.join import apart, differences, join, match_mode
from collbench.analysis.noise import (
    DRIFT,
    MAD_TO_SD,
    MOST_BETWEEN,
    ONE_SHOT_SPREAD,
    SINGLE_Z,
    Array,
    Noise,
    is_sure,
    noise,
    t_of_z,
    z_of_t,
)
from collbench.results.frame import texts_of
from collbench.util.errors import UsageError

Verdict = Literal["better", "worse", "same", "cannot tell"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
MINOR = 0.01  # a change too small to mention
# `same` rows lie within this; where repeats spread more, within RESOLVED times what a typical row
# resolves
SAME = 0.05
RESOLVED = 3.0
MOST_SAME = 0.5  # files that resolve less than this cannot show that anything is the same
LEAST_GROUP = 4  # rows that make a group
LEAST_GROUPS = 8  # that show how far groups scatter
GROUP_LEVELS = (
    ("backend",),
    ("backend", "algo"),
    ("op", "backend", "algo"),
    ("op", "backend", "algo", "proto"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Rows of one algorithm (and protocol) taken together; ratio: of times, new over base."""

    names: tuple[str, ...]
    rows: int
    ratio: float
    low: float
    high: float
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The outcome. rows: what was compared, with ratio, low, high (of times, new over base) and
    verdict beside the columns of both files (base's as name_base). not_compared: how many rows, by
    why; new_failures: of those, right in the base and wrong or failed in the new file. differences:
    name, new, base. resolution: `same` means that the ratio lies within so much of 1. Spreads are
    of logarithms; shift is the median of all, drift the part of it that is attributed to drift.
    """

    rows: pd.DataFrame
    groups: tuple[Change, ...] = ()
    not_compared: dict[str, int]
    new_failures: int
    differences: tuple[tuple[str, str, str], ...]
    resolution: float = math.nan
    repeat_spread: float = math.nan
    between_spread: float = math.nan
    shift: float = math.nan
    drift: float = math.nan
    remarks: tuple[str, ...] = ()

    def count(self, verdict: Verdict) -> int:
        """How many rows have a verdict."""
        return int((self.rows["verdict"] == verdict).sum())

    def is_worse_by(self, percent: float) -> bool:
        """Whether a row or a group is slower by more than so many percent, or went wrong."""
        least = 1 + percent / 100
        rows = (self.rows["verdict"] == "worse") & (self.rows["ratio"] > least)
        return (
            bool(rows.any())
            or self.new_failures > 0
            or any(one.verdict == "worse" and one.ratio > least for one in self.groups)
        )


def unlike(new: pd.DataFrame, base: pd.DataFrame) -> tuple[str, ...]:
    """Why two files are not of like machines; empty if they are, as far as they show."""
    reasons = []
    for name, title in (("device", "devices"), ("ranks", "numbers of ranks")):
        ours, theirs = (texts_of(frame, name) for frame in (new, base))
        differ = ours != theirs if name == "device" else not set(ours) & set(theirs)
        if ours and theirs and differ:
            reasons.append(f"the {title} differ: {', '.join(ours)} and {', '.join(theirs)}")
    return tuple(reasons)


def compare(
    new: pd.DataFrame, base: pd.DataFrame, *, is_forced: bool = False, across: Collection[str] = ()
) -> Changes:
    """Join two sweeps (the columns of record.COLUMNS) and judge every row and every algorithm.
    is_forced: unlike machines too. across: columns that may differ (record.ACROSS).

    Raises UsageError for unlike machines. Memory and time grow with the rows; 100,000 take about
    two seconds.
    """
    why = unlike(new, base)
    if why and not is_forced:
        raise UsageError("; ".join(why), "compare sweeps of like machines, or give --force")
    joined = join(new, base, across)
    rows, sides = joined.compared, joined.sides
    remarks = (*joined.remarks, *why)
    around = differences(new, base, rows, across)
    if not len(rows):
        empty = rows.assign(ratio=0.0, low=0.0, high=0.0, verdict="")
        return Changes(
            rows=empty,
            not_compared=joined.counts,
            new_failures=joined.new_failures,
            differences=around,
            remarks=(*remarks, *apart(new, base, across)),
        )
    is_alike = not why and not across and match_mode(new, base) == "knobs"
    finest = np.asarray(rows.groupby(list(GROUP_LEVELS[-1]), sort=False).ngroup(), dtype=np.intp)
    noise_of = noise(
        sides,
        rows["size_bytes"].to_numpy(dtype=np.float64),
        rows["backend"].to_numpy(dtype=object).astype(str),
        finest,
        is_alike=is_alike,
    )
    half = t_of_z(SINGLE_Z, noise_of.freedom) * noise_of.error
    resolution = min(
        max(math.log1p(SAME), RESOLVED * float(np.median(half))), math.log1p(MOST_SAME)
    )
    low, high, verdicts = _judged(
        sides.change, noise_of.error, noise_of.freedom, noise_of.drift, resolution
    )
    rows = rows.drop(columns=["_times", "_times_base", "side"])
    rows = rows.assign(
        ratio=np.exp(sides.change), low=np.exp(low), high=np.exp(high), verdict=verdicts
    )
    return Changes(
        rows=rows,
        groups=_groups(rows, sides.change, noise_of),
        not_compared=joined.counts,
        new_failures=joined.new_failures,
        differences=around,
        resolution=math.expm1(resolution),
        repeat_spread=noise_of.repeat_spread,
        between_spread=noise_of.between_spread,
        shift=float(np.median(sides.change)),
        drift=float(np.median(noise_of.drift)),
        remarks=remarks,
    )


def _away(change: Array, drift: Array) -> Array:
    """How far a change lies from no change, with any part of the drift taken off.

    >>> _away(np.array([0.03, 0.005, -0.02]), np.array([0.01, 0.01, 0.01])).round(3).tolist()
    [0.02, 0.0, 0.02]
    """
    return np.maximum(np.maximum(change - np.maximum(drift, 0), np.minimum(drift, 0) - change), 0.0)


def _judged(
    change: Array, error: Array, freedom: Array, drift: Array, resolution: float
) -> tuple[Array, Array, list[Verdict]]:
    """The bounds of each change, and its verdict among all that are judged together."""
    sure = is_sure(z_of_t(_away(change, drift) / error, freedom))
    half = t_of_z(SINGLE_Z, freedom) * error
    low = change - half - np.maximum(drift, 0)
    high = change + half - np.minimum(drift, 0)
    is_near = (low >= -resolution) & (high <= resolution)
    codes = np.where(
        sure & (np.abs(change) >= MINOR),
        np.where(change > 0, 1, 0),
        np.where(is_near | (sure & (np.abs(change) < MINOR)), 2, 3),
    )
    return low, high, [VERDICTS[place] for place in codes]


def _between_groups(middles: Array, errors: Array, noise_of: Noise) -> float:
    """How far groups differ by chance beyond what their rows show: those of a group were measured
    within seconds of each other, and share what came then.

    Taken from all groups, on the assumption that most did not change; no more than rows may scatter
    (see _noise).
    """
    if len(middles) < LEAST_GROUPS:
        return 0.0
    scatter = MAD_TO_SD * float(np.median(np.abs(middles - np.median(middles))))
    most = (
        max(DRIFT, MOST_BETWEEN * noise_of.repeat_spread)
        if math.isfinite(noise_of.repeat_spread)
        else ONE_SHOT_SPREAD
    )
    return min(math.sqrt(max(scatter**2 - float(np.median(errors)) ** 2, 0.0)), most)


def _groups(rows: pd.DataFrame, change: Array, noise_of: Noise) -> tuple[Change, ...]:
    """Judge every algorithm, also by operation and protocol, by the median of its rows."""
    names: list[tuple[str, ...]] = []
    counted: list[int] = []
    numbers: list[tuple[float, float, float]] = []
    known: set[bytes] = set()
    # Matched by the workload: rows against another backend are a group of their own.
    if "backend_base" in rows:
        rows = rows.assign(
            backend=rows["backend"].where(
                rows["backend"] == rows["backend_base"],
                rows["backend"] + " vs " + rows["backend_base"],
            )
        )
    for level in GROUP_LEVELS:
        keys = rows.groupby(list(level), sort=True)
        numbered = keys.ngroup().to_numpy(dtype=np.intp)
        order = np.argsort(numbered, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(numbered[order])) + 1):
            # the same rows need no second test
            if len(places) < LEAST_GROUP or places.tobytes() in known:
                continue
            known.add(places.tobytes())
            names.append(
                tuple(name for name in rows.iloc[places[0]][list(level)].astype(str) if name)
            )
            counted.append(len(places))
            middle = float(np.median(change[places]))
            scatter = max(
                MAD_TO_SD * float(np.median(np.abs(change[places] - middle))),
                float(np.median(noise_of.error[places])),
            )
            numbers.append(
                (
                    middle,
                    scatter * math.sqrt(math.pi / 2 / len(places)),
                    float(np.median(noise_of.drift[places])),
                )
            )
    if not names:
        return ()
    middles, errors, drifts = np.array(numbers).T
    errors = np.hypot(errors, _between_groups(middles, errors, noise_of))
    freedom = np.array(counted, dtype=np.float64) - 1
    low, high, verdicts = _judged(middles, errors, freedom, drifts, math.log1p(SAME))
    return tuple(
        Change(
            names=names[k],
            rows=counted[k],
            ratio=math.exp(middles[k]),
            low=math.exp(low[k]),
            high=math.exp(high[k]),
            verdict=verdicts[k],
        )
        for k in range(len(names))
    )
