"""Rows that measured the same thing, as one with the times of all. Without pandas."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from collbench.core.grouping import grouped
from collbench.core.record import LAUNCH_TIMES, NOT_TRUE, Record
from collbench.core.rows import is_timed, times_of
from collbench.core.verdict import middle_time

Runs: TypeAlias = tuple[tuple[float, ...], ...]  # the repeats of each run
LAUNCHES = (*LAUNCH_TIMES, "histogram")
# columns that may change where rows are taken together; the last are those of LAUNCHES
MERGED = ("status", "wrong", "reason", "time_us", "_times", "_noise")


class Timed(NamedTuple):
    """What rows that measured the same thing may differ in. place: of the row in its table; runs:
    the repeats of each; is_noise: they are no evidence; launches: the columns LAUNCHES.
    """

    place: int
    run: str
    status: str
    wrong: float | None
    reason: str
    time_us: float | None
    runs: Runs
    is_noise: bool
    launches: tuple[Any, ...]

    @property
    def sweep(self) -> str:
        """When its sweep began. One that was resumed measures anew, under another time."""
        return self.run.partition("-")[0]

    @property
    def has_launches(self) -> bool:
        most = self.launches[LAUNCHES.index("max_us")]
        return isinstance(most, float) and not math.isnan(most)


def of_all_runs(rows: Sequence[Timed]) -> Timed:
    """Rows as the last that was measured, or else the last, with the times of all runs, without
    those of noise where others are left; its time is their median.
    """
    last = max(rows, key=lambda row: (row.status in ("ok", *NOT_TRUE), row.place))
    timed = [row for row in rows if row.runs]
    if len(timed) < 2:
        return last
    clean = [row for row in timed if not row.is_noise]
    runs = tuple(chain.from_iterable(row.runs for row in clean or timed))
    time_us = middle_time(list(map(middle_time, runs)))
    return last._replace(runs=runs, time_us=time_us, is_noise=not clean)


def of_one_file(rows: Sequence[Timed]) -> Timed:
    """Rows of one file as one. Those of a run are one with all repeats. Data that is wrong in one
    of the runs of a sweep is not right. Where the last has no single launches, it has those of the
    last row before.
    """
    runs = []
    for one in map(of_all_runs, grouped((row.run, row) for row in rows).values()):
        if len(one.runs) > 1:
            times = tuple(chain.from_iterable(one.runs))
            one = one._replace(runs=(times,), time_us=middle_time(times))
        runs.append(one)
    runs.sort(key=attrgetter("place"))
    wrong = {one.sweep: one for one in reversed(runs) if one.status in NOT_TRUE}
    merged = of_all_runs(
        [
            one._replace(status=found.status, wrong=found.wrong, reason=found.reason)
            if one.status == "ok" and (found := wrong.get(one.sweep))
            else one
            for one in runs
        ]
    )
    known = [row.launches for row in rows if row.has_launches]
    if merged.status == "ok" and known and not merged.has_launches:
        merged = merged._replace(launches=known[-1])
    return merged


def together(records: Sequence[Record]) -> tuple[Sequence[Record], int]:
    """Rows in which repeated ones are one with all repeats, and how many were merged."""
    places_of = grouped((record.point, place) for place, record in enumerate(records))
    several = [places for places in places_of.values() if len(places) > 1]
    if not several or not any(is_ours(one.run, one.versions, one.channels) for one in records):
        return records, 0
    merged: dict[int, Record | None] = dict.fromkeys(chain.from_iterable(several))
    for places in several:
        one = of_one_file([_timed(place, records[place]) for place in places])
        merged[one.place] = _with_times(records[one.place], one)
    every = [merged.get(place, record) for place, record in enumerate(records)]
    kept = [record for record in every if record is not None]
    return kept, len(records) - len(kept)


def _timed(place: int, row: Record) -> Timed:
    launches = tuple(getattr(row, name) for name in LAUNCHES)
    runs = (times_of(row),) if is_timed(row) else ()
    outcome = (row.status, row.wrong, row.reason, row.time_us)
    # one file's report has its own words for noise, of all repeats
    return Timed(place, row.run, *outcome, runs, False, launches)


def _with_times(row: Record, one: Timed) -> Record:
    """A row with the times and the outcome of all that were taken together."""
    changed: dict[str, object] = dict(zip(LAUNCHES, one.launches, strict=True))
    changed |= {name: getattr(one, name) for name in MERGED if not name.startswith("_")}
    if one.status == "ok":
        changed["repeat_times_us"] = tuple(chain.from_iterable(one.runs))
    for name in ("algbw_gbs", "busbw_gbs", "percent", "of_floor"):
        rate = getattr(row, name)
        if rate is not None and row.time_us is not None and one.time_us is not None:
            changed[name] = rate * row.time_us / one.time_us
    return replace(row, **changed)  # type: ignore[arg-type]


def is_ours(run: str, versions: str, channels: int) -> bool:
    """Whether a row is no other tool's: it names its run, our version or its channels."""
    return bool(run) or versions.startswith("collbench ") or channels > 0
