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
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from collbench import __version__
from collbench.analysis.best import summarise
from collbench.analysis.changes import compare
from collbench.analysis.curves import Curve, curves, envelope, heat_maps
from collbench.report.drawings.svg import clean
from collbench.report.page import tables
from collbench.report.page.changes import changed
from collbench.report.page.html import element, section
from collbench.report.tables.summary import counts
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
_UNSET = {str(value) for value in UNASKED.values()}


def page(loaded: "ResultFile", base: "ResultFile | None" = None, *, is_forced: bool = False) -> str:
    """The page of one file, or of one and its base with what changed. is_forced: unlike machines
    too; otherwise raises UsageError for them.
    """
    frame, summary = loaded.frame, summarise(loaded.frame)
    before = [tables.doubts(summary), tables.glance(summary)]
    files = (
        {"new": curves(frame)}
        if base is None
        else {"new": curves(frame), "base": curves(base.frame)}
    )
    parts = [tables.origin(loaded, summary)]
    if base is not None:
        before.insert(
            0,
            changed(
                compare(frame, base.frame, is_forced=is_forced),
                (Path(loaded.name).name, Path(base.name).name),
            ),
        )
        parts = [
            element("h3", "new"),
            *parts,
            element("h3", "base"),
            tables.origin(base, summarise(base.frame)),
        ]
    after = [
        tables.best_of_sizes(summary),
        tables.knobs(heat_maps(frame)),
        tables.odd(summary),
        tables.links(loaded),
        section("origin", "Where the numbers come from", *parts),
    ]
    lead = f"{Path(loaded.name).name}: {counts(summary.rows).partition(';')[0]}"
    if base is not None:
        lead += (
            f"; against {Path(base.name).name}, {len(base.frame)} rows. The tables are of the"
            " former."
        )
    return _filled(_title(loaded), lead, before, after, curve_data(files))


def _title(loaded: "ResultFile") -> str:
    """What was measured on what."""
    devices = sorted({str(device) for device in loaded.frame["device"].unique() if device})
    ops = list(dict.fromkeys(loaded.frame["op"].tolist()))
    return (ops[0] if len(ops) == 1 else f"{len(ops)} collectives") + (
        f" on {', '.join(devices)}" if devices else ""
    )


def _filled(
    title: str, lead: str, before: Sequence[str], after: Sequence[str], data: dict[str, Any]
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
        before=_joined(before),
        curves=fallback,
        after=_joined(after),
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


def _joined(parts: Sequence[str]) -> str:
    return "\n".join(part for part in parts if part)


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


def curve_data(files: Mapping[str, Sequence[Curve]]) -> dict[str, Any]:
    """The curves of one file or several as the script reads them: `dims` is what can be filtered
    by; of a curve `k` is the place of its value in each (-1: it has none), and `p` its points as
    size, time, low, high, bus bandwidth, algorithm bandwidth, ceiling and the places of its note,
    its knobs and the answer where it leads or is tied.
    """
    every = [
        (curve, {"file": name} | _values(curve)) for name, found in files.items() for curve in found
    ]
    best = [
        (curve, {"file": name} | _of_group(curve))
        for name, found in files.items()
        for curve in envelope(found)
    ]
    known: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for _, values in every for name in values):
        found = list(dict.fromkeys(values[name] for _, values in every if name in values))
        if len(found) > 1 or name in ("op", "backend"):
            known[name] = (
                sorted(found, key=int) if all(value.isdecimal() for value in found) else found
            )
    points = [point for curve, _ in every for point in curve.points]
    notes = {text: k for k, text in enumerate(dict.fromkeys(point.note for point in points))}
    answer_places = {
        text: k for k, text in enumerate(dict.fromkeys(point.answer for point in points))
    }
    used = {text: k for k, text in enumerate(dict.fromkeys(point.used for point in points))}
    places = {name: {value: k for k, value in enumerate(values)} for name, values in known.items()}

    def entry(curve: Curve, values: Mapping[str, str]) -> dict[str, Any]:
        return {
            "name": curve.name,
            "title": curve.group.title,
            "peer": curve.is_peer,
            "k": [places[name].get(values.get(name, ""), -1) for name in known],
            "p": [
                [
                    *map(
                        _number,
                        (
                            point.bytes,
                            point.time_us,
                            point.time_low_us,
                            point.time_high_us,
                            point.busbw_gbs,
                            point.algbw_gbs,
                            point.ceiling_gbs,
                        ),
                    ),
                    notes.get(point.note, -1),
                    used[point.used],
                    answer_places[point.answer],
                ]
                for point in curve.points
            ],
        }

    return {
        "dims": [
            {"key": name, "label": _FILTERS.get(name, name.capitalize()), "values": values}
            for name, values in known.items()
        ],
        "color": next(
            (
                name
                for name in ("file", "algorithm", *known)
                if len(known.get(name, ())) > 1 and name != "op"
            ),
            "backend",
        ),
        "notes": list(notes),
        "used": list(used),
        "answers": list(answer_places),
        "curves": [entry(*one) for one in every],
        "best": [entry(*one) for one in best],
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
    return (
        _of_group(curve)
        | {"backend": curve.backend}
        | {name: value for name, value in curve.knobs if value not in _UNSET}
    )


def _number(value: float) -> float | None:
    """A number as the file has it, six significant digits; what is not known is nothing."""
    if isinstance(value, int) or math.isinf(value):
        return value if isinstance(value, int) else None
    return None if math.isnan(value) else float(f"{value:.6g}")
