"""A plan for copy engines: the commands that one rank queues in a launch, on which of four streams,
and which of them waits for which.

    script(plan, rank, memory) -> commands, in the order in which the host queues them

A stage of the kernels' program (program.py) becomes a wait, copies to peers, local moves and
signals. All copies of a GPU use one stream, and each rank begins with the next rank: parallel
copies share the links badly. Moves (reductions, and copies inside the GPU) are kernels on a stream
of their own, so that one slice is reduced while the next one travels. Nothing here knows CUDA; a
command is data.

Why this cannot deadlock: a rank queues its stages in the order in which they happened when the
programs of all ranks were stepped together (`in_order`). Of all stages that are not done, the one
that happened first therefore never lacks anything. Fewer commands run concurrently than in that
order: a wait comes after all waits before it; a copy or move comes after those waits and after
every command that touches the same memory; a signal comes after all of these. The host may queue
the wait of a stage before the signals of earlier stages, except for the previous stage of the same
slice. Every slice thus makes progress even if a driver serialises two streams.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from collbench.core.errors import ScheduleError
from collbench.device.layout import (
    EndAddresses,
    Memory,
    block_of,
    layout,
    peer_of,
    piece_of,
    reach,
    shifted,
)
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
    ConnectionEnd,
    DeviceStep,
    Flag,
    OperandRef,
    lower,
)
from collbench.planning.limits import slot_wire_bytes
from collbench.planning.plan import Loop, Plan

MAIN, WAITING, COPYING, MOVING, SIGNALLING = range(5)  # streams; the main one is the caller's
UNBOUNDED = (1 << 64) - 1


class FlagValue(NamedTuple):
    """A flag and the value that it must have: `number` slices filled or read since the start of the
    launch, of an end (Program.receiving or sending). READY: the launch has begun.
    """

    signal: int
    end: int
    number: int


class StageSlice(NamedTuple):
    """One stage of one slice. actor: the number of its track and channel; done: slices a message of
    the channel's previous loops.
    """

    actor: int
    channel: int
    track: int
    round: int
    slice: int
    done: int
    loop: Loop
    waits: tuple[FlagValue, ...]
    steps: tuple[DeviceStep, ...]
    signals: tuple[FlagValue, ...]


class FlagEntry(NamedTuple):
    """A flag to wait for or to set: FlagEntry of engine.cu, whose `limit` the host adds."""

    flag: int
    per_launch: int
    number: int
    signal: int
    peer: int
    channel: int
    track: int
    round: int
    done_per_launch: int
    done: int
    report: int


class BeginCommand(NamedTuple):
    """Count the launch and signal that it has begun, in the main stream."""

    entries: tuple[FlagEntry, ...]


class WaitCommand(NamedTuple):
    """Wait for flags, by a kernel."""

    entries: tuple[FlagEntry, ...]


class SignalCommand(NamedTuple):
    """Set flags, by a kernel."""

    entries: tuple[FlagEntry, ...]


class CopyCommand(NamedTuple):
    """Copy by the copy engine."""

    target: int
    source: int
    size: int


class MoveCommand(NamedTuple):
    """Reduce the sources in order, or copy the only one, by a kernel."""

    target: int
    sources: tuple[int, ...]
    size: int
    divides: bool


class RecordEvent(NamedTuple):
    """Record event number `event` on the stream, behind all commands so far."""

    stream: int
    event: int


class WaitEvent(NamedTuple):
    """Let the stream wait for an event before its next commands."""

    stream: int
    event: int


Command = (
    BeginCommand | WaitCommand | SignalCommand | CopyCommand | MoveCommand | RecordEvent | WaitEvent
)


def slices_of(plan: Plan, channel: int) -> int:
    """Slices of a message, summed over the loops of a channel."""
    return sum(loop.slices for loop in plan.loops(channel))


def stage_slices(plan: Plan, rank: int) -> list[list[StageSlice]]:
    """The stages of each track of a rank on each channel, slice by slice, in the program's
    order.
    """
    program = lower(plan, rank)
    return [
        list(_stage_slices(plan, rank, channel, track))
        for channel in range(plan.channels)
        for track in range(len(program.tracks))
    ]


def _stage_slices(plan: Plan, rank: int, channel: int, track: int) -> Iterator[StageSlice]:
    program, done = lower(plan, rank), 0
    first_round, rounds, *_ = program.tracks[track]
    actor = channel * len(program.tracks) + track
    for loop in plan.loops(channel):
        for r in range(rounds):
            first_stage, stages = program.rounds[first_round + r]
            for part in range(loop.slices):

                def flag_values(
                    flags: Sequence[Flag], part: int = part, loop: Loop = loop, done: int = done
                ) -> tuple[FlagValue, ...]:
                    return tuple(
                        _flag_value(plan, rank, flag, done, loop.slices, part) for flag in flags
                    )

                for entry in program.stages[first_stage : first_stage + stages]:
                    step, steps, wait, waits, signal, signals = entry
                    yield StageSlice(
                        actor,
                        channel,
                        track,
                        r,
                        part,
                        done,
                        loop,
                        flag_values(program.waits[wait : wait + waits]),
                        program.steps[step : step + steps],
                        flag_values(program.signals[signal : signal + signals]),
                    )
        done += loop.slices


def end_of(
    plan: Plan, rank: int, flag: FlagValue | Flag, *, is_wait: bool
) -> tuple[ConnectionEnd, bool]:
    """The end that a flag belongs to, and whether the rank sends along it."""
    program = lower(plan, rank)
    is_sending = flag.signal in (ROOM, TAIL) or (flag.signal == READY and is_wait)
    return (program.sending if is_sending else program.receiving)[flag.end], is_sending


def _flag_value(plan: Plan, rank: int, flag: Flag, done: int, slices: int, part: int) -> FlagValue:
    if flag.signal == READY:
        return FlagValue(READY, flag.end, 1)
    end, _ = end_of(plan, rank, flag, is_wait=True)
    number = done * end.per_loop + flag.message * slices + part + 1
    return FlagValue(
        flag.signal, flag.end, max(0, number - plan.slots) if flag.signal == ROOM else number
    )


@lru_cache(maxsize=256)
def in_order(plan: Plan) -> tuple[tuple[StageSlice, ...], ...]:
    """Each rank's stages in the order in which they happen when all tracks of all ranks are stepped
    in turn. Raises ScheduleError for a deadlock.
    """
    actors = [stage_slices(plan, rank) for rank in range(plan.n)]
    positions = [[0] * len(own) for own in actors]
    ordered: list[list[StageSlice]] = [[] for _ in actors]
    signalled: dict[tuple[bool, int, int, str, int], int] = {}

    def key(rank: int, stage: StageSlice, flag: FlagValue) -> tuple[bool, int, int, str, int]:
        end, is_sending = end_of(plan, rank, flag, is_wait=True)
        peer = peer_of(plan, rank, end)
        return (
            flag.signal in (DATA, TAIL),
            *((rank, peer) if is_sending else (peer, rank)),
            end.port,
            stage.channel,
        )

    left = sum(len(stages) for own in actors for stages in own)
    while left:
        before = left
        for rank, own in enumerate(actors):
            for actor, stages in enumerate(own):
                if positions[rank][actor] == len(stages):
                    continue
                stage = stages[positions[rank][actor]]
                if all(
                    flag.signal == READY or signalled.get(key(rank, stage, flag), 0) >= flag.number
                    for flag in stage.waits
                ):
                    signalled.update(
                        {key(rank, stage, flag): flag.number for flag in stage.signals}
                    )
                    ordered[rank].append(stage)
                    positions[rank][actor] += 1
                    left -= 1
        if left == before:
            raise ScheduleError(
                f"{plan.schedule.op} {plan.schedule.name}: all ranks wait for each other",
                "use more --slots",
            )
    return tuple(map(tuple, ordered))


def script(
    plan: Plan,
    rank: int,
    memory: Memory,
    *,
    set_offset: int = 0,
    done_before: Sequence[int] | None = None,
) -> list[Command]:
    """The commands that the rank queues for one launch.

    done_before: by channel, slices a message of all previous launches, if they were not all of this
    plan; otherwise the kernels count launches.
    """
    return _ScriptBuilder(plan, rank, memory, set_offset, done_before).build()


@dataclass(slots=True)
class _StreamHistory:
    """The commands of a stream so far: its last event, and the memory that each event covers."""

    last: int = 0
    used: list[tuple[int, list[tuple[int, int]], list[tuple[int, int]]]] = field(
        default_factory=list
    )


class _ScriptBuilder:
    """Builds the commands of one rank's launch."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        memory: Memory,
        set_offset: int,
        done_before: Sequence[int] | None,
    ) -> None:
        self.plan, self.rank, self.memory = plan, rank, memory
        self.set_offset, self.done_before = set_offset, done_before
        self.program, self.own = lower(plan, rank), layout(plan, rank)
        self.addresses = {
            is_sending: [
                reach(plan, rank, memory, number, end, is_sending=is_sending)
                for number, end in enumerate(ends)
            ]
            for is_sending, ends in ((False, self.program.receiving), (True, self.program.sending))
        }
        self.per_launch = [slices_of(plan, channel) for channel in range(plan.channels)]
        self.commands: list[Command] = []
        self.history = {
            stream: _StreamHistory() for stream in (WAITING, COPYING, MOVING, SIGNALLING)
        }
        self.waited: dict[tuple[int, int], int] = {}
        self.signalled: dict[tuple[int, int], int] = {}
        self.events = 1  # event 0 is the launch's beginning

    def build(self) -> list[Command]:
        """The commands of the launch."""
        begins = [
            self._entry(
                StageSlice(0, channel, t, 0, 0, 0, Loop(0, 0, 0, 0), (), (), ()),
                FlagValue(READY, flag.end, 1),
                is_wait=False,
            )
            for channel in range(self.plan.channels)
            for t, track in enumerate(self.program.tracks)
            for flag in self.program.signals[track[2] : track[2] + track[3]]
        ]
        self.commands += [BeginCommand(tuple(begins)), RecordEvent(MAIN, 0)]
        for stage in in_order(self.plan)[self.rank]:
            self._queue_stage(stage)
        self.commands += [WaitEvent(MAIN, past.last) for past in self.history.values() if past.last]
        return self.commands

    def _queue_stage(self, stage: StageSlice) -> None:
        actor = stage.actor, stage.slice
        if stage.waits:
            if actor in self.signalled:
                self._after(WAITING, SIGNALLING, self.signalled[actor])
            self._queue(
                WAITING,
                WaitCommand(tuple(self._entry(stage, flag, is_wait=True) for flag in stage.waits)),
            )
        moves: list[MoveCommand] = []
        copies: list[tuple[int, CopyCommand]] = []
        for step in stage.steps:
            self._queue_step(stage, step, moves, copies)
        copies.sort(key=lambda copy: copy[0])
        data: list[MoveCommand | CopyCommand] = [*moves, *(copy for _, copy in copies)]
        for command in data:
            self._queue_data(command)
        if stage.signals:
            for stream in (WAITING, COPYING, MOVING):
                self._after(SIGNALLING, stream, self.history[stream].last)
            self.signalled[actor] = self._queue(
                SIGNALLING,
                SignalCommand(
                    tuple(self._entry(stage, flag, is_wait=False) for flag in stage.signals)
                ),
            )

    def _queue(self, stream: int, command: Command) -> int:
        """Queue a command on a stream; returns the event of its end."""
        self._fork(stream)
        event, self.events = self.events, self.events + 1
        self.commands += [command, RecordEvent(stream, event)]
        self.history[stream].last = event
        return event

    def _fork(self, stream: int) -> None:
        """Order a stream behind the beginning of the launch."""
        if (stream, MAIN) not in self.waited:
            self.waited[stream, MAIN] = 0
            self.commands.append(WaitEvent(stream, 0))

    def _after(self, stream: int, other: int, event: int) -> None:
        """Let a stream wait for an event of another stream, unless it does so already."""
        if event > self.waited.get((stream, other), 0):
            self._fork(stream)
            self.commands.append(WaitEvent(stream, event))
            self.waited[stream, other] = event

    def _queue_data(self, command: MoveCommand | CopyCommand) -> None:
        """Queue a copy or move behind all waits so far, and behind the commands of the other stream
        that touch the same memory.
        """
        sources = command.sources if isinstance(command, MoveCommand) else (command.source,)
        reads = [(first, first + command.size) for first in sources]
        writes = [(command.target, command.target + command.size)]
        stream, other = (MOVING, COPYING) if isinstance(command, MoveCommand) else (COPYING, MOVING)
        self._after(stream, WAITING, self.history[WAITING].last)
        for event, read, written in reversed(self.history[other].used):
            if event <= self.waited.get((stream, other), 0):
                break
            if _overlap(writes, [*read, *written]) or _overlap(reads, written):
                self._after(stream, other, event)
                break
        event = self._queue(stream, command)
        self.history[stream].used.append((event, reads, writes))

    def _queue_step(
        self,
        stage: StageSlice,
        step: DeviceStep,
        moves: list[MoveCommand],
        copies: list[tuple[int, CopyCommand]],
    ) -> None:
        """Add the moves and copies of one step; a copy carries the distance to its peer."""
        first, size = piece_of(
            self.plan, self.rank, stage.channel, stage.loop, stage.slice, step.work
        )
        if not size:
            return
        sources = tuple(self._address(stage, ref, first, is_source=True) for ref in step.sources)
        targets = [
            (
                self._address(stage, ref, first, is_source=False),
                None if ref.kind < SLOT else self._distance(ref),
            )
            for ref in step.targets
        ]
        source = sources[0]
        if len(sources) > 1:
            divides = bool(step.flags & DIVIDE)
            own_targets = [target for target, peer in targets if peer is None] or [
                at for at, ref in zip(sources, step.sources, strict=True) if ref.kind == SLOT
            ]
            # no memory of this rank may be overwritten: the kernel stores over the link
            if not own_targets:
                moves += [MoveCommand(target, sources, size, divides) for target, _ in targets]
                return
            moves.append(MoveCommand(own_targets[0], sources, size, divides))
            source = own_targets[0]
        for target, peer in targets:
            if peer is not None:
                copies.append((peer, CopyCommand(target, source, size)))
            elif target != source:
                moves.append(MoveCommand(target, (source,), size, False))

    def _distance(self, ref: OperandRef) -> int:
        """The distance in ranks to the owner of the target."""
        return (
            peer_of(self.plan, self.rank, self.program.sending[ref.end]) - self.rank
        ) % self.plan.n

    # The geometry of walk.cuh

    def _address(self, stage: StageSlice, ref: OperandRef, first: int, *, is_source: bool) -> int:
        plan, loop = self.plan, stage.loop
        if ref.kind == SLOT:
            addresses = self.addresses[not is_source][ref.end]
            end = (self.program.receiving if is_source else self.program.sending)[ref.end]
            number = stage.done * end.per_loop + ref.message * loop.slices + stage.slice
            slot = (
                addresses.slots
                + stage.channel * addresses.slots_stride
                + number % plan.slots * slot_wire_bytes(plan)
            )
            return slot + ref.chunk * plan.piece_bytes
        if ref.kind == TMP:
            chunk = stage.channel * plan.schedule.chunks["tmp"] + shifted(
                plan, self.rank, ref.chunk, "tmp"
            )
            return self.memory.own + self.own.tmp + chunk * plan.chunk_bytes + first
        is_in = ref.kind in (IN, PEER_IN)
        rank = self.rank
        if ref.kind > SLOT:  # of the peer
            ends = self.program.receiving if is_source else self.program.sending
            rank = peer_of(plan, self.rank, ends[ref.end])
        buffer = (self.memory.inputs if is_in else self.memory.outputs)[rank] + self.set_offset
        if plan.problem.counts:
            block = block_of(plan, self.rank, ref.chunk)
            return buffer + plan.place_of_block(stage.channel, loop, *block) + first
        chunk = shifted(plan, self.rank, ref.chunk, "in" if is_in else "out")
        before = chunk * plan.problem.block_bytes
        if plan.is_interleaved:
            before = min(chunk * loop.chunk, loop.size)
        return buffer + loop.offset + before + first

    def _entry(self, stage: StageSlice, flag: FlagValue, *, is_wait: bool) -> FlagEntry:
        end, is_sending = end_of(self.plan, self.rank, flag, is_wait=is_wait)
        addresses: EndAddresses = self.addresses[is_sending][flag.end]
        word = (
            addresses.local_flag + stage.channel * addresses.local_flag_stride
            if is_wait
            else addresses.remote_flag + stage.channel * addresses.remote_flag_stride
        )
        per_launch, number = self.per_launch[stage.channel] * end.per_loop, flag.number
        done_per_launch, done = self.per_launch[stage.channel], stage.done
        if self.done_before is not None:
            before = self.done_before[stage.channel]
            per_launch = done_per_launch = 0
            number, done = number + before * end.per_loop, done + before
        if flag.signal == READY:
            word, per_launch, number = word + 8, 1, 1
        peer = peer_of(self.plan, self.rank, end)
        place = peer, stage.channel, stage.track, stage.round
        return FlagEntry(
            word, per_launch, number, flag.signal, *place, done_per_launch, done, stage.actor
        )


def _overlap(some: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> bool:
    return any(
        start < end_other and start_other < end
        for start, end in some
        for start_other, end_other in others
    )
