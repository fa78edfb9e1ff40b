"""The section of the page about single launches: a histogram for each best row and for the
libraries beside it, drawn as SVG without any style or script.
"""

import math
from collections.abc import Iterator, Sequence

from collbench.compare.best import Summary
from collbench.compare.tables.distribution import (
    LAUNCH_TIME_NAMES,
    jitter_text,
    launch_time_text,
    launch_times,
    rows_with_launch_times,
)
from collbench.core.distribution import (
    BINS_A_DOUBLING,
    PERCENTILES,
    Histogram,
    edge_us,
    launches_of,
)
from collbench.core.record import Record
from collbench.core.rows import label, titles
from collbench.core.units import format_size, format_time_us
from collbench.core.web.html import attributes, element, section
from collbench.core.web.svg import clean, number

ROWS_SHOWN = 60  # a page is to be read
WIDTH, HEIGHT, AXIS = 330.0, 110.0, 18.0  # pixels of a drawing, and of the numbers below it
_MARGIN = 22.0  # beside the bars, for the numbers at their ends
_LEAST_SPAN = 2 * BINS_A_DOUBLING  # bins of an axis: equal times are no single broad bar


def single_launches(summary: Summary) -> str:
    """The histograms of every workload; nothing where no launches were timed one by one."""
    named = titles(summary.best)
    rows = {one: rows_with_launch_times(summary, one) for one in summary.best}
    figures = [
        _figure(row, f"{named[workload]}, {_name(row, summary)}", axis)
        for workload, here in rows.items()
        for row, axis in _with_axes(here)
    ]
    if not figures:
        return ""
    hint = (
        "Bars count launches, each timed alone behind a barrier; the time is the slowest rank's."
        " Both axes are logarithmic, so that a single late launch is seen, and histograms of one"
        " size have the same axis. Dashed lines are p50, p99 and p99.9."
    )
    if len(figures) > ROWS_SHOWN:
        hint += f" The first {ROWS_SHOWN} of {len(figures)} are shown."
    jitter = jitter_text([row for here in rows.values() for row in here])
    return section(
        "launches",
        "Launches one by one",
        element("p", f"{jitter}.") if jitter else "",
        element("p", hint, class_="hint"),
        f'<div class="maps">{"".join(figures[:ROWS_SHOWN])}</div>',
    )


def _name(row: Record, summary: Summary) -> str:
    return f"{format_size(row.size_bytes)}: {label(row, summary.knobs, has_backend=True)}"


def _with_axes(rows: Sequence[Record]) -> Iterator[tuple[Record, tuple[int, int]]]:
    """Rows with a histogram, and the axis of all of their size."""
    for row in rows:
        alike = [one.histogram for one in rows if one.size_bytes == row.size_bytes]
        if row.histogram:
            yield row, axis_of(alike)


def axis_of(histograms: Sequence[Histogram]) -> tuple[int, int]:
    """The first bin of an axis that holds all of them, and the one behind its last.

    >>> axis_of([((3, 1), (20, 4)), ((2, 1),)]), axis_of([((3, 1),)])
    ((2, 21), (-5, 11))
    """
    numbers = [bin_number for bins in histograms for bin_number, _ in bins]
    first, end = min(numbers), max(numbers) + 1
    missing = max(0, _LEAST_SPAN - (end - first))
    return first - missing // 2 - missing % 2, end + missing // 2


def _figure(row: Record, title: str, axis: tuple[int, int]) -> str:
    """The drawing of a row under its name, with its numbers."""
    times = launch_times(row)
    texts = [
        f"{shown} {launch_time_text(times.get(name))}" for name, shown in LAUNCH_TIME_NAMES.items()
    ]
    text = f"{', '.join(texts)} us; {launches_of(row.histogram)} launches"
    marks = [(LAUNCH_TIME_NAMES[name], times[name]) for name in PERCENTILES if name in times]
    parts = (
        element("figcaption", title),
        drawing(row.histogram, axis, marks, f"{title}: {text}"),
        element("p", text, class_="hint"),
    )
    return f"<figure{attributes(data_op=row.op)}>{''.join(parts)}</figure>"


def drawing(
    bins: Histogram, axis: tuple[int, int], marks: Sequence[tuple[str, float]], title: str
) -> str:
    """A histogram as SVG, in the colour of the text around it. axis: its first bin, and the one
    behind its last. marks: names and times in microseconds of lines.
    """
    first, end = axis
    room, floor = WIDTH - 2 * _MARGIN, HEIGHT - AXIS
    most = math.log1p(max(count for _, count in bins))

    def place(at: float) -> float:
        return _MARGIN + room * (at - first) / (end - first)

    def place_of(time_us: float) -> float:
        return place(min(end, max(first, BINS_A_DOUBLING * math.log2(time_us))))

    parts = [f"<title>{clean(title)}</title>"]
    for bin_number, count in bins:
        left, height = place(bin_number), (floor - 4) * math.log1p(count) / most
        ends = [format_time_us(edge_us(at)) for at in (bin_number, bin_number + 1)]
        text = f"{ends[0]} to {ends[1]} us: {count} launch{'es' * (count > 1)}"
        parts.append(
            f'<rect x="{number(left)}" y="{number(floor - height)}"'
            f' width="{number(max(1.0, place(bin_number + 1) - left - 0.6))}"'
            f' height="{number(height)}" fill-opacity="0.55"><title>{text}</title></rect>'
        )
    for name, time_us in marks:
        at = number(place_of(time_us))
        parts.append(
            f'<line x1="{at}" x2="{at}" y1="0" y2="{number(floor)}" stroke="currentColor"'
            f' stroke-dasharray="3 2"><title>{name}: {format_time_us(time_us)} us</title></line>'
        )
    parts.append(
        f'<line x1="{number(_MARGIN)}" x2="{number(WIDTH - _MARGIN)}" y1="{number(floor)}"'
        f' y2="{number(floor)}" stroke="currentColor"/>'
    )
    anchors = ((first, "start"), (end, "end"))
    parts += [
        f'<text x="{number(place(at))}" y="{number(HEIGHT - 4)}" font-size="11"'
        f' text-anchor="{anchor}">{format_time_us(edge_us(at))} us</text>'
        for at, anchor in anchors
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{number(WIDTH)}"'
        f' height="{number(HEIGHT)}" viewBox="0 0 {number(WIDTH)} {number(HEIGHT)}"'
        f' fill="currentColor">{"".join(parts)}</svg>'
    )
