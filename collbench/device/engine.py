"""A plan for copy engines: what one rank queues in a launch, on which of four streams, and what of
it waits for what.

    script(plan, rank, memory) -> commands, in the order in which the host queues them

A stage of the kernels' program (program.py) becomes a wait, copies to peers, local moves and what
is then said. All copies of a GPU go down one stream, to the next rank first, as every other rank's
do: parallel copies share the links badly. Moves (reductions, and copies inside the GPU) are kernels
on a stream of their own, so that one slice is reduced while the next travels. Nothing here knows
CUDA; a command is data.

Why this cannot deadlock: a rank queues its stages in the order in which they happened when all
ranks' programs were stepped together (`in_order`), so of all stages that are not done the one that
happened first never lacks anything. What runs beside each other is less: a wait comes after all
waits before it; a copy or move after those and after whatever touches the same memory; what is said
comes after all of these. The host may queue a stage's wait before what earlier stages say, except
for the stage before of the same slice: so even a driver that lays two streams over one another lets
every slice get on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from collbench.device.layout import Memory, Reached, layout, moved, peer_of, piece_of, reach
from collbench.device.program import (
    DATA,
    DIVIDE,
    IN,
    PEER_IN,
    READY,
    ROOM,
    SLOT,
    TAIL,
    TMP,
    DeviceStep,
    End,
    Mark,
    Ref,
    lower,
)
from collbench.planning.choice_gpu import slot_wire_bytes
from collbench.planning.plan import Loop, Plan
from collbench.spec.collectives import collective
from collbench.util.errors import ScheduleError

MAIN, WAITING, COPYING, MOVING, SAYING = range(5)  # streams; the main one is the caller's
UNBOUNDED = (1 << 64) - 1


class Tell(NamedTuple):
    """`number` slices filled or read, counted from the start of the launch, of an end
    (Program.receiving or sending); READY: the launch begun.
    """

    signal: int
    end: int
    number: int


class Turn(NamedTuple):
    """One stage of one slice. actor: its track and channel; done: slices a message of the channel's
    loops before.
    """

    actor: int
    channel: int
    track: int
    round: int
    slice: int
    done: int
    loop: Loop
    waits: tuple[Tell, ...]
    steps: tuple[DeviceStep, ...]
    posts: tuple[Tell, ...]


class Note(NamedTuple):
    """A word to wait for or to set: see engine.cu. `most` is left to the host."""

    word: int
    a_launch: int
    number: int
    signal: int
    peer: int
    channel: int
    track: int
    round: int
    done_a_launch: int
    done: int
    report: int


class Begin(NamedTuple):
    """Count the launch and say that it has begun, in the main stream."""

    notes: tuple[Note, ...]


class Wait(NamedTuple):
    notes: tuple[Note, ...]


class Say(NamedTuple):
    notes: tuple[Note, ...]


class Copy(NamedTuple):
    """By the copy engine."""

    target: int
    source: int
    size: int


class Move(NamedTuple):
    """By a kernel: reduce the sources in order, or copy the only one."""

    target: int
    sources: tuple[int, ...]
    size: int
    divides: bool


class Record(NamedTuple):
    """Event number `event` happens when all that the stream was given before is done."""

    stream: int
    event: int


class After(NamedTuple):
    """What the stream is given from here on waits for an event."""

    stream: int
    event: int


Command = Begin | Wait | Say | Copy | Move | Record | After


def slices_of(plan: Plan, channel: int) -> int:
    """Slices that a message has, added over the loops of a channel."""
    return sum(loop.slices for loop in plan.loops(channel))


def turns(plan: Plan, rank: int) -> list[list[Turn]]:
    """What each track of a rank does on each channel, in the program's order."""
    program = lower(plan, rank)
    return [
        list(_turns(plan, rank, channel, track))
        for channel in range(plan.channels)
        for track in range(len(program.tracks))
    ]


