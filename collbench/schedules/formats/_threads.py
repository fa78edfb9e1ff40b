"""Programs of thread blocks, as MSCCL and MSCCL++ run them, and the schedules that they are.

    ThreadProgram --played--> an order of its instructions --woven--> Schedule

A thread block does its instructions in order, and an instruction may wait until another block of
its GPU has done one of its own. Our tracks have no such waits: blocks that are joined by them
become one track, in an order in which the program can run, which is found by playing it with as few
slots between ranks as suffice. Played with vector clocks, it is refused where two blocks touch a
chunk in no order.

Programs may write to their input, schedules may not: a chunk is read from the input until its first
write, which goes to the output where the two are one chunk in place, and else to scratch memory.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from collbench.core.collectives import OpName, collective
from collbench.core.errors import ScheduleError, UsageError
from collbench.core.world import World
from collbench.schedules.ir import (
    MAX_KEPT,
    BufferName,
    Edge,
    Operand,
    Program,
    Round,
    Schedule,
    Step,
    Track,
    build,
    mapped,
)
from collbench.schedules.verify.clocks import Access, Cell, Clock, History, learn
from collbench.schedules.verify.proof import Key, Place

_MAX_SLOTS = 1 << 10  # of a program's connections; real ones need one or two
_MAX_CHUNKS = 1 << 18  # of the output of all ranks
_MAX_STEPS = 1 << 18  # on a chunk each, of all ranks; RCCL's largest has 50,000


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """Steps that happen at once, after some instructions (block, number) of the same rank.

    place: where the file has it. The operands of steps are chunks of the file's buffers, and `dst`
    may be in the input.
    """

    place: str
    steps: Round = ()
    after: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A thread block: its name in drawings, and what it does in order."""

    name: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ThreadProgram:
    """What a file says. chunks: of a rank's input and output. placements: those it is written for;
    one for `in` alone may use either name of a chunk that is input and output.
    """

    op: OpName
    n: int
    root: int
    file: str
    chunks: int
    placements: frozenset[str]
    ranks: tuple[tuple[Block, ...], ...]

    @property
    def is_aliased(self) -> bool:
        """Whether input and output are taken to be one memory."""
        return self.placements == {"in"}

    def twins(self, rank: int) -> dict[int, int]:
        """The input chunks of a rank that are output chunks, too, and which ones."""
        if not self.is_aliased:
            return {}
        return _twins(self.op, self.n, self.root, rank, self.chunks)

    def cell(self, rank: int, operand: Operand) -> Operand:
        """The memory that an operand stands for: an input chunk that is also an output chunk is
        named by the output.
        """
        if operand.buffer != "in":
            return operand
        twin = self.twins(rank).get(operand.chunk)
        return operand if twin is None else Operand("out", twin)

    def given(self, rank: int) -> dict[Operand, Operand]:
        """The cells of a rank that hold an input chunk from the start, and which one."""
        blocks = collective(self.op).blocks("in", self.n, self.root, rank)
        chunks = [Operand("in", chunk) for chunk in range(blocks * self.chunks)]
        return {self.cell(rank, chunk): chunk for chunk in chunks}


@lru_cache(maxsize=MAX_KEPT)
def _twins(op: OpName, n: int, root: int, rank: int, chunks: int) -> dict[int, int]:
    """The input chunks that are output chunks in place: all where the vector or, in alltoall, every
    block stays where it is.
    """
    what = collective(op)
    alias = what.alias(n, root, rank)
    if not what.has_in_place:
        return {chunk: chunk for chunk in range(n * chunks)}
    if alias is None:
        return {}
    given, result = (0, 0) if what.is_interleaved else alias
    return {given * chunks + part: result * chunks + part for part in range(chunks)}


class Turn(NamedTuple):
    """An instruction in the order of play. Those of one time need nothing of each other."""

    time: int
    rank: int
    block: int
    number: int


class _Need(NamedTuple):
    """What an instruction waits for: data or room on a connection, or (rank, block) to go on."""

    what: Literal["data", "room", "block"]
    key: Key


