"""MSCCL++'s execution plans, in the JSON of its language from 0.7 on: `gpus` > `threadblocks` >
`ops`. What they mean follows Microsoft's executor, which runs such files.

A block puts chunks into the memory of other ranks (put, ppkt, res, ...) and gets them from there
(get, rre, ...); signal and wait on a channel, semaphores and barriers give the order, and packets
carry flags that their reader waits for. A chunk that a block writes at another rank becomes a
message, which the first block there that learns of it receives before it goes on; a chunk that it
reads there becomes a message that the other rank sends at the last point that the reader knows of.
Blocks of one rank that learn of each other are joined. Where nobody waits for what is written, the
program is refused.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar

from collbench.core import codec
from collbench.core.errors import ScheduleError, UsageError
from collbench.core.reading import parse_json
from collbench.schedules.formats._program import (
    MAX_RANKS,
    Block,
    Buffers,
    Event,
    Move,
    Operation,
    Play,
    ThreadProgram,
    Turn,
)
from collbench.schedules.ir import Edge, Operand, Round, Step
from collbench.schedules.verify.clocks import Cell

_MAX_CHARS = 32 << 20
_MAX_TOKENS = 1 << 16  # of a semaphore from the start
_COPIES = ("copy", "cpkt", "upkt", "put", "pws", "pwsf", "ppkt", "rppkt", "get")
_REDUCTIONS = ("re", "repkt", "recpkt", "res", "respkt", "recspkt", "rre", "rres")
# Operations that write packets to scratch memory, and those that read them there.
_WRITE_PACKETS = ("cpkt", "ppkt", "rppkt", "recpkt", "respkt", "recspkt")
_READ_PACKETS = ("upkt", "rppkt", "repkt", "recpkt", "respkt", "recspkt")
_NOTHING = ("nop", "flush")  # the threads of a block are one here
_GIVES = ("signal", "rlxsignal", "pws", "pwsf", "sem_release")
_TAKES = ("wait", "rlxwait", "sem_acquire")
_NONE = object()
T = TypeVar("T")


class _Table(NamedTuple):
    """A table of the file and where it stands."""

    value: object
    place: str

    def get(self, kind: type[T], key: str, default: object = _NONE) -> T:
        """A member. Raises UsageError."""
        if not isinstance(self.value, dict):
            raise UsageError(f"{self.place} is no table")
        if key not in self.value and default is _NONE:
            raise UsageError(
                f"{self.place} has no {key}", "plans of MSCCL++ 0.7 and later are read"
            )
        return codec.decode(kind, self.value.get(key, default), f"{self.place}.{key}")

    def tables(self, key: str, default: object = _NONE) -> list["_Table"]:
        """The members of a list."""
        items = self.get(tuple[object, ...], key, default)
        return [_Table(one, f"{self.place}.{key}[{k}]") for k, one in enumerate(items)]

    def item(self, key: str, items: Sequence[T]) -> T:
        """The item of a number. Raises UsageError."""
        number = self.get(int, key)
        if not 0 <= number < len(items):
            raise UsageError(f"{self.place}.{key}: there is no {number} among {len(items)}")
        return items[number]

    def items(self, key: str, items: Sequence[T]) -> list[T]:
        """The items of a list of numbers. Raises UsageError."""
        numbers = self.get(tuple[int, ...], key)
        return [_Table({key: number}, self.place).item(key, items) for number in numbers]


def is_mine(text: str) -> bool:
    """Whether a text can be such a file."""
    return text.lstrip().startswith("{")


def read(text: str, name: str) -> ThreadProgram:
    """The program. Raises UsageError with the place and what is wrong."""
    plan = _Table(parse_json(text, name, _MAX_CHARS), name)
    gpus = sorted(plan.tables("gpus"), key=lambda gpu: gpu.get(int, "id"))
    is_counted = [gpu.get(int, "id") for gpu in gpus] == list(range(len(gpus)))
    if not (is_counted and 2 <= len(gpus) <= MAX_RANKS):
        raise UsageError(f"{name}.gpus are not 2 to {MAX_RANKS} with the ids from 0 on")
    keys = {"i": "input_chunks", "o": "output_chunks", "s": "scratch_chunks"}
    buffers = Buffers(
        f"{name}.collective",
        plan.get(str, "collective"),
        [{letter: gpu.get(int, key) for letter, key in keys.items()} for gpu in gpus],
        root=0,
        is_aliased=plan.get(bool, "inplace"),
        file=name,
    )
    initial: dict[Hashable, int] = {}
    blocks: list[Block] = []
    for rank, gpu in enumerate(gpus):
        blocks += _blocks(gpu, rank, buffers)
        for number, semaphore in enumerate(gpu.tables("semaphores", [])):
            value = semaphore.get(int, "init_value")
            initial["semaphore", rank, number] = min(max(value, 0), _MAX_TOKENS)
    return _with_messages(buffers.program, blocks, initial)


def _with_messages(
    program: ThreadProgram, blocks: Sequence[Block], initial: Mapping[Hashable, int]
) -> ThreadProgram:
    """The program of some blocks. initial: how often something was given before. Raises
    ScheduleError with the place and what is wrong.
    """
    play = Play(blocks, initial)
    messages, times = _Messages(play), {}
    for time, event in play.run():
        messages.add(event)
        times[event] = time
    if play.waiting:
        raise play.hang()
    for put in chain(*messages.puts.values()):
        raise ScheduleError(
            f"{play.operation(put.source).place}: nobody at rank {put.target.rank} waits for what"
            " it writes there",
            "the program can end before the data is there",
        )
    joined = {
        (block, other)
        for block, clock in enumerate(play.clocks)
        for other in clock
        if blocks[block].rank == blocks[other].rank
    }
    turns = (
        Turn((time, number), event.block, play.operation(event).place, steps)
        for event, time in times.items()
        for number, steps in enumerate(messages.rounds(event))
    )
    return program.played(blocks, joined, turns)


def _channels(table: _Table) -> Iterator[tuple[str, _Table]]:
    """The channels but for those of multicast, and their types."""
    for channel in table.tables("channels", []):
        if (kind := channel.get(str, "channel_type")) != "switch":
            yield kind, channel


def _blocks(gpu: _Table, rank: int, buffers: Buffers) -> list[Block]:
    """The thread blocks of a rank."""
    ranks = range(buffers.program.n)
    ends: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for kind, channel in _channels(gpu):
        for peer in channel.items("connected_to", ranks):
            ends[kind].append((peer, sum(other == peer for other, _ in ends[kind])))
    remote = [
        (one.item("rank", ranks), one.get(str, "type")) for one in gpu.tables("remote_buffers", [])
    ]
    blocks, groups = [], Counter[tuple[int, str]]()
    for number, table in enumerate(gpu.tables("threadblocks")):
        reader = _ThreadBlock(table, rank, ends, remote, buffers, groups)
        work = [one for op in table.tables("ops") for one in reader.operations(op)]
        blocks.append(Block(rank, f"tb{number}", work))
    for (size, what), times in groups.items():
        if times % size:
            raise UsageError(
                f"{gpu.place}: not all {size} thread blocks of a group do the same: {what[:40]}..",
                "a schedule has the members of a group as one",
            )
    return blocks


class _ThreadBlock:
    """The operations of a thread block, which numbers channels and buffers in its own way: ends,
    of each type of channel the peer and which of those to this peer it is; remote, the rank and
    the letter of buffers.
    """

    def __init__(
        self,
        block: _Table,
        rank: int,
        ends: Mapping[str, list[tuple[int, int]]],
        remote: list[tuple[int, str]],
        buffers: Buffers,
        groups: Counter[tuple[int, str]],
    ) -> None:
        self.rank, self.buffers, self.groups = rank, buffers, groups
        self.ends: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for kind, channel in _channels(block):
            self.ends[kind] += channel.items("channel_ids", ends.get(kind, []))
        self.remote: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for one in block.tables("remote_buffer_refs", []):
            kind = one.get(str, "access_channel_type")
            self.remote[kind] += one.items("remote_buffer_ids", remote)
        self.barriers: Counter[int] = Counter()

    def operations(self, op: _Table) -> Iterator[Operation]:
        """What an operation is: a barrier is two."""
        name = op.get(str, "name")
        if name == "barrier":
            number, count = op.get(int, "barrier_id"), op.get(int, "num_threadblocks")
            self.barriers[number] += 1
            meeting = ("barrier", self.rank, number, self.barriers[number])
            yield Operation(place=op.place, gives=(meeting,))
            yield Operation(place=op.place, sees=(meeting,) * min(count, MAX_RANKS))
        elif name in (*_COPIES, *_REDUCTIONS, *_GIVES, *_TAKES):
            moves = self._moves(op, name) if name in (*_COPIES, *_REDUCTIONS) else ()
            read = {at for move in moves for at in move.src if at.operand.buffer == "tmp"}
            written = [at for move in moves for at in move.dst]
            # elsewhere than in scratch memory nobody waits for flags
            flagged = (at for at in written if at.operand.buffer == "tmp" or at.rank != self.rank)
            signals = self._signals(op, name)
            yield Operation(
                place=op.place,
                takes=signals if name in _TAKES else (),
                sees=tuple(read) if name in _READ_PACKETS else (),
                gives=(
                    *(flagged if name in _WRITE_PACKETS else ()),
                    *(signals if name in _GIVES else ()),
                ),
                moves=moves,
            )
        elif name not in _NOTHING:
            raise UsageError(
                f"{op.place}: {name[:40]} is no operation that our steps can do",
                "multicast and pipelines are not read",
            )

    def _signals(self, op: _Table, name: str) -> tuple[Hashable, ...]:
        """What an operation gives to others, or takes from them."""
        rank = self.rank
        if name in ("sem_acquire", "sem_release"):
            return tuple(
                ("semaphore", rank, one) for one in op.get(tuple[int, ...], "semaphore_ids")
            )
        if name not in (*_GIVES, *_TAKES):
            return ()
        kind = op.get(str, "channel_type")
        ends = op.items("channel_ids", self.ends[kind])
        if name in _GIVES:
            return tuple((rank, peer, kind, number) for peer, number in ends)
        return tuple((peer, rank, kind, number) for peer, number in ends)

    def _moves(self, op: _Table, name: str) -> tuple[Move, ...]:
        """What an operation does to each of its chunks. The first of a group of thread blocks does
        that of all.
        """
        sources, targets = (
            [self._cells(chunks, op) for chunks in op.tables(key)]
            for key in ("src_buff", "dst_buff")
        )
        if name in _COPIES and len(sources) == 1:
            sources = sources * len(targets)
        fits = name in _REDUCTIONS or len(sources) == len(targets)
        if not (sources and targets and fits) or len({*map(len, sources), *map(len, targets)}) > 1:
            raise UsageError(f"{op.place}: the buffers of {name} do not fit each other")
        if name in _REDUCTIONS:
            moves = tuple(map(Move, zip(*sources, strict=True), zip(*targets, strict=True)))
        else:
            pairs = zip(chain(*sources), chain(*targets), strict=True)
            moves = tuple(Move((source,), (target,)) for source, target in pairs)
        if op.get(object, "tbg_info", None) is None:
            return moves
        group = _Table(op.get(object, "tbg_info"), f"{op.place}.tbg_info")
        self.groups[max(group.get(int, "tbg_size"), 1), f"{name} {moves}"] += 1
        return () if group.get(int, "tb_id") else moves

    def _cells(self, chunks: _Table, op: _Table) -> list[Cell]:
        """The chunks of a source or a destination."""
        rank, letter = self.rank, chunks.get(str, "type", "")
        if chunks.get(object, "buffer_id", None) is not None:
            own = self.remote[op.get(str, "channel_type")]
            rank, letter = chunks.item("buffer_id", own)
        first, count = chunks.get(int, "index"), chunks.get(int, "size")
        cells = self.buffers.cells(chunks.place, rank, letter, first, count)
        return [Cell(rank, at, 0) for at in cells]


@dataclass(slots=True)
class _Put:
    """A chunk that an operation writes at another rank. port: where it was received."""

    source: Event
    position: int
    target: Cell
    is_packet: bool
    port: str = ""


class _Messages:
    """What becomes messages in a play over the memory of all ranks.

    there: the last event of a chunk's own rank that has what was written, or None while it is on
    its way.
    """

    def __init__(self, play: Play) -> None:
        self.play, self.blocks = play, play.blocks
        self.puts: defaultdict[int, list[_Put]] = defaultdict(list)  # by rank, on their way
        self.sent: defaultdict[tuple[Event, int], list[_Put]] = defaultdict(list)
        self.received: defaultdict[Event, list[_Put]] = defaultdict(list)
        self.there: dict[Cell, Event | None] = {}
        self.reads: dict[tuple[Event, Cell], Edge] = {}
        self.gets: defaultdict[Event, list[tuple[Event, Edge, Operand]]] = defaultdict(list)

    def add(self, event: Event) -> None:
        """An operation that was just done."""
        self._receive(event)
        one, rank = self.play.operation(event), self.blocks[event.block].rank
        for move in one.moves:
            for position, at in enumerate(move.src):
                if at.rank != rank:
                    source = self._source(event, at)
                    port = f"{self._ends(source, event)}.get{position}"
                    self.reads[event, at] = Edge(at.rank, port)
                    self.gets[source].append((event, Edge(rank, port), at.operand))
        packets = set(one.gives)
        for number, move in enumerate(one.moves):
            for position, at in enumerate(move.dst):
                self.there[at] = event if at.rank == rank else None
                if at.rank != rank:
                    put = _Put(event, position, at, at in packets)
                    self.puts[at.rank].append(put)
                    self.sent[event, number].append(put)

    def _ends(self, source: Event, target: Event) -> str:
        return f"{self.blocks[source.block].name}-{self.blocks[target.block].name}"

    def _receive(self, event: Event) -> None:
        """Receive what the block has learnt of now: first of all its operation, in the order of
        what was written. A packet it learns of where it waits for its flag.
        """
        clock, awaited = self.play.clocks[event.block], set(self.play.operation(event).sees)
        rank = self.blocks[event.block].rank
        for put in self.puts[rank]:
            (block, number), at = put.source, put.target
            if at in awaited if put.is_packet else clock.get(block, 0) > number:
                self.there[at] = event
                cell = f".{at.operand.buffer}{at.operand.chunk}" * put.is_packet
                put.port = f"{self._ends(put.source, event)}.{put.position}{cell}"
                self.received[event].append(put)
        self.puts[rank] = [put for put in self.puts[rank] if not put.port]

    def _source(self, event: Event, at: Cell) -> Event:
        """The last operation of the other rank that the reader knows of and that knows what was
        written there.
        """
        there = self.there.get(at)
        known = [(time, block) for block, time in self.play.clocks[event.block].items()]
        for time, block in sorted(known, reverse=True):
            knows = there is not None and there.block == block and there.number < time
            if self.blocks[block].rank == at.rank and (knows or at not in self.there):
                return Event(block, time - 1)
        raise ScheduleError(
            f"{self.play.operation(event).place}: reads {at.operand.buffer}[{at.operand.chunk}] of"
            f" rank {at.rank}, which has not said that it is there",
            "a signal from there has to be waited for",
        )

    def rounds(self, event: Event) -> Iterator[Round]:
        """What an operation becomes: receptions, itself, and what others read here after it."""
        rank = self.blocks[event.block].rank
        messages: defaultdict[object, list[Step]] = defaultdict(list)
        for put in self.received[event]:
            edge = Edge(self.blocks[put.source.block].rank, put.port)
            messages[put.source, put.port].append(Step(recv=(edge,), dst=put.target.operand))
        yield from map(tuple, messages.values())
        groups: defaultdict[object, list[Step]] = defaultdict(list)
        copies: list[Step] = []
        for number, move in enumerate(self.play.operation(event).moves):
            own = [at.operand for at in move.dst if at.rank == rank]
            step = Step(
                src=tuple(at.operand for at in move.src if at.rank == rank),
                recv=tuple(self.reads[event, at] for at in move.src if at.rank != rank),
                dst=own[0] if own else None,
                send=tuple(Edge(put.target.rank, put.port) for put in self.sent[event, number]),
            )
            groups[step.send].append(step)
            copies += [Step(src=(own[0],), dst=other) for other in own[1:]]
        yield from map(tuple, (*groups.values(), copies))
        gets: defaultdict[object, list[Step]] = defaultdict(list)
        for reader, edge, operand in self.gets[event]:
            gets[reader, edge].append(Step(src=(operand,), send=(edge,)))
        yield from map(tuple, gets.values())
