"""Rows of a frame as plain tuples, grouped by workload and configuration, and when the repeats
separate two rows. Pure: no pandas at run time.

A workload is what was to be done (ranks and their processes, op, type, reduction, root, placement,
the conditions in the notes) at any size; a configuration is how: backend, algorithm, protocol and
those knobs that took several values where the rest was the same. Knobs that follow from the others,
such as the channels that the tool chose for a size, do not break a curve.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from collbench.core.collector import cyclic_gc_disabled
from collbench.core.distribution import histogram_text
from collbench.core.frame import distinct_values
from collbench.core.knobs import BY_STAGE, KNOB, UNASKED
from collbench.core.limits import NOISY_SCALE
from collbench.core.peers import OWN_CHOICE, form_of, is_own_algo, is_peer
from collbench.core.record import CONDITIONS, GPUS, TRAFFIC, Record
from collbench.core.uneven import EVEN
from collbench.core.verdict import by_square, closest_half, middle, repeat_scale

if TYPE_CHECKING:
    import pandas as pd

# In the order in which they are tried to tell configurations apart.
KNOB_FIELDS = tuple(knob.name for knob in BY_STAGE if knob.name not in ("algo", "proto"))
NOISE_NOTES = ("noisy", "other-processes")  # of rows whose times are no evidence
DISTURBED = ("throttled", "clocks-low", "other-processes")
SIZES = {knob.name for knob in BY_STAGE if knob.unit == "bytes"}
CORES = re.compile(r"\((\d+) cores\)")  # in `device` of rows that CPUs measured
KNOB_NAMES = {knob.name: knob.label for knob in BY_STAGE}
_own_knobs, _OWN_KNOBS = attrgetter(*OWN_CHOICE), tuple(OWN_CHOICE.values())
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
    skew: str
    groups: str
    mix: str
    group: str
    conditions: tuple[str, ...]


class Task(NamedTuple):
    """The columns that say what was to be done, and where."""

    op: str
    dtype: str
    redop: str
    root: int
    placement: str
    skew: str
    groups: str
    mix: str
    ranks: int
    hosts: int
    device: str
    versions: str
    group: str


class Method(NamedTuple):
    """The columns that say how it was done, and how that ended."""

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
    pdl: str
    limit: str
    status: str
    reason: str
    notes: str

    @property
    def is_library(self) -> bool:
        """Whether a library with its own algorithms did it."""
        return is_peer(self.backend)

    @property
    def is_own_choice(self) -> bool:
        """Whether a library did it as it does by itself."""
        return (
            is_peer(self.backend)
            and is_own_algo(self.backend, self.algo)
            and _own_knobs(self) == _OWN_KNOBS
        )

    @property
    def form(self) -> str:
        """What tells the own choices of a library apart."""
        return form_of(self.backend, self.algo, self.buffers)

    def has_note(self, word: str) -> bool:
        return word in _words_of(self.notes)


class Launches(NamedTuple):
    """The columns of launches that were timed one by one: percentiles, NaN where they are not
    known, and the cell of the histogram.
    """

    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    histogram: str


_NO_LAUNCHES = Launches(math.nan, math.nan, math.nan, math.nan, "")
Shared = TypeVar("Shared", Task, Method)


class _OwnColumns(NamedTuple):
    """What a row has for itself; what many rows have in common they share. times_us are its
    repeats, median_us their median, and scale how far they differ (see verdict.repeat_scale).
    is_noise: they disagree too much to compare them.
    """

    task: Task
    method: Method
    size_bytes: int
    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    ceiling_gbs: float
    percent: float
    launches: Launches
    times_us: tuple[float, ...]
    median_us: float
    scale: float
    is_noise: bool


class Row(_OwnColumns):
    """A row of a frame, with the columns that comparisons need; those of its task and its method
    by their names. Not a Record, which takes ten times as long to make.
    """

    __slots__ = ()
    op: str
    dtype: str
    redop: str
    root: int
    placement: str
    skew: str
    groups: str
    mix: str
    ranks: int
    hosts: int
    device: str
    versions: str
    group: str
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
    pdl: str
    limit: str
    status: str
    reason: str
    notes: str
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    histogram: str

    @property
    def workload(self) -> Workload:
        task = self.task
        return Workload(
            task.op,
            task.ranks,
            task.hosts,
            task.dtype,
            task.redop,
            task.root,
            task.placement,
            task.skew,
            task.groups,
            task.mix,
            task.group,
            conditions_of(self.method.notes),
        )

    @property
    def is_library(self) -> bool:
        """Whether a library with its own algorithms did it."""
        return self.method.is_library

    @property
    def is_own_choice(self) -> bool:
        """Whether a library did it as it does by itself."""
        return self.method.is_own_choice

    @property
    def has_launches(self) -> bool:
        """Whether launches were timed one by one."""
        return self.launches.max_us == self.launches.max_us  # NaN differs from itself

    @property
    def is_disturbed(self) -> bool:
        """Whether the notes name something that slowed the machine down."""
        return names_disturbance(self.method.notes)

    @property
    def is_price(self) -> bool:
        """Whether the time is modelled, so that one repeat is as good as several."""
        return self.has_note("modelled")

    def has_note(self, word: str) -> bool:
        return self.method.has_note(word)

    def _replace(self, **values: Any) -> "Row":
        """The row with other values of columns."""
        task = {name: value for name, value in values.items() if name in Task._fields}
        method = {name: value for name, value in values.items() if name in Method._fields}
        own = {name: value for name, value in values.items() if name in _OwnColumns._fields}
        own |= {"task": self.task._replace(**task), "method": self.method._replace(**method)}
        return Row._make(_OwnColumns(*self)._replace(**own))


for _part, _kind in (("task", Task), ("method", Method), ("launches", Launches)):
    for _name in _kind._fields:
        setattr(Row, _name, property(attrgetter(f"{_part}.{_name}")))
_RECURRING = ("size_bytes", "ceiling_gbs")  # numbers that many rows have, which share them
_NUMBERS = ("size_bytes", "time_us", "algbw_gbs", "busbw_gbs", "ceiling_gbs", "percent")


@cache
def conditions_of(notes: str) -> tuple[str, ...]:
    """The conditions in a row's notes; rows with others measured something else."""
    return tuple(sorted(word for word in notes.split() if word.startswith(_SEPARATE)))


