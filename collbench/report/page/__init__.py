"""One page of HTML with everything that one or two files of results show. It carries its style,
script and data, and requests nothing.

A policy in the page forbids every request; style and script are named by their hashes, so that
nothing else can run. Texts of a file stand in it as text only: escaped in the tables, and in the
data as JSON without any character that could end its element.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from operator import attrgetter
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, TypedDict

from collbench import __version__
from collbench.analysis.best import summarise
from collbench.analysis.changes import compare
from collbench.analysis.curves import Curve, curves, envelope, heat_maps
from collbench.report.drawings.svg import clean
from collbench.report.page import tables
from collbench.report.page.changes import changed
from collbench.report.page.histograms import single_launches
from collbench.report.page.html import element, section
from collbench.report.tables.summary import counts
from collbench.results.frame import texts_of
from collbench.spec.knobs import UNASKED

if TYPE_CHECKING:
    from collbench.analysis.load import ResultFile

_FILTERS = {
    "op": "Operation",
    "ranks": "Ranks",
    "hosts": "Hosts",
    "dtype": "Element type",
    "redop": "Reduction",
    "root": "Root",
    "placement": "Placement",
    "group": "Processes",
    "conditions": "Conditions",
}
_PLACEMENT_NAMES = {"in": "in place", "out": "out of place"}
_NUMBERS = attrgetter(
    *("bytes", "time_us", "time_low_us", "time_high_us", "busbw_gbs", "algbw_gbs", "ceiling_gbs")
)
_UNSET = {str(value) for value in UNASKED.values()}


class CurveEntry(TypedDict):
    """A curve as the script reads it. k: the place of its value in each dimension (-1: it has
    none). p: its points as size, time, low, high, bus bandwidth, algorithm bandwidth, ceiling and
    the places of its note, its knobs, and the answer where it leads or is tied.
    """

    name: str
    title: str
    peer: bool
    k: list[int]
    p: list[list[float | None]]


class PageData(TypedDict):
    """The data of the script. dims: the filters. color: the filter that has colours at first."""

    dims: list[dict[str, str | list[str]]]
    color: str
    notes: list[str]
    used: list[str]
    answers: list[str]
    curves: list[CurveEntry]
    best: list[CurveEntry]


def page(loaded: "ResultFile", base: "ResultFile | None" = None, *, is_forced: bool = False) -> str:
    """The page of one file, or of one and its base. Raises UsageError as compare does."""
    frame, summary = loaded.frame, summarise(loaded.frame)
    before = [tables.doubts(summary), tables.glance(summary)]
    parts = [tables.origin(loaded, summary)]
    files = {"new": curves(frame)}
    name = Path(loaded.name).name
    lead = f"{name}: {counts(summary.rows).partition(';')[0]}"
    if base is not None:
        base_name = Path(base.name).name
        changes = compare(frame, base.frame, is_forced=is_forced)
        before.insert(0, changed(changes, (name, base_name)))
        parts = [element("h3", "new"), *parts, element("h3", "base")]
        parts.append(tables.origin(base, summarise(base.frame)))
        files["base"] = curves(base.frame)
        lead += f"; against {base_name}, {len(base.frame)} rows. The tables are of the former."
    after = [
        tables.best_of_sizes(summary),
        single_launches(summary),
        tables.knobs(heat_maps(frame)),
        tables.odd(summary),
        tables.links(loaded),
        section("origin", "Where the numbers come from", *parts),
    ]
    return _filled(_title(loaded), lead, before, after, curve_data(files))


def _title(loaded: "ResultFile") -> str:
    """What was measured on what."""
    devices = texts_of(loaded.frame, "device")
    ops = list(dict.fromkeys(loaded.frame["op"].tolist()))
    title = ops[0] if len(ops) == 1 else f"{len(ops)} collectives"
    return f"{title} on {', '.join(devices)}" if devices else title


def _filled(
    title: str, lead: str, before: Sequence[str], after: Sequence[str], data: PageData
) -> str:
    style, script = _part("page.css"), _part("page.js")
    without = (
        "The curves need JavaScript, which is off here. Everything else is on this page as tables."
    )
    fallback = (
        f"<noscript>{element('p', without, class_='note')}</noscript>"
        if data["curves"]
        else element("p", "None: no row has a time.")
    )
    text = Template(_part("page.html")).substitute(
        title=clean(title),
        lead=clean(lead),
        version=clean(__version__),
        before="\n".join(filter(None, before)),
        curves=fallback,
        after="\n".join(filter(None, after)),
        footer=element(
            "span",
            f"Made by collbench {__version__}. Bandwidths are decimal GB/s, sizes powers of 1024"
            " where they have a suffix.",
        ),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        data=embedded(data),
    )
    return text.encode("utf-8", "replace").decode()  # a file's name may hold what is no text


def _part(name: str) -> str:
    return resources.files("collbench.report.page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """A text as a policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def embedded(data: object) -> str:
    r"""Data as JSON that no text in it can break out of.

    >>> embedded({"a": "</script>\u2028"})
    '{"a":"\\u003c/script\\u003e\\u2028"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def curve_data(files: Mapping[str, Sequence[Curve]]) -> PageData:
    """The curves of one file or several."""
    every = [
        (curve, {"file": name} | _values(curve)) for name, here in files.items() for curve in here
    ]
    best = [
        (curve, {"file": name} | _of_group(curve))
        for name, here in files.items()
        for curve in envelope(here)
    ]
    dims: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for _, values in every for name in values):
        texts = list(dict.fromkeys(values[name] for _, values in every if name in values))
        if len(texts) > 1 or name in ("op", "backend"):
            is_numeric = all(text.isdecimal() for text in texts)
            dims[name] = sorted(texts, key=int) if is_numeric else texts
    points = [point for curve, _ in every for point in curve.points]
    notes = list(dict.fromkeys(point.note for point in points))
    used = list(dict.fromkeys(point.used for point in points))
    answers = list(dict.fromkeys(point.answer for point in points))
    note_at, used_at, answer_at = (
        {text: place for place, text in enumerate(texts)} for texts in (notes, used, answers)
    )
    places = {name: {value: k for k, value in enumerate(values)} for name, values in dims.items()}

    def entry(curve: Curve, values: Mapping[str, str]) -> CurveEntry:
        return {
            "name": curve.name,
            "title": curve.group.title,
            "peer": curve.is_peer,
            "k": [places[name].get(values.get(name, ""), -1) for name in dims],
            "p": [
                [
                    *[_number(value) for value in _NUMBERS(point)],
                    note_at.get(point.note, -1),
                    used_at[point.used],
                    answer_at[point.answer],
                ]
                for point in curve.points
            ],
        }

    several = [name for name in ("file", "algorithm", *dims) if len(dims.get(name, ())) > 1]
    return {
        "dims": [
            {"key": name, "label": _FILTERS.get(name, name.capitalize()), "values": values}
            for name, values in dims.items()
        ],
        "color": next((name for name in several if name != "op"), "backend"),
        "notes": notes,
        "used": used,
        "answers": answers,
        "curves": [entry(curve, values) for curve, values in every],
        "best": [entry(curve, values) for curve, values in best],
    }


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


def _number(value: float) -> float | None:
    """A number as the file has it, six significant digits; what is not known is nothing."""
    if isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None
