"""What the times of single launches say, as plain text: the jitter in words, what too few launches
leave unknown, the percentiles of the rows of one file, and how those of two files differ.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from collbench.compare.best import Summary
from collbench.core.distribution import PERCENTILES, least_launches
from collbench.core.record import Record
from collbench.core.rows import Workload, label
from collbench.core.text import paragraphs, table
from collbench.core.units import format_size, format_time_us

if TYPE_CHECKING:
    import pandas as pd

# As columns of tables show them.
LAUNCH_TIME_NAMES = {"p50_us": "p50", "p99_us": "p99", "p999_us": "p99.9", "max_us": "max"}
_RARE = tuple(name for name in reversed(PERCENTILES) if name != "p50_us")  # the rarest first


class Percentiles(NamedTuple):
    """The percentiles alone, in microseconds."""

    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float


LaunchTimes = Record | Percentiles  # a percentile that is not known is None or NaN


def launch_times(row: LaunchTimes) -> dict[str, float]:
    """The percentiles that are known, by their columns."""
    values = {name: getattr(row, name) for name in LAUNCH_TIME_NAMES}
    return {name: value for name, value in values.items() if value is not None and value == value}


def launch_time_text(time_us: float | None) -> str:
    """A percentile as a table shows it.

    >>> launch_time_text(12.34), launch_time_text(None)
    ('12.3', '-')
    """
    return "-" if time_us is None or time_us != time_us else format_time_us(time_us)


def jitter_text(rows: Sequence[LaunchTimes]) -> str:
    """By how much the rarest launches that the rows show are longer than the median one: of several
    rows the one in the middle, and the least and the most. An empty text where no row shows that.

    >>> jitter_text([Percentiles(p50_us=10.0, p99_us=12.0, p999_us=50.0, max_us=90.0)])
    '1 launch in 1,000 takes 40.0 us more than the median launch'
    """
    for name in _RARE:
        known = [times for times in map(launch_times, rows) if name in times]
        more = sorted(times[name] - times["p50_us"] for times in known)
        if more:
            one_in = least_launches(PERCENTILES[name])
            ends = [format_time_us(one) for one in (more[0], more[-1])]
            span = f" (the middle of {len(more)} rows, {ends[0]} to {ends[1]})"
            return (
                f"1 launch in {one_in:,} takes {format_time_us(median(more))} us more than the"
                f" median launch{span if len(more) > 1 else ''}"
            )
    return ""


def unknown_text(rows: Sequence[LaunchTimes]) -> str:
    """What the rows do not show because they have too few launches; an empty text if nothing."""
    known = [times for times in map(launch_times, rows) if times]
    for name in _RARE:
        lacking = sum(name not in times for times in known)
        if lacking:
            least = least_launches(PERCENTILES[name])
            rows_text = f"{lacking} of {len(known)} rows" if len(known) > 1 else "the row"
            return (
                f"{LAUNCH_TIME_NAMES[name]} is not known of {rows_text}: it"
                f" needs {least:,} launches of a row (--distribution {least})"
            )
    return ""


def rows_with_launch_times(summary: Summary, workload: Workload) -> list[Record]:
    """The best row of each size and the libraries' own choices beside it, of those whose launches
    were timed one by one; where none of these was, all that were.
    """
    if not summary.has_launches:
        return []
    sizes = summary.best[workload]
    shown = [row for best in sizes.values() for row in (best.row, *best.rivals.values())]
    known = [row for row in shown if row.max_us is not None]
    every = (row for rows in summary.workloads[workload].values() for row in rows)
    return known or [row for row in every if row.max_us is not None]


def launch_time_table(
    rows: Sequence[Record], knobs: Mapping[str, Sequence[str]], columns: int
) -> list[str]:
    """The percentiles of rows; nothing where there are no rows."""
    cells = [
        (
            format_size(row.size_bytes),
            label(row, knobs, has_backend=True),
            *[launch_time_text(getattr(row, name)) for name in LAUNCH_TIME_NAMES],
        )
        for row in rows
    ]
    heads = ("  size", "launches one by one", *[f"{n:>6}" for n in LAUNCH_TIME_NAMES.values()])
    return ["", *table(heads, cells, (0, 2, 3, 4, 5), columns)] if rows else []


def changed_launch_times(rows: "pd.DataFrame", columns: int) -> list[str]:
    """How the percentiles of rows of two files differ, columns of the base with _base; nothing
    where no row of both has any. They are not judged: one run shows no interval of them.
    """
    both = rows[rows["max_us"].notna() & rows["max_us_base"].notna()]
    if not len(both):
        return []
    ratios = {
        shown: (both[name] / both[f"{name}_base"]).dropna()
        for name, shown in LAUNCH_TIME_NAMES.items()
    }
    parts = [f"{name} x {of.median():.2f}" for name, of in ratios.items() if len(of)]
    texts = [
        f"launches one by one, not judged: {', '.join(parts)} (medians of {len(both)} rows that"
        " have them in both files)"
    ]
    for title, ending in (("new", ""), ("base", "_base")):
        side = both[[f"{name}{ending}" for name in LAUNCH_TIME_NAMES]]
        if jitter := jitter_text([Percentiles(*times) for times in side.to_numpy().tolist()]):
            texts.append(f"jitter, {title}: {jitter}")
    return paragraphs(texts, columns)
