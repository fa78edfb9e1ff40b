"""Programs of thread blocks: how they run, and the order in which they can.

Each block goes on by one operation at a time where what it waits for is there, and vector clocks
tell what it knows of the others.
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from collbench.core.collectives import OpName, collective
from collbench.core.errors import ScheduleError, UsageError
from collbench.schedules.ir import BufferName, Operand, Round
from collbench.schedules.verify.clocks import Access, Cell, Clock, History, learn
from collbench.schedules.verify.proof import Key, Place

MAX_RANKS = 1024
_MAX_CHUNKS = 1 << 18  # of the output of all ranks
_MAX_NAMED = 1 << 19  # chunks that steps name; RCCL's largest file has 50,000 steps
_BUFFERS: dict[str, BufferName] = {"i": "in", "o": "out", "s": "tmp"}


class Event(NamedTuple):
    """An operation: the number of its block among those of all ranks, and its own."""

    block: int
    number: int


class Move(NamedTuple):
    """The reduction of chunks of any rank, written to chunks of any rank."""

    src: tuple[Cell, ...]
    dst: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a block does at once: by messages (steps) or in the memory of all ranks (moves).

    takes: what it waits for and takes away. sees, after: what else it waits for. gives: what others
    wait for, with what the block knows. credits: the same, without.
    """

    place: str
    takes: tuple[Hashable, ...] = ()
    sees: tuple[Hashable, ...] = ()
    after: tuple[Event, ...] = ()
    gives: tuple[Hashable, ...] = ()
    credits: tuple[Hashable, ...] = ()
    steps: Round = ()
    moves: tuple[Move, ...] = ()


class Block(NamedTuple):
    """A thread block of a rank: its name in drawings, and what it does in order."""

    rank: int
    name: str
    work: Sequence[Operation]


class Play:
    """The play of some blocks. given: what was given by name, and what its givers knew; waiting:
    the operations that wait for what is not there.
    """

    def __init__(self, blocks: Sequence[Block], initial: Mapping[Hashable, int]) -> None:
        self.blocks = blocks
        self.clocks: list[Clock] = [{block: 0} for block in range(len(blocks))]
        self.given = {key: deque[Clock]([{}] * count) for key, count in initial.items()}
        self.waiting: dict[Hashable, list[Event]] = {}
        self.active = list(range(len(blocks)))
        self.seen = {event for block in blocks for one in block.work for event in one.after}
        self.history = History()

    def operation(self, event: Event) -> Operation:
        return self.blocks[event.block].work[event.number]

    def run(self) -> Iterator[tuple[int, Event]]:
        """The operations, each when it is done, and their times; those of one time need nothing of
        each other. Raises ScheduleError where two blocks touch a chunk in no order.
        """
        done, time = [0] * len(self.blocks), 0
        while self.active:
            events = [Event(block, done[block]) for block in dict.fromkeys(self.active)]
            begun = [event for event in events if self._begins(event)]
            self.active = [event.block for event in begun]
            for event in begun:
                self._do(event)
                done[event.block] += 1
                yield time, event
            time += 1

    def _begins(self, event: Event) -> bool:
        """Whether there is an operation and all that it waits for, which it learns of."""
        if event.number == len(self.blocks[event.block].work):
            return False
        clock, one = self.clocks[event.block], self.operation(event)
        for key, count in Counter((*one.takes, *one.sees, *one.after)).items():
            if len(self.given.get(key, ())) < count:
                self.waiting.setdefault(key, []).append(event)
                return False
        taken = [self.given[key].popleft() for key in one.takes]
        for other in (
            *taken,
            *(known for key in (*one.sees, *one.after) for known in self.given[key]),
        ):
            learn(clock, other)
        clock[event.block] += 1
        return True

    def _do(self, event: Event) -> None:
        one, clock = self.operation(event), self.clocks[event.block]
        rank = self.blocks[event.block].rank
        read = [Cell(rank, at, 0) for step in one.steps for at in step.src]
        written = [Cell(rank, step.dst, 0) for step in one.steps if step.dst]
        access = Access(event.block, clock[event.block], Place(rank, *event, 0))
        for at in (*read, *(at for move in one.moves for at in move.src)):
            self._refuse(event, at, self.history.read(at, access, clock))
        for at in (*written, *(at for move in one.moves for at in move.dst)):
            self._refuse(event, at, self.history.write(at, access, clock))
        gifts = [(key, clock) for key in (*one.gives, *({event} & self.seen))]
        for key, known in (*gifts, *((key, {}) for key in one.credits)):
            self.given.setdefault(key, deque()).append(dict(known))
            self.active += [late.block for late in self.waiting.pop(key, ())]

    def _refuse(self, event: Event, at: Cell, others: list[Access]) -> None:
        for other in others:
            there = self.blocks[other.actor]
            raise ScheduleError(
                f"{self.operation(event).place}: {self.blocks[event.block].name} touches"
                f" {at.operand.buffer}[{at.operand.chunk}] of rank {at.rank} in no order to"
                f" {there.name} ({there.work[other.time - 1].place})",
                "one of the two has to wait for the other: which one comes first decides the"
                " result",
            )

    def hang(self) -> ScheduleError:
        """What the first block that is not through waits for."""
        event, need = min(
            (event, need) for need, events in self.waiting.items() for event in events
        )
        data = f" for data from rank {need.src} on {need.port}" if isinstance(need, Key) else ""
        rank, name, work = self.blocks[event.block]
        return ScheduleError(
            f"{work[event.number].place}: {name} of rank {rank} waits for ever{data}",
            "the program deadlocks, or one side of a connection has more messages",
        )


