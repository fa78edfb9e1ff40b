"""Pictures of curves for a slide of 16:9: one collective, or a grid of at most six. The only module
that imports matplotlib.

A picture answers how far NCCL's best and the ceiling are, on logarithmic axes; what a file does not
know is replaced by bandwidth or time. A colour is an algorithm or a library, as on the page (see
colors.py); a mark is a protocol, dashes are a library, so that paper without colours shows the
same.
"""

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from collbench.compare.curves import Curve
from collbench.compare.plots.lines import Kind, PlotLine, kinds, lines, rivals, values
from collbench.compare.tables.summary import peer_name
from collbench.core.grouping import grouped
from collbench.core.text import counted
from collbench.core.units import format_size
from collbench.core.web.colors import FAMILIES, OTHER

MOST_GROUPS = 6
_WIDTH, _HEIGHT, _DPI = 16.0, 9.0, 100  # inches; 1600 x 900 pixels
_MARKS = {"simple": "o", "ll": "^", "ll128": "s", "sentinel": "D"}
_OTHER_MARKS = ("D", "v", "P", "X")
_STYLES = ("-", "-.", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))  # of curves of one colour and mark
_PEER_STYLES = ((0, (4, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
_INK = FAMILIES["nccl"].light
_MOST_TICKS = 8
_MOST_TICKS_OF_THREE = 5  # where axes stand three in a row
_COLUMN = 30  # characters of a name in the legend
_TITLES: Mapping[Kind, str] = {
    "peer": "speed, times {rival}",
    "wire": "percent of the ceiling",
    "busbw": "bus bandwidth, GB/s",
    "algbw": "algorithm bandwidth, GB/s",
    "time": "time, us",
}
_ONE: Mapping[Kind, float] = {"peer": 1.0, "wire": 100.0}  # where a line is drawn across
# Any: the arguments and settings of matplotlib have many types.
LineStyle: TypeAlias = dict[str, Any]
_STYLE: dict[Any, Any] = {
    "font.size": 17,
    "axes.titlesize": 18,
    "axes.labelsize": 17,
    "xtick.labelsize": 15,
    "ytick.labelsize": 15,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "collbench",
    "text.parse_math": False,  # a dollar in a name is a dollar
}


def draw(curves: Sequence[Curve], heading: str, ending: str) -> bytes:
    """The picture of one file, as png or svg. The same curves give the same bytes."""
    every = grouped((curve.group, curve) for curve in curves)
    groups = dict(list(every.items())[:MOST_GROUPS])
    if len(groups) > 1:
        [kind] = kinds(curves)[:1]
        panels = [
            (group.title, partial(_summary, here=here, kind=kind)) for group, here in groups.items()
        ]
        return _picture(panels, heading, ending, are_alike=True)
    [(group, here)] = groups.items()
    panels = [("", partial(_one_group, here=here, kind=kind)) for kind in kinds(here)[:2]]
    return _picture(panels, heading, ending, are_alike=False, title=group.title)


def _picture(
    panels: Sequence[tuple[str, Callable[..., None]]],
    heading: str,
    ending: str,
    *,
    are_alike: bool,
    title: str = "",
) -> bytes:
    """Panels with their titles. are_alike: all have the same axes. title: of all panels."""
    with _settings():
        figure = Figure(figsize=(_WIDTH, _HEIGHT), facecolor="white")
        figure.text(0.02, 0.955, textwrap.shorten(heading, 110), fontsize=21, va="center")
        figure.text(0.02, 0.895, title, fontsize=18, va="center")
        entries: dict[str, Line2D] = {}
        for axes, (own, drawn) in zip(_axes(figure, len(panels)), panels, strict=True):
            drawn(axes, entries=entries)
            axes.set_title(textwrap.shorten(own, 36 if len(panels) > 2 else 60), loc="left")
        if are_alike:
            _label_edges(figure)
        _legend(figure, entries)
        return _bytes(figure, ending)


@contextmanager
def _settings() -> Iterator[None]:
    """Settings of matplotlib for the time of a picture, whatever those of its user are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def _axes(figure: Figure, count: int) -> list[Axes]:
    """Axes in a grid of three columns at most, above the legend."""
    columns = 2 if count in (2, 4) else min(count, 3)
    rows = math.ceil(count / columns)
    grid = figure.subplots(rows, columns, squeeze=False)
    top = 0.84 if rows == 1 else 0.87
    gap = 0.26 if columns == 2 else 0.3
    figure.subplots_adjust(0.07, 0.24, 0.985, top, wspace=gap, hspace=0.42)
    every = [axes for row in grid for axes in row]
    for axes in every[count:]:
        axes.set_visible(False)
    return every[:count]


def _label_edges(figure: Figure) -> None:
    """Names of axes at the left and at the bottom of a grid only: all are the same."""
    for axes in figure.axes:
        place = axes.get_subplotspec()
        if place is not None and not place.is_first_col():
            axes.set_ylabel("")
        if place is not None and not place.is_last_row():
            axes.set_xlabel("")


def _bytes(figure: Figure, ending: str) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings():
        # a name in letters that the font has not: boxes replace them
        warnings.filterwarnings("ignore", "Glyph")
        metadata = {
            "svg": {"Date": None, "Creator": "collbench"},
            "png": {"Software": "collbench"},
        }.get(ending)
        figure.savefig(out, format=ending, dpi=_DPI, metadata=metadata)
    return out.getvalue()


def _value_axis(axes: Axes, kind: Kind) -> None:
    """Logarithmic, but for bandwidths, with ticks also where the range is small."""
    if kind in ("busbw", "algbw"):
        top = 1.04 * axes.get_ylim()[1]
        axes.set_ylim(-0.02 * top, top)  # a little below zero, so that marks on it are whole
        return
    if not any(len(line.get_xdata()) for line in axes.lines):  # type: ignore[arg-type]
        return  # matplotlib warns of a logarithmic axis without values
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high / low < 1.5:
        low, high = math.sqrt(low * high / 1.5), math.sqrt(low * high * 1.5)
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(
        MaxNLocator(6, steps=[1, 2, 5, 10])
        if high / low < 6
        else LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 200 else (1.0,), numticks=8)
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """A logarithmic axis with binary sizes."""
    axes.set_xscale("log", base=2)
    known = sorted({size for size in sizes if size > 0}) or [1]
    low, high = math.log2(known[0]), math.log2(known[-1])
    columns = axes.get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
    step = max(1, math.ceil((high - low) / (_MOST_TICKS if columns < 3 else _MOST_TICKS_OF_THREE)))
    ticks = (
        [2**power for power in range(math.ceil(low), math.floor(high) + 1, step)]
        if high - low >= 1
        else known[:1]
    )
    axes.set_xticks(ticks, [format_size(size) for size in ticks])
    axes.set_xticks([], minor=True)
    margin = max(0.3, 0.03 * (high - low))
    axes.set_xlim(2 ** (low - margin), 2 ** (high + margin))
    axes.grid(visible=True, color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)


def _color(curve: Curve) -> str:
    """The colour of a curve: of its library, or of its algorithm."""
    name = curve.backend if curve.is_peer else dict(curve.knobs).get("algorithm", "")
    return FAMILIES.get(name, OTHER).light


def _mark(curve: Curve) -> str:
    protocol = dict(curve.knobs).get("protocol", "")
    return _MARKS.get(protocol, _OTHER_MARKS[len(protocol) % len(_OTHER_MARKS)])


def _style(line: PlotLine, used: dict[tuple[str, str], int]) -> LineStyle:
    """How a line is drawn. used: how many of a colour and a mark there are so far."""
    if line.role == "other":
        return {
            "color": "#CCCCCC",
            "linewidth": 0.8,
            "linestyle": "--" if line.curve.is_peer else "-",
        }
    if line.role == "best":
        return {"color": _INK, "linewidth": 9.0, "alpha": 0.15, "solid_capstyle": "round"}
    if line.role == "auto":
        return {
            "color": _INK,
            "linestyle": "none",
            "marker": "o",
            "markersize": 12,
            "markerfacecolor": "none",
            "markeredgewidth": 1.0,
        }
    color, mark = _color(line.curve), _mark(line.curve)
    if line.role == "peer":
        return {
            "color": color,
            "linestyle": _PEER_STYLES[line.color % len(_PEER_STYLES)],
            "linewidth": 2.4,
        }
    place = used.get((color, mark), 0)
    used[color, mark] = place + 1
    return {
        "color": color,
        "linewidth": 2.2,
        "linestyle": _STYLES[place % len(_STYLES)],
        "marker": mark,
        "markersize": 6.5,
    }


def _plot(
    axes: Axes,
    curve: Curve,
    kind: Kind,
    known: Mapping[int, float],
    style: LineStyle,
    *,
    has_band: bool,
) -> None:
    """A curve, with the bounds of its times where they are known."""
    points = values(curve, kind, known)
    if not points:
        return
    sizes = [point[0] for point in points]
    axes.plot(sizes, [point[1] for point in points], **style)
    if has_band:
        low, high = [point[2] for point in points], [point[3] for point in points]
        if len(points) == 1:
            axes.vlines(sizes, low, high, color=style["color"], alpha=0.4, linewidth=5)
        else:
            axes.fill_between(sizes, low, high, color=style["color"], alpha=0.15, linewidth=0)


def _one_group(axes: Axes, here: Sequence[Curve], kind: Kind, entries: dict[str, Line2D]) -> None:
    """The curves of one group."""
    known = rivals(here)
    axes.set_ylabel(_title(kind, here))
    used: dict[tuple[str, str], int] = {}
    others = 0
    for line in lines(here):
        style = _style(line, used)
        has_band = line.role in ("one", "peer")
        _plot(axes, line.curve, kind, known, style, has_band=has_band)
        others += line.role == "other"
        if line.role != "other":
            _add(entries, line.curve.name, style)
    if others:
        _add(entries, counted(others, "other"), {"color": "#CCCCCC", "linewidth": 1.5})
    _finish(axes, here, kind, entries)


def _summary(axes: Axes, here: Sequence[Curve], kind: Kind, entries: dict[str, Line2D]) -> None:
    """The best of ours, each point in the colour of its algorithm, and the libraries."""
    known = rivals(here)
    axes.set_ylabel(_title(kind, here))
    for line in lines(here):
        if line.role == "best" or line.role == "peer" or (line.role == "one" and len(here) == 1):
            style = _style(line, {})
            _plot(axes, line.curve, kind, known, style, has_band=line.role == "peer")
            _add(entries, line.curve.name, style)
    for curve in here:
        points = [] if curve.is_peer else values(curve, kind, known)
        lead = [point for point in points if point[0] in curve.best]
        name = dict(curve.knobs).get("algorithm", curve.name)
        style = {"color": _color(curve), "linestyle": "none", "marker": "o", "markersize": 8}
        if lead:
            axes.plot([point[0] for point in lead], [point[1] for point in lead], **style)
            _add(entries, name, style)
    _finish(axes, here, kind, entries)


def _title(kind: Kind, here: Sequence[Curve]) -> str:
    names = {peer_name(curve.backend) for curve in here if curve.is_own_choice}
    rival = "the best library's" if len(names) > 1 else f"{''.join(names)}'s best"
    return _TITLES[kind].format(rival=rival)


def _finish(axes: Axes, here: Sequence[Curve], kind: Kind, entries: dict[str, Line2D]) -> None:
    one = _ONE.get(kind)
    if one is not None:
        style: LineStyle = {"color": _INK, "linewidth": 1.0}
        axes.axhline(one, **style)
        if kind == "wire":
            _add(entries, "100: all that the links allow", style)
    _size_axis(axes, [point.bytes for curve in here for point in curve.points])
    axes.set_xlabel("size", labelpad=2)
    _value_axis(axes, kind)


def _add(entries: dict[str, Line2D], name: str, style: LineStyle) -> None:
    """Name a style in the legend, once."""
    label = textwrap.fill(textwrap.shorten(name, 2 * _COLUMN), _COLUMN)
    entries.setdefault(label, Line2D([], [], label=label, **style))


def _legend(figure: Figure, entries: Mapping[str, Line2D]) -> None:
    """What colours, marks and dashes mean, below the curves."""
    if not entries:
        return
    columns = min(len(entries), 4)
    figure.legend(
        handles=list(entries.values()),
        loc="lower center",
        bbox_to_anchor=(0.5, 0.005),
        ncols=columns,
        frameon=False,
        columnspacing=1.6,
        handlelength=2.6,
        labelspacing=0.35,
        fontsize=15 if len(entries) <= 12 else 13,
    )
