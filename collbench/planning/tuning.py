"""The tables of profiles/tuning: what "auto" takes, by transport, collective and size.

    gpu_tuning() -> GpuTuning        cpu_tuning() -> CpuTuning

Each class below is one table of such a file, and its fields are the table's keys. The numbers, what
they were measured on and why they were taken stand in the file. A file is read once a process. The
rules that pick a table are in selection.py and gpu_knobs.py.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Literal, NewType, Protocol, TypeVar, get_args, get_origin, get_type_hints

from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from collbench.spec.collectives import collective
from collbench.util import catalog
from collbench.util.errors import UsageError
from collbench.util.units import parse_size

Bytes = NewType("Bytes", int)
Algorithm = NewType("Algorithm", str)
ProtocolName = NewType("ProtocolName", str)
ANY_SIZE = Bytes(1 << 62)
# The tables of a protocol's channels. Simple: no message needs a FIFO (zero_copy), some (mixed)
# or all (fifo).
LlChannels = Literal["one_peer", "reduction", "several_peers"]
Ll128Channels = Literal["one_peer", "pipelined", "several_peers"]
SimpleChannels = Literal["zero_copy", "unclustered", "pipelined", "mixed", "fifo"]
# The tables of a schedule's shape.
ShmShape = Literal[
    "ring",
    "one_hop_ring",
    "long_ring",
    "one_way",
    "pipelined",
    "direct",
    "duplex",
    "duplex_one_peer",
    "several_hops",
]
NetShape = Literal[
    "ring",
    "ring_of_many",
    "one_peer",
    "several_peers",
    "duplex",
    "duplex_one_peer",
    "duplex_two_ranks",
    "rooted",
    "pipelined",
]
_Table = TypeVar("_Table")


class SizedRow(Protocol):
    """A row of a table: it holds for sizes up to this one."""

    @property
    def up_to(self) -> Bytes: ...


_RowT = TypeVar("_RowT", bound=SizedRow)


def row_for(size: int, rows: Iterable[_RowT]) -> _RowT:
    """The first row that holds for a size."""
    return next(row for row in rows if size <= row.up_to)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestRow:
    """Algorithm and protocol of a size. ranks: the numbers of ranks that it holds for; (): all."""

    up_to: Bytes = ANY_SIZE
    ranks: tuple[int, ...] = ()
    algo: Algorithm
    proto: ProtocolName = ProtocolName("simple")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolRow:
    up_to: Bytes = ANY_SIZE
    proto: ProtocolName


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRow:
    up_to: Bytes = ANY_SIZE
    channels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRow:
    up_to: Bytes = ANY_SIZE
    chunk: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ShmRow:
    up_to: Bytes = ANY_SIZE
    channels: int
    chunk: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NetRow:
    up_to: Bytes = ANY_SIZE
    channels: int
    message: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTable:
    rows: tuple[BestRow, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsTuning:
    """Ranks on several hosts."""

    source: str
    latency_bound_up_to: Bytes
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTuning:
    """A launch in a graph, a hop by simple over NVLink, and the ratio of a hop on other paths."""

    source: str
    launch_us: float
    hop_us: float
    nvlink_us: float
    pcie_us: float
    net_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultTuning:
    """Collectives without a row, by kind."""

    source: str
    rooted: BestTable
    reduction: BestTable
    blocked: BestTable


@dataclass(frozen=True, slots=True, kw_only=True)
class LlTuning:
    channels: dict[LlChannels, tuple[ChannelRow, ...]]
    chunk: Bytes
    slots: int
    threads: int
    threads_wide: int
    threads_wide_from: Bytes
    lines: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ll128Tuning:
    channels: dict[Ll128Channels, tuple[ChannelRow, ...]]
    chunk: Bytes
    slots: int
    threads: int
    threads_wide: int
    threads_wide_from: Bytes
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleTuning:
    channels: dict[SimpleChannels, tuple[ChannelRow, ...]]
    least_share: Bytes
    chunk: Bytes
    chunk_few_channels: Bytes
    few_channels: int
    pipelined_chunk: tuple[ChunkRow, ...]
    slots: int
    pipelined_slots: int
    threads: int
    unroll: int
    slices: int
    sliced_from: Bytes
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTuning:
    """Thread block clusters: GPCs of a GPU, sizes to try, from which S on, for how many CTAs."""

    gpcs: int
    sizes: tuple[int, ...]
    from_size: Bytes
    ctas: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class P2pTuning:
    source: str
    protocol: tuple[ProtocolRow, ...]
    best: dict[str, BestTable]
    ll: LlTuning
    ll128: Ll128Tuning
    simple: SimpleTuning
    cluster: ClusterTuning


@dataclass(frozen=True, slots=True, kw_only=True)
class ShmTable:
    """sliced_from: the S from which on a message has two slices."""

    rows: tuple[ShmRow, ...]
    sliced_from: Bytes = ANY_SIZE
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShmTuning:
    source: str
    protocol: tuple[ProtocolRow, ...]
    best: dict[str, BestTable]
    shape: dict[ShmShape, ShmTable]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetTable:
    rows: tuple[NetRow, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTuning:
    """What holds for messages of every shape; pipelined_ranks: for which shape.pipelined holds."""

    several_peers_channels: int
    sliced_from: Bytes
    pipelined_ranks: tuple[int, ...]
    first_message: Bytes
    message_grain: Bytes
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetTuning:
    source: str
    protocol: tuple[ProtocolRow, ...]
    best: dict[str, BestTable]
    messages: MessageTuning
    shape: dict[NetShape, NetTable]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEngineTuning:
    """chosen_for, chosen_from: the collectives and the S from which on `auto` takes copies."""

    source: str
    best: dict[str, BestTable]
    chosen_for: tuple[str, ...]
    chosen_from: Bytes
    slices: int
    sliced_from: Bytes
    pipelined_loops: int
    pipelined_chunk: Bytes
    ctas: int
    copying_ctas: int
    threads: int
    unroll: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTuning:
    title: str
    hosts: HostsTuning
    latency: LatencyTuning
    default: DefaultTuning
    p2p: P2pTuning
    shm: ShmTuning
    net: NetTuning
    ce: CopyEngineTuning


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuShmTuning:
    source: str
    best: dict[str, BestTable]
    zero_copy_chunk: Bytes
    fifo_chunk: Bytes
    slots: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuNetTuning:
    """ranks_counted: rows hold for a size of each rank, of at most so many ranks."""

    source: str
    best: dict[str, BestTable]
    chunk: Bytes
    ranks_counted: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTuning:
    title: str
    hosts: HostsTuning
    default: DefaultTuning
    shm: CpuShmTuning
    net: CpuNetTuning


@lru_cache(maxsize=8)
def gpu_tuning(name: str = "h200") -> GpuTuning:
    """A tuning profile for GPUs. Raises UsageError that names the file, the section and the key."""
    return _record(GpuTuning, catalog.load("tuning", name), name, "")


@lru_cache(maxsize=8)
def cpu_tuning(name: str = "cpu") -> CpuTuning:
    """A tuning profile for ranks on CPU cores. Raises UsageError as gpu_tuning does."""
    return _record(CpuTuning, catalog.load("tuning", name), name, "")


def _wrong(file: str, path: str, what: str) -> UsageError:
    section, _, key = path.rpartition(".")
    place = f"[{section}] {key}" if section else f"[{key}]" if key else "the file"
    return UsageError(f"tuning profile {file}: {place}: {what}")


def _record(kind: type[_Table], table: object, file: str, path: str) -> _Table:
    """A table as an object of a dataclass."""
    if not isinstance(table, dict):
        raise _wrong(file, path, f"{table!r} is not a table")
    make: Callable[..., _Table] = kind
    assert is_dataclass(kind)
    hints, prefix = get_type_hints(kind), f"{path}." if path else ""
    is_needed = {field.name: field.default is MISSING for field in fields(kind)}
    for key in table:
        if key not in is_needed:
            raise _wrong(file, f"{prefix}{key}", "there is no such key")
    for key, needed in is_needed.items():
        if needed and key not in table:
            raise _wrong(file, f"{prefix}{key}", "is missing")
    return make(
        **{key: _value(hints[key], value, file, f"{prefix}{key}") for key, value in table.items()}
    )


def _value(hint: object, value: object, file: str, path: str) -> object:
    """A value as the type that its field has."""
    if is_dataclass(hint) and isinstance(hint, type):
        return _record(hint, value, file, path)
    inner = get_args(hint)
    if get_origin(hint) is dict:
        if not isinstance(value, dict):
            raise _wrong(file, path, f"{value!r} is not a table")
        names = get_args(inner[0])
        if names and set(value) != set(names):
            raise _wrong(file, path, f"it must have exactly: {', '.join(names)}")
        for op in value if not names else ():
            _parsed(collective, op, file, f"{path}.{op}")
        return {key: _value(inner[1], one, file, f"{path}.{key}") for key, one in value.items()}
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise _wrong(file, path, f"{value!r} is not a list")
        items = [
            _value(inner[0], one, file, f"{path}[{number}]") for number, one in enumerate(value)
        ]
        return _ordered(items, file, path) if is_dataclass(inner[0]) else tuple(items)
    return _plain(hint, value, file, path)


def _plain(hint: object, value: object, file: str, path: str) -> object:
    """A number, a size or a name."""
    if hint is Bytes and isinstance(value, str):
        return _parsed(parse_size, value, file, path)
    if hint in (int, float, Bytes):
        kinds = (int, float) if hint is float else (int,)
        if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < math.inf:
            whole = "" if hint is float else "whole "
            raise _wrong(file, path, f"{value!r} is not a positive {whole}number")
        return value
    if not isinstance(value, str):
        raise _wrong(file, path, f"{value!r} is not a text")
    for kind, names in _registered():
        if hint is kind and value not in names:
            raise _wrong(file, path, f"'{value}' is none of {', '.join(names)}")
    return value


@lru_cache(maxsize=1)
def _registered() -> tuple[tuple[object, tuple[str, ...]], ...]:
    """The types of names in a profile, with the names that there are."""
    return (Algorithm, ALGORITHMS.names()), (ProtocolName, PROTOCOLS.names())


def _parsed(parse: Callable[[str], object], text: str, file: str, path: str) -> object:
    """What a text means. Raises UsageError that names its place in the file."""
    try:
        return parse(text)
    except UsageError as error:
        raise _wrong(file, path, error.message) from None


def _ordered(rows: Sequence[object], file: str, path: str) -> tuple[object, ...]:
    """Rows whose sizes do not fall, the last of which holds for every size."""
    sizes = [getattr(row, "up_to", ANY_SIZE) for row in rows]
    if sizes != sorted(sizes):
        raise _wrong(file, path, "the sizes of `up_to` must not fall from row to row")
    if not sizes or sizes[-1] != ANY_SIZE:
        raise _wrong(file, path, "the last row must hold for every size: leave its `up_to` out")
    return tuple(rows)
