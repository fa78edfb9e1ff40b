"""The answers of one file as plain text: what is best, where that changes, what a knob is worth,
what looks wrong; the tables after.

One row a problem and size, at 80 columns; wider terminals get intervals. Times and ratios of the
tables are of repeats that did not choose.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from collbench.analysis.best import (
    BANDS,
    WORTH,
    Answers,
    Winner,
    Worth,
    answers,
    bands,
    span_text,
    spans,
    worth,
)
from collbench.analysis.outliers import Suspect, suspects
from collbench.analysis.rows import (
    KNOB_NAMES,
    LEAST_GAIN,
    SIZES,
    Problem,
    Row,
    collector_at_rest,
    label,
    middle,
    rows_of,
    titles,
)
from collbench.report.plots.sparkline import sparkline
from collbench.report.tables.text import named_lines, wrapped
from collbench.results.statistics import Interval
from collbench.util.errors import UsageError
from collbench.util.units import format_rate, format_size, format_time_us

if TYPE_CHECKING:
    import pandas as pd

WIDE_COLUMNS = 100
_MOST_BARS = 50  # sizes that are drawn in a line of 80 columns
_FEW = 5  # rows that look wrong, and refused sizes, before "and more"
_UNTOLD = "~"  # beside a number that the repeats do not tell from 1


@collector_at_rest()
def answer_lines(frame: "pd.DataFrame", columns: int, show_all: bool, bars: str = "") -> list[str]:
    """Everything that one file says, answers first; show_all: what each knob is worth at each size,
    every row, and all that looks wrong.

    bars: characters of growing height, to draw the best bandwidth over the sizes with; none: it is
    not drawn.
    """
    found = answers(frame)
    lines = [counts(found.rows)]
    if not found.winners:
        return [*lines, "No row has a time: there is nothing to compare."]
    strange = suspects(found)
    named = titles(found.winners)
    for problem, sizes in found.winners.items():
        lines += ["", *_verdict(found, problem, named[problem], sizes, bars)]
    lines += _suspicious(found, strange, columns, show_all=show_all)
    lines += ["", *legend(found)]
    for problem, sizes in found.winners.items():
        lines += ["", named[problem], *_table(found, sizes, columns)]
        if show_all:
            lines += _worth_table(found, problem, sizes)
            lines += _every_row(found, problem)
    return lines


def counts(rows: Sequence[Row]) -> str:
    """How many rows there are, by status, and of what machine."""
    count = Counter(row.status for row in rows)
    known = [
        f"{count[status]} {status}"
        for status in ("ok", "wrong", "waived", "error")
        if count[status]
    ]
    devices = sorted({row.device for row in rows if row.device})
    return f"{len(rows)} rows: {', '.join(known) or 'none'}" + (
        f"; {', '.join(devices)}" if devices else ""
    )


def _verdict(
    found: Answers, problem: Problem, name: str, sizes: Mapping[int, Winner], bars: str
) -> list[str]:
    """The answers for one problem, under its name."""
    return [
        name,
        *[
            line
            for title, words in facts(found, problem, sizes, bars).items()
            for line in _spread_over(f"  {title:<9}  ", words)
        ],
    ]


def facts(
    found: Answers, problem: Problem, sizes: Mapping[int, Winner], bars: str = ""
) -> dict[str, Sequence[str]]:
    """The answers for one problem, in words that stay together: the highest bandwidth, peers,
    crossovers, knobs; what is not known is left out.
    """
    top = max(sizes.values(), key=lambda one: one.busbw_gbs or 0.0)
    least = min(sizes.values(), key=lambda one: one.time_us)
    percent = f", {top.percent:.0f}% of the ceiling" if top.percent is not None else ""
    highest = (
        ""
        if top.busbw_gbs is None
        else f"{format_rate(top.busbw_gbs)} GB/s busbw at {format_size(top.row.size_bytes)}"
    )
    lowest = f"{format_time_us(least.time_us)} us at {format_size(least.row.size_bytes)}"
    said: dict[str, Sequence[str]] = (
        {"at most": f"{highest} by {label(top.row, found.asked)}{percent}".split(" ")}
        if highest
        else {}
    )
    said["at least"] = f"{lowest} by {label(least.row, found.asked)}".split(" ")
    if bars and highest and 2 < len(sizes) <= _MOST_BARS:
        drawn = sparkline(
            [math.nan if one.busbw_gbs is None else one.busbw_gbs for one in sizes.values()], bars
        )
        said["busbw"] = [f"{drawn}  {format_size(min(sizes))} to {format_size(max(sizes))}"]
    for peer in found.peers:
        if any(peer in one.peers for one in sizes.values()):
            said[f"x {peer}"] = _against(peer, sizes)
    here = found.problems[problem]
    for knob in ("proto", "algo"):
        where = spans(here, knob)
        if where:
            said[KNOB_NAMES[knob]] = span_text(where).split(" ")
    told = [
        (knob, best) for knob in WORTH if (best := _largest(found, here, sizes, knob)) is not None
    ]
    parts = [
        f"{KNOB_NAMES.get(knob, knob)} up to {one.factor:.2f}x at {format_size(size)}"
        for knob, (size, one) in told
    ]
    return said | ({"worth": [part + "," for part in parts[:-1]] + parts[-1:]} if parts else {})


def _spread_over(title: str, words: Sequence[str], columns: int = 80) -> list[str]:
    """A title and words after it, over as many lines as they need."""
    lines = [title]
    for word in words:
        if len(lines[-1]) > len(title) and len(lines[-1]) + 1 + len(word) > columns:
            lines.append(" " * len(title))
        lines[-1] += (" " if len(lines[-1]) > len(title) else "") + word
    return lines


def _against(peer: str, sizes: Mapping[int, Winner]) -> list[str]:
    """How a library does over all sizes: its own choice's time over our best."""
    told = {size: one.peers[peer] for size, one in sizes.items() if peer in one.peers}
    low, high = (
        min(told, key=lambda size: told[size].median),
        max(told, key=lambda size: told[size].median),
    )
    ahead = sum(one.median < 1 / LEAST_GAIN for one in told.values())
    level = sum(1 / LEAST_GAIN <= one.median <= LEAST_GAIN for one in told.values())
    text = (
        f"{told[low].median:.2f} ({format_size(low)})"
        + (f" to {told[high].median:.2f} ({format_size(high)})" if low != high else "")
        + " times as long:"
    )
    parts = [
        f"slower at {len(told) - ahead - level}",
        *([f"level at {level}"] if level else []),
        *([f"faster at {ahead}"] if ahead else []),
    ]
    return [text, f"{', '.join(parts)} of {len(told)} sizes"]


