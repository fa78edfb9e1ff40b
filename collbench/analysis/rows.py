"""Rows of a frame as plain tuples, grouped by workload and configuration, and when the repeats
separate two rows. Pure: no pandas at run time.

A workload is what was to be done (ranks and their processes, op, type, reduction, root, placement,
the conditions in the notes) at any size; a configuration is how: backend, algorithm, protocol and
those knobs that took several values where the rest was the same. Knobs that follow from the others,
such as the channels that the tool chose for a size, do not break a curve.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from collbench.results.distribution import histogram_text
from collbench.results.record import CONDITIONS, Record
from collbench.results.statistics import NOISY_SPREAD, Interval, interval, is_noisy
from collbench.spec.knobs import BY_STAGE, KNOB, UNASKED
from collbench.spec.peers import OWN_CHOICE, is_peer
from collbench.util.collector import cyclic_gc_disabled

if TYPE_CHECKING:
    import pandas as pd

# In the order in which they are tried to tell configurations apart.
KNOB_FIELDS = tuple(knob.name for knob in BY_STAGE if knob.name not in ("algo", "proto"))
# Below it nothing is called faster, however close the repeats: two runs of one thing may differ
# by as much. A choice, not a measurement.
LEAST_GAIN = 1.02
DISTURBED = ("throttled", "clocks-low", "other-processes")
SIZES = {knob.name for knob in BY_STAGE if knob.unit == "bytes"}
_AGREEMENT = 1 + NOISY_SPREAD  # the slowest over the fastest: up to here repeats cannot be noisy
KNOB_NAMES = {knob.name: knob.label for knob in BY_STAGE}
_OWN = UNASKED["algo"]
# A modelled time is no measurement, so it does not compete with one.
_SEPARATE = (*CONDITIONS, "modelled")


class Workload(NamedTuple):
    """What was to be done, at any size."""

    op: str
    ranks: int
    hosts: int
    dtype: str
    redop: str
    root: int
    placement: str
    group: str
    conditions: tuple[str, ...]


class Row(NamedTuple):
    """A row of a frame, with the columns that comparisons need; times_us are its repeats,
    chosen_by_us the median of the even ones. Percentiles of single launches are NaN where none were
    timed, and the histogram is its cell of the file.

    Not a Record, which takes ten times as long to make: a tuple, whose columns must be spelled out
    to have types.
    """

    op: str
    backend: str
    algo: str
    proto: str
    transport: str
    direct: str
    p2p: str
    channels: int
    threads: int
    buffsize: int
    slots: int
    chunk: int
    slices: int
    unroll: int
    cluster: int
    reload: str
    specialize: str
    buffers: str
    dtype: str
    redop: str
    root: int
    placement: str
    ranks: int
    hosts: int
    size_bytes: int
    time_us: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    histogram: str
    algbw_gbs: float
    busbw_gbs: float
    ceiling_gbs: float
    percent: float
    limit: str
    status: str
    reason: str
    notes: str
    device: str
    versions: str
    group: str
    times_us: tuple[float, ...]
    chosen_by_us: float

    @property
    def workload(self) -> Workload:
        return Workload(
            self.op,
            self.ranks,
            self.hosts,
            self.dtype,
            self.redop,
            self.root,
            self.placement,
            self.group,
            conditions_of(self.notes),
        )

    @property
    def is_library(self) -> bool:
        """Whether a library with its own algorithms did it."""
        return is_peer(self.backend)

    @property
    def is_own_choice(self) -> bool:
        """Whether a library did it as it does by itself."""
        return (
            self.algo == _OWN
            and self.is_library
            and all(getattr(self, name) == value for name, value in OWN_CHOICE.items())
        )

    @property
    def is_disturbed(self) -> bool:
        """Whether the notes name something that slowed the machine down."""
        return self.notes != "" and any(word.startswith(DISTURBED) for word in self.notes.split())

    @property
    def is_noise(self) -> bool:
        """Whether the repeats disagree too much to compare them."""
        times = self.times_us
        return self.has_note("noisy") or (
            len(times) > 1 and max(times) > _AGREEMENT * min(times) and is_noisy(times)
        )

    @property
    def is_price(self) -> bool:
        """Whether the time is modelled, so that one repeat is as good as several."""
        return self.has_note("modelled")

    def has_note(self, word: str) -> bool:
        return self.notes != "" and word in self.notes.split()


_COLUMN_FIELDS = tuple(name for name in Row._fields if name not in ("times_us", "chosen_by_us"))


@cache
def conditions_of(notes: str) -> tuple[str, ...]:
    """The conditions in a row's notes; rows with others measured something else."""
    return tuple(sorted(word for word in notes.split() if word.startswith(_SEPARATE)))


@cyclic_gc_disabled()
def rows_of(frame: "pd.DataFrame") -> list[Row]:
    """All rows. A row that is ok but has no repeats, as of a tool that prints only a mean, has its
    time as the only repeat.
    """
    columns = [frame[name].tolist() for name in _COLUMN_FIELDS]
    parsed = [
        tuple(map(float, text.split(";"))) if text else ()
        for text in frame["repeat_times_us"].tolist()
    ]
    place = _COLUMN_FIELDS.index("time_us")
    # NaN differs from itself
    times = [
        repeats or ((time,) if time == time else ())
        for repeats, time in zip(parsed, columns[place], strict=True)
    ]
    chosen_by = [_choosing_time(repeats) for repeats in times]
    return [Row(*values) for values in zip(*columns, times, chosen_by, strict=True)]


