"""The data of the script: every curve, small enough that a page of 100,000 rows can be sent.

A point is one list: the places of its size, ceiling, note, knobs and answer in the tables beside
it, then 0, then its repeats in microseconds, from which the script makes the time, its bounds and
the bandwidths. Where a file's bandwidth is not that of the time, as in another tool's, [time,
algorithm bandwidth, bus bandwidth] stands for the 0.

Of a curve: own is a library's own choice, k the place of its value in each of dims, by which curves
are filtered (-1: it has none), f bus bandwidth over algorithm bandwidth, p its points. Of the best
of a group at every size: at is the places of its curves and of their points. color is the dimension
that has colours at first, rival the library that times are compared with, open what is shown first.
"""

import base64
import math
import zlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from collbench.compare.curves import Curve, CurvePoint, envelope
from collbench.core.knobs import UNASKED
from collbench.core.web.colors import FAMILIES, STEPS
from collbench.core.web.html import attributes, embedded

MOST_PLAIN_CHARS = 1 << 20  # longer data is compressed: a browser unpacks it at once
_DERIVED = 2e-5  # how far a bandwidth of six digits may be from that of the time
_FILTERS = {
    "op": "Operation",
    "ranks": "Ranks",
    "hosts": "Hosts",
    "dtype": "Element type",
    "redop": "Reduction",
    "root": "Root",
    "placement": "Placement",
    "skew": "Skew",
    "groups": "Groups",
    "mix": "Mix",
    "group": "Processes",
    "conditions": "Conditions",
}
_PLACEMENT_NAMES = {"in": "in place", "out": "out of place"}
_UNSET = {str(value) for value in UNASKED.values()}
# Dimensions whose values have colours of their own; of all others the values are steps.
_OF_FAMILIES = ("algorithm", "backend")
Value = TypeVar("Value", bound=Hashable)
Entry = dict[str, object]
Opening = Mapping[str, str | int]  # what is shown first: an axis, the place of a curve, a size


def page_data(files: Mapping[str, Sequence[Curve]], rival: str, opening: Opening) -> Entry:
    """The data of one file's curves, or of two files' by name."""
    every = [(name, curve) for name, here in files.items() for curve in here]
    dims = _dimensions([{"file": name} | _values(curve) for name, curve in every])
    places = {name: {value: k for k, value in enumerate(values)} for name, values in dims.items()}

    def keys(values: Mapping[str, str]) -> list[int]:
        return [places[name].get(values.get(name, ""), -1) for name in dims]

    points = [point for _, curve in every for point in curve.points]
    sizes = _table(point.bytes for point in points)
    ceilings = _table(point.ceiling_gbs for point in points if point.ceiling_gbs > 0)
    notes, used, answers = (
        _table(getattr(point, name) for point in points) for name in ("note", "used", "answer")
    )

    def entry(name: str, curve: Curve) -> Entry:
        factor = _factor(curve)
        return {
            "name": curve.name,
            "title": curve.group.title,
            "peer": curve.is_peer,
            "own": curve.is_own_choice,
            "k": keys({"file": name} | _values(curve)),
            "f": factor,
            "p": [
                [
                    sizes[point.bytes],
                    ceilings.get(point.ceiling_gbs, -1),
                    notes[point.note],
                    used[point.used],
                    answers[point.answer],
                    _own_rates(point, factor),
                    *map(_number, point.times_us),
                ]
                for point in curve.points
            ],
        }

    several = [name for name in ("algorithm", *dims) if len(dims.get(name, ())) > 1]
    return {
        "dims": [
            {
                "key": name,
                "label": _FILTERS.get(name, name.capitalize()),
                "values": values,
                "colors": _colors(name, values),
            }
            for name, values in dims.items()
        ],
        "color": next((name for name in several if name not in ("op", "file")), "backend"),
        "rival": rival,
        "open": opening,
        "sizes": list(sizes),
        "ceilings": list(ceilings),
        "notes": list(notes),
        "used": list(used),
        "answers": list(answers),
        "curves": [entry(name, curve) for name, curve in every],
        "best": _best(files, keys),
    }


