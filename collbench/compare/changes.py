"""What changed between a sweep and its base: a verdict for every row and for rows together, with
the interval that the ratio of times lies in.

What is assumed, because the files cannot show it:
- With one run a side, the spread between runs is that of the shipped prior for this kind of
  machine, or how far rows' ratios scatter around their neighbours', where that is more.
- Where all runs of the base are of one day and the new file is of another, the prior of days is
  added to what the runs show.
- Deviations between runs have the tails that the runs show, carried on as powers; with few runs,
  also those of Student's t with three degrees of freedom.
Intervals cover 95 of 100 true ratios, each by itself. Better and worse take the number of rows and
of groups into account: where nothing changed, at most one comparison in twenty calls any (see
docs/results/comparisons.md). Changes under MINOR are called same even where they are certain.
`same` means that the whole interval lies within the threshold.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collbench.compare.groups import Change, changes_of_groups, groups_of, verdicts_of
from collbench.compare.join import Joined, apart, differences, join, match_mode
from collbench.compare.losses import Loss
from collbench.compare.noise import Noise, row_noise
from collbench.compare.priors import Prior, machine_kinds, prior
from collbench.core.errors import UsageError
from collbench.core.limits import (
    BETWEEN_RUNS,
    FALSE_ROWS,
    MOSTLY,
    NEAR_HOURS,
    NOISY_SCALE,
    SAME,
    TAIL_FREEDOM,
)
from collbench.core.rows import Workload
from collbench.core.text import texts_of
from collbench.core.verdict import Array, Verdict, are_sure, beyond_chance, deviate

_ROUNDING = 1e-9  # of a logarithm
_DAYS = (
    "the runs of the base are of one day and the new file is of another: what days differ by comes"
    " from the prior"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The outcome. rows: what was compared, with ratio, low, high (of times, new over base) and
    verdict beside the columns of both files (base's as name_base). not_compared: how many rows, by
    why; losses: what the base has and the new file lacks. differences: name, new, base. same: what
    `same` means, as a share. Spreads are of logarithms, of one repeat and of one run; shift is the
    median of all changes; least_row: from which ratio on a typical row alone is called, NaN where
    none is. runs: how many the new side and the base have. Rows with is_noise are noise on a side,
    and no evidence.
    """

    rows: pd.DataFrame
    groups: tuple[Change, ...] = ()
    not_compared: dict[str, int]
    losses: tuple[Loss, ...]
    differences: tuple[tuple[str, str, str], ...]
    same: float = SAME
    repeat_spread: float = math.nan
    run_spread: float = math.nan
    shift: float = math.nan
    least_row: float = math.nan
    runs: tuple[int, int] = (1, 1)
    remarks: tuple[str, ...] = ()

    def count(self, verdict: Verdict) -> int:
        """How many rows have a verdict."""
        return int((self.rows["verdict"] == verdict).sum())

    @property
    def is_by_curves(self) -> bool:
        """Whether neighbouring sizes of a curve were judged together, and no row alone."""
        return math.isnan(self.least_row)

    @property
    def called(self) -> tuple[Change, ...]:
        """The groups that changed, those that explain most first."""
        return tuple(one for one in self.groups if one.verdict in ("better", "worse"))

    @property
    def is_judged(self) -> bool:
        """Whether a verdict on any row or group is more than that it cannot be told."""
        return any(one.verdict != "cannot tell" for one in self.groups) or bool(
            (self.rows["verdict"] != "cannot tell").any()
        )


def unlike(new: pd.DataFrame, base: pd.DataFrame) -> tuple[str, ...]:
    """Why two files are not of like machines; empty if they are, as far as they show."""
    reasons = []
    for name, title in (("device", "devices"), ("ranks", "numbers of ranks")):
        ours, theirs = (texts_of(frame[name]) for frame in (new, base))
        differ = ours != theirs if name == "device" else not set(ours) & set(theirs)
        if ours and theirs and differ:
            reasons.append(f"the {title} differ: {', '.join(ours)} and {', '.join(theirs)}")
    return tuple(reasons)


