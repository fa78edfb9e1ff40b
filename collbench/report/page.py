"""One page of HTML with everything that one or two files of results say. It carries its style, script and data, and asks nobody for anything.

A policy in the page forbids every request; style and script are named by their hashes, so that nothing else can run. Texts of a file stand in it as
text only: escaped in the tables, and in the data as JSON without any character that could end its element.
"""

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from collbench import __version__
from collbench.compare.answers import answers
from collbench.compare.curves import Curve, curves, envelope, heat_maps
from collbench.report import page_tables
from collbench.report.answers_table import counts
from collbench.report.page_html import element, section
from collbench.report.svg_shapes import clean
from collbench.sweep import UNASKED

if TYPE_CHECKING:
    from collbench.compare.load import Loaded

_PROBLEM = {
    "op": "Operation", "ranks": "Ranks", "hosts": "Hosts", "dtype": "Element type", "redop": "Reduction", "root": "Root", "placement": "Placement",
    "conditions": "Conditions",
}
_PLACEMENTS = {"in": "in place", "out": "out of place"}
_NOT_ASKED = {str(value) for value in UNASKED.values()}


def page(loaded: "Loaded") -> str:
    """The page of one file."""
    frame = loaded.frame
    found = answers(frame)
    devices = sorted({str(device) for device in frame["device"].unique() if device})
    ops = list(dict.fromkeys(frame["op"].tolist()))
    title = (ops[0] if len(ops) == 1 else f"{len(ops)} collectives") + (f" on {', '.join(devices)}" if devices else "")
    after = [page_tables.best(found), page_tables.knobs(heat_maps(frame)), page_tables.odd(found), page_tables.wires(loaded)]
    after.append(section("origin", "Where the numbers come from", page_tables.origin(loaded, "", found)))
    lead = f"{Path(loaded.name).name}: {counts(found.rows).partition(';')[0]}"
    return _filled(title, lead, page_tables.glance(found), after, curve_data(curves(frame)))


def _filled(title: str, lead: str, before: str, after: Sequence[str], data: dict[str, Any]) -> str:
    style, script = _part("page.css"), _part("page.js")
    text = Template(_part("page.html")).substitute(
        title=clean(title), lead=clean(lead), version=clean(__version__), before=before, after="\n".join(part for part in after if part),
        footer=element("span", f"Made by collbench {__version__}. Bandwidths are decimal GB/s, sizes powers of 1024 where they have a suffix."),
        style=style, script=script, style_hash=_hash(style), script_hash=_hash(script), data=embedded(data),
    )
    return text.encode("utf-8", "replace").decode()  # a file's name may hold what is no text


def _part(name: str) -> str:
    return resources.files("collbench.report").joinpath(name).read_text(encoding="utf-8")


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


def curve_data(found: Sequence[Curve]) -> dict[str, Any]:
    """The curves as the script reads them: `dims` is what can be filtered by; of a curve `k` is the place of its value in each (-1: it has none), and
    `p` its points as size, time, low, high, bus bandwidth, algorithm bandwidth, ceiling and the place of its note.
    """
    best = envelope(found)
    told = [_values(curve) for curve in found]
    names = list(dict.fromkeys(name for values in told for name in values))
    names = [name for name in names if name in ("op", "backend") or len({values[name] for values in told if name in values}) > 1]
    known = {name: _sorted({values[name] for values in told if name in values}, list(dict.fromkeys(values.get(name, "") for values in told))) for name in names}
    notes = list(dict.fromkeys(point.note for curve in found for point in curve.points))
    place = {note: k for k, note in enumerate(notes)}

    def entry(curve: Curve, values: dict[str, str]) -> dict[str, Any]:
        return {
            "name": curve.name, "title": curve.group.title, "peer": curve.is_peer, "best": curve.best,
            "k": [known[name].index(values[name]) if name in values else -1 for name in names],
            "p": [[*map(_number, (
                point.bytes, point.time_us, point.time_low_us, point.time_high_us, point.busbw_gbs, point.algbw_gbs, point.ceiling_gbs,
            )), place.get(point.note, -1)] for point in curve.points],
        }

    return {
        "dims": [{"key": name, "label": _PROBLEM.get(name, name.capitalize()), "values": known[name]} for name in names],
        "color": "algorithm" if "algorithm" in names else "backend", "notes": notes, "bestname": best[0].name if best else "",
        "curves": [entry(curve, values) for curve, values in zip(found, told, strict=True)],
        "best": [entry(curve, _of_group(curve)) for curve in best],
    }


def _of_group(curve: Curve) -> dict[str, str]:
    """What was to be done, by the names of filters."""
    group = curve.group
    values = {name: str(getattr(group, name)) for name in _PROBLEM if name != "conditions"}
    return values | {"placement": _PLACEMENTS.get(group.placement, group.placement), "conditions": " ".join(group.conditions) or "none"}


def _values(curve: Curve) -> dict[str, str]:
    """All that a curve can be filtered by."""
    return _of_group(curve) | {"backend": curve.backend} | {name: value for name, value in curve.knobs if value not in _NOT_ASKED}


def _sorted(values: set[str], order: Sequence[str]) -> list[str]:
    """Numbers ascend, other values stand in the order of the file."""
    if all(value.isdecimal() for value in values):
        return sorted(values, key=int)
    return [value for value in order if value in values]


def _number(value: float) -> float | None:
    """A number as the file has it, six significant digits; what is not known is nothing."""
    if isinstance(value, int) or math.isinf(value):
        return value if isinstance(value, int) else None
    return None if math.isnan(value) else float(f"{value:.6g}")
