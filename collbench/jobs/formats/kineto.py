"""Traces of PyTorch's profiler (Kineto): events of Chrome's trace format.

A kernel of NCCL carries what was asked for in its arguments (`Collective name`, `In msg nelems`,
`Out msg nelems`, `dtype`, `Group size`); in older versions only the record `record_param_comms` of
the CPU does, which has the same `External id`. Times are microseconds.
"""

from typing import Any

from collbench.jobs.formats import Opened
from collbench.jobs.formats._read import document, first_only, number_or_none
from collbench.jobs.formats._torch import (
    SILENT,
    call_of,
    dtype_of,
    numbers,
    op_of,
    plain_name,
    whole,
)
from collbench.jobs.model import Call, Job, Span

NAME = "a trace of PyTorch's profiler"
HINT = (
    "profile some steps with activities CPU and CUDA (torch.profiler.schedule), and export them"
    " with export_chrome_trace"
)
_RECORD = "record_param_comms"
_NAME, _ID = "Collective name", "External id"
_STEP = "ProfilerStep#"

Event = dict[str, Any]  # Any: JSON


def is_mine(head: str) -> bool:
    """Whether a file begins like a trace."""
    keys = ('"traceEvents"', '"schemaVersion"', '"deviceProperties"', '"distributedInfo"')
    return any(key in head for key in keys) or (head.lstrip()[:1] == "[" and '"ph"' in head)


def read(files: Opened) -> Job:
    """The calls of the first file's rank, in the order in which they ran."""
    (name, text), remarks = first_only(files)
    data = document(text, name, NAME)
    listed = data.get("traceEvents")
    events = [
        event
        for event in (listed if isinstance(listed, list) else [])
        if isinstance(event, dict) and event.get("ph") == "X" and _span(event) is not None
    ]
    records = {
        event["args"].get(_ID): event["args"]
        for event in events
        if event.get("name") == _RECORD and isinstance(event.get("args"), dict)
    }
    kernels = [event for event in events if event.get("cat") == "kernel"]
    ours = [(event, args) for event in kernels if (args := _asked(event, records)) is not None]
    if not ours:  # no GPU, or NCCL's kernels are not in it
        ours = [
            (event, event["args"])
            for event in events
            if event.get("name") == _RECORD and _NAME in (event.get("args") or {})
        ]
        if ours:
            remarks.append("the trace has no kernel of a collective: times are those of the CPU")
    ours.sort(key=lambda pair: float(pair[0]["ts"]))
    calls, unknown = [], 0
    for event, args in ours:
        call = _call(event, args)
        if call is not None:
            calls.append(call)
        else:
            unknown += plain_name(str(args[_NAME])) not in SILENT
    if unknown:
        remarks.append(f"{unknown} events are no collective that can be replayed")
    return Job(
        name=name,
        source=NAME,
        calls=calls,
        marks=_marks(events),
        computing=[
            span
            for event in kernels
            if not _is_of_library(event) and (span := _span(event)) is not None
        ],
        remarks=remarks,
    )


def _span(event: Event) -> Span | None:
    start, duration = number_or_none(event.get("ts")), number_or_none(event.get("dur"))
    return None if start is None or duration is None else (start, start + duration)


def _is_of_library(event: Event) -> bool:
    """Whether a kernel is one of NCCL or RCCL."""
    args, name = event.get("args"), str(event.get("name", "")).lower()
    return "nccl" in name or "rccl" in name or (isinstance(args, dict) and _NAME in args)


def _asked(event: Event, records: dict[object, Event]) -> Event | None:
    """What a kernel was asked for; None if it is not of a collective."""
    args = event.get("args")
    if not isinstance(args, dict):
        return None
    if _NAME in args:
        return args
    if not _is_of_library(event):
        return None
    known = records.get(args.get(_ID))
    return known if known is not None and _NAME in known else None


def _call(event: Event, args: Event) -> Call | None:
    op, element = op_of(str(args[_NAME])), dtype_of(str(args.get("dtype", "")))
    ranks = whole(args.get("Group size"))
    counts = whole(args.get("In msg nelems")), whole(args.get("Out msg nelems"))
    span = _span(event)
    if op is None or element is None or ranks < 2 or not any(counts) or span is None:
        return None
    return call_of(
        op,
        *counts,
        element,
        ranks,
        group=str(args.get("Process Group Name", "")),
        start_us=span[0],
        duration_us=span[1] - span[0],
        in_splits=numbers(args.get("In split size")),
        out_splits=numbers(args.get("Out split size")),
    )


def _marks(events: list[Event]) -> list[Span]:
    """The spans of steps: of the GPU where it has them, else of the CPU."""
    for category in ("gpu_user_annotation", "user_annotation"):
        spans = [
            span
            for event in events
            if event.get("cat") == category
            and str(event.get("name", "")).startswith(_STEP)
            and (span := _span(event)) is not None
        ]
        if spans:
            return sorted(spans)
    return []