def compare(
    new: pd.DataFrame,
    *bases: pd.DataFrame,
    is_forced: bool = False,
    across: Collection[str] = (),
    same: float = SAME,
) -> Changes:
    """Join a sweep with the runs of its base (the columns of record.COLUMNS), and judge every row
    and every group. is_forced: unlike machines too. across: columns that may differ
    (record.ACROSS). same: from which change on it matters, as a share.

    Raises UsageError for unlike machines. Memory and time grow with the rows; 100,000 take about
    two seconds.
    """
    base = pd.concat(bases, ignore_index=True) if len(bases) > 1 else bases[0]
    why = unlike(new, base)
    if why and not is_forced:
        raise UsageError("; ".join(why), "compare sweeps of like machines, or give --force")
    joined, around = join(new, bases, across), partial(differences, new, base, across=across)
    if not len(joined.compared):
        reasons = (*why, *apart(new, base, across))
        return outcome(joined, None, around(joined.compared), same, reasons)
    is_far = _are_of_two_days(new, base)
    is_alike = not why and not across and match_mode(new, base) == "knobs"
    days = [_DAYS] * (is_far and joined.base.runs.shape[1] > 1)
    judged = judge_runs(joined, math.log1p(same), is_alike=is_alike, is_far=is_far)
    return outcome(joined, judged, around(joined.compared), same, (*why, *days))


def compare_beside(
    new: pd.DataFrame, base: pd.DataFrame, same: float, across: Collection[str] = ()
) -> Changes:
    """The same of a base that has the points of another machine (baselines.beside): machines of a
    kind differ within `same`, so better and worse are surely beyond it.
    """
    joined = join(new, [base], across, way="knobs")
    around = differences(new, base, joined.compared, across)
    if not len(joined.compared):
        return outcome(joined, None, around, same)
    is_far = _are_of_two_days(new, base)
    judged = judge_curves(joined, math.log1p(same), is_far=is_far)
    return outcome(joined, judged, around, same)


class Judged(NamedTuple):
    """What is sure of rows and groups. least_row: see Changes."""

    noise: Noise
    is_noise: NDArray[np.bool_]
    is_sure: NDArray[np.bool_]
    groups: Sequence[Change]
    least_row: float = math.nan


def outcome(
    joined: Joined,
    judged: Judged | None,
    around: tuple[tuple[str, str, str], ...],
    same: float,
    remarks: Sequence[str] = (),
) -> Changes:
    """The outcome; judged: None without rows."""
    known = Changes(
        rows=joined.compared,
        not_compared=joined.counts,
        losses=joined.losses,
        differences=around,
        same=same,
        remarks=(*joined.remarks, *remarks),
    )
    if judged is None:
        empty = joined.compared.assign(ratio=0.0, low=0.0, high=0.0, verdict="", is_noise=False)
        return replace(known, rows=empty)
    noise, is_noise, is_sure, groups, least_row = judged
    rows = joined.compared.drop(columns=["_times", "_times_base", "_noise", "_noise_base", "side"])
    is_itself = _are_the_same_rows(rows, noise.change)
    half, is_noise = np.where(is_itself, 0.0, noise.half_interval()), is_noise & ~is_itself
    seen_half = np.where(is_noise, math.inf, half)
    return replace(
        known,
        rows=rows.assign(
            ratio=np.exp(noise.change),
            low=np.exp(noise.change - half),
            high=np.exp(noise.change + half),
            verdict=verdicts_of(noise.change, seen_half, is_sure & ~is_noise, math.log1p(same)),
            is_noise=is_noise,
        ),
        groups=tuple(groups),
        repeat_spread=noise.repeat_spread,
        run_spread=float(np.median(noise.spread)),
        shift=float(np.median(noise.change)),
        least_row=least_row,
        runs=(joined.new.runs.shape[1], joined.base.runs.shape[1]),
    )


def _are_the_same_rows(rows: pd.DataFrame, change: Array) -> NDArray[np.bool_]:
    """Which rows were compared with themselves, as far as they say which they are: by their run,
    or what was published by its source.
    """
    names = ["run", "timestamp", "versions"]
    new, base = (rows[[f"{name}{end}" for name in names]].to_numpy() for end in ("", "_base"))
    is_told = (rows["run"] != "") | rows["versions"].str.contains("; source ", regex=False)
    is_equal: NDArray[np.bool_] = (new == base).all(axis=1) & (np.abs(change) < _ROUNDING)
    return is_equal & is_told.to_numpy(dtype=np.bool_)


def judge_runs(joined: Joined, within: float, *, is_alike: bool, is_far: bool) -> Judged:
    """Runs of one machine: see row_noise. within: the logarithm up to which a change is none."""
    rows = joined.compared
    noise = _noise(joined, _prior(rows), is_alike=is_alike, is_far=is_far)
    is_noise = _are_noise(rows, noise)
    groups = changes_of_groups(tuple(groups_of(rows, without=is_noise)), rows, noise, within)
    is_sure = _sure_rows(noise, groups)
    least = float(np.median(noise.least_change(FALSE_ROWS / len(rows))))
    return Judged(noise, is_noise, is_sure, groups, math.exp(least))


