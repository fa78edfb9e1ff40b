"""What `explain` shows: a choice, its least time, where its time goes, and what would change it."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from collbench.analysis.trace_summary import TraceSummary
from collbench.planning.tuning import Origin
from collbench.report.tables.text import wrapped
from collbench.report.tables.trace import NAMES
from collbench.results.record import Record
from collbench.util.units import format_rate, format_size, format_time_us, to_us

_SHOWN = 3  # neighbours of each kind
_LEAST_SHARE = 0.02  # of a cause that is worth a word


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """row: of the choice. origin: of the choice. sent: by the busiest rank, in sizes. hops_s,
    bytes_s: the least time by the model of the machine. library: its row, and why it has no time.
    """

    row: Record
    origin: Origin | None
    hops: int
    hops_s: float
    sent: Fraction
    bytes_s: float
    machine: str
    trace: TraceSummary
    neighbours: tuple["Neighbour", ...]
    library: Record
    why_no_library: str


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The choice with one option given, and its row."""

    flag: str
    row: Record


def explain_lines(found: Explanation, columns: int) -> list[str]:
    """All that is shown."""
    row = found.row
    texts = [
        f"{row.op} of {format_size(row.size_bytes)}, {row.ranks} ranks: {_time(row)},"
        f" {format_rate(row.busbw_gbs or 0.0)} GB/s of bus bandwidth, result compared.",
        f"Chosen: {row.algo} {row.proto} over {row.transport}, {row.channels}"
        f" channel{'s' * (row.channels > 1)}, {row.slots} slots, chunks of"
        f" {format_size(row.chunk)}; {_origin(found.origin)}.",
        _least(found),
        _spent(found.trace),
    ]
    faster, slower = _compared(found)
    texts.append(f"Faster: {_listed(faster)}." if faster else "No knob alone makes it faster.")
    if slower:
        texts.append(f"Slower: {_listed(slower)}.")
    known = len(faster) + len(slower)
    if unsure := len(found.neighbours) - known:
        texts.append(f"{unsure} other setting{'s' * (unsure > 1)} cannot be told from it.")
    texts.append(_library(found))
    return [line for text in texts for line in wrapped(text, columns)]


def _time(row: Record) -> str:
    low, high = (format_time_us(value or 0.0) for value in (row.time_low_us, row.time_high_us))
    return f"{format_time_us(row.time_us or 0.0)} us ({low} to {high})"


def _origin(origin: Origin | None) -> str:
    if origin is None:
        return "by default"
    files = " and ".join(name for name, _ in origin.files)
    if origin.is_fitting:
        return f"by tuning file {files}, which fits this machine"
    return f"no tuning file fits this machine, so by {files}"


def _least(found: Explanation) -> str:
    least_us = to_us(found.hops_s + found.bytes_s)
    share = least_us / (found.row.time_us or least_us)
    return (
        f"Least by the model of {found.machine}: {found.hops}"
        f" hop{'s' * (found.hops > 1)} {_us(found.hops_s)} us, and"
        f" {found.sent} S sent by the busiest rank {_us(found.bytes_s)} us: {share:.0%} of the"
        " time."
    )


def _spent(trace: TraceSummary) -> str:
    total = trace.launch.total_s
    parts = sorted(trace.seconds.items(), key=lambda item: -item[1])
    texts = [
        f"{NAMES[cause]} {seconds / total:.0%}"
        for cause, seconds in parts
        if seconds >= _LEAST_SHARE * total
    ]
    return f"A traced launch, alone behind a barrier, takes {_us(total)} us: {', '.join(texts)}."


def _compared(found: Explanation) -> tuple[list[Neighbour], list[Neighbour]]:
    """The neighbours whose intervals are below that of the choice, and above; largest first."""
    row = found.row
    ordered = sorted(found.neighbours, key=lambda one: one.row.time_us or 0.0)
    faster = [one for one in ordered if (one.row.time_high_us or 0.0) < (row.time_low_us or 0.0)]
    slower = [one for one in ordered if (one.row.time_low_us or 0.0) > (row.time_high_us or 0.0)]

    def by(neighbours: Sequence[Neighbour]) -> list[Neighbour]:
        """With their change in the place of the row's own words."""
        return [
            Neighbour(
                f"{one.flag} {(one.row.time_us or 0.0) / (row.time_us or 1.0) - 1:+.0%}", one.row
            )
            for one in neighbours
        ]

    return by(faster), by(slower)


def _listed(neighbours: Sequence[Neighbour]) -> str:
    shown = ", ".join(one.flag for one in neighbours[:_SHOWN])
    more = len(neighbours) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _library(found: Explanation) -> str:
    if found.why_no_library:
        return f"{found.library.backend} is not measured: {found.why_no_library}."
    ratio = (found.library.time_us or 0.0) / (found.row.time_us or 1.0)
    return f"{found.library.backend} takes {_time(found.library)}: {ratio:.2f} times as long."


def _us(seconds: float) -> str:
    return format_time_us(to_us(seconds)) if seconds else "0"