def _turns(plan: Plan, rank: int, channel: int, track: int) -> Iterator[Turn]:
    program, done = lower(plan, rank), 0
    first_round, rounds, *_ = program.tracks[track]
    actor = channel * len(program.tracks) + track
    for loop in plan.loops(channel):
        for r in range(rounds):
            first_stage, stages = program.rounds[first_round + r]
            for part in range(loop.slices):

                def tells(
                    marks: Sequence[Mark], part: int = part, loop: Loop = loop, done: int = done
                ) -> tuple[Tell, ...]:
                    return tuple(_tell(plan, rank, mark, done, loop.slices, part) for mark in marks)

                for stage in program.stages[first_stage : first_stage + stages]:
                    step, steps, wait, waits, post, posts = stage
                    yield Turn(
                        actor,
                        channel,
                        track,
                        r,
                        part,
                        done,
                        loop,
                        tells(program.waits[wait : wait + waits]),
                        program.steps[step : step + steps],
                        tells(program.posts[post : post + posts]),
                    )
        done += loop.slices


def end_of(plan: Plan, rank: int, tell: Tell | Mark, *, is_wait: bool) -> tuple[End, bool]:
    """The end that a tell means, and whether the rank sends along it."""
    program = lower(plan, rank)
    is_sending = tell.signal in (ROOM, TAIL) or (tell.signal == READY and is_wait)
    return (program.sending if is_sending else program.receiving)[tell.end], is_sending


def _tell(plan: Plan, rank: int, mark: Mark, done: int, slices: int, part: int) -> Tell:
    if mark.signal == READY:
        return Tell(READY, mark.end, 1)
    end, _ = end_of(plan, rank, mark, is_wait=True)
    number = done * end.per_loop + mark.message * slices + part + 1
    return Tell(
        mark.signal, mark.end, max(0, number - plan.slots) if mark.signal == ROOM else number
    )


@lru_cache(maxsize=256)
def in_order(plan: Plan) -> tuple[tuple[Turn, ...], ...]:
    """Each rank's turns in the order in which they happen when all tracks of all ranks are stepped
    in turn. Raises ScheduleError for a deadlock.
    """
    actors = [turns(plan, rank) for rank in range(plan.n)]
    places = [[0] * len(own) for own in actors]
    found: list[list[Turn]] = [[] for _ in actors]
    said: dict[tuple[bool, int, int, str, int], int] = {}

    def key(rank: int, turn: Turn, tell: Tell) -> tuple[bool, int, int, str, int]:
        end, is_sending = end_of(plan, rank, tell, is_wait=True)
        peer = peer_of(plan, rank, end)
        return (
            tell.signal in (DATA, TAIL),
            *((rank, peer) if is_sending else (peer, rank)),
            end.port,
            turn.channel,
        )

    left = sum(len(own) for mine in actors for own in mine)
    while left:
        before = left
        for rank, mine in enumerate(actors):
            for actor, own in enumerate(mine):
                if places[rank][actor] == len(own):
                    continue
                turn = own[places[rank][actor]]
                if all(
                    tell.signal == READY or said.get(key(rank, turn, tell), 0) >= tell.number
                    for tell in turn.waits
                ):
                    said.update({key(rank, turn, tell): tell.number for tell in turn.posts})
                    found[rank].append(turn)
                    places[rank][actor] += 1
                    left -= 1
        if left == before:
            raise ScheduleError(
                f"{plan.schedule.op} {plan.schedule.name}: all ranks wait for each other",
                "use more --slots",
            )
    return tuple(map(tuple, found))


def script(
    plan: Plan,
    rank: int,
    memory: Memory,
    *,
    set_offset: int = 0,
    done_before: Sequence[int] | None = None,
) -> list[Command]:
    """What the rank queues for one launch.

    done_before: by channel, slices a message of all launches before, where they were not all of
    this plan; otherwise the kernels count launches.
    """
    return _Script(plan, rank, memory, set_offset, done_before).commands()


@dataclass(slots=True)
class _Past:
    """What a stream was given: its last event, and which memory each of its events stands for."""

    last: int = 0
    used: list[tuple[int, list[tuple[int, int]], list[tuple[int, int]]]] = field(
        default_factory=list
    )