def _largest(
    found: Answers, here: Mapping[int, Sequence[Row]], sizes: Mapping[int, Winner], knob: str
) -> tuple[int, Worth] | None:
    """The size at which a knob is worth most, where the repeats tell that it is worth anything."""
    known = [
        (size, one)
        for size in sizes
        if (one := worth(here[size], sizes[size].row, found.asked, knob)) is not None
        and one.is_clear
    ]
    return max(known, key=lambda pair: pair[1].factor) if known else None


def _suspicious(
    found: Answers, strange: Sequence[Suspect], columns: int, *, show_all: bool
) -> list[str]:
    """Rows that look wrong."""
    if not strange:
        agree = (
            ", repeats agree"
            if any(len(row.times_us) > 1 for row in found.rows)
            else "; no repeats to compare"
        )
        return ["", f"No row looks wrong: data right, times on smooth curves{agree}."]
    count = Counter(one.kind for one in strange)
    names = {
        "wrong": "wrong or failed",
        "curve": "far from a smooth curve",
        "ceiling": "above the ceiling",
        "spread": "spread too wide to tell",
    }
    lines = [
        "",
        "Look wrong: "
        + ", ".join(f"{count[kind]} {text}" for kind, text in names.items() if count[kind]),
    ]
    shown = strange if show_all else strange[:_FEW]
    for one in shown:
        line = (
            f"  {one.row.op} {format_size(one.row.size_bytes)}"
            f" {label(one.row, found.asked, has_backend=True)}: {one.why}"
        )
        lines += [line] if show_all else wrapped(line, columns, "    ")
    return lines + (
        [f"  and {len(strange) - _FEW} more: --all shows them"] if len(strange) > len(shown) else []
    )


