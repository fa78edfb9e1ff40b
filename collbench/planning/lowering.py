"""A plan as lists of actions on byte ranges: what backends interpret that run one slice of one step
at a time.

    actors(plan, rank) -> the rank's tracks on every channel, each a list of actions

Offsets are bytes from the start of the buffer that a region names. A message that the plan pushes
zero-copy goes through a slot here: only kernels push.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from collbench.planning.plan import Loop, Plan
from collbench.schedules.ir import Edge, Operand, Step
from collbench.schedules.passes import Shape, home, is_copy, shape_of
from collbench.schedules.verify.proof import Place

Space = Literal["in", "out", "tmp", "slot"]


class Region(NamedTuple):
    """Bytes of a rank's buffer (`owner` is the rank) or of a connection's FIFO (`owner` is the
    connection's number).
    """

    space: Space
    owner: int
    offset: int
    size: int


class SlotSequence(NamedTuple):
    """Slice `number` of one launch on connection `edge`."""

    edge: int
    number: int


class Action(NamedTuple):
    """One slice of one step: wait, compute, hand over.

    Wait until the slices in `take` have arrived, those in `room` have a free slot and those in
    `back` have been read. Reduce `operands` into `targets[0]` (dividing if `divide`), and copy that
    to the other targets; without operands there is nothing to do. Then the slices in `post` are
    filled, and those in `free` have been read. sent: the bytes of the rank's memory that each of
    `post` carries, if it goes to another shared-memory domain. begun: ranks that must have begun
    the launch, which only kernels wait for, before they write to a peer's buffers.
    """

    place: Place
    take: tuple[SlotSequence, ...]
    room: tuple[SlotSequence, ...]
    back: tuple[SlotSequence, ...]
    operands: tuple[Region, ...]
    targets: tuple[Region, ...]
    divide: bool
    post: tuple[SlotSequence, ...]
    free: tuple[SlotSequence, ...]
    sent: tuple[tuple[SlotSequence, Region], ...] = ()
    begun: tuple[int, ...] = ()


class TrackActions(NamedTuple):
    """A track of one rank on one channel: its actions in a launch, and the slices that peers must
    have pulled by its end.
    """

    channel: int
    track: str
    actions: list[Action]
    back: tuple[SlotSequence, ...]


def actors(plan: Plan, rank: int) -> list[TrackActions]:
    """What the rank does in one launch, a list of actions for each of its tracks on each
    channel.
    """
    program = plan.schedule.program(rank)
    shapes = [[shape_of(steps) for steps in track.rounds] for track in program]
    return [
        _TrackLowering(plan, rank, channel, track, shapes[track]).actor()
        for channel in range(plan.channels)
        for track in range(len(program))
    ]


def chunk_of_step(plan: Plan, place: Place) -> int:
    """The chunk of a loop that a step works on: given by what its operands hold, not by where they
    lie.
    """
    schedule, proof = plan.schedule, plan.proof
    if not schedule.is_symmetric:
        return proof.chunks[place]
    chunk = proof.chunks[Place(0, *place[1:])]
    return (chunk + place.program) % plan.n if schedule.chunks["in"] == plan.n else chunk


def piece_of_step(
    plan: Plan, channel: int, loop: Loop, number: int, place: Place
) -> tuple[int, int]:
    """First byte within a chunk, and size, of the slice of that number of what a step works on.
    place: with the rank as its program.
    """
    chunk = chunk_of_step(plan, place)
    if not plan.problem.counts:
        return plan.piece(loop, number, chunk)
    giver = plan.proof.givers[Place(0, *place[1:]) if plan.schedule.is_symmetric else place]
    if plan.schedule.is_symmetric:
        giver = (giver + place.program) % plan.n
    return plan.piece_of_block(channel, loop, number, giver, chunk)


class _TrackLowering:
    """One track of one rank on one channel, turned into actions.

    sent, received: slices of the launch so far along each edge. posted: the latest slice that a
    round sent along an edge, for each slice of a message.
    """

    def __init__(
        self, plan: Plan, rank: int, channel: int, track: int, shapes: list[Shape]
    ) -> None:
        self.plan, self.rank, self.channel, self.track = plan, rank, channel, track
        self.shapes = shapes
        self.sent: dict[Edge, int] = {}
        self.received: dict[Edge, int] = {}
        self.posted: dict[tuple[int, Edge, int], SlotSequence] = {}

    def actor(self) -> TrackActions:
        track = self.plan.schedule.program(self.rank)[self.track]
        actions: list[Action] = []
        last_pulled: dict[int, SlotSequence] = {}
        for loop in self.plan.loops(self.channel):
            messages: dict[Edge, int] = {}  # of this loop that rounds before have received
            for r, steps in enumerate(track.rounds):
                for number in range(loop.slices):
                    actions += _RoundSlice(self, r, steps, loop, number, messages).actions()
                for edge in self.shapes[r].received:
                    messages[edge] = messages.get(edge, 0) + 1
                for edge in self.plan.schedule.pulled_at(self.rank, self.track, r):
                    sequence = self.posted[r, edge, loop.slices - 1]
                    last_pulled[sequence.edge] = sequence
        return TrackActions(self.channel, track.name, actions, tuple(last_pulled.values()))

    def next_slice(self, edge: Edge, *, is_sent: bool) -> SlotSequence:
        """The next slice to send along an edge, or the next that arrives."""
        counts = self.sent if is_sent else self.received
        ends = (self.rank, edge.peer) if is_sent else (edge.peer, self.rank)
        number = counts.get(edge, 0)
        counts[edge] = number + 1
        return SlotSequence(self.plan.number_of(self.channel, *ends, edge.port), number)


class _RoundSlice:
    """One slice of a round in one loop of a track, turned into actions.

    to_send, to_take: chunks of a message that no step has sent or taken yet. sending, taking: the
    slices of the messages that steps have begun. ends: the bytes of a slot in use.
    """

    def __init__(
        self,
        track: _TrackLowering,
        r: int,
        steps: tuple[Step, ...],
        loop: Loop,
        number: int,
        messages_before: dict[Edge, int],
    ) -> None:
        self.track, self.plan, self.r, self.steps = track, track.plan, r, steps
        self.loop, self.number, self.messages_before = loop, number, messages_before
        self.shape = track.shapes[r]
        self.pulled = self.plan.schedule.pulled_at(track.rank, track.track, r)
        self.to_send, self.to_take = dict(self.shape.sent), dict(self.shape.received)
        self.sending: dict[Edge, SlotSequence] = {}
        self.taking: dict[Edge, SlotSequence] = {}
        self.ends: dict[Edge, int] = {}

    def actions(self) -> Iterator[Action]:
        """The actions of the steps, in the order in which they run."""
        for s in self.shape.order:
            yield from self._step(s)

    def _step(self, s: int) -> Iterator[Action]:
        """The action of a step, or two: the first lets peers pull before the rank makes its own
        copy.
        """
        track, step, schedule = self.track, self.steps[s], self.plan.schedule
        place = Place(track.rank, track.track, self.r, s)
        proved_place = Place(0, *place[1:]) if schedule.is_symmetric else place
        piece = piece_of_step(self.plan, track.channel, self.loop, self.number, place)
        sources, take, free = self._receive(s, piece)
        slots, room, post, sent = self._send(s, piece)
        returned = schedule.pending_pulls_at(*place) if schedule.pending_pulls else ()
        action = Action(
            place=place,
            take=take,
            room=room,
            back=tuple(track.posted[each.round, each.edge, self.number] for each in returned),
            operands=(*(self._region(track.rank, each, piece) for each in step.src), *sources),
            targets=(
                *(() if step.dst is None else (self._region(track.rank, step.dst, piece),)),
                *slots,
            ),
            divide=proved_place in self.plan.proof.complete,
            post=post,
            free=free,
            sent=sent,
        )
        if is_copy(step) and step.dst is not None and post and self.pulled.issuperset(step.send):
            yield Action(place, (), room, (), (), (), False, post, (), sent)
            action = action._replace(room=(), post=(), sent=())
        yield action

    def _receive(
        self, s: int, piece: tuple[int, int]
    ) -> tuple[list[Region], tuple[SlotSequence, ...], tuple[SlotSequence, ...]]:
        """What a step reads of its peers' chunks; the slices that it waits for, and that it is the
        last to read.
        """
        rank = self.track.rank
        sources: list[Region] = []
        take: list[SlotSequence] = []
        free: list[SlotSequence] = []
        for edge in self.steps[s].recv:
            if edge not in self.taking:
                self.taking[edge] = self.track.next_slice(edge, is_sent=False)
                take.append(self.taking[edge])
            messages = self.plan.messages_of_port[edge.peer, rank, edge.port]
            message = messages[self.messages_before.get(edge, 0)]
            index = self.shape.received_index[s, edge]
            is_pulled = message.is_direct and self.plan.p2p == "pull"
            if is_pulled and not self.plan.is_remote(edge.peer, rank):
                sources.append(self._region(edge.peer, message.places[index], piece))
            else:
                sources.append(self._slot(self.taking[edge], index, piece))
            self.to_take[edge] -= 1
            if not self.to_take[edge]:
                free.append(self.taking[edge])
        return sources, tuple(take), tuple(free)

    def _send(
        self, s: int, piece: tuple[int, int]
    ) -> tuple[
        list[Region],
        tuple[SlotSequence, ...],
        tuple[SlotSequence, ...],
        tuple[tuple[SlotSequence, Region], ...],
    ]:
        """The slots that a step writes; the slices that need a free slot, that are then filled, and
        what those to another domain carry.
        """
        track, step = self.track, self.steps[s]
        slots: list[Region] = []
        room: list[SlotSequence] = []
        post: list[SlotSequence] = []
        sent: list[tuple[SlotSequence, Region]] = []
        for edge in step.send:
            if edge not in self.sending:
                self.sending[edge] = track.next_slice(edge, is_sent=True)
                track.posted[self.r, edge, self.number] = self.sending[edge]
                room.append(self.sending[edge])
            sequence = self.sending[edge]
            if edge not in self.pulled:
                slot = self._slot(sequence, self.shape.sent_index[s, edge], piece)
                slots.append(slot)
                if self.plan.is_remote(track.rank, edge.peer):
                    end = slot.offset % self.plan.slot_bytes + slot.size
                    self.ends[edge] = max(self.ends.get(edge, 0), end)
            self.to_send[edge] -= 1
            if self.to_send[edge]:
                continue
            post.append(sequence)
            if self.plan.is_remote(track.rank, edge.peer):
                first = sequence.number % self.plan.slots * self.plan.slot_bytes
                carried = (
                    self._region(track.rank, home(step), piece)
                    if edge in self.pulled
                    else Region("slot", sequence.edge, first, self.ends[edge])
                )
                sent.append((sequence, carried))
        return slots, tuple(room), tuple(post), tuple(sent)

    def _region(self, owner: int, operand: Operand, piece: tuple[int, int]) -> Region:
        """Where a piece of an operand lies in its owner's memory."""
        plan, loop, channel, (first, size) = self.plan, self.loop, self.track.channel, piece
        if operand.buffer == "tmp":
            base = (channel * plan.schedule.chunks["tmp"] + operand.chunk) * plan.chunk_bytes
        elif plan.problem.counts:
            base = plan.place_of_block(channel, loop, operand.buffer, owner, operand.chunk)
        elif plan.is_interleaved:
            base = loop.offset + min(operand.chunk * loop.chunk, loop.size)
        else:
            base = loop.offset + operand.chunk * plan.problem.block_bytes
        return Region(operand.buffer, owner, base + first, size)

    def _slot(self, sequence: SlotSequence, index: int, piece: tuple[int, int]) -> Region:
        """Where a piece of a message's chunk lies in its slot."""
        first = sequence.number % self.plan.slots * self.plan.slot_bytes
        return Region("slot", sequence.edge, first + index * self.plan.piece_bytes, piece[1])


def room_wanted(sequence: SlotSequence, slices: int, slots: int) -> int:
    """How many slices of a connection must be free, counted from the start of a launch, before
    slice `sequence` may fill its slot.

    Slots restart at 0 with every launch, so the slot's last user may be in the launch before. Then
    the number is negative or 0.

    >>> (
    ...     room_wanted(SlotSequence(0, 5), slices=8, slots=4),
    ...     room_wanted(SlotSequence(0, 1), slices=6, slots=4),
    ... )
    (2, 0)
    """
    if sequence.number >= slots:
        return sequence.number - slots + 1
    before = sequence.number + slots * ((slices - 1 - sequence.number) // slots)
    return before + 1 - slices


def writer_of(plan: Plan, rank: int, offset: int) -> str:
    """The last action that writes a byte of the rank's output, in words; "" if there is none."""
    writer = ""
    for actor in actors(plan, rank):
        for action in actor.actions:
            for region in action.targets:
                if region.space == "out" and region.offset <= offset < region.offset + region.size:
                    sources = {plan.connections[edge].src for edge, _ in action.take}
                    received = (
                        f", from rank {', '.join(map(str, sorted(sources)))}" if sources else ""
                    )
                    writer = (
                        f"written by channel {actor.channel}, track {actor.track}, round"
                        f" {action.place.round}{received}"
                    )
    return writer