def _kind(instruction: Instruction) -> int:
    """What other ranks wait for comes first."""
    sends = any(step.send for step in instruction.steps)
    receives = any(step.recv for step in instruction.steps)
    return (1 if sends else 3) if receives else (0 if sends else 2)


# ------------------------------------------------------------------------------------------- play


def refuse_too_large(op: OpName, n: int, chunks: int, steps: int, file: str) -> None:
    """Raise UsageError for a program that would take minutes, or gigabytes, to prove."""
    what = collective(op)
    blocks = n if what.outputs[0] == "n" or what.inputs[0] == "n" else 1
    if n * blocks * chunks > _MAX_CHUNKS or steps > _MAX_STEPS:
        raise UsageError(
            f"{file}: {n} ranks with {blocks * chunks} chunks each and {steps} steps in all are too"
            " many",
            f"at most {_MAX_CHUNKS} chunks and {_MAX_STEPS} steps of all ranks are read",
        )


def played(program: ThreadProgram) -> list[Turn]:
    """The instructions in an order in which they can run, with the fewest slots between ranks.
    Raises ScheduleError with the place where the program waits for ever, or where two blocks touch
    a chunk in no order.
    """
    slots = 1
    while True:
        play = _Play(program, slots)
        order = play.run()
        if order is not None:
            break
        if slots == _MAX_SLOTS or not play.lacks_room():
            raise play.hang()
        slots *= 2
    order.sort(
        key=lambda turn: (
            turn.time,
            turn.rank,
            _kind(program.ranks[turn.rank][turn.block].instructions[turn.number]),
            turn.block,
        )
    )
    _refuse_races(program, order)
    return order


class _Play:
    """Blocks that advance at once, each by one instruction at a time."""

    def __init__(self, program: ThreadProgram, slots: int) -> None:
        self.program, self.slots = program, slots
        self.done = [[0] * len(blocks) for blocks in program.ranks]
        self.sent: dict[Key, int] = {}
        self.taken: dict[Key, int] = {}
        self.waiting: dict[_Need, list[tuple[int, int]]] = {}

    def run(self) -> list[Turn] | None:
        """The order, or None if some block waits for ever."""
        order: list[Turn] = []
        active = _places(self.program)
        time = 0
        while active:
            ready = []
            for place in active:
                instruction = self.next(*place)
                if instruction is None:
                    continue
                need = self.need(place[0], instruction)
                if need is None:
                    ready.append((place, instruction))
                else:
                    self.waiting.setdefault(need, []).append(place)
            active = []
            for (rank, block), instruction in ready:
                order.append(Turn(time, rank, block, self.done[rank][block]))
                self.done[rank][block] += 1
                active.append((rank, block))
                events = [_Need("block", Key(rank, block, ""))]
                sent, received = _edges(instruction.steps)
                for edge in sent:
                    key = Key(rank, edge.peer, edge.port)
                    self.sent[key] = self.sent.get(key, 0) + 1
                    events.append(_Need("data", key))
                for edge in received:
                    key = Key(edge.peer, rank, edge.port)
                    self.taken[key] = self.taken.get(key, 0) + 1
                    events.append(_Need("room", key))
                for event in events:
                    active += self.waiting.pop(event, ())
            active = list(dict.fromkeys(active))
            time += 1
        return None if any(self.waiting.values()) else order

    def next(self, rank: int, block: int) -> Instruction | None:
        instructions = self.program.ranks[rank][block].instructions
        number = self.done[rank][block]
        return instructions[number] if number < len(instructions) else None

    def need(self, rank: int, instruction: Instruction) -> _Need | None:
        """What the instruction waits for, or None."""
        for block, number in instruction.after:
            if self.done[rank][block] <= number:
                return _Need("block", Key(rank, block, ""))
        sent, received = _edges(instruction.steps)
        for edge in received:
            key = Key(edge.peer, rank, edge.port)
            if self.sent.get(key, 0) <= self.taken.get(key, 0):
                return _Need("data", key)
        for edge in sent:
            key = Key(rank, edge.peer, edge.port)
            if self.sent.get(key, 0) - self.taken.get(key, 0) >= self.slots:
                return _Need("room", key)
        return None

    def lacks_room(self) -> bool:
        """Whether some block waits for a slot, so that more of them may help."""
        return any(need.what == "room" for need in self.waiting)

    def hang(self) -> ScheduleError:
        """What the first block that is not through waits for."""
        waits = (
            (rank, block, instruction, need)
            for rank, block in _places(self.program)
            if (instruction := self.next(rank, block)) is not None
            and (need := self.need(rank, instruction)) is not None
        )
        rank, block, instruction, (what, key) = next(waits)
        blocks = self.program.ranks[rank]
        why = {
            "data": f"data from rank {key.src} on {key.port}",
            "room": f"room to rank {key.dst} on {key.port}",
            "block": f"{blocks[key.dst % len(blocks)].name} of the same rank",
        }[what]
        return ScheduleError(
            f"{instruction.place}: rank {rank}, {blocks[block].name} waits for ever for {why}",
            "the program deadlocks, or one side of a connection has more messages",
        )