def legend(found: Answers) -> list[str]:
    """What the columns of the tables mean."""
    every = [one for sizes in found.winners.values() for one in sizes.values()]
    lines = ["Best of each size, on repeats that did not choose it where there are some."]
    if any(one.gain is not None for one in every):
        lines.append(
            "next: how much longer the runner-up takes (~: repeats do not tell them apart)."
        )
    if any(one.excess is not None for one in every):
        lines.append("auto: how much longer the tool's own choice takes.")
    if found.peers:
        lines.append(
            f"{', '.join('x ' + peer for peer in found.peers)}: the library's own choice, its time"
            " over ours."
        )
    if any(not one.is_held_out and one.rows > 1 for one in every):
        lines.append("*: chosen and reported on the same repeat, so flattered: measure several.")
    return lines


def _table(found: Answers, sizes: Mapping[int, Winner], columns: int) -> list[str]:
    """The best of every size of one problem."""
    is_wide = columns >= WIDE_COLUMNS
    peers = [peer for peer in found.peers if any(peer in one.peers for one in sizes.values())]
    has_percent = any(one.percent is not None for one in sizes.values())
    has_next = any(one.gain is not None for one in sizes.values())
    has_auto = any(one.excess is not None for one in sizes.values())
    shared = {one.row.backend for one in sizes.values()}
    labels = {
        size: label(one.row, found.asked, has_backend=len(shared) > 1)
        for size, one in sizes.items()
    }
    fixed = (
        6
        + 2
        + 2
        + 8
        + 2
        + 7
        + 8 * has_percent
        + 7 * (has_next + has_auto)
        + sum(2 + (18 if is_wide else max(6, 2 + len(peer))) for peer in peers)
    )
    width = max(4, min(max(map(len, labels.values())), max(columns - fixed, 12)))
    heading = [f"{'size':>6}", f"{'best':<{width}}", f"{'time us':>8}", f"{'busbw':>7}"]
    heading += [f"{'of max':>6}"[-6:]] if has_percent else []
    heading += [f"{'next':>5}"] if has_next else []
    heading += [f"{'auto':>5}"] if has_auto else []
    heading += [
        f"{'x ' + peer:>6} {'interval':>11}" if is_wide else f"{'x ' + peer:>6}" for peer in peers
    ]
    lines = ["  ".join(heading)]
    for size, one in sizes.items():
        mark = "*" if not one.is_held_out and one.rows > 1 else ""
        busbw = "-" if one.busbw_gbs is None else format_rate(one.busbw_gbs)
        cells = [f"{format_time_us(one.time_us) + mark:>8}", f"{busbw:>7}"]
        cells += (
            [f"{'-' if one.percent is None else f'{one.percent:.0f}%':>6}"] if has_percent else []
        )
        cells += [excess(one.gain, is_clear=one.is_clear)] if has_next else []
        cells += [excess(one.excess, is_clear=True)] if has_auto else []
        cells += [
            times_as_long(one.peers.get(peer), max(6, 2 + len(peer)), is_wide=is_wide)
            for peer in peers
        ]
        lines += named_lines(
            format_size(size), labels[size], width, "  ".join(cells).rstrip(), columns
        )
    return lines


def excess(found: Interval | None, *, is_clear: bool) -> str:
    """How much longer, in percent of five characters; twice as long and more as a factor."""
    if found is None:
        return f"{'-':>5}"
    mark = "" if is_clear else _UNTOLD
    text = f"{found.median:.1f}x" if found.median >= 2 else f"{100 * (found.median - 1):+z.0f}%"
    return f"{mark + text:>5}"


def times_as_long(found: Interval | None, width: int = 0, *, is_wide: bool) -> str:
    """A peer's time over ours; ~ where the repeats do not tell it from 1."""
    if found is None:
        return f"{'-':>{width}}" + (f" {'-':>11}" if is_wide else "")
    is_known = found.low == found.low
    mark = _UNTOLD if is_known and found.low <= 1 <= found.high else ""
    text = f"{mark}{found.median:.2f}"
    return f"{text:>{width}}" + (
        f" {f'{found.low:.2f}-{found.high:.2f}' if is_known else '-':>11}" if is_wide else ""
    )


