"""Pictures of curves: bandwidth and time against size, knobs beneath; of two files their ratio. The
only module that imports matplotlib.

One block a group, one under the other, laid out in inches. Hues are Okabe and Ito's ("Color
Universal Design", 2008), which colour-blind readers can tell apart; markers and dashes tell lines
apart on paper without colours.
"""

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from collbench.analysis.curves import Curve, CurveGroup, CurvePair, HeatMap
from collbench.report.plots.lines import Line, ceiling, lines, ratios, shown
from collbench.util.units import format_size

MOST_GROUPS = 40  # blocks of a picture: more make it taller than viewers show
_HUES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_PEER_HUES = ("#000000", "#7A5195", "#8C6D31")
_MARKS = ("o", "s", "^", "D", "v", "P")
_GREY, _DARK = "#BBBBBB", "#555555"
_PAGE_W, _LEFT, _AXES, _AXES_GAP, _LEGEND = 12.0, 0.9, 3.95, 0.85, 2.2  # inches
_TITLE_H = 0.42
_CURVES = 3.0
_TICKS = 0.5
_CAPTION = 0.22
_FOOT = 0.32
_RATIO = 1.3
_ROW = 0.24
_SPACE = 0.2
_HEADING_HEIGHT = 0.45
_COLUMN = 33  # characters that fit into the legend's column
_MOST_TICKS = 8
_MOST_CELLS = 18  # sizes of a heat map whose numbers can be read
Plotted = TypeVar("Plotted")
# Any: the arguments and settings of matplotlib have many types.
LineStyle: TypeAlias = dict[str, Any]
_STYLE: dict[Any, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "collbench",
    "text.parse_math": False,  # a dollar in a name is a dollar
}


class _Page:
    """A figure that is filled from the top, in inches."""

    def __init__(self, heading: str, height: float) -> None:
        self.height = height + _HEADING_HEIGHT
        self.figure = Figure(figsize=(_PAGE_W, self.height), facecolor="white")
        self.top = 0.0
        self.figure.text(_LEFT / _PAGE_W, 1 - 0.28 / self.height, heading, fontsize=11, va="center")
        self.skip(_HEADING_HEIGHT)

    def skip(self, inches: float) -> None:
        self.top += inches

    def axes(self, left: float, width: float, height: float, below: float = 0.0) -> Axes:
        return self.figure.add_axes(
            (
                left / _PAGE_W,
                1 - (self.top + below + height) / self.height,
                width / _PAGE_W,
                height / self.height,
            )
        )

    def title(self, text: str) -> None:
        self.figure.text(
            _LEFT / _PAGE_W,
            1 - (self.top + 0.2) / self.height,
            text,
            fontsize=10.5,
            fontweight="bold",
            va="center",
        )
        self.skip(_TITLE_H)

    def bytes_as(self, ending: str) -> bytes:
        out = io.BytesIO()
        with warnings.catch_warnings():
            # a name in letters that the font has not: boxes replace them
            warnings.filterwarnings("ignore", "Glyph")
            self.figure.savefig(
                out, format=ending, dpi=120, metadata={"Date": None} if ending == "svg" else None
            )
        return out.getvalue()


def draw(curves: Sequence[Curve], maps: Sequence[HeatMap], heading: str, ending: str) -> bytes:
    """The picture of one file, as png or svg. The same curves give the same bytes."""
    blocks = _grouped(curves, lambda curve: curve.group)
    maps_of = {group: [one for one in maps if one.group == group] for group in blocks}
    height = sum(_CURVES + _TICKS + _maps_height(maps_of[group]) for group in blocks)

    def fill(page: _Page, group: CurveGroup) -> None:
        _curves(page, blocks[group])
        _heat_maps(page, maps_of[group])

    return _filled(heading, list(blocks), height, fill, ending)


def draw_pairs(
    pairs: Sequence[CurvePair], names: tuple[str, str], heading: str, ending: str
) -> bytes:
    """The picture of two files, new and base: both curves, and the ratio of their times."""
    blocks = _grouped(pairs, lambda pair: pair.new.group)
    height = len(blocks) * (_CURVES + _TICKS + _RATIO + _TICKS)

    def fill(page: _Page, group: CurveGroup) -> None:
        _both(page, blocks[group], names)

    return _filled(heading, list(blocks), height, fill, ending)


