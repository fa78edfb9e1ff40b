"""Results as curves over the size, and how much of the best each value of a knob reaches: what
pictures and pages show. Pure: draws nothing.

Groups, configurations and their names are those of the answers of one file; only rows that are ok
and have a time count.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from collbench.analysis import best as told
from collbench.analysis.best import Answers, candidates
from collbench.analysis.rows import (
    KNOB_NAMES,
    KNOBS,
    SIZES,
    Problem,
    Row,
    asked_knobs,
    by_problem,
    chosen,
    collector_at_rest,
    label,
    middle,
    titles,
)
from collbench.results.statistics import interval
from collbench.spec.knobs import UNASKED
from collbench.util.units import format_size

if TYPE_CHECKING:
    import pandas as pd

NAN = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What was to be done, at any size: rows of one group are comparable. The title names what
    tells it from the other groups of the file.
    """

    problem: Problem
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One size of a curve; NaN for what is unknown. time_low_us and time_high_us bound the median
    of several repeats.

    note: the notes of the row; on an envelope or an automatic choice, the name of the
    configuration. used: the knobs as they were at this size, also those that the tool chose.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One configuration, that is every knob but the size, of one group; sizes ascend.

    is_peer: a library with its own algorithms did it. best: the sizes at which it is the best of
    ours (of the library's, where a file has none of ours), chosen on the repeats that the tables
    choose on. knobs: names and values that make the configuration, to filter by.
    """

    group: Group
    name: str
    backend: str
    is_peer: bool
    best: tuple[int, ...]
    points: tuple[Point, ...]
    knobs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """How fast each value of a knob gets at each size, the other knobs free: share[value][size], 1
    for the best; NaN where it was not measured.
    """

    group: Group
    knob: str
    sizes: tuple[int, ...]
    values: tuple[str, ...]
    share: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same configuration, or both envelopes, in two files. The groups may differ in what one of
    the files does not tell.
    """

    new: Curve
    base: Curve


@collector_at_rest()
def curves(frame: "pd.DataFrame") -> tuple[Curve, ...]:
    """Every configuration's curve; groups and configurations in the order of the file."""
    return _curves(told.answers(frame))


@collector_at_rest()
def pairs(new: "pd.DataFrame", base: "pd.DataFrame") -> tuple[Pair, ...]:
    """What two files both measured, in the order of the new one: of each group the two envelopes,
    then every configuration that both have.
    """
    from collbench.analysis.join import is_reduction, names_to_match, way_of

    names = [
        name for name in names_to_match(new, base, way_of(new, base)) if name in Problem._fields
    ]
    found = [told.answers(frame) for frame in (new, base)]
    # of both, so that a configuration has one name
    asked = asked_knobs(by_problem([row for one in found for row in one.rows]))
    sides = [_curves(replace(one, asked=asked)) for one in found]

    def key(curve: Curve, *, is_envelope: bool) -> tuple[object, ...]:
        what = curve.group.problem
        problem = tuple(
            "" if name == "redop" and not is_reduction(what.op) else getattr(what, name)
            for name in names
        )
        return problem if is_envelope else (*problem, curve.backend, curve.name)

    made: dict[Group, list[Pair]] = {}
    for is_envelope in (True, False):
        ours, theirs = (envelope(side) if is_envelope else side for side in sides)
        known = {key(curve, is_envelope=is_envelope): curve for curve in reversed(theirs)}
        for curve in ours:
            other = known.get(key(curve, is_envelope=is_envelope))
            if other is not None and {point.bytes for point in curve.points} & {
                point.bytes for point in other.points
            }:
                made.setdefault(curve.group, []).append(Pair(new=curve, base=other))
    return tuple(pair for group in made.values() for pair in group)


def _curves(found: Answers) -> tuple[Curve, ...]:
    groups = _groups(found)
    best = {id(winner.row) for sizes in found.winners.values() for winner in sizes.values()}
    backends = {
        problem: {row.backend for rows in sizes.values() for row in rows if not row.is_library}
        for problem, sizes in found.problems.items()
    }
    made = []
    for rows in told.curves(found).values():
        first, sizes = rows[0], _by_size(rows)
        made.append(
            Curve(
                group=groups[first.problem],
                name=_name(first, found, has_backend=len(backends[first.problem]) > 1),
                backend=first.backend,
                is_peer=first.is_library,
                best=tuple(
                    size for size, here in sizes.items() if any(id(row) in best for row in here)
                ),
                points=tuple(_point(chosen(here)) for here in sizes.values()),
                knobs=tuple(
                    (KNOB_NAMES.get(name, name), _value(name, getattr(first, name)))
                    for name in ("algo", "proto", *found.asked.get(first.backend, ()))
                ),
            )
        )
    return tuple(made)


def envelope(found: Iterable[Curve]) -> tuple[Curve, ...]:
    """Of each group the best configuration at every size, as one curve, "best of ours" or of a
    library; a point's note names the configuration.
    """
    known = _combined(found, "best of ours", lambda curve, point: point.bytes in curve.best)
    return tuple(
        replace(curve, name=f"best of {curve.backend}") if curve.is_peer else curve
        for curve in known
    )


def automatic(found: Iterable[Curve]) -> tuple[Curve, ...]:
    """Of each group that has one, what the tool itself would choose at every size, as one curve; a
    point's note names the configuration.
    """
    return _combined(
        found,
        "automatic choice",
        lambda curve, point: not curve.is_peer and "auto" in point.note.split(),
    )


def heat_maps(frame: "pd.DataFrame") -> tuple[HeatMap, ...]:
    """Of each group every knob that took two values or more, as rows of ours have it (of the
    library, where there are none of ours).
    """
    found = told.answers(frame)
    groups = _groups(found)
    made = [
        _heat_map(found, problem, groups[problem], knob)
        for problem in found.problems
        for knob in ("algo", "proto", *KNOBS)
    ]
    return tuple(one for one in made if one is not None)


def _groups(found: Answers) -> dict[Problem, Group]:
    return {
        problem: Group(problem=problem, title=title)
        for problem, title in titles(found.problems).items()
    }


def _name(row: Row, found: Answers, *, has_backend: bool) -> str:
    """A configuration's short label, as in the tables; libraries by their name first, and by it
    alone where they choose by themselves.
    """
    return (
        row.backend
        if row.is_own_choice
        else label(row, found.asked, has_backend=has_backend or row.is_library)
    )


def _value(knob: str, value: object) -> str:
    """A knob's value as people read it."""
    return format_size(value) if knob in SIZES and isinstance(value, int) else str(value)


def _by_size(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row.size_bytes, []).append(row)
    return found


def _point(row: Row) -> Point:
    bounds = interval(row.times_us) if len(row.times_us) > 1 else None
    return Point(
        bytes=row.size_bytes,
        busbw_gbs=row.busbw_gbs,
        algbw_gbs=row.algbw_gbs,
        time_us=middle(row.times_us),
        note=row.notes,
        time_low_us=bounds.low if bounds else NAN,
        time_high_us=bounds.high if bounds else NAN,
        ceiling_gbs=row.ceiling_gbs if row.ceiling_gbs > 0 else NAN,
        used=_used(row),
    )


def _used(row: Row) -> str:
    """The knobs of a row that have a value, in words."""
    told = [(name, getattr(row, name)) for name in KNOBS]
    return ", ".join(
        f"{KNOB_NAMES.get(name, name)} {_value(name, value)}"
        for name, value in told
        if value not in (UNASKED[name], "")
    )


def _combined(
    found: Iterable[Curve], name: str, is_wanted: Callable[[Curve, Point], bool]
) -> tuple[Curve, ...]:
    """Of each group the wanted points of all its curves, the fastest of each size, as one curve."""
    taken: dict[Group, dict[int, tuple[Curve, Point]]] = {}
    for curve in found:
        for point in curve.points:
            if is_wanted(curve, point):
                here = taken.setdefault(curve.group, {})
                if point.bytes not in here or point.time_us < here[point.bytes][1].time_us:
                    here[point.bytes] = curve, point
    return tuple(
        Curve(
            group=group,
            name=name,
            backend=next(iter(here.values()))[0].backend,
            is_peer=all(curve.is_peer for curve, _ in here.values()),
            best=tuple(sorted(size for size, (curve, _) in here.items() if size in curve.best)),
            points=tuple(replace(here[size][1], note=here[size][0].name) for size in sorted(here)),
        )
        for group, here in taken.items()
    )


def _heat_map(found: Answers, problem: Problem, group: Group, knob: str) -> HeatMap | None:
    """The map of one knob; None where it took fewer than two values. A knob that follows from the
    others has none.
    """
    times: dict[object, dict[int, float]] = {}
    for size, rows in found.problems[problem].items():
        for row in candidates(rows):
            value = getattr(row, knob)
            if value != UNASKED[knob] and (
                knob in ("algo", "proto") or knob in found.asked.get(row.backend, ())
            ):
                here = times.setdefault(value, {})
                here[size] = min(here.get(size, math.inf), middle(row.times_us))
    if len(times) < 2:
        return None
    values = sorted(times, key=lambda value: (isinstance(value, str), value))
    sizes = tuple(
        size for size in found.problems[problem] if any(size in here for here in times.values())
    )
    least = {size: min(here[size] for here in times.values() if size in here) for size in sizes}
    return HeatMap(
        group=group,
        knob=KNOB_NAMES.get(knob, knob),
        sizes=sizes,
        values=tuple(_value(knob, value) for value in values),
        share=tuple(
            tuple(
                least[size] / times[value][size] if size in times[value] else NAN for size in sizes
            )
            for value in values
        ),
    )
