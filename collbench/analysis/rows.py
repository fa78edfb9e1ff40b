"""Rows of a frame as plain tuples, grouped into problems and curves, and when two rows are told
apart. Pure: no pandas at run time.

A problem is what was to be done (ranks and their processes, op, type, reduction, root, placement,
the conditions that the notes tell) at any size; a configuration is how: backend, algorithm,
protocol and those knobs that took several values where the rest was the same. Knobs that follow
from the others, such as the channels that the tool chose for a size, do not break a curve.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from collbench.bench.runner import is_peer
from collbench.results.record import CONDITIONS
from collbench.results.statistics import Interval, interval
from collbench.spec.knobs import BY_STAGE, KNOB, UNASKED

if TYPE_CHECKING:
    import pandas as pd

# In the order in which they are taken to tell configurations apart.
KNOBS = tuple(knob.name for knob in BY_STAGE if knob.name not in ("algo", "proto"))
# below it nothing is called faster, however close the repeats: two runs differ by as much. A
# choice, not a measurement
LEAST_GAIN = 1.02
DISTURBED = ("throttled", "clocks-low", "other-processes")
SIZES = {knob.name for knob in BY_STAGE if knob.unit == "bytes"}
KNOB_NAMES = {knob.name: knob.label for knob in BY_STAGE}
_OWN = UNASKED["algo"]
_APART = (*CONDITIONS, "modelled")  # a price is no measurement: it wins nothing that one could win


class Problem(NamedTuple):
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
    chosen_by_us the median of the even ones.

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
    dtype: str
    redop: str
    root: int
    placement: str
    ranks: int
    hosts: int
    size_bytes: int
    time_us: float
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
    def problem(self) -> Problem:
        return Problem(
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
        return is_library(self.backend)

    @property
    def is_own_choice(self) -> bool:
        """Whether a library did it as it does by itself."""
        return (
            self.algo == _OWN
            and self.is_library
            and all(getattr(self, name) == unasked for name, unasked in UNASKED.items())
        )

    @property
    def is_disturbed(self) -> bool:
        """Whether something else was seen to hold the machine back."""
        return self.notes != "" and any(word.startswith(DISTURBED) for word in self.notes.split())

    def has_note(self, word: str) -> bool:
        return self.notes != "" and word in self.notes.split()


is_library = cache(is_peer)


@cache
def conditions_of(notes: str) -> tuple[str, ...]:
    """What a row's notes tell of how it was measured; rows with others measured something else."""
    return tuple(sorted(word for word in notes.split() if word.startswith(_APART)))


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Python's search for cycles off: it would pass over the rows again and again as they come, a
    third of the time for 100,000; they have none.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@collector_at_rest()
def rows_of(frame: "pd.DataFrame") -> list[Row]:
    """All rows. A row that is ok and has no repeats, as of a tool that tells only a mean, has its
    time as the only one.
    """
    names = [name for name in Row._fields if name not in ("times_us", "chosen_by_us")]
    columns = [frame[name].tolist() for name in names]
    parsed = [
        tuple(map(float, text.split(";"))) if text else ()
        for text in frame["repeat_times_us"].tolist()
    ]
    place = names.index("time_us")
    # NaN differs from itself
    times = [
        found or ((time,) if time == time else ())
        for found, time in zip(parsed, columns[place], strict=True)
    ]
    early = [
        median(found[0::2]) if len(found) > 2 else found[0] if found else float("nan")
        for found in times
    ]
    return [Row(*values) for values in zip(*columns, times, early, strict=True)]