def _filled(
    heading: str,
    groups: Sequence[CurveGroup],
    height: float,
    fill: Callable[[_Page, CurveGroup], None],
    ending: str,
) -> bytes:
    """The picture: a block a group, under its title. height: of all blocks without titles."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        page = _Page(heading, height + len(groups) * (_TITLE_H + _SPACE))
        for group in groups:
            page.title(group.title)
            fill(page, group)
            page.skip(_SPACE)
        return page.bytes_as(ending)


def _grouped(
    items: Sequence[Plotted], group_of: Callable[[Plotted], CurveGroup]
) -> dict[CurveGroup, list[Plotted]]:
    """The items of each group, of as many groups as a picture shows."""
    groups: dict[CurveGroup, list[Plotted]] = {}
    for item in items:
        groups.setdefault(group_of(item), []).append(item)
    return dict(list(groups.items())[:MOST_GROUPS])


def _pair_of_axes(page: _Page, sizes: Sequence[int], rate_title: str) -> tuple[Axes, Axes]:
    """Bandwidth on the left, time on the right."""
    rate = page.axes(_LEFT, _AXES, _CURVES)
    time = page.axes(_LEFT + _AXES + _AXES_GAP, _AXES, _CURVES)
    rate.set_ylabel(rate_title)
    time.set_ylabel("time, us")
    # before there are points: without any the limits of a linear axis would stay, below zero
    time.set_yscale("log")
    for axes in (rate, time):
        _size_axis(axes, sizes)
        axes.set_xlabel("size", labelpad=1)
    return rate, time


def _plain(value: float, _: object) -> str:
    return f"{value:,g}"


def _rates_from_zero(axes: Axes) -> None:
    """From zero on, and a little below it, so that marks on it are whole."""
    top = 1.04 * axes.get_ylim()[1]
    axes.set_ylim(-0.02 * top, top)


def _logarithmic(axes: Axes) -> None:
    """A logarithmic axis over a factor of ten at least, so that noise does not look large."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high / low < 10:
        low, high = math.sqrt(low * high / 10), math.sqrt(low * high * 10)
        axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 200 else (1.0,)))
    axes.yaxis.set_major_formatter(_plain)
    axes.yaxis.set_minor_formatter(NullFormatter())


def _size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """A logarithmic axis with binary sizes."""
    axes.set_xscale("log", base=2)
    known = sorted({size for size in sizes if size > 0}) or [1]
    low, high = math.log2(known[0]), math.log2(known[-1])
    step = max(1, math.ceil((high - low) / _MOST_TICKS))
    ticks = (
        [2**power for power in range(math.ceil(low), math.floor(high) + 1, step)]
        if high - low >= 1
        else known[:1]
    )
    axes.set_xticks(ticks, [format_size(size) for size in ticks])
    axes.set_xticks([], minor=True)
    margin = max(0.3, 0.03 * (high - low))
    axes.set_xlim(2 ** (low - margin), 2 ** (high + margin))
    axes.grid(visible=True, color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)


def _sizes(curves: Sequence[Curve]) -> list[int]:
    return [point.bytes for curve in curves for point in curve.points]


def _is_bus(curves: Sequence[Curve]) -> bool:
    """Whether bus bandwidths are known; algorithm bandwidths are always known."""
    return any(not math.isnan(point.busbw_gbs) for curve in curves for point in curve.points)


def _plot(
    rate: Axes, time: Axes, curve: Curve, *, is_bus: bool, has_band: bool, **style: Any
) -> None:
    """A curve into both axes, with the bounds of its times where they are known."""
    points = [point for point in curve.points if point.bytes > 0]
    sizes = [point.bytes for point in points]
    rates = [point.busbw_gbs if is_bus else point.algbw_gbs for point in points]
    times = [point.time_us for point in points]
    rate.plot(sizes, rates, **style)
    time.plot(sizes, times, **style)
    if not has_band:
        return
    low, high = [point.time_low_us for point in points], [point.time_high_us for point in points]
    slow, fast = (
        [value * at / bound for value, at, bound in zip(rates, times, bounds, strict=True)]
        for bounds in (high, low)
    )
    for axes, bottom, top in ((rate, slow, fast), (time, low, high)):
        if len(points) == 1:
            axes.vlines(sizes, bottom, top, color=str(style["color"]), alpha=0.4, linewidth=4)
        else:
            axes.fill_between(
                sizes, bottom, top, color=str(style["color"]), alpha=0.18, linewidth=0
            )


