"""How the points of a machine changed over its saved runs, and where they changed for good.

A change point is where the times of a point, run by run, take another level and stay there. It is
found by optimal partitioning with the biweight cost (P. Fearnhead and G. Rigaill, "Changepoint
Detection in the Presence of Outliers", JASA 114, 2019), on logarithms of the median time of each
run: a segment costs the sum of min(z^2, FAR^2), z the distance from the median of the segment in
scales of noise; each change costs PENALTY. An outlier costs FAR^2 at most, so one or two slow runs
are no change; three alike are. The scale of noise is taken from the differences of neighbouring
runs, at least that of a typical like point, so that a few runs suffice.

How often that is a false alarm is measured by tests/compare/test_history.py. Pure.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from collbench.core.limits import (
    FAR,
    HISTORY_RUNS,
    LEAST_GAIN,
    LEAST_SCALE,
    LEAST_SEGMENT,
    MAD_TO_SD,
    PENALTY,
)
from collbench.core.record import KEY
from collbench.core.rows import conditions_of
from collbench.core.verdict import Array

_POINT = [*KEY, "conditions"]


class Run(NamedTuple):
    """A run, the oldest first: its name (`@3`), when it began, and its rows."""

    name: str
    started: str
    frame: pd.DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A point, by its columns, over the runs. times_us: NaN where a run does not have it. changes:
    the runs, by place, at which another level begins; levels_us: of each segment.
    """

    point: Mapping[Hashable, Any]
    times_us: tuple[float, ...]
    changes: tuple[int, ...]
    levels_us: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The last level over the first."""
        return self.levels_us[-1] / self.levels_us[0]


class HistoryEvent(NamedTuple):
    """Points that changed at one run: how many got slower and faster, of how many that have a
    history there, and the middle of their ratios, later over earlier.
    """

    run: int
    slower: int
    faster: int
    points: int
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The runs of one machine, the oldest first, and its points; those that changed most first."""

    names: tuple[str, ...]
    started: tuple[str, ...]
    series: tuple[Series, ...]

    @property
    def changed(self) -> tuple[Series, ...]:
        return tuple(one for one in self.series if one.changes)

    @property
    def events(self) -> tuple[HistoryEvent, ...]:
        """What changed at each run at which something did."""
        found = []
        for run in range(len(self.names)):
            ratios = [
                one.levels_us[place + 1] / one.levels_us[place]
                for one in self.changed
                for place, at in enumerate(one.changes)
                if at == run
            ]
            if ratios:
                slower = sum(ratio > 1 for ratio in ratios)
                middle = math.exp(float(np.median(np.log(ratios))))
                found.append(
                    HistoryEvent(run, slower, len(ratios) - slower, len(self.series), middle)
                )
        return tuple(found)


def machine_of(frame: pd.DataFrame) -> tuple[frozenset[object], ...]:
    """What two runs must have in common to be of one machine: host, devices, ranks."""
    ours = frame[frame["backend"] != "model"]
    return tuple(frozenset(ours[name].unique()) - {"", 0} for name in ("host", "device", "ranks"))


def history(runs: Sequence[Run], frame: pd.DataFrame) -> History | None:
    """The history of the points of a frame over runs, the oldest first; None with fewer than
    HISTORY_RUNS runs that have one of them.
    """
    times = _times(runs, frame)
    times = times.dropna(axis=1, how="all")
    times = times[times.notna().sum(axis=1) >= HISTORY_RUNS]
    if times.shape[1] < HISTORY_RUNS or times.empty:
        return None
    kept = [run for place, run in enumerate(runs) if place in times.columns]
    logs = np.log(times.to_numpy(dtype=np.float64))
    points = [dict(zip(times.index.names, values, strict=True)) for values in times.index]
    scales = _scales(logs, [str(point["backend"]) for point in points])
    series = []
    for place, point in enumerate(points):
        here = logs[place]
        known = np.flatnonzero(~np.isnan(here))
        changes, levels = segments(here[known].tolist(), scales[place])
        series.append(
            Series(
                point=point,
                times_us=tuple(np.exp(here).tolist()),
                changes=tuple(int(known[at]) for at in changes),
                levels_us=tuple(math.exp(level) for level in levels),
            )
        )
    series.sort(key=lambda one: (not one.changes, -abs(math.log(one.ratio))))
    return History(
        names=tuple(run.name for run in kept),
        started=tuple(run.started for run in kept),
        series=tuple(series),
    )


def _times(runs: Sequence[Run], frame: pd.DataFrame) -> pd.DataFrame:
    """The median time of each point of the frame, a row, in each run, a column."""
    wanted = _keyed(frame)[_POINT].drop_duplicates()
    columns = {}
    for place, run in enumerate(runs):
        keyed = _keyed(run.frame).merge(wanted, on=_POINT)
        columns[place] = keyed.groupby(_POINT, sort=False)["time_us"].median()
    return pd.DataFrame(columns)


def _keyed(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that are right and have a time, with the conditions in their notes."""
    right = frame[(frame["status"] == "ok") & (frame["time_us"] > 0)]
    known = {text: " ".join(conditions_of(text)) for text in right["notes"].unique()}
    return right.assign(conditions=right["notes"].map(known))


def _scales(logs: Array, backends: Sequence[str]) -> list[float]:
    """The scale of noise of each point: its own, and at least that of a typical one of its
    backend.
    """
    own = np.array(list(map(noise_scale, logs)))
    names = np.array(backends, dtype=object)
    typical = {name: float(np.median(own[names == name])) for name in set(backends)}
    return [max(float(scale), typical[name]) for scale, name in zip(own, backends, strict=True)]


def noise_scale(series: Array) -> float:
    """The scale of noise of logarithms, by how neighbours that are no NaN differ."""
    steps = np.abs(np.diff(series[~np.isnan(series)]))
    return max(MAD_TO_SD * float(np.median(steps)) / math.sqrt(2), LEAST_SCALE)


def segments(values: Sequence[float], scale: float) -> tuple[list[int], list[float]]:
    """Where another level begins, and the level of each segment: its median. Changes below
    LEAST_GAIN are none.

    >>> segments([0.0, 0.01, 0.0, 0.01, 0.5, 0.51, 0.5], 0.01)
    ([4], [0.005, 0.5])
    >>> segments([0.0, 0.01, 0.0, 0.9, 0.0, 0.01, 0.0], 0.01)
    ([], [0.0])
    """
    data = np.asarray(values, dtype=np.float64)
    count = len(data)
    if _cost(data, scale) <= PENALTY:  # which no change can save
        return [], [float(np.median(data))]
    least = [0.0] + [math.inf] * count
    began = [0] * (count + 1)
    for end in range(LEAST_SEGMENT, count + 1):
        for start in range(end - LEAST_SEGMENT + 1):
            if least[start] < math.inf:
                cost = least[start] + _cost(data[start:end], scale) + (PENALTY if start else 0.0)
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


def _cost(part: Array, scale: float) -> float:
    """The biweight cost of a segment."""
    far = (part - np.median(part)) / scale
    return float(np.minimum(far * far, FAR * FAR).sum())