class Turn(NamedTuple):
    """What a block, by its number, does at once, and when. Operands are cells (ThreadProgram.cell),
    and `dst` may be in the input.
    """

    time: tuple[int, ...]
    block: int
    place: str
    steps: Round


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ThreadProgram:
    """What a file says. chunks: of the vector or of a block. is_aliased: it is for in place alone,
    and may use either name of a chunk that is input and output. blocks: of all ranks. joined: pairs
    of them that wait for each other. order: their turns.
    """

    op: OpName
    n: int
    root: int
    file: str
    chunks: int
    is_aliased: bool
    blocks: Sequence[Block] = ()
    joined: frozenset[tuple[int, int]] = frozenset()
    order: tuple[Turn, ...] = ()

    def cell(self, rank: int, operand: Operand) -> Operand:
        """The memory that an operand stands for: an input chunk that is also an output chunk is
        named by the output. That is so of all where in place has no other meaning.
        """
        if operand.buffer != "in" or not self.is_aliased:
            return operand
        what, (block, part) = collective(self.op), divmod(operand.chunk, self.chunks)
        alias = what.alias(self.n, self.root, rank) if what.has_in_place else (block, block)
        if alias is None or alias[0] != block:
            return operand
        return Operand("out", alias[1] * self.chunks + part)

    def given(self, rank: int) -> dict[Operand, Operand]:
        """The cells of a rank that hold an input chunk from the start, and which one."""
        blocks = collective(self.op).blocks("in", self.n, self.root, rank)
        chunks = [Operand("in", chunk) for chunk in range(blocks * self.chunks)]
        return {self.cell(rank, chunk): chunk for chunk in chunks}

    def played(
        self, blocks: Sequence[Block], joined: Iterable[tuple[int, int]], turns: Iterable[Turn]
    ) -> "ThreadProgram":
        """The program with blocks that were played. Of turns of one time, which need nothing of
        each other, what other ranks wait for comes first.
        """

        def place(turn: Turn) -> tuple[int, ...]:
            sends = any(step.send for step in turn.steps)
            receives = any(step.recv for step in turn.steps)
            rank = blocks[turn.block].rank
            return *turn.time, rank, 2 * (not sends) + receives, turn.block

        order = tuple(sorted((turn for turn in turns if turn.steps), key=place))
        return replace(self, blocks=blocks, joined=frozenset(joined), order=order)


class Buffers:
    """The buffers of all ranks as a file has them: of each the chunks by letter. program: the
    file's, without its blocks.
    """

    def __init__(
        self,
        place: str,
        op: str,
        held: list[dict[str, int]],
        root: int,
        is_aliased: bool,
        file: str,
    ) -> None:
        self.held, self.named, self.file = held, 0, file
        try:
            what = collective(op)
        except UsageError as error:
            raise UsageError(f"{place}: {error.message}", error.hint) from None
        blocks = [len(held) if many == "n" else 1 for many, _ in (what.inputs, what.outputs)]
        cuts = {
            Fraction(chunks[letter], many)
            for chunks in held
            for letter, many in zip("io", blocks, strict=True)
            if chunks[letter]
        }
        least = min(count for chunks in held for count in chunks.values())
        if len(cuts) != 1 or least < 0 or min(cuts).denominator > 1:
            raise UsageError(
                f"{place}: {what.name} over {len(held)} ranks has buffers of {blocks[0]} and"
                f" {blocks[1]} equal blocks, cut alike at every rank; these are not"
            )
        chunks = cuts.pop().numerator
        self._bound(len(held) * max(blocks) * chunks, _MAX_CHUNKS, "chunks")
        self.program = ThreadProgram(
            op=what.name, n=len(held), root=root, file=file, chunks=chunks, is_aliased=is_aliased
        )

    def cells(self, place: str, rank: int, letter: str, first: int, count: int) -> list[Operand]:
        """The cells of some chunks of a buffer. Raises UsageError."""
        chunks = self.held[rank]
        held = chunks.get(letter, 0) or (
            max(chunks["i"], chunks["o"]) if letter in ("i", "o") else 0
        )
        if not 0 <= first < first + count <= held:
            raise UsageError(
                f"{place}: {count} chunks from {first} on are not among the {held} of the buffer"
                f" '{letter[:40]}' (i, o or s)"
            )
        self.named += count
        self._bound(self.named, _MAX_NAMED, "operands")
        operands = [Operand(_BUFFERS[letter], chunk) for chunk in range(first, first + count)]
        return [self.program.cell(rank, operand) for operand in operands]

    def _bound(self, count: int, most: int, what: str) -> None:
        """Raise UsageError for what would take minutes, or gigabytes, to prove."""
        if count > most:
            raise UsageError(f"{self.file}: {count} {what} are too many, at most {most} are read")
