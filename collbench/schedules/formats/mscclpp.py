"""MSCCL++'s execution plans, in the JSON of its language from 0.7 on: `gpus` > `threadblocks` >
`ops`. What they mean follows Microsoft's executor, which runs such files.

A block puts chunks into the memory of other ranks (put, ppkt, res, ...) and gets them from there
(get, rre, ...); signal and wait on a channel, semaphores and barriers give the order, and packets
carry flags that their reader waits for.
"""

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from collbench.core.collectives import OpName, collective
from collbench.core.errors import UsageError
from collbench.core.reading import parse_json
from collbench.schedules.formats._shared import Address, Move, Operation, with_messages
from collbench.schedules.formats._threads import ThreadProgram, refuse_too_large
from collbench.schedules.formats.msccl import MAX_CHUNKS, MAX_RANKS
from collbench.schedules.ir import BufferName, Operand

_MAX_CHARS = 32 << 20
_BUFFERS: Mapping[str, BufferName] = {"i": "in", "o": "out", "s": "tmp"}
_COPIES = ("copy", "cpkt", "upkt", "put", "pws", "pwsf", "ppkt", "rppkt", "get")
_REDUCTIONS = ("re", "repkt", "recpkt", "res", "respkt", "recspkt", "rre", "rres")
# Operations that write packets to scratch memory, and those that read them there.
_WRITE_PACKETS = ("cpkt", "ppkt", "rppkt", "recpkt", "respkt", "recspkt")
_READ_PACKETS = ("upkt", "rppkt", "repkt", "recpkt", "respkt", "recspkt")
_NOTHING = ("nop", "flush")  # the threads of a block are one here
_SIGNALS = {"signal": True, "rlxsignal": True, "wait": False, "rlxwait": False}
_NO_COUNTERPART = {
    "gstore": "multicast",
    "gstorepkt": "multicast",
    "glre": "multicast",
    "glres": "multicast",
    "pipeline": "a loop of its own: the loops of a schedule are those of its plan",
}