def _dimensions(every: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """The filters and their values; a filter that all curves agree in is none."""
    dims: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for values in every for name in values):
        texts = list(dict.fromkeys(values[name] for values in every if name in values))
        if len(texts) > 1 or name in ("op", "backend"):
            dims[name] = sorted(texts, key=int) if all(map(str.isdecimal, texts)) else texts
    return dims


def _table(values: Iterable[Value]) -> dict[Value, int]:
    """Values and their places."""
    return {value: place for place, value in enumerate(dict.fromkeys(values))}


def _colors(name: str, values: Sequence[str]) -> list[str]:
    """The colour of each value: its own, or a step from the first to the last."""
    if name in _OF_FAMILIES:
        return [f"f-{value}" if value in FAMILIES else "f-other" for value in values]
    last = max(1, len(values) - 1)
    return [f"s{place * (len(STEPS) - 1) // last}" for place in range(len(values))]


def _best(
    files: Mapping[str, Sequence[Curve]], keys: Callable[[Mapping[str, str]], list[int]]
) -> list[Entry]:
    """The envelopes, as places of curves and points."""
    entries: list[Entry] = []
    first = 0
    for name, curves in files.items():
        places = {
            (curve.group, point.bytes, point.time_us): (first + k, j)
            for k, curve in reversed(list(enumerate(curves)))
            for j, point in enumerate(curve.points)
            if point.bytes in curve.best
        }
        entries += [
            {
                "name": curve.name,
                "title": curve.group.title,
                "peer": curve.is_peer,
                "k": keys({"file": name} | _of_group(curve)),
                "at": [places[curve.group, point.bytes, point.time_us] for point in curve.points],
            }
            for curve in envelope(curves)
        ]
        first += len(curves)
    return entries


def _of_group(curve: Curve) -> dict[str, str]:
    """What was to be done, by the names of filters."""
    what = curve.group.workload
    values = {name: str(getattr(what, name)) for name in _FILTERS if name != "conditions"}
    return values | {
        "placement": _PLACEMENT_NAMES.get(what.placement, what.placement),
        "conditions": " ".join(what.conditions) or "none",
    }


def _values(curve: Curve) -> dict[str, str]:
    """All that a curve can be filtered by."""
    knobs = {name: value for name, value in curve.knobs if value not in _UNSET}
    return _of_group(curve) | {"backend": curve.backend} | knobs


def _factor(curve: Curve) -> float | None:
    """Bus bandwidth over algorithm bandwidth; None where either is not known."""
    known = [
        point.busbw_gbs / point.algbw_gbs
        for point in curve.points
        if point.busbw_gbs == point.busbw_gbs and point.algbw_gbs > 0
    ]
    return float(f"{median(known):.5g}") if known else None


def _own_rates(point: CurvePoint, factor: float | None) -> int | list[float | None]:
    """Time and bandwidths of a point whose bandwidths are not those of its time; else 0."""
    derived = point.bytes / point.time_us / 1e3
    bus = math.nan if factor is None else derived * factor
    pairs = ((point.algbw_gbs, derived), (point.busbw_gbs, bus))
    if point.times_us and all(
        (math.isnan(given) and math.isnan(made)) or abs(given - made) <= _DERIVED * made
        for given, made in pairs
    ):
        return 0
    return [_number(value) for value in (point.time_us, point.algbw_gbs, point.busbw_gbs)]


def _number(value: float) -> float | None:
    """A number as the file has it, six significant digits; what is not known is nothing."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() else short


def data_element(data: Entry) -> str:
    """The element with the data; compressed, as base64, where it is long."""
    text = embedded(data)
    if len(text) <= MOST_PLAIN_CHARS:
        return f'<script type="application/json" id="data">{text}</script>'
    packed = base64.b64encode(zlib.compress(text.encode(), 6)).decode()
    kind = attributes(type="application/octet-stream", id="data", data_packed="deflate")
    return f"<script{kind}>{packed}</script>"