@cache
def _words_of(notes: str) -> frozenset[str]:
    return frozenset(notes.split())


@cache
def names_disturbance(notes: str) -> bool:
    """Whether notes name something that slowed the machine down."""
    return any(word.startswith(DISTURBED) for word in notes.split())


@cyclic_gc_disabled()
def rows_of(frame: "pd.DataFrame") -> list[Row]:
    """All rows. A row that is ok but has no repeats, as of a tool that prints only a mean, has its
    time as the only repeat.
    """
    tasks, methods = _shared(frame, Task), _shared(frame, Method)
    sizes, time_us, *rates, repeats = (
        _values(frame[name], is_shared=name in _RECURRING)
        for name in (*_NUMBERS, "repeat_times_us")
    )
    times, medians, scales = _times_of(repeats, time_us)
    has_launches = bool(frame["max_us"].notna().any())
    rates.append(_launches_of(frame) if has_launches else [_NO_LAUNCHES] * len(times))
    is_noise = map(_is_noise, methods, scales)
    columns = (tasks, methods, sizes, time_us, *rates, times, medians, scales, is_noise)
    return list(map(Row._make, zip(*columns, strict=True)))


def _values(column: "pd.Series[Any]", *, is_shared: bool = False) -> list[Any]:
    """A column as Python's own numbers and texts. is_shared: equal ones are one object."""
    if not is_shared:
        return list(column.to_numpy().tolist())
    places, values = column.factorize()
    known = [*values.tolist(), math.nan]  # what is unknown has place -1
    return [known[place] for place in places.tolist()]


def _shared(frame: "pd.DataFrame", kind: type[Shared]) -> list[Shared]:
    """Of each row its task or its method; equal ones are one object."""
    values, numbers = distinct_values(frame, kind._fields)
    known = list(map(kind._make, values))
    return [known[number] for number in numbers]


