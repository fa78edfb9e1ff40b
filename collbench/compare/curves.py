"""Results as curves over the size, and how much of the best speed each value of a knob reaches: the
data of pictures and pages. Pure: draws nothing.

Groups, configurations, their names and the best of each size are those of the summary of one file;
only rows that are ok and have a time count.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from collbench.compare.best import Best, Summary, best_text, configurations, summarise
from collbench.core.grouping import grouped
from collbench.core.knobs import UNASKED
from collbench.core.peers import is_peer
from collbench.core.record import Record
from collbench.core.rows import (
    KNOB_FIELDS,
    KNOB_NAMES,
    SIZES,
    Workload,
    fastest,
    is_own_choice,
    label,
    own_form,
    times_of,
    titles,
    workload_of,
)
from collbench.core.units import format_size
from collbench.core.verdict import bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveGroup:
    """What was to be done, at any size: rows of one group are comparable. The title names what
    distinguishes it from the other groups of the file.
    """

    workload: Workload
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One size of a curve; NaN for what is unknown. time_low_us and time_high_us bound the median
    of several repeats.

    note: the notes of the row; on an envelope the answer, on an automatic choice the name of the
    configuration. used: the knobs as they were at this size, also those that the tool chose.
    answer: where it leads or is tied, all configurations that lead, in words; is_certain: whether
    that is decided. times_us: the repeats.
    """

    bytes: int
    busbw_gbs: float
    algbw_gbs: float
    time_us: float
    time_low_us: float
    time_high_us: float
    ceiling_gbs: float
    note: str
    used: str = ""
    answer: str = ""
    is_certain: bool = True
    times_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One configuration, that is every knob but the size, of one group; sizes ascend.

    is_peer: a library with its own algorithms did it; is_own_choice: as it does by itself. best:
    the sizes at which it leads, as in the tables. knobs: names and values that make the
    configuration, to filter by.
    """

    group: CurveGroup
    name: str
    backend: str
    is_peer: bool
    best: tuple[int, ...]
    points: tuple[CurvePoint, ...]
    knobs: tuple[tuple[str, str], ...] = ()
    is_own_choice: bool = False


def curves(rows: Sequence[Record]) -> tuple[Curve, ...]:
    """Every configuration's curve; groups and configurations in the order of the file."""
    return curves_of(summarise(rows))


def curves_of(summary: Summary) -> tuple[Curve, ...]:
    """The curves of a summary."""
    groups = {
        workload: CurveGroup(workload=workload, title=title)
        for workload, title in titles(summary.workloads).items()
    }
    has_backends = {workload: _has_backends(summary, workload) for workload in groups}
    answers = {
        (workload, size): _answer(best, summary, has_backend=has_backends[workload])
        for workload, sizes in summary.best.items()
        for size, best in sizes.items()
    }
    curves = []
    for rows in configurations(summary).values():
        first, sizes = rows[0], grouped((row.size_bytes, row) for row in rows)
        workload = workload_of(first)
        best, has_backend = summary.best[workload], has_backends[workload]
        curves.append(
            Curve(
                group=groups[workload],
                name=_name(first, summary, has_backend=has_backend),
                backend=first.backend,
                is_peer=is_peer(first.backend),
                is_own_choice=is_own_choice(first),
                best=tuple(
                    size
                    for size, here in sizes.items()
                    if any(row is best[size].row for row in here)
                ),
                points=tuple(
                    _with_answer(here, answers[workload, size]) for size, here in sizes.items()
                ),
                knobs=tuple(
                    (KNOB_NAMES.get(name, name), _value(name, getattr(first, name)))
                    for name in ("algo", "proto", *summary.knobs.get(first.backend, ()))
                ),
            )
        )
    return tuple(curves)


def _has_backends(summary: Summary, workload: Workload) -> bool:
    """Whether rows of ours come from several backends."""
    rows = (row for here in summary.workloads[workload].values() for row in here)
    return len({row.backend for row in rows if not is_peer(row.backend)}) > 1


class _Answer(NamedTuple):
    """What is best at a size, in words. leaders: the identities of the rows that lead."""

    text: str
    is_certain: bool
    leaders: frozenset[int]


