"""What `trace` shows: what was chosen and the least time of it; the chain of events that made a
launch as long as it was, as a waterfall; and its time by cause beside what the machine's constants
say of it.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from collbench.bench.trace.chain_model import ChainCosts
from collbench.bench.trace.critical_path import CAUSES, Cause, Segment
from collbench.bench.trace.least_time import LeastTime
from collbench.bench.trace.summary import TraceSummary
from collbench.core.case import Case
from collbench.core.files import result_json
from collbench.core.text import counted, paragraphs, table, wrapped
from collbench.core.trace import Trace, TracedLaunch
from collbench.core.units import format_size, format_time_us, to_us
from collbench.planning.tuning import Origin

_ROWS = 24  # of the waterfall
_LEAST_BAR = 8
_WIDE = 120  # columns from which on a row says where in the schedule it is
NAMES: Mapping[Cause, str] = {
    "late": "waiting for a late rank",
    "launch": "launch",
    "hop": "hops (data on the way)",
    "wire": "bytes on the wire, and taking them",
    "slot": "waiting for slots",
    "core": "waiting for a core",
    "move": "moving bytes",
    "reduce": "reduction",
    "step": "steps (flags, what is next)",
}


class WaterfallRow(NamedTuple):
    """A row of the waterfall: segments of one kind one behind the other, or some short ones."""

    start_s: float
    seconds: float
    text: str


def choice_lines(
    case: Case, origin: Origin | None, least: LeastTime, total_s: float, columns: int
) -> list[str]:
    """What was chosen, by which file, and the least time of it beside that of a launch."""
    pdl = f", pdl {case.pdl}" if case.backend == "cuda" else ""
    channels = counted(case.channels, "channel")
    texts = (
        f"Chosen: {case.algo} {case.proto} over {case.transport}, {channels}, {case.slots} slots,"
        f" chunks of {format_size(case.chunk)}{pdl}; {_by(origin)}.",
        _least(least, total_s),
    )
    return paragraphs(texts, columns)


def _by(origin: Origin | None) -> str:
    """Who chose what was not asked for."""
    if origin is None:
        return "by default"
    files = " and ".join(name for name, _ in origin.files)
    if origin.priced_by:
        return f"algorithm and protocol by the model (constants of {origin.priced_by})"
    if origin.is_fitting:
        return f"by tuning file {files}, which fits this machine"
    return f"no tuning file fits this machine, so by {files}"


def _least(least: LeastTime, total_s: float) -> str:
    if least.is_borrowed:
        return (
            f"No least time: the model of {least.machine} was fitted to other processors;"
            " `collbench tune --model` fits it to this machine."
        )
    hops = f"{counted(least.hops, 'hop')} {us_text(least.hops_s)} us"
    text = f"Least by the model of {least.machine}: {hops}"
    if least.bytes_s is None:
        return f"{text}; {least.what}."
    text += f", and {least.what} {us_text(least.bytes_s)} us"
    share = (least.hops_s + least.bytes_s) / total_s
    if share > 1:
        return (
            f"{text}: more than it takes. These constants do not hold here; `collbench tune"
            " --model` finds this machine's."
        )
    return f"{text}: {share:.0%} of the launch."


def trace_lines(trace: Trace, found: TraceSummary, costs: ChainCosts, columns: int) -> list[str]:
    """The launch itself."""
    total_us = format_time_us(to_us(found.launch.total_s))
    lines = wrapped(
        f"{trace.title}: launch {found.number + 1} of {len(trace.launches)} took {total_us} us,"
        " from the first arrival to the end. The chain of events that made it so long:",
        columns,
    )
    rows = waterfall(found.launch, found.path, is_wide=columns >= _WIDE)
    causes = _by_cause(found, len(trace.launches), columns)
    lines += ["", *_drawn(rows, found.launch, columns), "", *causes]
    return [*lines, "", *paragraphs((verdict(trace, found), model_hint(costs)), columns)]


def model_hint(costs: ChainCosts) -> str:
    """What the model's numbers are."""
    text = (
        f"The last column is what the constants of {costs.machine} say of this chain, where nothing"
        " queues"
    )
    if costs.price_s is None:
        return f"{text}."
    return f"{text}; the model's price of the launch is {us_text(costs.price_s)} us."


def verdict(trace: Trace, found: TraceSummary) -> str:
    """The largest part of the time in a sentence."""
    cause = max(found.seconds, key=lambda one: found.seconds[one])
    share = found.seconds[cause] / found.launch.total_s
    if cause == "late" and found.late is not None:
        rank, delay_s = found.late
        return (
            f"{trace.names[rank]} came {format_time_us(to_us(delay_s))} us later than the others:"
            f" {share:.0%} of the launch."
        )
    return f"The largest part is {NAMES[cause]}: {share:.0%} of the launch."


def waterfall(
    launch: TracedLaunch, path: Sequence[Segment], *, is_wide: bool
) -> list[WaterfallRow]:
    """At most so many rows; short segments beside each other are one row."""
    hops, rows = 0, []
    for _, group in groupby(path, key=lambda one: (one.cause, one.rank, one.link)):
        segments = list(group)
        first = segments[0]
        hops += first.cause == "hop"
        seconds = segments[-1].end_s - first.start_s
        text = _text(launch, segments, hops, is_wide=is_wide)
        rows.append(WaterfallRow(first.start_s - launch.first_s, seconds, text))
    for least_s in sorted(row.seconds for row in rows):
        if len(folded := _folded(rows, least_s)) <= _ROWS:
            return folded
    return rows


