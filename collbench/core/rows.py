"""What comparisons ask of a row, and rows by what they measured and how: workloads and
configurations. Pure.

A workload is what was to be done (ranks and their processes, op, type, reduction, root, placement,
the conditions in the notes) at any size; a configuration is how: backend, algorithm, protocol and
those knobs that took several values where the rest was the same. Knobs that follow from the others,
such as the channels that the tool chose for a size, do not break a curve.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from collbench.core.grouping import grouped
from collbench.core.knobs import BY_STAGE, KNOB, UNASKED
from collbench.core.limits import NOISY_SCALE
from collbench.core.peers import OWN_CHOICE, form_of, is_own_algo, is_peer
from collbench.core.record import CONDITIONS, GPUS, TRAFFIC, Record
from collbench.core.text import counted
from collbench.core.uneven import EVEN
from collbench.core.units import format_rate, format_time_us
from collbench.core.verdict import middle, repeat_scale

# In the order in which they are tried to tell configurations apart.
KNOB_FIELDS = tuple(knob.name for knob in BY_STAGE if knob.name not in ("algo", "proto"))
NOISE_NOTES = ("noisy", "other-processes")  # of rows whose times are no evidence
DISTURBED = ("throttled", "clocks-low", "other-processes")
SIZES = {knob.name for knob in BY_STAGE if knob.unit == "bytes"}
CORES = re.compile(r"\((\d+) cores\)")  # in `device` of rows that CPUs measured
KNOB_NAMES = {knob.name: knob.label for knob in BY_STAGE}
_knobs_of = attrgetter(*KNOB_FIELDS)
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


_columns_of_workload = attrgetter(*Workload._fields[:-1])


def workload_of(row: Record) -> Workload:
    """What a row measured, but the size."""
    return Workload._make((*_columns_of_workload(row), conditions_of(row.notes)))


def times_of(row: Record) -> tuple[float, ...]:
    """The repeats; of a tool that prints only a mean, that."""
    if row.repeat_times_us or row.time_us is None:
        return row.repeat_times_us
    return (row.time_us,)


def median_of(row: Record) -> float:
    """The median of the repeats, of which there are some."""
    return _median(times_of(row))


def repeat_scale_of(row: Record) -> float:
    """How far the repeats differ (see verdict.repeat_scale)."""
    return _scale(times_of(row))


_median, _scale = cache(middle), cache(repeat_scale)  # of the same rows again and again


def is_timed(row: Record) -> bool:
    """Whether a row is right and has a time."""
    return row.status == "ok" and bool(times_of(row))


def is_noise(row: Record) -> bool:
    """Whether the repeats disagree too much to compare them."""
    return repeat_scale_of(row) > NOISY_SCALE or has_note(row, "noisy")


def devices_of(rows: Iterable[Record]) -> str:
    """On what rows were measured."""
    return ", ".join(sorted({row.device for row in rows} - {""}))


def shown_us(row: Record) -> float:
    """The time of a row; of noise the fastest repeat, than which it is less."""
    return min(times_of(row)) if is_noise(row) else median_of(row)


def row_time_text(row: Record) -> str:
    """The same as text."""
    return "<" * is_noise(row) + format_time_us(shown_us(row))


def shown_busbw(row: Record) -> float | None:
    """The bus bandwidth, in GB/s; of noise by the fastest repeat, than which it is more."""
    if row.busbw_gbs is None or not is_noise(row):
        return row.busbw_gbs
    return row.busbw_gbs * median_of(row) / shown_us(row)


def row_rate_text(row: Record) -> str:
    """The same as text."""
    rate_gbs = shown_busbw(row)
    return "-" if rate_gbs is None else ">" * is_noise(row) + format_rate(rate_gbs)


def of_max(row: Record) -> float | None:
    """Percent of the nearer one of two bounds, the floor or the ceiling; None of noise, since what
    slowed the row slowed their measurement, too.
    """
    if is_noise(row):
        return None
    return max(filter(None, (row.percent, row.of_floor)), default=None)


def is_own_choice(row: Record) -> bool:
    """Whether a library did it as it does by itself."""
    return (
        is_peer(row.backend)
        and is_own_algo(row.backend, row.algo)
        and _own_knobs(row) == _OWN_KNOBS
    )


def own_form(row: Record) -> str:
    """What tells the own choices of a library apart."""
    return form_of(row.backend, row.algo, row.buffers)


def has_note(row: Record, word: str) -> bool:
    """Whether a word is in the notes."""
    return word in row.notes and word in row.notes.split()


def is_price(row: Record) -> bool:
    """Whether the time is modelled, so that one repeat is as good as several."""
    return has_note(row, "modelled")


@cache
def conditions_of(notes: str) -> tuple[str, ...]:
    """The conditions in a row's notes; rows with others measured something else."""
    return tuple(sorted(word for word in notes.split() if word.startswith(_SEPARATE)))


