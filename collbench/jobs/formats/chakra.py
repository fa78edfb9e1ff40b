"""Execution traces in JSON: those that PyTorch's observer writes (a list of nodes, of which
`record_param_comms` are collectives), and Chakra's: as chakra_jsonizer makes them of protobuf files
(a node an object, one behind the other; et_def.proto of mlcommons/chakra), or as its feeder reads
them (`workload_graph`).

In Chakra's `comm_size` is the bytes of a rank's input. Many do not say how many ranks there are.
"""

from collections.abc import Iterable
from typing import Any

from collbench.core.collectives import OpName
from collbench.core.dtypes import DtypeName
from collbench.core.errors import UsageError
from collbench.jobs.formats import Opened
from collbench.jobs.formats._read import documents, first_only
from collbench.jobs.formats._torch import (
    SILENT,
    call_of,
    dtype_of,
    numbers,
    op_of,
    plain_name,
    size_of,
    whole,
)
from collbench.jobs.model import Call, Job

NAME = "an execution trace (Chakra)"
HINT = "record one with torch.profiler.ExecutionTraceObserver, or give what chakra_jsonizer writes"
_ASSUMED: DtypeName = "float32"
# et_def.proto, CollectiveCommType, by number and by name
_TYPES: tuple[OpName | None, ...] = (
    "allreduce", "reduce", "allgather", "gather", "scatter", "broadcast", "alltoall",
    "reducescatter", "reducescatter", None,
)  # fmt: skip
_COLLECTIVE = ("COMM_COLL_NODE", 7)
_POINT_TO_POINT = ("COMM_SEND_NODE", 5)

_INLINE = ("comm_type", "comm_size", "is_cpu_op")  # of nodes without attributes

Node = dict[str, Any]  # Any: JSON


def is_mine(head: str) -> bool:
    """Whether a file begins like such a trace."""
    is_nodes = '"nodes"' in head and ('"ctrl_deps"' in head or '"schema"' in head)
    return (
        is_nodes
        or '"workload_graph"' in head
        or ('"ctrlDeps"' in head or '"COMM_COLL_NODE"' in head or '_NODE"' in head)
    )


def read(files: Opened, ranks: int) -> Job:
    """The calls of the first file's rank."""
    (name, file), remarks = first_only(files)
    calls: list[Call] = []
    unknown, is_assumed, is_sizeless = 0, False, False
    for one in documents(file, name):
        listed = one.get("nodes", one.get("workload_graph"))
        for node in listed if isinstance(listed, list) else [one]:
            if not isinstance(node, dict):
                continue
            attributes = _attributes(node)
            if node.get("name") == "record_param_comms":
                call, is_silent = _of_pytorch(attributes)
            elif _type_of(node) in (*_COLLECTIVE, *_POINT_TO_POINT):
                attributes |= {key: node[key] for key in _INLINE if key in node}
                has_size = bool(whole(attributes.get("comm_size")))
                is_sizeless |= has_size and not _ranks_of(node, attributes)
                call = _of_chakra(node, attributes, ranks)
                is_silent = not has_size and bool(attributes.get("is_cpu_op"))
                is_assumed |= call is not None
            else:
                continue
            if call is not None:
                calls.append(call)
            else:
                unknown += not is_silent
    if is_sizeless and not ranks:
        raise UsageError(
            f"{name}: it does not say how many ranks its communicators have", "give them: --ranks 8"
        )
    if unknown:
        remarks.append(f"{unknown} nodes are no collective that can be replayed")
    if is_assumed:
        remarks.append(f"Chakra's nodes have no element types: {_ASSUMED} is assumed")
    return Job(name=name, source=NAME, calls=calls, remarks=remarks)


def _attributes(node: Node) -> dict[str, Any]:  # Any: JSON
    """The attributes by name; Chakra's name the type of a value in its key."""
    listed = node.get("attrs") or node.get("attr") or []
    found: dict[str, Any] = {}
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict):
            values: Iterable[Any] = (
                value for key, value in one.items() if key not in ("name", "type", "docString")
            )
            found[str(one.get("name"))] = next(iter(values), None)
    return found


def _of_pytorch(attributes: dict[str, Any]) -> tuple[Call | None, bool]:  # Any: JSON
    """The call, and whether there is none on purpose."""
    title = str(attributes.get("collective_name", ""))
    op, element = op_of(title), dtype_of(str(attributes.get("dtype", "")))
    ranks = whole(attributes.get("pg_size"))
    counts = whole(attributes.get("in_msg_nelems")), whole(attributes.get("out_msg_nelems"))
    if op is None or element is None or ranks < 2 or not any(counts):
        return None, plain_name(title) in SILENT
    call = call_of(
        op,
        *counts,
        element,
        ranks,
        group=str(attributes.get("pg_name", "")),
        in_splits=numbers(attributes.get("in_split_size")),
        out_splits=numbers(attributes.get("out_split_size")),
    )
    return call, False


def _type_of(node: Node) -> object:
    return node.get("type", node.get("NodeType"))


def _ranks_of(node: Node, attributes: dict[str, Any]) -> int:  # Any: JSON
    """The ranks of a node's communicator; 0 if it does not say."""
    if _type_of(node) in _POINT_TO_POINT:
        return 2
    known = whole(attributes.get("group_size")) or whole(attributes.get("pg_size"))
    return known or _dimension(attributes.get("involved_dim"))


def _of_chakra(node: Node, attributes: dict[str, Any], ranks: int) -> Call | None:  # Any: JSON
    size, ranks = whole(attributes.get("comm_size")), _ranks_of(node, attributes) or ranks
    op: OpName | None = "sendrecv"
    if _type_of(node) in _COLLECTIVE:
        number = whole(attributes.get("comm_type"))
        op = _TYPES[number] if number < len(_TYPES) else None
    if op is None or ranks < 2 or not size:
        return None
    is_timed = "durationMicros" in node  # of 64 bits, which JSON of protobuf writes as text
    return Call(
        op=op,
        size_bytes=size_of(op, size, 0, ranks),
        dtype=_ASSUMED,
        ranks=ranks,
        group=str(attributes.get("pg_name", "")),
        start_us=float(whole(node.get("startTimeMicros"))) if is_timed else None,
        duration_us=float(whole(node.get("durationMicros"))) if is_timed else None,
    )


def _dimension(value: object) -> int:
    """The ranks of a list of who takes part, of which a single one says nothing."""
    listed = value.get("values") if isinstance(value, dict) else None
    return sum(map(bool, listed)) if isinstance(listed, list) and len(listed) > 1 else 0
