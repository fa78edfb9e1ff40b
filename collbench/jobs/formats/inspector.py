"""What NCCL's (and RCCL's) Inspector plugin writes: an object of JSON for each collective, one
behind the other (plugins/profiler/inspector of NCCL).

`coll_msg_size_bytes` is the size of a rank's block, as NCCL counts: its own rates multiply it by
the ranks for allgather, reducescatter and alltoall. Element types and reductions are not in it.
"""

from typing import Any

from collbench.core.collectives import collective
from collbench.core.dtypes import DtypeName
from collbench.jobs.formats import Opened
from collbench.jobs.formats._read import documents, number_or_none
from collbench.jobs.formats._torch import op_of, whole
from collbench.jobs.model import Call, Job

NAME = "output of NCCL's Inspector"
HINT = (
    "run with NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so NCCL_INSPECTOR_ENABLE=1"
    " NCCL_INSPECTOR_DUMP_VERBOSE=1"
)
_ASSUMED: DtypeName = "float32"


def is_mine(head: str) -> bool:
    """Whether a file begins like that output."""
    return any(
        key in head for key in ('"coll_perf"', '"inspector_output_format_version"', '"p2p_perf"')
    )


def read(files: Opened) -> Job:
    """The calls of one rank, in the order in which they began, or else were written."""
    by_rank: dict[tuple[str, int], list[Call]] = {}
    dropped = 0
    for name, file in files:
        for record in documents(file, name):
            header, metadata = _object(record, "header"), _object(record, "metadata")
            member = str(metadata.get("hostname", "")), whole(metadata.get("pid"))
            dropped += whole(_object(record, "dump_stats").get("coll_dropped_since_last_dump"))
            call = _call(header, record)
            if call is not None:
                by_rank.setdefault(member, []).append(call)
    calls = max(by_rank.values(), key=len, default=[])
    remarks = [f"the Inspector writes no element types: {_ASSUMED} is assumed"]
    if dropped:
        remarks.append(
            f"the Inspector lost {dropped} collectives (NCCL_INSPECTOR_DUMP_COLL_RING_SIZE)"
        )
    if all(call.start_us is not None for call in calls):
        calls.sort(key=lambda call: call.start_us or 0.0)
    return Job(name=files[0][0], source=NAME, calls=calls, remarks=remarks)


def _object(record: dict[str, Any], key: str) -> dict[str, Any]:  # Any: JSON
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def _call(header: dict[str, Any], record: dict[str, Any]) -> Call | None:  # Any: JSON
    performance = _object(record, "coll_perf")
    op = op_of(str(performance.get("coll", "")))
    ranks, size = whole(header.get("n_ranks")), whole(performance.get("coll_msg_size_bytes"))
    if op is None or ranks < 2 or not size:
        return None
    start = number_or_none(_object(performance, "event_trace_ts").get("coll_start_ts"))
    return Call(
        op=op,
        size_bytes=size * (ranks if collective(op).size_in_blocks else 1),
        dtype=_ASSUMED,
        ranks=ranks,
        group=str(header.get("id", "")),
        start_us=start,
        duration_us=number_or_none(performance.get("coll_exec_time_us")),
    )
