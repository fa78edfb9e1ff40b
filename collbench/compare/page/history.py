"""The section of the page about the saved runs of the machine: where points changed for good, and
those that did, run by run. Drawn here, so that it needs no script.
"""

import math
from collections.abc import Sequence

from collbench.compare.history import History, Series
from collbench.compare.tables.changes import NAME_COLUMNS, percent
from collbench.core.units import format_size, format_time_us
from collbench.core.web.html import Cell, HtmlCell, element, section, table

SHOWN = 12  # points that are drawn
_WIDTH, _HEIGHT, _MARGIN = 300, 84, 10  # of a drawing, in pixels
_LEAST_RANGE = math.log(1.1)  # of an axis, so that noise does not look large


def over_runs(known: History | None) -> str:
    """The section; nothing without a history."""
    if known is None:
        return ""
    first, last = known.names[0], known.names[-1]
    span = f"{len(known.names)} saved runs, {first} ({known.started[0][:10]}) to {last}"
    span += f" ({known.started[-1][:10]}): {len(known.series)} points of this file in"
    changed = len(known.changed)
    lead = element("p", f"{span} at least four of them; {changed} changed for good.")
    hint = element(
        "p",
        "A dot is the median time of a run, oldest left, on a logarithmic axis; a line is a level."
        " A change for good is one that several runs share: one or two slow runs are none.",
        class_="hint",
    )
    shown = known.series[:SHOWN] if not changed else known.changed[:SHOWN]
    figures = "".join(_figure(one, known) for one in shown)
    more = changed - len(shown)
    left = element("p", f"{more} more points changed.", class_="hint") if more > 0 else ""
    return section(
        "history",
        "History of this machine",
        lead,
        _events(known) if changed else "",
        hint,
        f'<div class="maps">{figures}</div>',
        left,
    )


def _events(known: History) -> str:
    rows: list[list[Cell]] = [
        [
            known.names[event.run],
            known.started[event.run][:16].replace("T", " "),
            *[
                HtmlCell(f"{count}", count, kind if count else "same")
                for count, kind in ((event.slower, "worse"), (event.faster, "better"))
            ],
            HtmlCell(percent(event.ratio), event.ratio),
        ]
        for event in known.events
    ]
    return table(
        ("from run on", "of", "slower", "faster", "middle change"),
        rows,
        kinds=("tight", "tight", "num"),
        label="Runs at which points changed",
    )


def _figure(one: Series, known: History) -> str:
    """A point over the runs."""
    times = [math.log(time) for time in one.times_us if not math.isnan(time)]
    low, high = min(times), max(times)
    spare = max(0.0, _LEAST_RANGE - (high - low)) / 2
    low, high = low - spare, high + spare
    step = (_WIDTH - 2 * _MARGIN) / max(1, len(known.names) - 1)

    def x(run: float) -> str:
        return f"{_MARGIN + step * run:.1f}"

    def y(log_us: float) -> str:
        share = (log_us - low) / (high - low)
        return f"{_HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN):.1f}"

    places = [run for run, time in enumerate(one.times_us) if not math.isnan(time)]
    starts = [places[0], *one.changes]
    ends = [*[_before(places, start) for start in one.changes], places[-1]]
    levels = []
    for place, (start, end, level) in enumerate(zip(starts, ends, one.levels_us, strict=True)):
        kind = "level"
        if place:
            kind += " worse" if level > one.levels_us[place - 1] else " better"
        height = y(math.log(level))
        levels.append(
            f'<line class="{kind}" x1="{x(start - 0.3)}" x2="{x(end + 0.3)}" y1="{height}"'
            f' y2="{height}"/>'
        )
    dots = "".join(
        f'<circle r="2.5" cx="{x(run)}" cy="{y(math.log(one.times_us[run]))}"/>' for run in places
    )
    size = format_size(int(one.point["size_bytes"]))
    name = " ".join([one.point["op"], size, *(one.point[of] for of in NAME_COLUMNS[1:])]).rstrip()
    change = (
        f": {percent(one.ratio)}, {format_time_us(one.levels_us[0])} to"
        f" {format_time_us(one.levels_us[-1])} us"
        if one.changes
        else f": {format_time_us(one.levels_us[0])} us"
    )
    return (
        f"<figure>{element('figcaption', name + change)}"
        f'<svg class="runs" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
        f' role="img" aria-label="Time over the runs">{"".join(levels)}{dots}</svg></figure>'
    )


def _before(places: Sequence[int], start: int) -> int:
    """The last run with a time before another."""
    return max(place for place in places if place < start)