def _style(line: Line) -> LineStyle:
    if line.role == "other":
        return {"color": _GREY, "linewidth": 0.7, "linestyle": "--" if line.curve.is_peer else "-"}
    if line.role == "best":
        return {"color": "#F0E442", "linewidth": 6.0, "solid_capstyle": "round"}
    if line.role == "auto":
        return {
            "color": "black",
            "linestyle": "none",
            "marker": "o",
            "markersize": 7.5,
            "markerfacecolor": "none",
            "markeredgewidth": 0.7,
        }
    if line.role == "peer":
        return {
            "color": _PEER_HUES[line.color],
            "linestyle": "--",
            "linewidth": 1.4,
            "marker": "x",
            "markersize": 4.5,
        }
    return {
        "color": _HUES[line.color],
        "linewidth": 1.5,
        "marker": _MARKS[line.color],
        "markersize": 4,
    }


def _curves(page: _Page, here: Sequence[Curve]) -> None:
    """The curves of one group, and their legend."""
    is_bus = _is_bus(here)
    rate, time = _pair_of_axes(
        page, _sizes(here), f"{'bus' if is_bus else 'algorithm'} bandwidth, GB/s"
    )
    known, entries = lines(here), []
    for line in known:
        style = _style(line)
        _plot(rate, time, line.curve, is_bus=is_bus, has_band=line.role in ("one", "peer"), **style)
        if line.role != "other":
            entries.append(_entry(line.curve.name, style))
    others = [line for line in known if line.role == "other"]
    if others:
        entries.append(_entry(_count(others), _style(others[0])))
    limits = ceiling(here) if is_bus else []
    if limits:
        style = {
            "color": _DARK,
            "linestyle": ":",
            "linewidth": 1.6,
            **({"marker": "_", "markersize": 14} if len(limits) == 1 else {}),
        }
        rate.plot([size for size, _ in limits], [most for _, most in limits], **style)
        entries.append(_entry("ceiling: what the links allow", style))
    _rates_from_zero(rate)
    _logarithmic(time)
    _legend(time, entries)
    page.skip(_CURVES + _TICKS)


def _entry(name: str, style: LineStyle) -> Line2D:
    return Line2D([], [], label=textwrap.fill(name, _COLUMN), **style)


def _count(others: Sequence[object]) -> str:
    return f"{len(others)} other{'s' if len(others) > 1 else ''}"


def _legend(axes: Axes, entries: Sequence[Line2D]) -> None:
    axes.legend(
        handles=list(entries),
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        frameon=False,
        fontsize=7.5,
        borderaxespad=0.0,
        labelspacing=0.6,
    )


def _maps_height(maps: Sequence[HeatMap]) -> float:
    return sum(_row_height(maps[place : place + 2]) for place in range(0, len(maps), 2))


def _row_height(row: Sequence[HeatMap]) -> float:
    return _CAPTION + _FOOT + _ROW * max(len(one.values) for one in row)


def _heat_maps(page: _Page, maps: Sequence[HeatMap]) -> None:
    """Heat maps, two in a row; with a scale where the cells have no room for numbers."""
    for place in range(0, len(maps), 2):
        row = maps[place : place + 2]
        for column, one in enumerate(row):
            _heat_map(page, one, _LEFT + column * (_AXES + _AXES_GAP))
        if any(len(one.sizes) > _MOST_CELLS for one in row):
            _scale(page)
        page.skip(_row_height(row))


