"""A trace as a page of HTML: the timeline of the typical launch with its longest chain, its time by
cause, and the chain as text. It has no script and requests nothing.
"""

import math
from collections.abc import Mapping, Sequence

from collbench.bench.trace.chain_model import ChainCosts
from collbench.bench.trace.critical_path import Segment
from collbench.bench.trace.summary import TraceSummary
from collbench.bench.trace.table import (
    cause_heads,
    cause_rows,
    model_hint,
    us_text,
    verdict,
    waterfall,
)
from collbench.core.trace import Trace, TracedLaunch, TraceSpan, spans
from collbench.core.units import format_time_us, to_us
from collbench.core.web.html import element, section, table
from collbench.core.web.parts import document, part, style
from collbench.core.web.svg import clean

_LANE, _AXIS = 22, 24  # pixels of a track's lane, and of the numbers above
_BAR = 14
_MOST_TICKS = 8
_LEAST_SHARE = 1 / 40_000  # of the launch: shorter spans have no width at any zoom
_ZOOMS = (("1", "whole launch"), ("4", "4 times"), ("16", "16 times"))
_KINDS = {
    "launch": "launch",
    "wait": "wait",
    "move": "move bytes",
    "reduce": "reduce",
    "post": "set flags, hand over",
    "late": "not there yet",
    "chain": "longest chain",
}
_AWAITED = {"data": "data", "slot": "a slot", "begun": "the launch"}
Lane = tuple[int, int, str]  # rank, channel, track
_LAUNCH = (-1, "")  # channel and track of a launch, which is drawn in the first lane of its rank


def trace_page(trace: Trace, found: TraceSummary, costs: ChainCosts, origin: str) -> str:
    """The page. origin: on what and when it was measured."""
    look = style() + part("trace.css")
    total = us_text(found.launch.total_s)
    lead = (
        f"Launch {found.number + 1} of {len(trace.launches)}: {total} us from the first arrival to"
        f" the end. {verdict(trace, found)}"
    )
    return document(
        "trace.html",
        trace.title,
        look,
        lead=element("p", lead, class_="lead") + element("p", origin, class_="hint"),
        timeline=_timeline(found.launch, found.path),
        causes=_causes(found, costs, len(trace.launches)),
        chain=_chain(found),
        footer="Times are of one clock; between hosts, and between GPUs, they are known to "
        f"{format_time_us(to_us(trace.clock_error_s))} us."
        if trace.clock_error_s
        else "Times are of one clock.",
    )


def _timeline(launch: TracedLaunch, path: Sequence[Segment]) -> str:
    drawn = [
        span for span in spans(launch) if span.end_s - span.start_s > _LEAST_SHARE * launch.total_s
    ]
    lanes = sorted({(one.rank, one.channel, one.track) for one in launch.actions})
    places = {lane: number for number, lane in enumerate(lanes)}
    places |= {(lane[0], *_LAUNCH): places[lane] for lane in reversed(lanes)}
    height = _AXIS + _LANE * len(lanes)
    parts = [*_axis(launch, height)]
    for rank, arrived_s in enumerate(launch.arrived_s):
        lane = places[rank, *_LAUNCH]
        parts.append(_rect("late", launch, lane, launch.first_s, arrived_s, "late"))
    parts += [_span(span, launch, places) for span in drawn]
    parts += _chain_lines(launch, path, places)
    labels = "".join(
        element("li", f"rank {rank}, ch {channel} {track}") for rank, channel, track in lanes
    )
    zooms = "".join(
        f'<label><input type="radio" name="zoom" id="zoom{name}"'
        f"{' checked' if name == '1' else ''}> {text}</label>"
        for name, text in _ZOOMS
    )
    keys = "".join(
        f'<li><svg aria-hidden="true"><rect class="{kind}" width="14" height="12"/></svg>'
        f"{text}</li>"
        for kind, text in _KINDS.items()
    )
    hint = "Each lane is a track of a channel of a rank. Point at a part to see what it is."
    return section(
        "timeline",
        "Timeline",
        element("p", hint, class_="hint"),
        f'<ul class="keys">{keys}</ul>',
        f'<div class="zoom" role="radiogroup" aria-label="Zoom">{zooms}</div>',
        f'<div class="lanes"><ol>{labels}</ol><div class="scroll" tabindex="0" role="region"'
        f' aria-label="Timeline"><svg height="{height}">{"".join(parts)}</svg></div></div>',
    )