class _Node(NamedTuple):
    """A value of the file and where it stands."""

    value: Any  # of JSON
    place: str

    def get(self, key: str) -> "_Node":
        """A member of a table. Raises UsageError."""
        if not isinstance(self.value, dict) or key not in self.value:
            raise UsageError(
                f"{self.place} has no {key}", "plans of MSCCL++ 0.7 and later are read"
            )
        return _Node(self.value[key], f"{self.place}.{key}")

    def items(self, key: str, default: list[object] | None = None) -> "list[_Node]":
        """The members of a list. Raises UsageError."""
        if default is not None and isinstance(self.value, dict) and key not in self.value:
            return []
        node = self.get(key)
        if not isinstance(node.value, list):
            raise UsageError(f"{node.place} is no list")
        return [_Node(one, f"{node.place}[{k}]") for k, one in enumerate(node.value)]

    def whole(self, key: str, low: int, high: int) -> int:
        """A whole number within limits. Raises UsageError."""
        return self.get(key).number(low, high)

    def number(self, low: int, high: int) -> int:
        """The value as a whole number within limits. Raises UsageError."""
        if not isinstance(self.value, int) or not low <= self.value <= high:
            raise UsageError(
                f"{self.place} is {str(self.value)[:40]!r}, no whole number from {low} to {high}"
            )
        return int(self.value)

    def word(self, key: str) -> str:
        """A text. Raises UsageError."""
        node = self.get(key)
        if not isinstance(node.value, str):
            raise UsageError(f"{node.place} is no text")
        return node.value

    def has(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value


def is_mine(text: str) -> bool:
    """Whether a text can be such a file."""
    return text.lstrip().startswith("{")


def read(text: str, name: str) -> ThreadProgram:
    """The program. Raises UsageError with the place and what is wrong."""
    plan = _Node(parse_json(text, name, _MAX_CHARS), name)
    op, gpus = _op(plan), plan.items("gpus")
    if not 2 <= len(gpus) <= MAX_RANKS:
        raise UsageError(f"{name}.gpus has {len(gpus)} members", f"2 to {MAX_RANKS} are read")
    ranks = sorted(gpus, key=lambda gpu: gpu.whole("id", 0, len(gpus) - 1))
    if [gpu.get("id").value for gpu in ranks] != list(range(len(gpus))):
        raise UsageError(f"{name}.gpus: two have the same id")
    empty = ThreadProgram(
        op=op,
        n=len(gpus),
        root=0,
        file=name,
        chunks=_chunks(op, plan, ranks),
        placements=frozenset({"in" if plan.get("inplace").value is True else "out"}),
        ranks=(),
    )
    held = [_held(gpu) for gpu in ranks]
    readers = [_Gpu(gpu, rank, held) for rank, gpu in enumerate(ranks)]
    initial = {counter: count for gpu in readers for counter, count in gpu.initial().items()}
    blocks = tuple(gpu.blocks() for gpu in readers)
    moves = sum(len(one.moves) for gpu in blocks for _, made in gpu for one in made)
    refuse_too_large(op, len(gpus), empty.chunks, moves, name)
    return with_messages(empty, blocks, initial)


def _held(gpu: _Node) -> dict[BufferName, int]:
    """The chunks of each buffer of a rank."""
    return {
        "in": gpu.whole("input_chunks", 0, MAX_CHUNKS),
        "out": gpu.whole("output_chunks", 0, MAX_CHUNKS),
        "tmp": gpu.whole("scratch_chunks", 0, MAX_CHUNKS),
    }


def _op(plan: _Node) -> OpName:
    name = plan.word("collective")
    try:
        return collective(name).name
    except UsageError as error:
        raise UsageError(f"{plan.place}.collective: {error.message}", error.hint) from None


def _chunks(op: OpName, plan: _Node, gpus: list[_Node]) -> int:
    """Chunks of the vector, or of a block: the same at every rank."""
    what = collective(op)
    found: set[int] = set()
    for gpu in gpus:
        for key, (many, _) in (("input_chunks", what.inputs), ("output_chunks", what.outputs)):
            count = gpu.whole(key, 0, MAX_CHUNKS)
            blocks = len(gpus) if many == "n" and not what.is_interleaved else 1
            if count % blocks:
                raise UsageError(f"{gpu.place}.{key} is {count}, not {blocks} equal blocks")
            found |= {count // blocks} if count else set()
    if len(found) != 1:
        raise UsageError(f"{plan.place}: the buffers are not cut alike at every rank")
    return found.pop()


class _Gpu:
    """What one rank does."""

    def __init__(self, gpu: _Node, rank: int, held: list[dict[BufferName, int]]) -> None:
        self.gpu, self.rank, self.held = gpu, rank, held
        n = len(held)
        # of each type: the peer of every channel, and which of those to this peer it is
        self.channels: dict[str, list[tuple[int, int]]] = {}
        for channel in gpu.items("channels", []):
            kind = channel.word("channel_type")
            if kind == "switch":
                continue
            ends = self.channels.setdefault(kind, [])
            for end in channel.items("connected_to"):
                peer = end.number(0, n - 1)
                ends.append((peer, sum(other == peer for other, _ in ends)))
        self.buffers = [
            (one.whole("rank", 0, n - 1), _buffer(one)) for one in gpu.items("remote_buffers", [])
        ]

    def initial(self) -> dict[Hashable, int]:
        """What the semaphores hold from the start."""
        return {
            ("semaphore", self.rank, number): semaphore.whole("init_value", 0, MAX_CHUNKS)
            for number, semaphore in enumerate(self.gpu.items("semaphores", []))
        }

    def blocks(self) -> tuple[tuple[str, tuple[Operation, ...]], ...]:
        blocks = [_ThreadBlock(self, block) for block in self.gpu.items("threadblocks")]
        made = tuple((block.name, tuple(block.operations())) for block in blocks)
        members: dict[tuple[int, int], list[tuple[str, str]]] = {}
        for block in blocks:
            for key, operations in block.members.items():
                members.setdefault(key, []).extend(operations)
        for (size, member), operations in members.items():
            mine, first = (
                sorted(what for what, _ in some)
                for some in (operations, members.get((size, 0), []))
            )
            if mine != first:
                raise UsageError(
                    f"{operations[0][1]}: member {member} of a group of {size} thread blocks does"
                    " other things than the first",
                    "a schedule has the members of a group as one",
                )
        return made


class _ThreadBlock:
    """The operations of a thread block, which numbers channels and buffers in its own way."""

    def __init__(self, gpu: _Gpu, block: _Node) -> None:
        self.gpu, self.block = gpu, block
        self.name = f"tb{block.whole('id', 0, MAX_CHUNKS)}"
        # of groups of blocks, by size and member: what they do, each to its part of the chunks
        self.members: dict[tuple[int, int], list[tuple[str, str]]] = {}
        self.channels: dict[str, list[tuple[int, int]]] = {}
        for channel in block.items("channels", []):
            kind = channel.word("channel_type")
            known = gpu.channels.get(kind, [])
            if kind != "switch":
                self.channels.setdefault(kind, []).extend(
                    known[one.number(0, len(known) - 1)] for one in channel.items("channel_ids")
                )
        self.buffers: dict[str, list[tuple[int, BufferName]]] = {}
        for reference in block.items("remote_buffer_refs", []):
            self.buffers.setdefault(reference.word("access_channel_type"), []).extend(
                gpu.buffers[one.number(0, len(gpu.buffers) - 1)]
                for one in reference.items("remote_buffer_ids")
            )

    def operations(self) -> list[Operation]:
        return [
            operation
            for node in self.block.items("ops")
            if (operation := self._operation(node)) is not None
        ]

    def _operation(self, node: _Node) -> Operation | None:
        name, rank = node.word("name"), self.gpu.rank
        if name in _NO_COUNTERPART:
            raise UsageError(
                f"{node.place}: {name} is {_NO_COUNTERPART[name]}, which our steps do not have"
            )
        if name in _NOTHING:
            return None
        if name in _SIGNALS:
            ends = self._ends(node)
            return (
                Operation(place=node.place, gives=tuple((rank, *end) for end in ends))
                if _SIGNALS[name]
                else Operation(
                    place=node.place, takes=tuple((peer, rank, *rest) for peer, *rest in ends)
                )
            )
        if name in ("sem_acquire", "sem_release"):
            counters = tuple(
                ("semaphore", rank, one.number(0, MAX_CHUNKS))
                for one in node.items("semaphore_ids")
            )
            is_taking = name == "sem_acquire"
            return Operation(
                place=node.place,
                takes=counters if is_taking else (),
                gives=() if is_taking else counters,
            )
        if name == "barrier":
            count = node.whole("num_threadblocks", 1, MAX_CHUNKS)
            meeting = ("barrier", rank, node.whole("barrier_id", 0, MAX_CHUNKS))
            return Operation(place=node.place, meets=(meeting, count))
        if name not in (*_COPIES, *_REDUCTIONS):
            raise UsageError(f"{node.place}.name: there is no operation '{name[:40]}'")
        return self._data(node, name)

    def _ends(self, node: _Node) -> list[tuple[int, str, int]]:
        """The peer, the type and the number of the channels of an operation."""
        kind = node.word("channel_type")
        own = self.channels.get(kind, [])
        ends = [own[one.number(0, len(own) - 1)] for one in node.items("channel_ids")]
        return [(peer, kind, number) for peer, number in ends]

    def _data(self, node: _Node, name: str) -> Operation:
        """An operation on chunks. The first of a group of thread blocks does that of all."""
        signals = self._ends(node) if name in ("pws", "pwsf") else []
        gives = tuple((self.gpu.rank, *end) for end in signals)
        sources = [self._addresses(one, node) for one in node.items("src_buff")]
        targets = [self._addresses(one, node) for one in node.items("dst_buff")]
        moves = _moves(name, sources, targets)
        if not moves:
            raise UsageError(f"{node.place}: the buffers of {name} do not fit each other")
        if node.has("tbg_info"):
            info = node.get("tbg_info")
            size = info.whole("tbg_size", 1, MAX_CHUNKS)
            member = info.whole("tb_id", 0, size - 1)
            self.members.setdefault((size, member), []).append((f"{name} {moves}", node.place))
            if member:
                return Operation(place=node.place, gives=gives)
        return Operation(
            place=node.place,
            moves=tuple(moves),
            gives=gives,
            has_packets=name in _WRITE_PACKETS,
            awaited=frozenset(
                at
                for move in moves
                for at in move.src
                if name in _READ_PACKETS and at.operand.buffer == "tmp"
            ),
        )

    def _addresses(self, one: _Node, node: _Node) -> list[Address]:
        """The chunks of a source or a destination."""
        if one.has("buffer_id"):
            own = self.buffers.get(node.word("channel_type"), [])
            rank, buffer = own[one.whole("buffer_id", 0, len(own) - 1)]
        else:
            rank, buffer = self.gpu.rank, _buffer(one)
        first, size = one.whole("index", 0, MAX_CHUNKS), one.whole("size", 1, MAX_CHUNKS)
        held = self.gpu.held[rank][buffer] or max(self.gpu.held[rank].values())
        if first + size > held:
            raise UsageError(f"{one.place} ends behind the {held} chunks of {buffer}")
        return [Address(rank, Operand(buffer, chunk)) for chunk in range(first, first + size)]


def _moves(name: str, sources: list[list[Address]], targets: list[list[Address]]) -> list[Move]:
    """What an operation does to each of its chunks; nothing if its buffers do not fit."""
    if not sources or not targets or len({*map(len, sources), *map(len, targets)}) > 1:
        return []
    if name in _REDUCTIONS:
        return [
            Move(src, dst)
            for src, dst in zip(zip(*sources, strict=True), zip(*targets, strict=True), strict=True)
        ]
    if len(sources) == 1:
        sources = sources * len(targets)
    if len(sources) != len(targets):
        return []
    return [
        Move((source,), (target,))
        for src, dst in zip(sources, targets, strict=True)
        for source, target in zip(src, dst, strict=True)
    ]


def _buffer(node: _Node) -> BufferName:
    letter = node.word("type")
    if letter not in _BUFFERS:
        raise UsageError(f"{node.place}.type is '{letter[:40]}', none of i, o, s")
    return _BUFFERS[letter]