def _places(program: ThreadProgram) -> list[tuple[int, int]]:
    """Every (rank, block)."""
    return [(rank, block) for rank, some in enumerate(program.ranks) for block in range(len(some))]


def _edges(steps: Round) -> tuple[dict[Edge, None], dict[Edge, None]]:
    """The edges on which an instruction sends, and receives, one message each."""
    return (
        dict.fromkeys(edge for step in steps for edge in step.send),
        dict.fromkeys(edge for step in steps for edge in step.recv),
    )


def _instructions(
    program: ThreadProgram, order: Sequence[Turn]
) -> Iterator[tuple[Turn, Instruction]]:
    for turn in order:
        yield turn, program.ranks[turn.rank][turn.block].instructions[turn.number]


def _refuse_races(program: ThreadProgram, order: Sequence[Turn]) -> None:
    """Raise ScheduleError where two blocks touch a chunk in no order, one of them writing."""
    history = History()
    clocks: dict[tuple[int, int], Clock] = {}
    then: dict[tuple[int, int, int], Clock] = {}
    messages: dict[Key, deque[Clock]] = {}
    needed = {
        (rank, block, number)
        for rank, blocks in enumerate(program.ranks)
        for one in blocks
        for instruction in one.instructions
        for block, number in instruction.after
    }
    actors = {place: actor for actor, place in enumerate(_places(program))}
    for turn, instruction in _instructions(program, order):
        rank, block, number = turn.rank, turn.block, turn.number
        actor = actors[rank, block]
        clock = clocks.setdefault((rank, block), {actor: 0})
        for other in instruction.after:
            learn(clock, then[(rank, *other)])
        sent, received = _edges(instruction.steps)
        for edge in received:
            learn(clock, messages[Key(edge.peer, rank, edge.port)].popleft())
        clock[actor] += 1
        access = Access(actor, clock[actor], Place(rank, block, number, 0))
        for step in instruction.steps:
            touched = [(history.read, operand) for operand in step.src]
            touched += [(history.write, step.dst)] if step.dst is not None else []
            for touch, operand in touched:
                cell = program.cell(rank, operand)
                for conflict in touch(Cell(rank, cell, 0), access, clock):
                    raise _race(program, access.place, conflict.place, cell)
        for edge in sent:
            messages.setdefault(Key(rank, edge.peer, edge.port), deque()).append(dict(clock))
        if (rank, block, number) in needed:
            then[rank, block, number] = dict(clock)


def _race(program: ThreadProgram, one: Place, other: Place, cell: Operand) -> ScheduleError:
    blocks = program.ranks[one.program]
    here, there = (blocks[at.track].instructions[at.round].place for at in (one, other))
    return ScheduleError(
        f"{here}: {blocks[one.track].name} of rank {one.program} touches"
        f" {cell.buffer}[{cell.chunk}] in no order to {blocks[other.track].name} ({there})",
        "one of the two has to wait for the other: which one comes first decides the result",
    )


# ------------------------------------------------------------------------------------------ weave