def _axis(launch: TracedLaunch, height: int) -> list[str]:
    parts = []
    step_us = _tick_step(to_us(launch.total_s))
    for tick in range(math.ceil(to_us(launch.total_s) / step_us)):
        at = f"{tick * step_us / to_us(launch.total_s):.4%}"
        text = f"{tick * step_us:g}{' us' if not tick else ''}"
        parts.append(f'<line class="tick" x1="{at}" x2="{at}" y1="0" y2="{height}"/>')
        parts.append(f'<text x="{at}" y="12" dx="3">{clean(text)}</text>')
    return parts


def _tick_step(total_us: float) -> float:
    """The distance of numbers on the axis of a launch: 1, 2 or 5 times a power of ten.

    >>> _tick_step(105.0), _tick_step(3.1)
    (20.0, 0.5)
    """
    least = total_us / _MOST_TICKS
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least)


def _span(span: TraceSpan, launch: TracedLaunch, places: Mapping[Lane, int]) -> str:
    lane = places[span.rank, span.channel, span.track]
    if span.action < 0:
        return _rect("launch", launch, lane, span.start_s, span.end_s, f"launch of {span.rank}")
    one = launch.actions[span.action]
    at = "end of the launch" if one.round < 0 else f"round {one.round}, slice {one.slice}"
    text = f"{span.what}, {one.size_bytes} bytes, {at}"
    if span.what == "wait":
        text = f"other tracks of the rank run, {at}"
        if one.wait is not None:
            what = _AWAITED[one.wait.what]
            text = f"waits for {what} of rank {one.wait.peer}, {at}"
    return _rect(span.what.split()[0], launch, lane, span.start_s, span.end_s, text)


def _rect(
    kind: str, launch: TracedLaunch, lane: int, start_s: float, end_s: float, text: str
) -> str:
    x, end = _percent(launch, start_s), _percent(launch, end_s)
    title = f"{us_text(end_s - start_s)} us from {us_text(start_s - launch.first_s)}: {text}"
    y = _AXIS + lane * _LANE + (_LANE - _BAR) / 2
    return (
        f'<rect class="{kind}" x="{x:.4f}%" y="{y:g}" width="{max(0.0, end - x):.4f}%"'
        f' height="{_BAR}"><title>{clean(title)}</title></rect>'
    )


def _chain_lines(
    launch: TracedLaunch, path: Sequence[Segment], places: Mapping[Lane, int]
) -> list[str]:
    """The longest chain: below what works, and from rank to rank where data are on their way."""
    lines = []
    lane_before: int | None = None
    for segment in path:
        if segment.action < 0:
            lane = places[segment.rank, *_LAUNCH]
        else:
            one = launch.actions[segment.action]
            lane = places[one.rank, one.channel, one.track]
        start = lane if lane_before is None else lane_before
        lane_before = lane
        x1, x2 = (_percent(launch, at_s) for at_s in (segment.start_s, segment.end_s))
        y1, y2 = (_AXIS + (place + 1) * _LANE - 2 for place in (start, lane))
        lines.append(f'<line class="chain" x1="{x1:.4f}%" y1="{y1}" x2="{x2:.4f}%" y2="{y2}"/>')
    return lines


def _percent(launch: TracedLaunch, at_s: float) -> float:
    return 100 * (at_s - launch.first_s) / launch.total_s


def _causes(found: TraceSummary, costs: ChainCosts, launches: int) -> str:
    heads, title = cause_heads(launches), "Where the time goes"
    grid = table(heads, cause_rows(found), kinds=("", "num"), label=title)
    return section("causes", title, grid, element("p", model_hint(costs), class_="hint"))


def _chain(found: TraceSummary) -> str:
    rows = [
        (us_text(row.start_s), us_text(row.seconds), row.text)
        for row in waterfall(found.launch, found.path, is_wide=True)
    ]
    grid = table(("at us", "us", "what"), rows, kinds=("num", "num", ""), label="The longest chain")
    return section("chain", "The longest chain", grid)