def _launches_of(frame: "pd.DataFrame") -> list[Launches]:
    """Of each row its single launches; those of rows that have none are one object."""
    columns = [frame[name].tolist() for name in Launches._fields]
    is_there = frame["max_us"].notna()
    return [
        Launches._make(values) if is_known else _NO_LAUNCHES
        for is_known, values in zip(is_there, zip(*columns, strict=True), strict=True)
    ]


def _times_of(
    repeats: Sequence[str], times: Sequence[float]
) -> tuple[list[tuple[float, ...]], list[float], list[float]]:
    """The repeats of each row, or else its time; their median, and how far they differ."""
    import numpy as np

    counts = np.array([text.count(";") + 1 if text else 0 for text in repeats], dtype=np.intp)
    numbers = np.fromstring(";".join(filter(None, repeats)), sep=";")
    first = np.cumsum(counts) - counts
    medians, scales = np.array(times, dtype=np.float64), np.full(len(counts), math.nan)
    for count in np.unique(counts[counts > 0]).tolist():
        places = np.flatnonzero(counts == count)
        table = np.sort(numbers[first[places][:, None] + np.arange(count)], axis=1)
        medians[places] = (table[:, (count - 1) // 2] + table[:, count // 2]) / 2
        if count > 1:
            scales[places] = closest_half(np.log(table)) * by_square(count)
    every = iter(numbers.tolist())
    every_time = [
        # NaN differs from itself
        tuple(islice(every, count)) if count else (time,) if time == time else ()
        for count, time in zip(counts.tolist(), times, strict=True)
    ]
    return every_time, medians.tolist(), scales.tolist()


def row_of(record: Record) -> Row:
    """A record as a row; times have the six digits of the CSV, so that both give one answer."""
    times = tuple(float(f"{time:.6g}") for time in record.repeat_times_us)
    numbers = [getattr(record, name) for name in _NUMBERS]
    task = Task._make(getattr(record, name) for name in Task._fields)
    method = Method._make(getattr(record, name) for name in Method._fields)
    known = [math.nan if value is None else value for value in numbers]
    times_of_one = (record.p50_us, record.p99_us, record.p999_us, record.max_us)
    cells = [math.nan if value is None else value for value in times_of_one]
    launches = Launches._make([*cells, histogram_text(record.histogram)])
    median, scale = middle(times) if times else math.nan, repeat_scale(times)
    is_noise = _is_noise(method, scale)
    return Row._make((task, method, *known, launches, times, median, scale, is_noise))


def _is_noise(method: Method, scale: float) -> bool:
    return scale > NOISY_SCALE or method.has_note("noisy")


def by_workload(rows: Iterable[Row]) -> dict[Workload, dict[int, list[Row]]]:
    """Rows with times by workload, in the order of the file, and by size, ascending."""
    workloads: dict[Workload, dict[int, list[Row]]] = {}
    sizes_of: dict[tuple[int, str], dict[int, list[Row]]] = {}  # by the identity of a task
    for row in rows:
        task, method = row.task, row.method
        if not row.times_us or method.status != "ok":
            continue
        sizes = sizes_of.get((id(task), method.notes))
        if sizes is None:
            sizes = workloads.setdefault(row.workload, {})
            sizes_of[id(task), method.notes] = sizes
        here = sizes.get(row.size_bytes)
        if here is None:
            sizes[row.size_bytes] = [row]
        else:
            here.append(row)
    return {workload: dict(sorted(sizes.items())) for workload, sizes in workloads.items()}


def distinguishing_knobs(
    workloads: Mapping[Workload, Mapping[int, Sequence[Row]]],
) -> dict[str, tuple[str, ...]]:
    """The fewest knobs of each backend that distinguish its rows of one size and algorithm."""
    groups_of: dict[str, dict[tuple[int, ...], list[Method]]] = {}
    known: set[tuple[int, ...]] = set()
    for rows in chain.from_iterable(sizes.values() for sizes in workloads.values()):
        methods = [row.method for row in rows]
        if (place := tuple(map(id, methods))) in known:  # the same methods need no second look
            continue
        known.add(place)
        groups: dict[tuple[str, str, str], list[Method]] = {}
        for method in methods:
            groups.setdefault((method.backend, method.algo, method.proto), []).append(method)
        for (backend, _, _), group in groups.items():
            here = groups_of.setdefault(backend, {})
            if len(group) > 1:
                here.setdefault(tuple(map(id, group)), group)
    return {backend: _fewest_knobs(list(groups.values())) for backend, groups in groups_of.items()}


def _fewest_knobs(groups: list[list[Method]]) -> tuple[str, ...]:
    knobs: list[str] = []
    for name in KNOB_FIELDS:
        split: list[list[Method]] = []
        is_needed = False
        for group in groups:
            parts: dict[object, list[Method]] = {}
            for method in group:
                parts.setdefault(getattr(method, name), []).append(method)
            is_needed = is_needed or len(parts) > 1
            split += [part for part in parts.values() if len(part) > 1]
        if is_needed:
            knobs.append(name)
            groups = split
    return tuple(knobs)


def configuration(row: Row, knobs: Mapping[str, Sequence[str]]) -> tuple[object, ...]:
    """What makes two rows of different sizes the same configuration."""
    values: tuple[object, ...] = _columns(*knobs.get(row.method.backend, ()))(row.method)
    return values


@cache
def _columns(*names: str) -> "attrgetter[tuple[object, ...]]":
    """What takes the columns of a configuration from a method."""
    return attrgetter("backend", "algo", "proto", *names)


def label(row: Row, knobs: Mapping[str, Sequence[str]], *, has_backend: bool = False) -> str:
    """A configuration in words: algorithm, protocol, and the knobs that were asked for."""
    method = row.method
    parts = [method.backend] if has_backend else []
    parts += [method.algo, method.proto]
    for name in knobs.get(method.backend, ()):
        value = getattr(method, name)
        if value != UNASKED[name]:
            parts.append(f"{KNOB[name].short} {KNOB[name].text(value)}")
    return " ".join(part for part in parts if part)


def titles(workloads: Iterable[Workload]) -> dict[Workload, str]:
    """Workloads in words: the operation and ranks, what else distinguishes them, unequal blocks,
    groups and mixes, and messages that go another way than those of the operation.
    """
    known = list(workloads)
    distinct = [
        name
        for name in (
            "hosts",
            "dtype",
            "redop",
            "root",
            "placement",
            "skew",
            "groups",
            "mix",
            "group",
            "conditions",
        )
        if len(values := {getattr(one, name) for one in known}) > 1
        or (name in ("skew", "groups", "mix") and any(value and value != EVEN for value in values))
    ]
    if "conditions" not in distinct:
        distinct.append("traffic")
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


def gpu_pairs(workloads: Iterable[Workload]) -> dict[Workload, list[Workload]]:
    """Workloads that differ only in the pair of GPUs, by what they have in common."""
    groups: dict[Workload, list[Workload]] = {}
    for one in workloads:
        if pair_of(one):
            rest = tuple(word for word in one.conditions if not word.startswith(GPUS))
            groups.setdefault(one._replace(conditions=rest), []).append(one)
    return {what: group for what, group in groups.items() if len(group) > 1}


def pair_of(workload: Workload) -> str:
    """The pair of GPUs that a workload is of; empty if it is of no certain one."""
    return next((word for word in workload.conditions if word.startswith(GPUS)), "")


def _property_text(workload: Workload, name: str) -> str:
    if name == "placement":
        return "in place" if workload.placement == "in" else "out of place"
    if name == "hosts":
        return f"{workload.hosts} host" + ("s" if workload.hosts != 1 else "")
    if name == "root":
        return f"root {workload.root}"
    if name == "traffic":
        return " ".join(word for word in workload.conditions if word.startswith(TRAFFIC))
    return " ".join(workload.conditions) if name == "conditions" else str(getattr(workload, name))


def fastest(rows: Sequence[Row]) -> Row:
    """The fastest row by its median."""
    return min(rows, key=_MEDIAN)


_MEDIAN = attrgetter("median_us")