def woven(
    program: ThreadProgram, order: Sequence[Turn], name: str, *, in_place: bool, is_merged: bool
) -> Schedule:
    """The schedule of a program in an order of play. is_merged: a rank has one track; otherwise
    blocks that do not wait for each other have tracks of their own.

    A program for placement `in` alone, run out of place, gets copies of the chunks that it finds
    where they belong.
    """
    memory = [_Memory(program, rank) for rank in range(program.n)]
    tracks = [_tracks(program, rank, is_merged) for rank in range(program.n)]
    rounds: list[dict[str, list[Round]]] = [
        {name: [] for name in dict.fromkeys(names)} for names in tracks
    ]
    for turn, instruction in _instructions(program, order):
        if instruction.steps:
            names = tracks[turn.rank]
            rounds[turn.rank][names[turn.block]].append(memory[turn.rank].bound(instruction.steps))
    if not in_place:
        for rank, own in enumerate(rounds):
            copies = memory[rank].copies()
            if copies:
                own.setdefault(tracks[rank][0] if tracks[rank] else "main", []).insert(0, copies)
    programs: list[Program] = [
        tuple(Track(name=name, rounds=tuple(some)) for name, some in own.items() if some)
        for own in rounds
    ]
    world = World(n=program.n, root=program.root)
    schedule = build(program.op, name, lambda _, rank: programs[rank], world)
    if not collective(program.op).is_interleaved or schedule.chunks["in"] == program.chunks:
        return schedule
    chunks: dict[BufferName, int] = {
        "in": program.chunks,
        "out": program.chunks,
        "tmp": schedule.chunks["tmp"],
    }
    return replace(schedule, chunks=chunks, programs=tuple(programs), is_symmetric=False)


@dataclass(slots=True)
class _Memory:
    """Where the chunks of a rank are while its instructions are bound one after the other."""

    program: ThreadProgram
    rank: int
    written: set[Operand] = field(default_factory=set)
    scratch: dict[Operand, int] = field(default_factory=dict)
    given: dict[Operand, Operand] = field(init=False)

    def __post_init__(self) -> None:
        self.given = self.program.given(self.rank)

    def bound(self, steps: Round) -> Round:
        """The steps with the operands of a schedule."""
        bound = tuple(
            replace(
                step,
                src=tuple(map(self.source, step.src)),
                dst=None if step.dst is None else self.target(step.dst),
            )
            for step in steps
        )
        self.written |= {
            self.program.cell(self.rank, step.dst) for step in steps if step.dst is not None
        }
        return bound

    def source(self, operand: Operand) -> Operand:
        cell = self.program.cell(self.rank, operand)
        if cell in self.given and cell not in self.written:
            return self.given[cell]
        return self.target(operand)

    def target(self, operand: Operand) -> Operand:
        cell = self.program.cell(self.rank, operand)
        if cell.buffer == "out":
            return cell
        return Operand("tmp", self.scratch.setdefault(cell, len(self.scratch)))

    def copies(self) -> Round:
        """What the output lacks that the input has: copies of the chunks that nobody wrote."""
        twins = self.program.twins(self.rank).values()
        cells = [Operand("out", chunk) for chunk in twins]
        return tuple(
            Step(src=(self.given[cell],), dst=cell)
            for cell in cells
            if cell not in self.written and cell in self.given
        )


def _tracks(program: ThreadProgram, rank: int, is_merged: bool) -> list[str]:
    """The name of the track of every block: blocks that one instruction joins are in one."""
    blocks = program.ranks[rank]
    if is_merged:
        return ["main"] * len(blocks)
    leader = list(range(len(blocks)))

    def find(block: int) -> int:
        while leader[block] != block:
            leader[block] = leader[leader[block]]
            block = leader[block]
        return block

    for block, one in enumerate(blocks):
        for instruction in one.instructions:
            for other, _ in instruction.after:
                first, second = sorted((find(block), find(other)))
                leader[second] = first
    return [blocks[find(block)].name for block in range(len(blocks))]


# ------------------------------------------------------------------------------------------ parts