def is_separated(faster: Sequence[float], slower: Sequence[float]) -> bool:
    """Whether repeats tell that one is faster: at least two of each, and the intervals of their
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
    """Times over times, repeat by repeat; None where they share no repeat. One shared repeat gives
    bounds that say nothing: NaN.

    >>> ratio([2.0, 3.0, 4.0], [2.0, 2.0, 2.0])
    Interval(median=1.5, low=1.0, high=2.0)
    """
    both = min(len(slower), len(faster))
    shared = [
        slower[k] / faster[k] for k in (range(both) if repeats is None else repeats) if k < both
    ]
    if not shared:
        return None
    found = interval(shared)
    return (
        found
        if len(shared) > 1
        else Interval(median=found.median, low=float("nan"), high=float("nan"))
    )


def by_problem(rows: Iterable[Row]) -> dict[Problem, dict[int, list[Row]]]:
    """Rows with times, of each problem and size; sizes ascending, problems in the order of the
    file.
    """
    found: dict[Problem, dict[int, list[Row]]] = {}
    for row in rows:
        if row.status == "ok" and row.times_us:
            found.setdefault(row.problem, {}).setdefault(row.size_bytes, []).append(row)
    return {problem: dict(sorted(sizes.items())) for problem, sizes in found.items()}


def asked_knobs(
    problems: Mapping[Problem, Mapping[int, Sequence[Row]]],
) -> dict[str, tuple[str, ...]]:
    """Of each backend, the fewest knobs that tell rows of the same problem, size, algorithm and
    protocol apart.
    """
    cells: dict[str, list[list[Row]]] = {}
    for sizes in problems.values():
        for rows in sizes.values():
            groups: dict[tuple[str, str, str], list[Row]] = {}
            for row in rows:
                groups.setdefault((row.backend, row.algo, row.proto), []).append(row)
            for (backend, _, _), group in groups.items():
                here = cells.setdefault(backend, [])
                if len(group) > 1:
                    here.append(group)
    return {backend: _telling(groups) for backend, groups in cells.items()}


def _telling(groups: list[list[Row]]) -> tuple[str, ...]:
    chosen: list[str] = []
    for name in KNOBS:
        split: list[list[Row]] = []
        is_telling = False
        for group in groups:
            parts: dict[object, list[Row]] = {}
            for row in group:
                parts.setdefault(getattr(row, name), []).append(row)
            is_telling = is_telling or len(parts) > 1
            split += [part for part in parts.values() if len(part) > 1]
        if is_telling:
            chosen.append(name)
            groups = split
    return tuple(chosen)


def configuration(row: Row, asked: Mapping[str, Sequence[str]]) -> tuple[object, ...]:
    """What makes two rows of different sizes the same configuration."""
    return (
        row.backend,
        row.algo,
        row.proto,
        *(getattr(row, name) for name in asked.get(row.backend, ())),
    )


def label(row: Row, asked: Mapping[str, Sequence[str]], *, has_backend: bool = False) -> str:
    """A configuration in words: algorithm, protocol, and the knobs that were asked for."""
    parts = [row.backend] if has_backend else []
    parts += [row.algo, row.proto]
    for name in asked.get(row.backend, ()):
        value = getattr(row, name)
        if value != UNASKED[name]:
            parts.append(f"{KNOB[name].short} {KNOB[name].text(value)}")
    return " ".join(part for part in parts if part)


def titles(problems: Iterable[Problem]) -> dict[Problem, str]:
    """Problems in words: the operation and ranks, and what else tells them apart."""
    known = list(problems)
    telling = [
        name
        for name in ("hosts", "dtype", "redop", "root", "placement", "group", "conditions")
        if len({getattr(one, name) for one in known}) > 1
    ]
    return {
        one: ", ".join(
            [
                one.op,
                f"{one.ranks or 'unknown'} ranks",
                *[text for name in telling if (text := _said(one, name))],
            ]
        )
        for one in known
    }


def _said(problem: Problem, name: str) -> str:
    if name == "placement":
        return "in place" if problem.placement == "in" else "out of place"
    if name == "hosts":
        return f"{problem.hosts} host" + ("s" if problem.hosts != 1 else "")
    if name == "root":
        return f"root {problem.root}"
    return " ".join(problem.conditions) if name == "conditions" else str(getattr(problem, name))


def chosen(rows: Sequence[Row]) -> Row:
    """The fastest by the even repeats, as stats.best chooses."""
    return min(rows, key=_CHOSEN_BY)


_CHOSEN_BY = attrgetter("chosen_by_us")


def middle(times: Sequence[float], repeats: Iterable[int] | None = None) -> float:
    """The median of some repeats, of all if none are named."""
    return median(times if repeats is None else [times[k] for k in repeats])
