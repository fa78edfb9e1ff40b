"""The tables of profiles/tuning: what "auto" takes, by transport, collective and size.

    gpu_tuning() -> GpuTuning        cpu_tuning() -> CpuTuning

Each class below is one table of such a file, and its fields are the table's keys. The numbers, what
they were measured on and why they were chosen stand in the file. A file is read once a process. The
rules that pick a table are in selection.py and gpu_knobs.py.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, NewType, TypeVar, get_args, get_origin, get_type_hints

from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from collbench.spec.collectives import collective
from collbench.spec.knobs import LaunchMode
from collbench.util import catalog
from collbench.util.errors import UsageError
from collbench.util.registry import Family
from collbench.util.units import parse_size

Bytes = NewType("Bytes", int)
Algorithm = NewType("Algorithm", str)
ProtocolName = NewType("ProtocolName", str)
ANY_SIZE = Bytes(1 << 62)
NOTE = "note"  # a key that every table may have, for readers of the file
# The tables of a protocol's channels. Simple: tracks exchange blocks in one hop (duplex); no
# message needs a FIFO (zero_copy), some (mixed) or all (fifo).
LlChannels = Literal["one_peer", "reduction", "several_peers"]
Ll128Channels = Literal["one_peer", "pipelined", "several_peers"]
SimpleChannels = Literal["duplex", "zero_copy", "unclustered", "pipelined", "mixed", "fifo"]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedRow:
    """A row of a table: it holds for sizes up to this one."""

    up_to: Bytes = ANY_SIZE


_RowT = TypeVar("_RowT", bound=SizedRow)


def row_for(size: int, rows: Iterable[_RowT]) -> _RowT:
    """The first row that holds for a size."""
    return next(row for row in rows if size <= row.up_to)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestRow(SizedRow):
    """Algorithm and protocol of a size. ranks: the numbers of ranks that it holds for; (): all."""

    ranks: tuple[int, ...] = ()
    algo: Algorithm
    proto: ProtocolName = ProtocolName("simple")


_RankedT = TypeVar("_RankedT", "BestRow", "ChannelRow", "ChosenRow")


def rows_of(ranks: int, rows: Iterable[_RankedT]) -> tuple[_RankedT, ...]:
    """The rows that hold for a number of ranks."""
    return tuple(row for row in rows if not row.ranks or ranks in row.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolRow(SizedRow):
    proto: ProtocolName


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRow(SizedRow):
    """ranks: as in BestRow."""

    ranks: tuple[int, ...] = ()
    channels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRow(SizedRow):
    chunk: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ShmRow(SizedRow):
    channels: int
    chunk: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NetRow(SizedRow):
    channels: int
    message: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTable:
    rows: tuple[BestRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsTuning:
    """Ranks on several hosts."""

    source: str
    latency_bound_up_to: Bytes


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
class FlaggedTuning:
    """Protocols whose data carries flags."""

    chunk: Bytes
    slots: int
    threads: int
    threads_wide: int
    threads_wide_from: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LlTuning(FlaggedTuning):
    channels: dict[LlChannels, tuple[ChannelRow, ...]]
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ll128Tuning(FlaggedTuning):
    channels: dict[Ll128Channels, tuple[ChannelRow, ...]]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTuning:
    """Thread block clusters: GPCs of a GPU, sizes to try, from which S on, for how many CTAs."""

    gpcs: int
    sizes: tuple[int, ...]
    from_size: Bytes
    ctas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PdlRow(SizedRow):
    pdl: LaunchMode


@dataclass(frozen=True, slots=True, kw_only=True)
class PdlTable:
    """When a launch of a size allows the one behind it to take its place."""

    rows: tuple[PdlRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class P2pTuning:
    source: str
    protocol: tuple[ProtocolRow, ...]
    best: dict[str, BestTable]
    ll: LlTuning
    ll128: Ll128Tuning
    simple: SimpleTuning
    cluster: ClusterTuning
    pdl: PdlTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ShmTable:
    """sliced_from: the S from which on a message has two slices."""

    rows: tuple[ShmRow, ...]
    sliced_from: Bytes = ANY_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class ShmTuning:
    source: str
    protocol: tuple[ProtocolRow, ...]
    best: dict[str, BestTable]
    shape: dict[ShmShape, ShmTable]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetTable:
    rows: tuple[NetRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTuning:
    """What holds for messages of every shape; pipelined_ranks: for which shape.pipelined holds."""

    several_peers_channels: int
    sliced_from: Bytes
    pipelined_ranks: tuple[int, ...]
    first_message: Bytes
    message_grain: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NetTuning:
    source: str
    protocol: tuple[ProtocolRow, ...]
    best: dict[str, BestTable]
    messages: MessageTuning
    shape: dict[NetShape, NetTable]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRow:
    """The S from which on `auto` takes copies, and ranks as in BestRow."""

    from_size: Bytes
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEngineTuning:
    """chosen: the collectives for which `auto` takes copies."""

    source: str
    best: dict[str, BestTable]
    chosen: dict[str, tuple[ChosenRow, ...]]
    slices: int
    sliced_from: Bytes
    pipelined_loops: int
    pipelined_chunk: Bytes
    ctas: int
    copying_ctas: int
    threads: int
    unroll: int


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuNetTuning:
    """ranks_counted: rows hold for a size of each rank, of at most so many ranks."""

    source: str
    best: dict[str, BestTable]
    chunk: Bytes
    ranks_counted: int


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
    return _record(GpuTuning, catalog.load("tuning", name), _Place(name))


@lru_cache(maxsize=8)
def cpu_tuning(name: str = "cpu") -> CpuTuning:
    """A tuning profile for ranks on CPU cores. Raises UsageError as gpu_tuning does."""
    return _record(CpuTuning, catalog.load("tuning", name), _Place(name))


class _Place(NamedTuple):
    """The place of a value in a profile: its file, and the keys that lead to it."""

    file: str
    path: str = ""

    def of(self, key: str) -> "_Place":
        """The place of a key of the table that is here."""
        return self._replace(path=f"{self.path}.{key}" if self.path else key)

    def error(self, what: str) -> UsageError:
        """The refusal of the value."""
        section, _, key = self.path.rpartition(".")
        place = f"[{section}] {key}" if section else f"[{key}]" if key else "the file"
        return UsageError(f"tuning profile {self.file}: {place}: {what}")

    def parsed(self, parse: Callable[[str], object], text: str) -> object:
        """What a text means."""
        try:
            return parse(text)
        except UsageError as error:
            raise self.error(error.message) from None


def _record(kind: type[_Table], table: object, place: _Place) -> _Table:
    """A table as an object of a dataclass; its `note` is for readers of the file alone."""
    if not isinstance(table, dict):
        raise place.error(f"{table!r} is not a table")
    make: Callable[..., _Table] = kind
    assert is_dataclass(kind)
    hints = get_type_hints(kind)
    is_needed = {field.name: field.default is MISSING for field in fields(kind)}
    for key in table:
        if key not in is_needed and key != NOTE:
            raise place.of(key).error("there is no such key")
    for key, needed in is_needed.items():
        if needed and key not in table:
            raise place.of(key).error("is missing")
    return make(
        **{
            key: _value(hints[key], value, place.of(key))
            for key, value in table.items()
            if key != NOTE
        }
    )


def _value(hint: object, value: object, place: _Place) -> object:
    """A value as the type that its field has."""
    if is_dataclass(hint) and isinstance(hint, type):
        return _record(hint, value, place)
    inner = get_args(hint)
    if get_origin(hint) is dict:  # tables by name: of exactly some names, or of collectives
        if not isinstance(value, dict):
            raise place.error(f"{value!r} is not a table")
        names = get_args(inner[0])
        if names and set(value) != set(names):
            raise place.error(f"it must have exactly: {', '.join(names)}")
        for op in value if not names else ():
            place.of(op).parsed(collective, op)
        return {key: _value(inner[1], table, place.of(key)) for key, table in value.items()}
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise place.error(f"{value!r} is not a list")
        items = tuple(
            _value(inner[0], item, place._replace(path=f"{place.path}[{number}]"))
            for number, item in enumerate(value)
        )
        if isinstance(inner[0], type) and issubclass(inner[0], SizedRow):
            _check_sizes([row.up_to for row in items if isinstance(row, SizedRow)], place)
        return items
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise place.error(f"{value!r} is none of {', '.join(get_args(hint))}")
        return value
    return _plain(hint, value, place)


def _check_sizes(sizes: list[Bytes], place: _Place) -> None:
    """Refuse rows whose sizes fall, or the last of which does not hold for every size."""
    if sizes != sorted(sizes):
        raise place.error("the sizes of `up_to` must not fall from row to row")
    if not sizes or sizes[-1] != ANY_SIZE:
        raise place.error("the last row must hold for every size: leave its `up_to` out")


class _Column(NamedTuple):
    """What a value may be that is neither a table nor a list."""

    kinds: tuple[type, ...]
    what: str
    family: Family | None = None  # whose names it has


_TEXT, _WHOLE = _Column((str,), "a text"), _Column((int,), "a positive whole number")
_COLUMNS: dict[object, _Column] = {
    str: _TEXT,
    Algorithm: _TEXT._replace(family=ALGORITHMS),
    ProtocolName: _TEXT._replace(family=PROTOCOLS),
    int: _WHOLE,
    Bytes: _WHOLE,  # or a text with a unit
    float: _Column((int, float), "a positive number"),
}


def _plain(hint: object, value: object, place: _Place) -> object:
    """A number, a size or a name."""
    if hint is Bytes and isinstance(value, str):
        return place.parsed(parse_size, value)
    column = _COLUMNS[hint]
    is_kind = isinstance(value, column.kinds) and not isinstance(value, bool)
    if not is_kind or (isinstance(value, int | float) and not 0 < value < math.inf):
        raise place.error(f"{value!r} is not {column.what}")
    if column.family is not None and value not in column.family.names():
        raise place.error(f"'{value}' is none of {', '.join(column.family.names())}")
    return value