def parted(program: ThreadProgram, order: Sequence[Turn]) -> list[ThreadProgram]:
    """The parts of a program that cuts every block into several chunks: one program for each chunk
    of a block, which moves that chunk alone. Raises ScheduleError where two of them meet.
    """
    parts = program.chunks
    sorter = _Sorter(program)
    steps_of = {
        (turn.rank, turn.block, turn.number): sorter.by_part(turn.rank, instruction)
        for turn, instruction in _instructions(program, order)
    }

    def in_block(at: Operand) -> Operand:
        return at if at.buffer == "tmp" else Operand(at.buffer, at.chunk // parts)

    def part_of(part: int) -> ThreadProgram:
        ranks = tuple(
            tuple(
                replace(
                    block,
                    instructions=tuple(
                        replace(
                            instruction,
                            steps=_with_operands(steps_of[rank, b, k].get(part, ()), in_block),
                        )
                        for k, instruction in enumerate(block.instructions)
                    ),
                )
                for b, block in enumerate(blocks)
            )
            for rank, blocks in enumerate(program.ranks)
        )
        return replace(program, chunks=1, ranks=ranks)

    return [part_of(part) for part in range(parts)]


class _Sorter:
    """Sorts steps by the place in its block of the chunk that they move. That of a scratch chunk is
    that of what was written there.
    """

    def __init__(self, program: ThreadProgram) -> None:
        self.program = program
        self.part_of: dict[tuple[int, Operand], int] = {}
        self.carried: dict[Key, deque[deque[int]]] = {}

    def by_part(self, rank: int, instruction: Instruction) -> dict[int, list[Step]]:
        """The steps of an instruction for each place in a block."""
        sent, received = _edges(instruction.steps)
        arrived = {
            edge: self.carried[Key(edge.peer, rank, edge.port)].popleft() for edge in received
        }
        leaving: dict[Edge, deque[int]] = {edge: deque() for edge in sent}
        steps: dict[int, list[Step]] = {}
        for step in instruction.steps:
            found = {self._part(rank, operand) for operand in step.src}
            found |= {arrived[edge].popleft() if arrived[edge] else None for edge in step.recv}
            if step.dst is not None and step.dst.buffer != "tmp":
                found.add(self._part(rank, step.dst))
            if len(found) > 1 or None in found:
                raise ScheduleError(
                    f"{instruction.place}: joins chunks of different places in their blocks, or"
                    " reads what nobody wrote",
                    f"blocks are cut into {self.program.chunks} chunks, and a schedule moves whole"
                    " blocks",
                )
            part = next(iter(found)) or 0
            if step.dst is not None and step.dst.buffer == "tmp":
                self.part_of[rank, step.dst] = part
            for edge in step.send:
                leaving[edge].append(part)
            steps.setdefault(part, []).append(step)
        for edge, chunks in leaving.items():
            self.carried.setdefault(Key(rank, edge.peer, edge.port), deque()).append(chunks)
        return steps

    def _part(self, rank: int, operand: Operand) -> int | None:
        if operand.buffer == "tmp":
            return self.part_of.get((rank, operand))
        return operand.chunk % self.program.chunks


def _with_operands(steps: Sequence[Step], operand: Callable[[Operand], Operand]) -> Round:
    track = Track(name="", rounds=(tuple(steps),))
    return mapped((track,), operand, lambda edge: edge)[0].rounds[0]


def alike(one: Schedule, other: Schedule) -> bool:
    """Whether two schedules differ in the names of tracks and ports, and the numbers of scratch
    chunks, alone.
    """
    return _plain(one) == _plain(other)


def _plain(schedule: Schedule) -> tuple[Program, ...]:
    """The programs with ports and scratch chunks numbered by where they come first, and tracks
    without names.
    """
    ports: dict[str, str] = {}
    programs = []
    for rank in range(schedule.n):
        scratch: dict[int, int] = {}

        def operand(at: Operand, scratch: dict[int, int] = scratch) -> Operand:
            if at.buffer != "tmp":
                return at
            return Operand("tmp", scratch.setdefault(at.chunk, len(scratch)))

        def edge(at: Edge) -> Edge:
            return Edge(at.peer, ports.setdefault(at.port, str(len(ports))))

        programs.append(mapped(schedule.program(rank), operand, edge, lambda _: ""))
    return tuple(programs)
