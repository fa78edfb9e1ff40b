"""What NCCL refuses of what it could be forced to (see core/peers.py), and what it does with user
buffers. Only names and numbers: nothing here loads NCCL.
"""

from collections.abc import Mapping

from collbench.core.case import Case
from collbench.core.peers import NCCL_ALGOS, NCCL_PROTOS

_CALLS = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce")
# groups of ncclSend and ncclRecv
GROUPED = ("alltoall", "gather", "scatter", "sendrecv", "alltoallv")
# groups of ncclBroadcast and of ncclReduce, one for each rank
_OF_ROOTED = {"allgatherv": "broadcasts", "reducescatterv": "reductions"}
_MAX_CHANNELS = 64  # MAXCHANNELS
# A FIFO has 8 slots. One of LL128 must hold 16 lines of 128 bytes, which a warp moves at once; with
# less a chunk would be empty.
_LEAST_BUFFER_BYTES, _MOST_BUFFER_BYTES, _BUFFER_GRAIN_BYTES = 8 * 16 * 128, 1 << 30, 8 * 128
# from 2.24 on NCCL registers memory of cudaMalloc only if NCCL_LEGACY_CUDA_REGISTER says so
_NO_LEGACY_SINCE = 22400


def why_waived(case: Case) -> str:
    """Why NCCL cannot do this, or not in the way that it is forced to, or an empty text."""
    if case.op not in (*_CALLS, *GROUPED, *_OF_ROOTED):
        return f"NCCL has no {case.op}"
    if case.op in GROUPED and (case.algo in NCCL_ALGOS or case.proto in NCCL_PROTOS):
        return (
            f"NCCL's {case.op} is a group of sends and receives, which have no algorithm or"
            " protocol to choose"
        )
    if case.op in _OF_ROOTED and (case.algo in NCCL_ALGOS or case.proto in NCCL_PROTOS):
        return f"NCCL's {case.op} is a group of {_OF_ROOTED[case.op]}, which is not forced here"
    if case.algo == "chain" and case.op != "allreduce":
        return f"NCCL's Tree, a chain inside a host, serves allreduce, not {case.op}"
    if case.channels > _MAX_CHANNELS:
        return f"{case.channels} channels: NCCL has at most {_MAX_CHANNELS}"
    if case.op in GROUPED and case.channels & (case.channels - 1):
        return f"{case.channels} channels: NCCL's sends and receives take a power of two"
    if case.buffsize and not (
        _LEAST_BUFFER_BYTES <= case.buffsize <= _MOST_BUFFER_BYTES
        and case.buffsize % _BUFFER_GRAIN_BYTES == 0
    ):
        return f"a buffer of {case.buffsize} bytes: NCCL needs 16K to 1G, in whole K"
    return ""


def registration(version: int, launch: str, variables: Mapping[str, str]) -> str:
    """The note `maybe-registered` where NCCL may have registered user buffers of cudaMalloc, which
    it does not report: during the capture of a graph; otherwise an empty text.

    >>> (
    ...     registration(23203, "graph", {}),
    ...     registration(23203, "graph", {"NCCL_LEGACY_CUDA_REGISTER": "1"}),
    ...     registration(22304, "stream", {}),
    ... )
    ('', 'maybe-registered', '')
    """
    is_legacy = version < _NO_LEGACY_SINCE or variables.get("NCCL_LEGACY_CUDA_REGISTER", "0") != "0"
    return (
        "maybe-registered"
        if launch == "graph" and is_legacy and variables.get("NCCL_GRAPH_REGISTER", "1") != "0"
        else ""
    )
