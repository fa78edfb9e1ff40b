"""NCCL's knobs: which of our words force what, by which variables of the environment; what it
refuses; and what it does with user buffers.

Only names and numbers: nothing here loads NCCL. It reads most of these variables once a process, so
each set of them wants new processes. Sources: NCCL's guide (Environment Variables) and its code of
2.32.
"""

from collections.abc import Mapping

from collbench.backends.gpu.child import Variables
from collbench.spec.case import Case

# Inside one host NCCL's Tree is a chain in ring order: its double binary tree joins hosts. So
# `tree`, which is a tree of GPUs, has no counterpart.
_ALGOS = {"ring": "Ring", "chain": "Tree"}
_PROTOS = {"simple": "Simple", "ll": "LL", "ll128": "LL128"}
_BUFFSIZES = {"simple": "NCCL_BUFFSIZE", "ll": "NCCL_LL_BUFFSIZE", "ll128": "NCCL_LL128_BUFFSIZE"}
# the last two would win over the first two
_CHANNELS = ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS")
# The values that NCCL has for a knob of ours; none named: any number.
KNOBS: dict[str, tuple[str, ...]] = {
    "algo": tuple(_ALGOS),
    "proto": tuple(_PROTOS),
    "channels": (),
    "buffsize": (),
}
_GROUPED = ("alltoall", "gather", "scatter", "sendrecv")  # groups of ncclSend and ncclRecv
_MAX_CHANNELS = 64  # MAXCHANNELS
# A FIFO has 8 slots. One of LL128 must hold 16 lines of 128 bytes, which a warp moves at once; with
# less a chunk would be empty.
_LEAST_BUFFER_BYTES, _MOST_BUFFER_BYTES, _BUFFER_GRAIN_BYTES = 8 * 16 * 128, 1 << 30, 8 * 128
# from 2.24 on NCCL registers memory of cudaMalloc only if NCCL_LEGACY_CUDA_REGISTER says so
_NO_LEGACY_SINCE = 22400


def environment(case: Case) -> Variables:
    """What must stand in the environment of the processes that run a case; nothing: all is NCCL's
    own choice.

    Without a protocol the size is that of every protocol's FIFO, whichever NCCL then takes.

    >>> environment(
    ...     Case(
    ...         op="allreduce",
    ...         backend="nccl",
    ...         algo="chain",
    ...         proto="ll",
    ...         buffsize=1 << 20,
    ...         ranks=2,
    ...         size_bytes=8,
    ...     )
    ... )
    (('NCCL_ALGO', 'Tree'), ('NCCL_PROTO', 'LL'), ('NCCL_LL_BUFFSIZE', '1048576'))
    >>> environment(
    ...     Case(op="allreduce", backend="nccl", algo="library", proto="", ranks=2, size_bytes=8)
    ... )
    ()
    """
    found: list[tuple[str, str]] = []
    if case.algo in _ALGOS:
        found.append(("NCCL_ALGO", _ALGOS[case.algo]))
    if case.proto in _PROTOS:
        found.append(("NCCL_PROTO", _PROTOS[case.proto]))
    if case.channels:
        found += [(name, str(case.channels)) for name in _CHANNELS]
    if case.buffsize:
        found += [
            (name, str(case.buffsize))
            for proto, name in _BUFFSIZES.items()
            if case.proto in ("", proto)
        ]
    return tuple(found)


def why_waived(case: Case, is_reduction: bool) -> str:
    """Why NCCL cannot do this, or not in the way that it is forced to, or an empty text."""
    if case.op in _GROUPED and (case.algo in _ALGOS or case.proto in _PROTOS):
        return (
            f"NCCL's {case.op} is a group of sends and receives, which have no algorithm or"
            " protocol to choose"
        )
    if case.algo == "chain" and case.op != "allreduce":
        return f"NCCL's Tree, a chain inside a host, serves allreduce, not {case.op}"
    if case.channels > _MAX_CHANNELS:
        return f"{case.channels} channels: NCCL has at most {_MAX_CHANNELS}"
    if case.op in _GROUPED and case.channels & (case.channels - 1):
        return f"{case.channels} channels: NCCL's sends and receives take a power of two"
    if case.buffsize and not (
        _LEAST_BUFFER_BYTES <= case.buffsize <= _MOST_BUFFER_BYTES
        and case.buffsize % _BUFFER_GRAIN_BYTES == 0
    ):
        return f"a buffer of {case.buffsize} bytes: NCCL needs 16K to 1G, in whole K"
    return ""


def registration(version: int, launch: str, variables: Mapping[str, str]) -> str:
    """The note of whether NCCL may have registered the user buffers: `unregistered`, or
    `maybe-registered` where it does not tell.

    CuPy's binding has no ncclCommRegister, so that only the capture of a graph can do it; and user
    buffers are of cudaMalloc.

    >>> (
    ...     registration(23203, "graph", {}),
    ...     registration(23203, "graph", {"NCCL_LEGACY_CUDA_REGISTER": "1"}),
    ...     registration(22304, "stream", {}),
    ... )
    ('unregistered', 'maybe-registered', 'unregistered')
    """
    is_legacy = version < _NO_LEGACY_SINCE or variables.get("NCCL_LEGACY_CUDA_REGISTER", "0") != "0"
    return (
        "maybe-registered"
        if launch == "graph" and is_legacy and variables.get("NCCL_GRAPH_REGISTER", "1") != "0"
        else "unregistered"
    )