def judge_curves(joined: Joined, within: float, *, is_far: bool) -> Judged:
    """A machine and another one of its kind, of another day: neighbouring sizes of a curve are
    judged together, by what they are beyond `within`.
    """
    rows, known = joined.compared, _prior(joined.compared)
    known = replace(known, row=np.maximum(known.row, BETWEEN_RUNS / math.sqrt(TAIL_FREEDOM)))
    noise = _noise(joined, known, is_alike=False, is_far=is_far)
    # the shared deviations of two runs of one machine are none of two machines
    noise = replace(noise, assumed=np.zeros(len(rows), dtype=np.bool_))
    # what the changes are beyond that share
    beyond = np.copysign(np.maximum(np.abs(noise.change) - within, 0.0), noise.change)
    is_noise, asked = _are_noise(rows, noise), replace(noise, change=beyond)
    groups = changes_of_groups(tuple(groups_of(rows, without=is_noise)), rows, asked, within)
    is_sure = _sure_in_curves(rows, asked)
    return Judged(noise, is_noise, is_sure, [_from_none(one, within) for one in groups])


def _prior(rows: pd.DataFrame) -> Prior:
    return prior(machine_kinds(rows), rows["size_bytes"].to_numpy(dtype=np.float64))


def _noise(joined: Joined, known: Prior, *, is_alike: bool, is_far: bool) -> Noise:
    rows = joined.compared
    sizes = rows["size_bytes"].to_numpy(dtype=np.float64)
    backends, ops = (rows[name].to_numpy(dtype=object).astype(str) for name in ("backend", "op"))
    sides = joined.new, joined.base
    return row_noise(*sides, sizes, backends, ops, known, is_alike=is_alike, is_far=is_far)


def _are_noise(rows: pd.DataFrame, noise: Noise) -> NDArray[np.bool_]:
    """Which rows are no evidence: those that were measured in noise, and those whose like rows
    differ by as much; where most rows are, the others are quiet by chance alone.
    """
    is_named = (rows["_noise"] | rows["_noise_base"]).to_numpy(dtype=np.bool_)
    is_noise: NDArray[np.bool_] = is_named | (noise.spread > NOISY_SCALE)
    return is_noise if is_noise.mean() <= MOSTLY else np.ones(len(rows), dtype=np.bool_)


def _from_none(one: Change, within: float) -> Change:
    """A change that was judged by what it is beyond that share, as what it is."""
    if one.verdict not in ("better", "worse"):
        return one
    factor = math.exp(within if one.verdict == "worse" else -within)
    return replace(one, ratio=one.ratio * factor, low=one.low * factor, high=one.high * factor)


def _sure_in_curves(rows: pd.DataFrame, noise: Noise) -> NDArray[np.bool_]:
    """Which rows are among neighbouring sizes of a curve that chance does not explain together."""
    names = [name for name in (*Workload._fields, "backend", "buffers") if name in rows]
    ordered = rows.sort_values("size_bytes", kind="stable")
    curves = [list(places) for places in ordered.groupby(names, sort=False).groups.values()]
    deviates = [
        [deviate(float(noise.change[place]), float(noise.scale[place])) for place in curve]
        for curve in curves
    ]
    sure = np.zeros(len(rows), dtype=np.bool_)
    for sign in (1, -1):
        marks = beyond_chance([[sign * one for one in curve] for curve in deviates])
        for curve, marked in zip(curves, marks, strict=True):
            sure[curve] |= np.array(marked)
    return sure


def _sure_rows(noise: Noise, groups: Sequence[Change]) -> NDArray[np.bool_]:
    """Which rows are sure among all, or, where a group of theirs changed, sure by themselves in the
    same direction and nearer to its change than to none.
    """
    sure, half = are_sure(noise.chance_of(noise.change), FALSE_ROWS), noise.half_interval()
    for group in groups:
        if group.verdict in ("better", "worse"):
            sign, here = 1 if group.verdict == "worse" else -1, group.places
            change = sign * noise.change[here]
            is_near = change > abs(math.log(group.ratio)) / 2
            sure[here] |= is_near & ((change > half[here]) | (group.several > 0))
    return sure


def _are_of_two_days(new: pd.DataFrame, base: pd.DataFrame) -> bool:
    """Whether all runs of the base are of one day, and none of the new file's is of that day; also
    where another tool's file does not say when it was.
    """
    ours, theirs = (
        pd.to_datetime(frame["timestamp"], errors="coerce", utc=True, format="ISO8601").dropna()
        for frame in (new, base)
    )
    if not len(ours) or not len(theirs):
        return not any((frame["versions"] != "").any() for frame in (new, base))
    near = pd.Timedelta(hours=NEAR_HOURS)
    if theirs.max() - theirs.min() > near:
        return False
    return bool(ours.min() > theirs.max() + near or ours.max() < theirs.min() - near)
