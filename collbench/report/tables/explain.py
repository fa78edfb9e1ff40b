"""What `explain` shows: a choice, its least time, where its time goes, and what would change it."""

from collections.abc import Sequence
from dataclasses import dataclass

from collbench.analysis.doubt import doubt_of
from collbench.analysis.rows import row_of
from collbench.analysis.trace_summary import TraceSummary
from collbench.planning.tuning import Origin
from collbench.report.tables.summary import lines_of
from collbench.report.tables.text import wrapped
from collbench.report.tables.trace import NAMES
from collbench.results.record import Record
from collbench.util.limits import ADVISED_REPEATS
from collbench.util.units import format_rate, format_size, format_time_us, to_us

_SHOWN = 3  # neighbours of each kind
_LEAST_SHARE = 0.02  # of a cause that is worth a word
_LEAST_TRACED = 2 / 3  # of the time: what is traced below it does not explain the time
_NOISE = "The time is noise: it is not certain, and which knob would change it cannot be told."


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """row: of the choice. origin: of the choice. trace: None for copy engines, which stamp nothing.
    libraries: the forms of the library beside it. choice: what the library says that it chose in
    the fastest one, or why that is not known; empty where nobody asks.
    """

    row: Record
    origin: Origin | None
    hops: int
    floor: "Floor"
    trace: TraceSummary | None
    neighbours: tuple["Neighbour", ...]
    libraries: tuple["LibraryForm", ...]
    choice: str = ""


@dataclass(frozen=True, slots=True)
class Floor:
    """The least time by the constants of a machine. what: the bytes that take so long, or why
    bytes_s is not known.
    """

    machine: str
    hops_s: float
    bytes_s: float | None
    what: str


@dataclass(frozen=True, slots=True)
class LibraryForm:
    """A way to call a library: its row, its name, and why it has no time."""

    row: Record
    name: str
    why: str


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
        f" {format_size(row.chunk)}{_pdl(row)}; {_origin(found.origin)}.",
        _least(found),
        _spent(found.trace, row.time_us or 0.0),
    ]
    lines = [line for text in texts for line in wrapped(text, columns)]
    lines += _doubt_lines(row, columns) if _is_noise(row) else _knob_lines(found, columns)
    return [*lines, *(line for text in _libraries(found) for line in wrapped(text, columns))]


def _is_noise(row: Record) -> bool:
    return row_of(row).is_noise


def _doubt_lines(row: Record, columns: int) -> list[str]:
    """That the time is noise, why, and what to do, without an option for repeats, which `explain`
    has not.
    """
    return lines_of(doubt_of(_NOISE, [row_of(row)], ADVISED_REPEATS), columns)[:-1]


def _knob_lines(found: Explanation, columns: int) -> list[str]:
    """Which knobs make it faster or slower, and how many others there are."""
    faster, slower = _compared(found)
    texts = [f"Faster: {_listed(faster)}." if faster else "No knob alone makes it faster."]
    if slower:
        texts.append(f"Slower: {_listed(slower)}.")
    known = len(faster) + len(slower)
    if unsure := len(found.neighbours) - known:
        texts.append(f"{unsure} other setting{'s' * (unsure > 1)} cannot be told from it.")
    return [line for text in texts for line in wrapped(text, columns)]


def _time(row: Record) -> str:
    low, high = (format_time_us(value or 0.0) for value in (row.time_low_us, row.time_high_us))
    return f"{format_time_us(row.time_us or 0.0)} us ({low} to {high})"


def _origin(origin: Origin | None) -> str:
    if origin is None:
        return "by default"
    files = " and ".join(name for name, _ in origin.files)
    if origin.priced_by:
        return f"algorithm and protocol by the model (constants of {origin.priced_by})"
    if origin.is_fitting:
        return f"by tuning file {files}, which fits this machine"
    return f"no tuning file fits this machine, so by {files}"


def _pdl(row: Record) -> str:
    """When the next launch may take its place, of kernels that heed it."""
    return f", pdl {row.pdl}" if row.backend == "cuda" and row.transport != "ce" else ""


def _least(found: Explanation) -> str:
    floor = found.floor
    hops = f"{found.hops} hop{'s' * (found.hops > 1)} {_us(floor.hops_s)} us"
    if floor.bytes_s is None:
        return f"Least by the model of {floor.machine}: {hops}; {floor.what}."
    least_us = to_us(floor.hops_s + floor.bytes_s)
    share = least_us / (found.row.time_us or least_us)
    least = (
        f"Least by the model of {floor.machine}: {hops}, and {floor.what} {_us(floor.bytes_s)} us"
    )
    if share > 1:
        return (
            f"{least}: more than it takes. These constants do not hold here; `collbench tune"
            " --model` finds this machine's."
        )
    return f"{least}: {share:.0%} of the time."


def _spent(trace: TraceSummary | None, time_us: float) -> str:
    if trace is None:
        return "Copy engines stamp nothing: where the time goes is not traced."
    total = trace.launch.total_s
    parts = sorted(trace.seconds.items(), key=lambda item: -item[1])
    texts = [
        f"{NAMES[cause]} {seconds / total:.0%}"
        for cause, seconds in parts
        if seconds >= _LEAST_SHARE * total
    ]
    spent = f"A traced launch, alone behind a barrier, takes {_us(total)} us: {', '.join(texts)}."
    if to_us(total) >= _LEAST_TRACED * time_us:
        return spent
    rest_us = time_us - to_us(total)
    return (
        f"{spent} {format_time_us(rest_us)} of the {format_time_us(time_us)} us are not in the"
        " trace: they are between launches, or noise."
    )


def _compared(found: Explanation) -> tuple[list[Neighbour], list[Neighbour]]:
    """The neighbours that are no noise and whose intervals are below that of the choice, and above;
    largest first.
    """
    row = found.row
    calm = [one for one in found.neighbours if not _is_noise(one.row)]
    ordered = sorted(calm, key=lambda one: one.row.time_us or 0.0)
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


def _libraries(found: Explanation) -> list[str]:
    """The forms of the library, the fastest first, what it chose there, and those without a time;
    a reason that several have is said once.
    """
    known = sorted(
        (form for form in found.libraries if not form.why), key=lambda form: form.row.time_us or 0.0
    )
    times = []
    for number, form in enumerate(known):
        is_best = ", its fastest form" if not number and len(found.libraries) > 1 else ""
        times.append(f"{form.name} takes {_time(form.row)}{is_best}{_ratio(form.row, found.row)}.")
        if not number and found.choice:
            times.append(found.choice)
    whys: dict[str, list[str]] = {}
    for form in found.libraries:
        if form.why:
            whys.setdefault(form.why, []).append(form.name)
    missing = [
        f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} not measured: {why}."
        for why, names in whys.items()
    ]
    return times + missing


def _ratio(row: Record, ours: Record) -> str:
    """How many times as long as ours a library takes; nothing where one of the two is noise."""
    if _is_noise(row) or _is_noise(ours):
        return ""
    return f": {(row.time_us or 0.0) / (ours.time_us or 1.0):.2f} times as long"


def _us(seconds: float) -> str:
    return format_time_us(to_us(seconds)) if seconds else "0"