def _worth_table(found: Answers, problem: Problem, sizes: Mapping[int, Winner]) -> list[str]:
    """What each knob is worth at each size, the rest as in the best configuration, and its best
    value.
    """
    here = found.problems[problem]
    told = {
        size: {
            knob: one
            for knob in WORTH
            if (one := worth(here[size], sizes[size].row, found.asked, knob)) is not None
        }
        for size in sizes
    }
    knobs = [knob for knob in WORTH if any(knob in one for one in told.values())]
    if not knobs:
        return []
    cells = {
        (size, knob): _worth_cell(one[knob], knob) if knob in one else "-"
        for size, one in told.items()
        for knob in knobs
    }
    widths = {
        knob: max(len(KNOB_NAMES.get(knob, knob)), *(len(cells[size, knob]) for size in told))
        for knob in knobs
    }
    lines = ["", "what a knob is worth: worst over best, the rest as in the best configuration"]
    lines.append("(in brackets: its best value; ~: the repeats do not tell them apart)")
    lines.append(
        "  ".join(
            [f"{'size':>6}", *[f"{KNOB_NAMES.get(knob, knob):<{widths[knob]}}" for knob in knobs]]
        ).rstrip()
    )
    return lines + [
        "  ".join(
            [f"{format_size(size):>6}", *[f"{cells[size, knob]:<{widths[knob]}}" for knob in knobs]]
        ).rstrip()
        for size in told
    ]


def _worth_cell(one: Worth, knob: str) -> str:
    value = format_size(one.best) if knob in SIZES and isinstance(one.best, int) else one.best
    return f"{'' if one.is_clear else _UNTOLD}{one.factor:.2f} ({value})"


def _every_row(found: Answers, problem: Problem) -> list[str]:
    """All rows of a problem, the fastest of each size first."""
    rows = found.problems[problem]
    has_backend = len({row.backend for here in rows.values() for row in here}) > 1
    names = {
        id(row): label(row, found.asked, has_backend=has_backend)
        for here in rows.values()
        for row in here
    }
    width = max(map(len, names.values()))
    lines = [
        "",
        "all rows",
        "  ".join(
            [
                f"{'size':>6}",
                f"{'configuration':<{width}}",
                f"{'time us':>8}",
                f"{'busbw':>7}",
                "notes",
            ]
        ),
    ]
    for size, here in rows.items():
        for row in sorted(here, key=lambda row: middle(row.times_us)):
            busbw = format_rate(row.busbw_gbs) if row.busbw_gbs == row.busbw_gbs else "-"
            cells = [
                f"{format_size(size):>6}",
                f"{names[id(row)]:<{width}}",
                f"{format_time_us(middle(row.times_us)):>8}",
                f"{busbw:>7}",
                row.notes,
            ]
            lines.append("  ".join(cells).rstrip())
    return lines


def band_lines(frame: "pd.DataFrame") -> list[str]:
    """The lowest ratio of NCCL's own choice to the tool's own choice in each band of sizes, and
    below it its interval; a line a problem.

    Rows marked auto, or alone, against NCCL's, repeat by repeat; nothing is chosen, so all repeats
    count. Raises UsageError if no size has both.
    """
    found = bands(rows_of(frame))
    if not found:
        raise UsageError(
            "no band to tell: no size has both our choice (a row marked auto, or one only) and"
            " NCCL's own",
            "collbench sweep measures both",
        )
    names = titles(found)
    if len({problem.ranks for problem in found}) == 1:
        names = {
            problem: ", ".join([problem.op, *name.split(", ")[2:]])
            for problem, name in names.items()
        }
    width = max(4, *map(len, names.values()))
    ranks = sorted({problem.ranks for problem in found})
    lines = [
        (
            "NCCL's time over ours, own"
            f" choices{f' of {ranks[0]} ranks' if len(ranks) == 1 else ''}: worst of a band, its"
            " interval"
        ),
        "  ".join([f"{'op':<{width}}", *[f"{name:>10}" for _, name in BANDS]]),
    ]
    for problem, worst in found.items():
        ratios = ["-" if one is None else f"{one[1].median:.2f}" for one in worst]
        bounds = [
            "" if one is None or one[1].low != one[1].low else f"{one[1].low:.2f}-{one[1].high:.2f}"
            for one in worst
        ]
        lines.append("  ".join([f"{names[problem]:<{width}}", *[f"{cell:>10}" for cell in ratios]]))
        lines.append("  ".join([" " * width, *[f"{cell:>10}" for cell in bounds]]).rstrip())
    return [line for line in lines if line.strip()]