def _folded(rows: Sequence[WaterfallRow], least_s: float) -> list[WaterfallRow]:
    """The rows, with neighbours shorter than that as one."""
    folded: list[WaterfallRow] = []
    for is_short, group in groupby(rows, key=lambda row: row.seconds < least_s):
        here = list(group)
        if is_short and len(here) > 1:
            seconds, text = sum(row.seconds for row in here), f"{len(here)} shorter ones"
            here = [WaterfallRow(here[0].start_s, seconds, text)]
        folded += here
    return folded


def _text(launch: TracedLaunch, segments: Sequence[Segment], hops: int, *, is_wide: bool) -> str:
    first = segments[0]
    rank = f"rank {first.rank}"
    if first.cause == "late":
        return f"late: {rank} is not there yet"
    if first.cause == "launch":
        return f"launch of {rank}"
    actions = [launch.actions[segment.action] for segment in segments]
    place = ""
    if is_wide:
        one = actions[0]
        end = "end of the track" if one.round < 0 else f"round {one.round}, slice {one.slice}"
        place = f", channel {one.channel} {one.track}, {end}"
    if first.cause == "core":
        return f"{rank} has no core{place}"
    if first.link is not None:
        peer = first.link[0] if first.link[1] == first.rank else first.link[1]
        if first.cause == "hop":
            return f"hop {hops}: data of rank {peer} to {rank}{place}"
        wait = actions[0].wait
        what = "begun" if wait is not None and wait.what == "begun" else "read"
        return f"slot: rank {peer} has {what}, to {rank}{place}"
    if first.cause == "step":
        return f"{rank} steps{place}"
    size = format_size(sum(one.size_bytes for one in actions))
    if first.cause == "wire" and (wait := actions[0].wait) is not None:
        return f"{rank} takes {size} of rank {wait.peer} off the wire{place}"
    verb = "moves" if first.cause == "move" else "reduces"
    return f"{rank} {verb} {size}{place}"


def _drawn(rows: Sequence[WaterfallRow], launch: TracedLaunch, columns: int) -> list[str]:
    """The rows with bars: where in the launch, and how long."""
    texts = max(len(row.text) for row in rows)
    width = max(_LEAST_BAR, columns - 22 - texts)
    cells = []
    for row in rows:
        first = min(width - 1, int(row.start_s / launch.total_s * width))
        length = max(1, round(row.seconds / launch.total_s * width))
        bar = (" " * first + "#" * length)[:width]
        cells.append((us_text(row.start_s), us_text(row.seconds), bar, row.text))
    return table(("   at us", "      us", " " * width, "what"), cells, (0, 1), columns)


def cause_heads(launches: int) -> list[str]:
    """Of the table of time by cause."""
    return ["by cause", "us", "share", f"median of {launches}", "model"]


def cause_rows(found: TraceSummary) -> list[tuple[str, ...]]:
    """The time of each cause that has any; the model's is empty where it says nothing."""
    return [
        (
            NAMES[cause],
            us_text(found.seconds.get(cause, 0.0)),
            f"{found.seconds.get(cause, 0.0) / found.launch.total_s:.0%}",
            us_text(found.medians_s[cause]),
            us_text(found.model_s[cause]) if cause in found.model_s else "",
        )
        for cause in CAUSES
        if found.seconds.get(cause, 0.0) or found.medians_s[cause]
    ]


def _by_cause(found: TraceSummary, launches: int, columns: int) -> list[str]:
    model_s = sum(found.model_s.values())
    together = ("together", us_text(found.launch.total_s), "100%", "", us_text(model_s))
    rows = [*cause_rows(found), together]
    return table(cause_heads(launches), rows, range(1, 5), columns)


def us_text(seconds: float) -> str:
    """A time in microseconds."""
    return format_time_us(to_us(seconds)) if seconds else "0"


def trace_json(trace: Trace, found: TraceSummary, costs: ChainCosts, machine: str) -> str:
    """The result as a JSON object; times are microseconds since the first arrival."""
    launch = found.launch
    document = {
        "title": trace.title,
        "summary": verdict(trace, found),
        "ranks": list(trace.names),
        "launches_us": [to_us(one.total_s) for one in trace.launches],
        "clock_error_us": to_us(trace.clock_error_s),
        "clock_limit_us": to_us(trace.clock_limit_s),
        "slowdown": found.slowdown._asdict() if found.slowdown is not None else None,
        "launch": found.number,
        "total_us": to_us(launch.total_s),
        "late": (
            {"rank": found.late[0], "delay_us": to_us(found.late[1])}
            if found.late is not None
            else None
        ),
        "price_us": to_us(costs.price_s) if costs.price_s is not None else None,
        "causes": {
            cause: {
                "us": to_us(found.seconds.get(cause, 0.0)),
                "median_us": to_us(found.medians_s[cause]),
                "model_us": to_us(found.model_s[cause]) if cause in found.model_s else None,
            }
            for cause in CAUSES
        },
        "path": [
            {
                "cause": segment.cause,
                "rank": segment.rank,
                "link": segment.link,
                "start_us": to_us(segment.start_s - launch.first_s),
                "us": to_us(segment.seconds),
                **{
                    name: getattr(launch.actions[segment.action], name)
                    for name in ("channel", "track", "round", "slice")
                    if segment.action >= 0
                },
            }
            for segment in found.path
        ],
    }
    return result_json(document, machine=machine)
