"""A case laid out in memory: which channel owns which bytes, how they are cut into loops, chunks and slices, and what every track does.

    lay_out(schedule, ...) -> Plan        Plan.actors(rank) -> the rank's tracks as lists of actions on byte ranges

Interleaved collectives: a channel owns a contiguous range of the vector and walks it in loops of `chunks x chunk_bytes`; chunk j of a loop
is its j-th part. Blocked ones: a channel owns the same part of every block and walks it in loops of chunk_bytes. The last loop shrinks the
chunk. A message is `slices` slots; slice s of it carries piece s of each of its chunks. Every backend reads its work from here, so there
is one place where bytes are counted. Offsets are bytes from the start of the buffer that a region names.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from collbench.algorithms import FAMILY
from collbench.case import Problem
from collbench.check import Place, Proof, check
from collbench.collectives import OpName, collective
from collbench.errors import ScheduleError
from collbench.passes import Shape, home, is_copy, lend, message_chunks, reorder, shape_of, widest_message
from collbench.schedule import Edge, Operand, Schedule, Step, build
from collbench.units import format_size
from collbench.world import World

GRAIN_BYTES = 64  # channels and shrunken chunks begin on cache lines
MAX_SLICES = 64  # a message cut finer than this is a mistake in the knobs, and slow to prove
MAX_ACTIONS = 200_000  # of one rank in a launch; bound for the interpreter one takes 1.9 KB and 46 us (ring, 49,153 actions, 2-core EPYC)

Space = Literal["in", "out", "tmp", "slot"]


class Region(NamedTuple):
    """Bytes of a rank's buffer (`owner` is the rank) or of a connection's FIFO (`owner` is the connection's number)."""

    space: Space
    owner: int
    offset: int
    size: int


class Turn(NamedTuple):
    """Slice `number` of one launch on connection `edge`."""

    edge: int
    number: int


class Action(NamedTuple):
    """One slice of one step: wait, compute, hand over.

    Wait until the slices in `take` have arrived, those in `room` have a free slot and those in `back` have been read. Reduce `operands`
    into `targets[0]` (dividing if `divide`), copy that to the other targets; without operands there is nothing to do. Then the slices
    in `post` are filled, those in `free` read.
    """

    place: Place
    take: tuple[Turn, ...]
    room: tuple[Turn, ...]
    back: tuple[Turn, ...]
    operands: tuple[Region, ...]
    targets: tuple[Region, ...]
    divide: bool
    post: tuple[Turn, ...]
    free: tuple[Turn, ...]


class Actor(NamedTuple):
    """A track of one rank on one channel: its actions in a launch, and the loans that must be back at the end."""

    channel: int
    track: str
    actions: list[Action]
    back: tuple[Turn, ...]


class Connection(NamedTuple):
    """A FIFO: its ends, and how many slices one launch sends along it. `fifo_offset` is -1 if every message is lent."""

    src: int
    dst: int
    port: str
    channel: int
    slices: int
    fifo_offset: int


class _Loop(NamedTuple):
    """One loop of a channel: where it starts in its range, bytes in all, the chunk's bytes, slices a message."""

    offset: int
    size: int
    chunk: int
    slices: int


@lru_cache(maxsize=512)
def registered(op: OpName, algo: str, world: World) -> Schedule:
    """The schedule of a registered algorithm. Raises ScheduleError if it does not serve the collective."""
    serves = FAMILY.load(algo).SERVES
    if op not in serves:
        raise ScheduleError(f"{algo} does not serve {op}", f"it serves: {', '.join(serves)}")
    what = collective(op)
    order = world.order if what.follows_order else ()
    positions = replace(world, order=order, root=world.root if what.is_rooted else order[0] if order else 0).positions()
    return reorder(build(op, algo, serves[op], positions), order)


@lru_cache(maxsize=512)
def proved(schedule: Schedule, direct: bool, in_place: bool, slots: int, slices: int) -> tuple[Schedule, Proof]:
    """The schedule as it will run, with loans if direct, and its proof. Raises ScheduleError."""
    ready = _lent(schedule, in_place) if direct else schedule
    return ready, check(ready, slots=slots, slices=slices, in_place=in_place)


@lru_cache(maxsize=512)
def _lent(schedule: Schedule, in_place: bool) -> Schedule:
    return lend(schedule, in_place=in_place)


def lay_out(
    problem: Problem, schedule: Schedule, *, direct: bool = False, channels: int = 1, slots: int = 4, chunk_bytes: int = 1 << 17, slot_bytes: int = 0
) -> "Plan":
    """Cut a problem's blocks into channels, loops, chunks and slices, and prove the schedule for that.

    slot_bytes 0 means as large as the widest message needs for one slice. Raises ScheduleError if the knobs do not fit together or the
    schedule fails its proof with them.
    """
    if (problem.op, problem.n, problem.root) != (schedule.op, schedule.n, schedule.root):
        raise ScheduleError(f"a schedule for {schedule.op} over {schedule.n} ranks, root {schedule.root}, does not fit {problem}")
    in_place, unit = problem.in_place, 16  # a multiple of every element's width
    chunk_bytes -= chunk_bytes % unit
    if chunk_bytes <= 0:
        raise ScheduleError(f"a chunk must hold at least {unit} bytes", f"use --chunk {unit} or more")
    widest = widest_message(_lent(schedule, in_place) if direct else schedule)
    slot_bytes = widest * chunk_bytes if slot_bytes == 0 else (slot_bytes if widest else 0)
    piece_bytes = slot_bytes // widest if widest else chunk_bytes
    piece_bytes = min(piece_bytes - piece_bytes % unit, chunk_bytes)
    if piece_bytes <= 0:
        raise ScheduleError(
            f"a slot of {format_size(slot_bytes)} cannot carry {widest} chunks of a message",
            f"use --buffsize {format_size(widest * unit * slots)} or more",
        )
    slices = -(-chunk_bytes // piece_bytes)
    if slices > MAX_SLICES:
        raise ScheduleError(
            f"a chunk of {format_size(chunk_bytes)} needs {slices} slices of {format_size(piece_bytes)}",
            f"at most {MAX_SLICES}: use a larger --buffsize or a smaller --chunk",
        )
    ready, proof = proved(schedule, direct, in_place, slots, slices)
    plan = Plan(
        problem=problem, schedule=ready, proof=proof, direct=direct, channels=channels, slots=slots, slot_bytes=slot_bytes, chunk_bytes=chunk_bytes,
        piece_bytes=piece_bytes,
    )
    if plan.action_count() > MAX_ACTIONS:
        raise ScheduleError(f"{plan.action_count()} actions of a rank in one launch, at most {MAX_ACTIONS}", "use a larger --chunk")
    return plan


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A proved schedule with its layout. Made by lay_out().

    `slots` slots of slot_bytes a connection (0: all messages are lent); a chunk is chunk_bytes
    a loop and travels in slices of piece_bytes.
    """

    problem: Problem
    schedule: Schedule
    proof: Proof
    direct: bool
    channels: int
    slots: int
    slot_bytes: int
    chunk_bytes: int
    piece_bytes: int

    @property
    def n(self) -> int:
        return self.schedule.n

    @cached_property
    def digest(self) -> str:
        """A hash of everything that ranks must agree on."""
        lent = sorted((at, sorted(edges)) for at, edges in self.schedule.lent.items())
        text = repr((
            self.schedule.op, self.schedule.name, self.schedule.programs, lent, self.problem, self.channels, self.slots,
            self.slot_bytes, self.chunk_bytes, self.piece_bytes,
        ))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def channel_range(self, channel: int) -> tuple[int, int]:
        """First byte and size of the channel's part of a block; later channels may be empty."""
        grain = max(GRAIN_BYTES, self.problem.item_bytes)
        share = -(-self.problem.block_bytes // (self.channels * grain)) * grain
        first = min(channel * share, self.problem.block_bytes)
        return first, min(share, self.problem.block_bytes - first)

    def loops(self, channel: int) -> Iterator[_Loop]:
        """The loops of a channel: full chunks, then one of whatever is left, cut evenly."""
        first, size = self.channel_range(channel)
        parts = self.schedule.chunks["in"] if collective(self.schedule.op).is_interleaved else 1
        done = 0
        while done < size:
            left = size - done
            chunk = self.chunk_bytes
            if left < parts * chunk:
                even = -(-left // parts)
                grain = GRAIN_BYTES if even > GRAIN_BYTES else self.problem.item_bytes
                chunk = min(-(-even // grain) * grain, self.chunk_bytes)
            span = min(left, parts * chunk)
            yield _Loop(first + done, span, chunk, -(-chunk // self.piece_bytes))
            done += span

    @property
    def tmp_bytes(self) -> int:
        """Scratch memory of one rank, all channels."""
        return self.channels * self.schedule.chunks["tmp"] * self.chunk_bytes

    @cached_property
    def fifo_bytes(self) -> int:
        """All FIFOs together."""
        return sum(self.slots * self.slot_bytes for connection in self.connections if connection.fifo_offset >= 0)

    @cached_property
    def messages_of_port(self) -> dict[tuple[int, int, str], list[tuple[bool, list[Operand]]]]:
        """For each port, its messages in one loop: whether lent, and where each of its chunks then lies."""
        messages: dict[tuple[int, int, str], list[tuple[bool, list[Operand]]]] = {}
        for rank in range(self.n):
            for t, track in enumerate(self.schedule.program(rank)):
                for r, steps in enumerate(track.rounds):
                    lent = self.schedule.lent_at(rank, t, r)
                    for edge in message_chunks(steps)[0]:
                        homes = [home(step) for step in steps if edge in step.send] if edge in lent else []
                        messages.setdefault((rank, edge.peer, edge.port), []).append((edge in lent, homes))
        return messages

    @cached_property
    def connections(self) -> list[Connection]:
        """Every connection of every channel, numbered by its place in the list."""
        found: list[Connection] = []
        offset = 0
        for channel in range(self.channels):
            slices_a_message = sum(loop.slices for loop in self.loops(channel))
            for (src, dst, port), messages in self.messages_of_port.items():
                has_fifo = not all(lent for lent, _ in messages)
                found.append(Connection(src, dst, port, channel, slices_a_message * len(messages), offset if has_fifo else -1))
                offset += self.slots * self.slot_bytes if has_fifo else 0
        return found

    @cached_property
    def numbers(self) -> dict[tuple[int, int, int, str], int]:
        """The number of each connection by channel, source, destination and port."""
        return {(c.channel, c.src, c.dst, c.port): number for number, c in enumerate(self.connections)}

    def action_count(self) -> int:
        """Actions of the busiest rank in one launch, counting last loops as full."""
        parts = self.schedule.chunks["in"] if collective(self.schedule.op).is_interleaved else 1
        loops = sum(-(-self.channel_range(channel)[1] // (parts * self.chunk_bytes)) for channel in range(self.channels))
        slices = loops * -(-self.chunk_bytes // self.piece_bytes)
        steps = max(sum(len(steps) for track in program for steps in track.rounds) for program in self.schedule.programs)
        return slices * steps

    def actors(self, rank: int) -> list[Actor]:
        """What the rank does in one launch, a list of actions for each of its tracks on each channel."""
        return [
            _Lowering(self, rank, channel, track).actor()
            for channel in range(self.channels)
            for track in range(len(self.schedule.program(rank)))
        ]


class _Lowering:
    """One track of one rank on one channel, turned into actions."""

    def __init__(self, plan: Plan, rank: int, channel: int, track: int) -> None:
        self.plan, self.rank, self.channel, self.track = plan, rank, channel, track
        self.is_interleaved = collective(plan.schedule.op).is_interleaved
        self.shapes: list[Shape] = []
        self.sent: dict[Edge, int] = {}
        self.received: dict[Edge, int] = {}
        self.posted: dict[tuple[int, Edge, int], Turn] = {}

    def actor(self) -> Actor:
        track = self.plan.schedule.program(self.rank)[self.track]
        self.shapes = [shape_of(steps) for steps in track.rounds]
        actions: list[Action] = []
        last_lent: dict[int, Turn] = {}
        for loop in self.plan.loops(self.channel):
            counts: dict[Edge, int] = {}
            for r, steps in enumerate(track.rounds):
                for number in range(loop.slices):
                    actions += self._round(r, steps, loop, number, counts)
                for edge in self.shapes[r].received:
                    counts[edge] = counts.get(edge, 0) + 1
                for edge in self.plan.schedule.lent_at(self.rank, self.track, r):
                    turn = self.posted[r, edge, loop.slices - 1]
                    last_lent[turn.edge] = turn
        return Actor(self.channel, track.name, actions, tuple(last_lent.values()))

    def _out(self, edge: Edge) -> int:
        return self.plan.numbers[self.channel, self.rank, edge.peer, edge.port]

    def _in(self, edge: Edge) -> int:
        return self.plan.numbers[self.channel, edge.peer, self.rank, edge.port]

    def _round(self, r: int, steps: tuple[Step, ...], loop: _Loop, number: int, messages_before: dict[Edge, int]) -> list[Action]:
        schedule = self.plan.schedule
        lent = schedule.lent_at(self.rank, self.track, r)
        shape = self.shapes[r]
        to_send, to_take, sent_index, taken_index = dict(shape.sent), dict(shape.received), shape.sent_index, shape.received_index
        sending: dict[Edge, Turn] = {}
        taking: dict[Edge, Turn] = {}
        actions = []
        for s in shape.order:
            step, place = steps[s], Place(self.rank, self.track, r, s)
            chunk = self._chunk_of(place)
            take: list[Turn] = []
            room: list[Turn] = []
            post: list[Turn] = []
            free: list[Turn] = []
            operands = [self._region(self.rank, operand, chunk, loop, number) for operand in step.src]
            for edge in step.recv:
                if edge not in taking:
                    taking[edge] = Turn(self._in(edge), self.received.get(edge, 0))
                    self.received[edge] = taking[edge].number + 1
                    take.append(taking[edge])
                is_lent, homes = self.plan.messages_of_port[edge.peer, self.rank, edge.port][messages_before.get(edge, 0)]
                if is_lent:
                    operands.append(self._region(edge.peer, homes[taken_index[s, edge]], chunk, loop, number))
                else:
                    operands.append(self._slot(taking[edge], taken_index[s, edge], chunk, loop, number))
                to_take[edge] -= 1
                if not to_take[edge]:
                    free.append(taking[edge])
            targets = [] if step.dst is None else [self._region(self.rank, step.dst, chunk, loop, number)]
            for edge in step.send:
                if edge not in sending:
                    sending[edge] = Turn(self._out(edge), self.sent.get(edge, 0))
                    self.sent[edge] = sending[edge].number + 1
                    self.posted[r, edge, number] = sending[edge]
                    room.append(sending[edge])
                if edge not in lent:
                    targets.append(self._slot(sending[edge], sent_index[s, edge], chunk, loop, number))
                to_send[edge] -= 1
                if not to_send[edge]:
                    post.append(sending[edge])
            back = tuple(self.posted[loan.round, loan.edge, number] for loan in schedule.returns_at(self.rank, self.track, r, s))
            if is_copy(step) and step.dst is not None and post and lent.issuperset(step.send):  # peers may read before the own copy is made
                actions.append(Action(place, (), tuple(room), (), (), (), False, tuple(post), ()))
                room, post = [], []
            divide = Place(0 if schedule.is_symmetric else self.rank, self.track, r, s) in self.plan.proof.complete
            actions.append(Action(place, tuple(take), tuple(room), back, tuple(operands), tuple(targets), divide, tuple(post), tuple(free)))
        return actions

    def _chunk_of(self, place: Place) -> int:
        """Which chunk of the loop the step works on: what its operands hold says so, not where they lie."""
        schedule, proof = self.plan.schedule, self.plan.proof
        if not schedule.is_symmetric:
            return proof.chunks[place]
        chunk = proof.chunks[Place(0, *place[1:])]
        return (chunk + self.rank) % self.plan.n if schedule.chunks["in"] == self.plan.n else chunk

    def _piece(self, chunk: int, loop: _Loop, number: int) -> tuple[int, int]:
        """First byte, from the chunk's start, and size of one slice of a chunk of this loop."""
        size = min(loop.chunk, max(0, loop.size - chunk * loop.chunk)) if self.is_interleaved else loop.size
        first = min(number * self.plan.piece_bytes, size)
        return first, min(self.plan.piece_bytes, size - first)

    def _region(self, owner: int, operand: Operand, chunk: int, loop: _Loop, number: int) -> Region:
        first, size = self._piece(chunk, loop, number)
        if operand.buffer == "tmp":
            base = (self.channel * self.plan.schedule.chunks["tmp"] + operand.chunk) * self.plan.chunk_bytes
        elif self.is_interleaved:
            base = loop.offset + min(operand.chunk * loop.chunk, loop.size)
        else:
            base = loop.offset + operand.chunk * self.plan.problem.block_bytes
        return Region(operand.buffer, owner, base + first, size)

    def _slot(self, turn: Turn, index: int, chunk: int, loop: _Loop, number: int) -> Region:
        _, size = self._piece(chunk, loop, number)
        slot = turn.number % self.plan.slots
        return Region("slot", turn.edge, slot * self.plan.slot_bytes + index * self.plan.piece_bytes, size)


def room_wanted(turn: Turn, slices: int, slots: int) -> int:
    """How many slices of a connection must be free, counted from the start of a launch, before slice `turn` may fill its slot.

    Slots restart at 0 with every launch, so the slot's last user may be in the launch before: then the number is negative or 0.

    >>> room_wanted(Turn(0, 5), slices=8, slots=4), room_wanted(Turn(0, 1), slices=6, slots=4)
    (2, 0)
    """
    if turn.number >= slots:
        return turn.number - slots + 1
    before = turn.number + slots * ((slices - 1 - turn.number) // slots)
    return before + 1 - slices