def _heat_map(page: _Page, one: HeatMap, left: float) -> None:
    axes = page.axes(left, _AXES, _ROW * len(one.values), below=_CAPTION)
    axes.set_title(f"{one.knob}: percent of the fastest", loc="left", fontsize=8.5)
    percent = [[100 * share for share in shares] for shares in one.share]
    _image(axes, percent)
    step = max(1, math.ceil(len(one.sizes) / (2 * _MOST_TICKS)))
    axes.set_xticks(
        range(0, len(one.sizes), step),
        [format_size(size) for size in one.sizes[::step]],
        fontsize=6.5,
    )
    axes.set_yticks(range(len(one.values)), one.values, fontsize=7.5)
    for y, shares in enumerate(percent):
        for x, share in enumerate(shares):
            if len(one.sizes) <= _MOST_CELLS and not math.isnan(share):
                axes.text(
                    x,
                    y,
                    f"{share:.0f}",
                    ha="center",
                    va="center",
                    fontsize=6.5,
                    color="black" if share > 50 else "white",
                )


def _image(axes: Axes, percent: Sequence[Sequence[float]]) -> None:
    axes.imshow(percent, cmap="cividis", vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _scale(page: _Page) -> None:
    axes = page.axes(
        _LEFT + 2 * (_AXES + _AXES_GAP) - _AXES_GAP + 0.2, _LEGEND - 0.6, 0.14, below=_CAPTION
    )
    _image(axes, [list(range(101))])
    axes.set_xticks([0, 50, 100], ["0", "50", "100 %"], fontsize=6.5)
    axes.set_yticks([])


def _ratio_axis(axes: Axes) -> None:
    """Around 1, over 10 % at least; logarithmic where ratios are large."""
    low, high = axes.get_ylim()
    if low <= 0 or high > 2 or low < 0.5:
        _logarithmic(axes)
    else:
        axes.set_ylim(min(low, 0.95), max(high, 1.05))


def _base(hue: str) -> LineStyle:
    """How a base is drawn: dashes, and marks that stay visible around those of the new file."""
    return {
        "color": hue,
        "linestyle": "--",
        "linewidth": 1.2,
        "markersize": 7,
        "markerfacecolor": "none",
        "markeredgewidth": 0.8,
    }


def _both(page: _Page, here: Sequence[CurvePair], names: tuple[str, str]) -> None:
    """Two files' curves of one group: the new one's solid, the base's dashed; the ratios of all
    pairs beneath, the shown ones in colour.
    """
    picked = shown(here)
    curves = [curve for pair in picked for curve in (pair.new, pair.base)]
    is_bus = _is_bus(curves)
    rate, time = _pair_of_axes(
        page, _sizes(curves), f"{'bus' if is_bus else 'algorithm'} bandwidth, GB/s"
    )
    entries = [
        _entry(f"new: {names[0]}", {"color": _DARK, "marker": "o", "markersize": 4}),
        _entry(f"base: {names[1]}", {**_base(_DARK), "marker": "o"}),
    ]
    below = page.axes(_LEFT, 2 * _AXES + _AXES_GAP, _RATIO, below=_CURVES + _TICKS)
    _size_axis(below, _sizes(curves))
    below.axhline(1, color="black", linewidth=0.8)
    others = [pair for pair in here[1:] if pair not in picked]  # the first is that of the envelopes
    for pair in others:
        sizes, values, _, _ = zip(*ratios(pair), strict=True)
        below.plot(sizes, values, color=_GREY, linewidth=0.6)
    for place, pair in enumerate(picked):
        hue, mark = _HUES[place % len(_HUES)], _MARKS[place % len(_MARKS)]
        _plot(rate, time, pair.base, is_bus=is_bus, has_band=False, **_base(hue), marker=mark)
        style: LineStyle = {"color": hue, "linewidth": 1.5, "marker": mark, "markersize": 4}
        _plot(rate, time, pair.new, is_bus=is_bus, has_band=True, **style)
        sizes, values, low, high = zip(*ratios(pair), strict=True)
        below.plot(sizes, values, **style)
        below.vlines(sizes, low, high, color=hue, alpha=0.45, linewidth=2.5)
        name = " | ".join(dict.fromkeys((pair.new.name, pair.base.name)))
        entries.append(_entry(name, {"color": hue, "marker": mark}))
    if others:
        entries.append(_entry(_count(others), {"color": _GREY, "linewidth": 0.7}))
    _ratio_axis(below)
    below.set_ylabel("time, new / base\nabove 1: slower")
    _rates_from_zero(rate)
    _logarithmic(time)
    _legend(time, entries)
    page.skip(_CURVES + _TICKS + _RATIO + _TICKS)