def row_of(record: Record) -> Row:
    """A record as a row; times have the six digits of the CSV, so that both give one answer."""
    cells = {name: getattr(record, name) for name in _COLUMN_FIELDS}
    cells["histogram"] = histogram_text(record.histogram)
    known = [math.nan if value is None else value for value in cells.values()]
    times = tuple(float(f"{time:.6g}") for time in record.repeat_times_us)
    return Row._make([*known, times, _choosing_time(times)])


def _choosing_time(times: Sequence[float]) -> float:
    """The median of the even repeats."""
    return median(times[0::2]) if len(times) > 2 else times[0] if times else math.nan


def is_separated(faster: Sequence[float], slower: Sequence[float]) -> bool:
    """Whether repeats show that one is faster: at least two of each, and the intervals of their
    medians do not touch.

    >>> (
    ...     is_separated([1.0, 1.1], [1.2, 1.3]),
    ...     is_separated([1.0, 1.25], [1.2, 1.3]),
    ...     is_separated([1.0], [2.0]),
    ... )
    (True, False, False)
    """
    return len(faster) > 1 and len(slower) > 1 and interval(faster).high < interval(slower).low


def ratio(
    slower: Sequence[float], faster: Sequence[float], repeats: Iterable[int] | None = None
) -> Interval | None:
    """Times over times, repeat by repeat; None where they share no repeat. The bounds of one
    shared repeat are NaN.

    >>> ratio([2.0, 3.0, 4.0], [2.0, 2.0, 2.0])
    Interval(median=1.5, low=1.0, high=2.0)
    """
    both = min(len(slower), len(faster))
    shared = [
        slower[k] / faster[k] for k in (range(both) if repeats is None else repeats) if k < both
    ]
    if not shared:
        return None
    bounds = interval(shared)
    return (
        bounds if len(shared) > 1 else Interval(median=bounds.median, low=math.nan, high=math.nan)
    )


def by_workload(rows: Iterable[Row]) -> dict[Workload, dict[int, list[Row]]]:
    """Rows with times by workload, in the order of the file, and by size, ascending."""
    workloads: dict[Workload, dict[int, list[Row]]] = {}
    for row in rows:
        if row.status == "ok" and row.times_us:
            workloads.setdefault(row.workload, {}).setdefault(row.size_bytes, []).append(row)
    return {workload: dict(sorted(sizes.items())) for workload, sizes in workloads.items()}


def distinguishing_knobs(
    workloads: Mapping[Workload, Mapping[int, Sequence[Row]]],
) -> dict[str, tuple[str, ...]]:
    """The fewest knobs of each backend that distinguish its rows of one size and algorithm."""
    cells: dict[str, list[list[Row]]] = {}
    for sizes in workloads.values():
        for rows in sizes.values():
            groups: dict[tuple[str, str, str], list[Row]] = {}
            for row in rows:
                groups.setdefault((row.backend, row.algo, row.proto), []).append(row)
            for (backend, _, _), group in groups.items():
                here = cells.setdefault(backend, [])
                if len(group) > 1:
                    here.append(group)
    return {backend: _fewest_knobs(groups) for backend, groups in cells.items()}


def _fewest_knobs(groups: list[list[Row]]) -> tuple[str, ...]:
    knobs: list[str] = []
    for name in KNOB_FIELDS:
        split: list[list[Row]] = []
        is_needed = False
        for group in groups:
            parts: dict[object, list[Row]] = {}
            for row in group:
                parts.setdefault(getattr(row, name), []).append(row)
            is_needed = is_needed or len(parts) > 1
            split += [part for part in parts.values() if len(part) > 1]
        if is_needed:
            knobs.append(name)
            groups = split
    return tuple(knobs)


def configuration(row: Row, knobs: Mapping[str, Sequence[str]]) -> tuple[object, ...]:
    """What makes two rows of different sizes the same configuration."""
    return (
        row.backend,
        row.algo,
        row.proto,
        *(getattr(row, name) for name in knobs.get(row.backend, ())),
    )


def label(row: Row, knobs: Mapping[str, Sequence[str]], *, has_backend: bool = False) -> str:
    """A configuration in words: algorithm, protocol, and the knobs that were asked for."""
    parts = [row.backend] if has_backend else []
    parts += [row.algo, row.proto]
    for name in knobs.get(row.backend, ()):
        value = getattr(row, name)
        if value != UNASKED[name]:
            parts.append(f"{KNOB[name].short} {KNOB[name].text(value)}")
    return " ".join(part for part in parts if part)


def titles(workloads: Iterable[Workload]) -> dict[Workload, str]:
    """Workloads in words: the operation and ranks, and what else distinguishes them."""
    known = list(workloads)
    distinct = [
        name
        for name in ("hosts", "dtype", "redop", "root", "placement", "group", "conditions")
        if len({getattr(one, name) for one in known}) > 1
    ]
    return {
        one: ", ".join(
            [
                one.op,
                f"{one.ranks or 'unknown'} ranks",
                *[text for name in distinct if (text := _property_text(one, name))],
            ]
        )
        for one in known
    }


def _property_text(workload: Workload, name: str) -> str:
    if name == "placement":
        return "in place" if workload.placement == "in" else "out of place"
    if name == "hosts":
        return f"{workload.hosts} host" + ("s" if workload.hosts != 1 else "")
    if name == "root":
        return f"root {workload.root}"
    return " ".join(workload.conditions) if name == "conditions" else str(getattr(workload, name))


def fastest(rows: Sequence[Row]) -> Row:
    """The fastest row by the even repeats."""
    return min(rows, key=_CHOOSING_TIME)


_CHOOSING_TIME = attrgetter("chosen_by_us")


def median_time(times: Sequence[float], repeats: Iterable[int] | None = None) -> float:
    """The median of some repeats, of all if none are named."""
    return median(times if repeats is None else [times[k] for k in repeats])
