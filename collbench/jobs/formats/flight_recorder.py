"""Dumps of PyTorch's flight recorder, in JSON (torch/csrc/distributed/c10d/FlightRecorder.hpp): one
file a rank. Its usual form is a pickle, which runs any program that is in it, and is refused.
"""

import json
from typing import Any

from collbench.core.dtypes import DtypeName
from collbench.jobs.formats import Opened
from collbench.jobs.formats._read import document, first_only, number_or_none
from collbench.jobs.formats._torch import SILENT, call_of, dtype_of, op_of, plain_name, whole
from collbench.jobs.model import Call, Job

NAME = "a dump of PyTorch's flight recorder"
HINT = (
    "run with TORCH_NCCL_TRACE_BUFFER_SIZE=20000, so that it holds several steps, and convert the"
    " dump to JSON"
)
_UNTYPED: DtypeName = "float32"  # of versions before 2.4, which write no types


def is_mine(head: str) -> bool:
    """Whether a file begins like a dump."""
    is_trace = '"schemaVersion"' in head or '"traceEvents"' in head  # whose head has groups, too
    return (
        head.lstrip()[:1] == "{"
        and not is_trace
        and any(key in head for key in ('"entries"', '"pg_config"', '"pg_status"'))
    )


def read(files: Opened) -> Job:
    """The calls of the first file's rank."""
    (name, text), remarks = first_only(files)
    data = document(text, name, NAME)
    groups = {str(key): _members(group) for key, group in (data.get("pg_config") or {}).items()}
    entries = data.get("entries")
    if not isinstance(entries, list):
        entries = []
    calls, unknown, untyped = [], 0, False
    for entry in entries:
        title = str(entry.get("profiling_name", ""))
        op = op_of(title)
        key = entry.get("process_group", ["0"])
        key = str(key[0] if isinstance(key, list) and key else key)
        if op is None or key not in groups:
            unknown += plain_name(title) not in SILENT
            continue
        call, is_typed = _call(entry, op, key, groups[key])
        unknown += call is None
        untyped |= not is_typed
        if call is not None:
            calls.append(call)
    if unknown:
        remarks.append(f"{unknown} entries are no collective that can be replayed")
    if untyped:
        remarks.append(f"the dump has no element types: {_UNTYPED} is assumed")
    return Job(name=name, source=NAME, calls=calls, remarks=remarks)


def _members(group: Any) -> int:  # Any: JSON
    ranks = group.get("ranks", []) if isinstance(group, dict) else []
    ranks = json.loads(ranks) if isinstance(ranks, str) else ranks
    return len(ranks)


def _call(
    entry: dict[str, Any], op: Any, key: str, ranks: int
) -> tuple[Call | None, bool]:  # Any: JSON
    """The call of an entry, and whether its type is known."""
    sent, received = (
        sum(_product(shape) for shape in entry.get(which) or [])
        for which in ("input_sizes", "output_sizes")
    )
    types = entry.get("input_dtypes") or entry.get("output_dtypes") or []
    element = dtype_of(str(types[0])) if types else _UNTYPED
    if element is None or not sent + received or ranks < 2:
        return None, bool(types)
    started = number_or_none(entry.get("time_discovered_started_ns"))
    ended = number_or_none(entry.get("time_discovered_completed_ns"))
    duration_ms = number_or_none(entry.get("duration_ms"))
    created = number_or_none(entry.get("time_created_ns"))
    if duration_ms is None and started is not None and ended is not None:
        duration_ms = (ended - started) / 1e6
    call = call_of(
        op,
        sent,
        received,
        element,
        ranks,
        group=key,
        start_us=(started or created or 0.0) / 1e3 if started or created else None,
        duration_us=None if duration_ms is None else duration_ms * 1e3,
    )
    return call, bool(types)


def _product(shape: Any) -> int:  # Any: JSON
    count = 1
    for size in shape:
        count *= whole(size)
    return count