@cache
def names_disturbance(notes: str) -> bool:
    """Whether notes name something that slowed the machine down."""
    return any(word.startswith(DISTURBED) for word in notes.split())


def as_written(record: Record) -> Record:
    """A row as its file has it: repeats have six digits, so that both give one answer."""
    times = tuple(float(f"{time:.6g}") for time in record.repeat_times_us)
    return replace(record, repeat_times_us=times)


def by_workload(rows: Iterable[Record]) -> dict[Workload, dict[int, list[Record]]]:
    """Rows with times by workload, in the order of the file, and by size, ascending."""
    workloads: dict[Workload, dict[int, list[Record]]] = {}
    for row in filter(is_timed, rows):
        sizes = workloads.setdefault(workload_of(row), {})
        sizes.setdefault(row.size_bytes, []).append(row)
    return {workload: dict(sorted(sizes.items())) for workload, sizes in workloads.items()}


def distinguishing_knobs(
    workloads: Mapping[Workload, Mapping[int, Sequence[Record]]],
) -> dict[str, tuple[str, ...]]:
    """The fewest knobs of each backend that distinguish its rows of one size and algorithm."""
    groups_of: dict[str, set[tuple[_Values, ...]]] = {}
    for rows in chain.from_iterable(sizes.values() for sizes in workloads.values()):
        groups = grouped(((row.backend, row.algo, row.proto), _knobs_of(row)) for row in rows)
        for (backend, _, _), group in groups.items():
            groups_of.setdefault(backend, set()).add(tuple(group))
    return {backend: _fewest_knobs(groups) for backend, groups in groups_of.items()}


_Values = tuple[object, ...]  # of KNOB_FIELDS


def _fewest_knobs(groups: Iterable[Sequence[_Values]]) -> tuple[str, ...]:
    knobs: list[str] = []
    for place, name in enumerate(KNOB_FIELDS):
        split: list[Sequence[_Values]] = []
        is_needed = False
        for group in groups:
            parts = grouped((values[place], values) for values in group)
            is_needed = is_needed or len(parts) > 1
            split += [part for part in parts.values() if len(part) > 1]
        if is_needed:
            knobs.append(name)
            groups = split
    return tuple(knobs)


def configuration(row: Record, knobs: Mapping[str, Sequence[str]]) -> tuple[object, ...]:
    """What makes two rows of different sizes the same configuration."""
    values: tuple[object, ...] = _columns(*knobs.get(row.backend, ()))(row)
    return values


@cache
def _columns(*names: str) -> "attrgetter[tuple[object, ...]]":
    """What takes the columns of a configuration from a row."""
    return attrgetter("backend", "algo", "proto", *names)


def label(row: Record, knobs: Mapping[str, Sequence[str]], *, has_backend: bool = False) -> str:
    """A configuration in words: algorithm, protocol, and the knobs that were asked for."""
    parts = [row.backend] if has_backend else []
    parts += [row.algo, row.proto]
    for name in knobs.get(row.backend, ()):
        value = getattr(row, name)
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
        for name in Workload._fields[2:]
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
        return counted(workload.hosts, "host") if workload.hosts else "unknown hosts"
    if name == "root":
        return f"root {workload.root}"
    if name == "traffic":
        return " ".join(word for word in workload.conditions if word.startswith(TRAFFIC))
    return " ".join(workload.conditions) if name == "conditions" else str(getattr(workload, name))


def fastest(rows: Iterable[Record]) -> Record:
    """The fastest row by its median."""
    return min(rows, key=median_of)