def _answer(best: Best, summary: Summary, *, has_backend: bool) -> _Answer:
    names = [_name(row, summary, has_backend=has_backend) for row in best.leaders]
    return _Answer(
        best_text(names, best.certainty), best.is_certain, frozenset(map(id, best.leaders))
    )


def _with_answer(rows: Sequence[Record], answer: _Answer) -> CurvePoint:
    """The point of a configuration at one size; where it leads or is tied, with the answer."""
    row = rows[0] if len(rows) == 1 else fastest(rows)
    if answer.leaders.isdisjoint(map(id, rows)):
        return _point(row)
    return _point(row, answer.text, is_certain=answer.is_certain)


def envelope(curves: Iterable[Curve]) -> tuple[Curve, ...]:
    """The best configuration of each group at every size, as one curve; notes hold the answers."""
    envelopes = _combined(
        curves,
        "",
        lambda curve, point: point.bytes in curve.best,
        lambda curve, point: point.answer or curve.name,
    )
    return tuple(replace(curve, name=_envelope_name(curve)) for curve in envelopes)


def _envelope_name(curve: Curve) -> str:
    whose = curve.backend if curve.is_peer else "ours"
    if any(point.is_certain for point in curve.points):
        return f"best of {whose}"
    return f"fastest of {whose}: cannot tell which is best"


def automatic(curves: Iterable[Curve]) -> tuple[Curve, ...]:
    """The tool's own choice in each group, as one curve; notes hold the configurations."""
    return _combined(
        curves,
        "automatic choice",
        lambda curve, point: not curve.is_peer and "auto" in point.note.split(),
        lambda curve, _: curve.name,
    )


def _name(row: Record, summary: Summary, *, has_backend: bool) -> str:
    """The short label of a configuration, as in the tables; libraries stand first by their name."""
    if is_own_choice(row):
        is_told_apart = len(summary.forms.get(row.backend, ())) > 1
        return f"{row.backend} {own_form(row)}" if is_told_apart else row.backend
    return label(row, summary.knobs, has_backend=has_backend or is_peer(row.backend))


def _value(knob: str, value: object) -> str:
    """A knob's value as people read it."""
    return format_size(value) if knob in SIZES and isinstance(value, int) else str(value)


def _point(row: Record, answer: str = "", *, is_certain: bool = True) -> CurvePoint:
    times = times_of(row)
    middle, low, high = bounds(times)
    return CurvePoint(
        bytes=row.size_bytes,
        busbw_gbs=_known(row.busbw_gbs),
        algbw_gbs=_known(row.algbw_gbs),
        time_us=middle,
        note=row.notes,
        time_low_us=low if len(times) > 1 else math.nan,
        time_high_us=high if len(times) > 1 else math.nan,
        ceiling_gbs=row.ceiling_gbs or math.nan,
        used=_used(row),
        answer=answer,
        is_certain=is_certain,
        times_us=times,
    )


def _known(rate: float | None) -> float:
    return math.nan if rate is None else rate


def _used(row: Record) -> str:
    """The knobs of a row that have a value, in words."""
    knobs = [(name, getattr(row, name)) for name in KNOB_FIELDS]
    return ", ".join(
        f"{KNOB_NAMES.get(name, name)} {_value(name, value)}"
        for name, value in knobs
        if value not in (UNASKED[name], "")
    )


def _combined(
    curves: Iterable[Curve],
    name: str,
    is_wanted: Callable[[Curve, CurvePoint], bool],
    note: Callable[[Curve, CurvePoint], str],
) -> tuple[Curve, ...]:
    """Of each group the wanted points of all its curves, the fastest of each size, as one curve."""
    fastest_of: dict[CurveGroup, dict[int, tuple[Curve, CurvePoint]]] = {}
    for curve in curves:
        for point in curve.points:
            if is_wanted(curve, point):
                here = fastest_of.setdefault(curve.group, {})
                if point.bytes not in here or point.time_us < here[point.bytes][1].time_us:
                    here[point.bytes] = curve, point
    return tuple(
        Curve(
            group=group,
            name=name,
            backend=next(iter(here.values()))[0].backend,
            is_peer=all(curve.is_peer for curve, _ in here.values()),
            best=tuple(sorted(size for size, (curve, _) in here.items() if size in curve.best)),
            points=tuple(replace(here[size][1], note=note(*here[size])) for size in sorted(here)),
        )
        for group, here in fastest_of.items()
    )