class _Script:
    """One rank's launch being written."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        memory: Memory,
        set_offset: int,
        done_before: Sequence[int] | None,
    ) -> None:
        self.plan, self.rank, self.memory, self.set_offset, self.done_before = (
            plan,
            rank,
            memory,
            set_offset,
            done_before,
        )
        self.program, self.own = lower(plan, rank), layout(plan, rank)
        self.reached = {
            is_sending: [
                reach(plan, rank, memory, number, end, is_sending=is_sending)
                for number, end in enumerate(ends)
            ]
            for is_sending, ends in ((False, self.program.receiving), (True, self.program.sending))
        }
        self.a_launch = [slices_of(plan, channel) for channel in range(plan.channels)]
        self.parts = plan.schedule.chunks["in"] if collective(plan.problem.op).is_interleaved else 0
        self.found: list[Command] = []
        self.past = {stream: _Past() for stream in (WAITING, COPYING, MOVING, SAYING)}
        self.waited: dict[tuple[int, int], int] = {}
        self.said: dict[tuple[int, int], int] = {}
        self.events = 1  # event 0 is the launch's beginning

    def commands(self) -> list[Command]:
        """All of them."""
        begins = [
            self._note(
                Turn(0, channel, t, 0, 0, 0, Loop(0, 0, 0, 0), (), (), ()),
                Tell(READY, mark.end, 1),
                is_wait=False,
            )
            for channel in range(self.plan.channels)
            for t, track in enumerate(self.program.tracks)
            for mark in self.program.posts[track[2] : track[2] + track[3]]
        ]
        self.found += [Begin(tuple(begins)), Record(MAIN, 0)]
        for turn in in_order(self.plan)[self.rank]:
            self._turn(turn)
        self.found += [After(MAIN, past.last) for past in self.past.values() if past.last]
        return self.found

    def _turn(self, turn: Turn) -> None:
        actor = turn.actor, turn.slice
        if turn.waits:
            if actor in self.said:
                self._after(WAITING, SAYING, self.said[actor])
            self._queue(
                WAITING, Wait(tuple(self._note(turn, tell, is_wait=True) for tell in turn.waits))
            )
        moves: list[Move] = []
        copies: list[tuple[int, Copy]] = []
        for step in turn.steps:
            self._step(turn, step, moves, copies)
        copies.sort(key=lambda found: found[0])
        data: list[Move | Copy] = [*moves, *(copy for _, copy in copies)]
        for command in data:
            self._queue_data(command)
        if turn.posts:
            for stream in (WAITING, COPYING, MOVING):
                self._after(SAYING, stream, self.past[stream].last)
            self.said[actor] = self._queue(
                SAYING, Say(tuple(self._note(turn, tell, is_wait=False) for tell in turn.posts))
            )

    def _queue(self, stream: int, command: Command) -> int:
        """Give a stream something; returns the event of its end."""
        self._fork(stream)
        event, self.events = self.events, self.events + 1
        self.found += [command, Record(stream, event)]
        self.past[stream].last = event
        return event

    def _fork(self, stream: int) -> None:
        """Let a stream begin behind the launch's beginning."""
        if (stream, MAIN) not in self.waited:
            self.waited[stream, MAIN] = 0
            self.found.append(After(stream, 0))

    def _after(self, stream: int, other: int, event: int) -> None:
        """Let a stream wait for an event of another, unless it does so already."""
        if event > self.waited.get((stream, other), 0):
            self._fork(stream)
            self.found.append(After(stream, event))
            self.waited[stream, other] = event

    def _queue_data(self, command: Move | Copy) -> None:
        """A copy or move: behind all waits so far, and behind what the other stream does to the
        same memory.
        """
        sources = command.sources if isinstance(command, Move) else (command.source,)
        reads, writes = (
            [(at, at + command.size) for at in sources],
            [(command.target, command.target + command.size)],
        )
        stream, other = (MOVING, COPYING) if isinstance(command, Move) else (COPYING, MOVING)
        self._after(stream, WAITING, self.past[WAITING].last)
        for event, read, written in reversed(self.past[other].used):
            if event <= self.waited.get((stream, other), 0):
                break
            if _overlap(writes, [*read, *written]) or _overlap(reads, written):
                self._after(stream, other, event)
                break
        event = self._queue(stream, command)
        self.past[stream].used.append((event, reads, writes))

    def _step(
        self, turn: Turn, step: DeviceStep, moves: list[Move], copies: list[tuple[int, Copy]]
    ) -> None:
        """The moves and copies of one step; copies with how far away their peer is."""
        first, size = self._piece(turn, step.work)
        if not size:
            return
        sources = tuple(self._address(turn, ref, first, is_source=True) for ref in step.sources)
        targets = [
            (
                self._address(turn, ref, first, is_source=False),
                None if ref.kind < SLOT else self._distance(ref),
            )
            for ref in step.targets
        ]
        source = sources[0]
        if len(sources) > 1:
            divides = bool(step.flags & DIVIDE)
            near = [target for target, peer in targets if peer is None] or [
                at for at, ref in zip(sources, step.sources, strict=True) if ref.kind == SLOT
            ]
            # nothing of this rank's may be written over: the kernel stores over the link
            if not near:
                moves += [Move(target, sources, size, divides) for target, _ in targets]
                return
            moves.append(Move(near[0], sources, size, divides))
            source = near[0]
        for target, peer in targets:
            if peer is not None:
                copies.append((peer, Copy(target, source, size)))
            elif target != source:
                moves.append(Move(target, (source,), size, False))

    def _distance(self, ref: Ref) -> int:
        """How many ranks on the target's owner stands."""
        return (
            peer_of(self.plan, self.rank, self.program.sending[ref.end]) - self.rank
        ) % self.plan.n

    # The geometry of walk.cuh

    def _piece(self, turn: Turn, work: int) -> tuple[int, int]:
        return piece_of(self.plan, self.rank, turn.loop, turn.slice, work)

    def _address(self, turn: Turn, ref: Ref, first: int, *, is_source: bool) -> int:
        plan, loop = self.plan, turn.loop
        if ref.kind == SLOT:
            reached = self.reached[not is_source][ref.end]
            end = (self.program.receiving if is_source else self.program.sending)[ref.end]
            number = turn.done * end.per_loop + ref.message * loop.slices + turn.slice
            slot = (
                reached.slots
                + turn.channel * reached.slots_stride
                + number % plan.slots * slot_wire_bytes(plan)
            )
            return slot + ref.chunk * plan.piece_bytes
        if ref.kind == TMP:
            chunk = turn.channel * plan.schedule.chunks["tmp"] + moved(
                plan, self.rank, ref.chunk, "tmp"
            )
            return self.memory.own + self.own.tmp + chunk * plan.chunk_bytes + first
        is_in = ref.kind in (IN, PEER_IN)
        chunk = moved(plan, self.rank, ref.chunk, "in" if is_in else "out")
        rank = self.rank
        if _is_peers(ref):
            ends = self.program.receiving if is_source else self.program.sending
            rank = peer_of(plan, self.rank, ends[ref.end])
        base = (
            (self.memory.inputs if is_in else self.memory.outputs)[rank]
            + self.set_offset
            + loop.offset
        )
        return (
            base
            + (
                min(chunk * loop.chunk, loop.size)
                if self.parts
                else chunk * plan.problem.block_bytes
            )
            + first
        )

    def _note(self, turn: Turn, tell: Tell, *, is_wait: bool) -> Note:
        end, is_sending = end_of(self.plan, self.rank, tell, is_wait=is_wait)
        reached: Reached = self.reached[is_sending][tell.end]
        word = (
            reached.heard + turn.channel * reached.heard_stride
            if is_wait
            else reached.said + turn.channel * reached.said_stride
        )
        a_launch, number = self.a_launch[turn.channel] * end.per_loop, tell.number
        done_a_launch, done = self.a_launch[turn.channel], turn.done
        if self.done_before is not None:
            before = self.done_before[turn.channel]
            a_launch, number, done_a_launch, done = (
                0,
                number + before * end.per_loop,
                0,
                done + before,
            )
        if tell.signal == READY:
            word, a_launch, number = word + 8, 1, 1
        peer = peer_of(self.plan, self.rank, end)
        return Note(
            word,
            a_launch,
            number,
            tell.signal,
            peer,
            turn.channel,
            turn.track,
            turn.round,
            done_a_launch,
            done,
            turn.actor,
        )


def _is_peers(ref: Ref) -> bool:
    return ref.kind > SLOT


def _overlap(some: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> bool:
    return any(
        start < end_other and start_other < end
        for start, end in some
        for start_other, end_other in others
    )
