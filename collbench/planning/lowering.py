"""A plan as lists of actions on byte ranges: what backends interpret that run one slice of one step
at a time.

    actors(plan, rank) -> the rank's tracks on every channel, each a list of actions

Offsets are bytes from the start of the buffer that a region names. A message that the plan pushes
zero-copy goes through a slot here: only kernels push.
"""

from typing import Literal, NamedTuple

from collbench.planning.plan import Loop, Plan
from collbench.schedules.ir import Edge, Operand, Step
from collbench.schedules.passes import Shape, home, is_copy, shape_of
from collbench.schedules.verify.proof import Place
from collbench.spec.collectives import collective
from collbench.util.errors import ScheduleError

# Of one rank in a launch: an interpreter needs some kilobytes and some tens of microseconds to bind
# one, so that this many take some hundreds of megabytes and ten seconds.
MAX_ACTIONS = 200_000

Space = Literal["in", "out", "tmp", "slot"]


class Region(NamedTuple):
    """Bytes of a rank's buffer (`owner` is the rank) or of a connection's FIFO (`owner` is the
    connection's number).
    """

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

    Wait until the slices in `take` have arrived, those in `room` have a free slot and those in
    `back` have been read. Reduce `operands` into `targets[0]` (dividing if `divide`), and copy that
    to the other targets; without operands there is nothing to do. Then the slices in `post` are
    filled, and those in `free` have been read. sent: the bytes of the rank's memory that each of
    `post` carries, if it goes to another shared-memory domain.
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
    sent: tuple[tuple[Turn, Region], ...] = ()


class Actor(NamedTuple):
    """A track of one rank on one channel: its actions in a launch, and the slices that peers must
    have pulled by its end.
    """

    channel: int
    track: str
    actions: list[Action]
    back: tuple[Turn, ...]


def refuse_too_many(plan: Plan) -> None:
    """Raise ScheduleError if a launch has more actions than an interpreter can bind."""
    if plan.action_count() > MAX_ACTIONS:
        raise ScheduleError(
            f"{plan.action_count()} actions of a rank in one launch, at most {MAX_ACTIONS}",
            "use a larger --chunk",
        )


def actors(plan: Plan, rank: int) -> list[Actor]:
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


class _TrackLowering:
    """One track of one rank on one channel, turned into actions."""

    def __init__(
        self, plan: Plan, rank: int, channel: int, track: int, shapes: list[Shape]
    ) -> None:
        self.plan, self.rank, self.channel, self.track, self.shapes = (
            plan,
            rank,
            channel,
            track,
            shapes,
        )
        self.is_interleaved = collective(plan.schedule.op).is_interleaved
        self.sent: dict[Edge, int] = {}
        self.received: dict[Edge, int] = {}
        self.posted: dict[tuple[int, Edge, int], Turn] = {}

    def actor(self) -> Actor:
        track = self.plan.schedule.program(self.rank)[self.track]
        actions: list[Action] = []
        last_pulled: dict[int, Turn] = {}
        for loop in self.plan.loops(self.channel):
            counts: dict[Edge, int] = {}
            for r, steps in enumerate(track.rounds):
                for number in range(loop.slices):
                    actions += self._round(r, steps, loop, number, counts)
                for edge in self.shapes[r].received:
                    counts[edge] = counts.get(edge, 0) + 1
                for edge in self.plan.schedule.lent_at(self.rank, self.track, r):
                    turn = self.posted[r, edge, loop.slices - 1]
                    last_pulled[turn.edge] = turn
        return Actor(self.channel, track.name, actions, tuple(last_pulled.values()))

    def _out(self, edge: Edge) -> int:
        return self.plan.numbers[self.channel, self.rank, edge.peer, edge.port]

    def _in(self, edge: Edge) -> int:
        return self.plan.numbers[self.channel, edge.peer, self.rank, edge.port]

    def _round(
        self,
        r: int,
        steps: tuple[Step, ...],
        loop: Loop,
        number: int,
        messages_before: dict[Edge, int],
    ) -> list[Action]:
        schedule = self.plan.schedule
        lent = schedule.lent_at(self.rank, self.track, r)
        shape = self.shapes[r]
        to_send, to_take, sent_index, taken_index = (
            dict(shape.sent),
            dict(shape.received),
            shape.sent_index,
            shape.received_index,
        )
        sending: dict[Edge, Turn] = {}
        taking: dict[Edge, Turn] = {}
        ends: dict[Edge, int] = {}
        actions = []
        for s in shape.order:
            step, place = steps[s], Place(self.rank, self.track, r, s)
            chunk = self._chunk_of(place)
            take: list[Turn] = []
            room: list[Turn] = []
            post: list[Turn] = []
            free: list[Turn] = []
            sent: list[tuple[Turn, Region]] = []
            piece = self._piece(chunk, loop, number)
            operands = [self._region(self.rank, operand, loop, piece) for operand in step.src]
            for edge in step.recv:
                if edge not in taking:
                    taking[edge] = Turn(self._in(edge), self.received.get(edge, 0))
                    self.received[edge] = taking[edge].number + 1
                    take.append(taking[edge])
                message = self.plan.messages_of_port[edge.peer, self.rank, edge.port][
                    messages_before.get(edge, 0)
                ]
                if (
                    message.is_direct
                    and self.plan.p2p == "pull"
                    and not self.plan.is_remote(edge.peer, self.rank)
                ):
                    operands.append(
                        self._region(edge.peer, message.places[taken_index[s, edge]], loop, piece)
                    )
                else:
                    operands.append(self._slot(taking[edge], taken_index[s, edge], piece))
                to_take[edge] -= 1
                if not to_take[edge]:
                    free.append(taking[edge])
            targets = [] if step.dst is None else [self._region(self.rank, step.dst, loop, piece)]
            for edge in step.send:
                if edge not in sending:
                    sending[edge] = Turn(self._out(edge), self.sent.get(edge, 0))
                    self.sent[edge] = sending[edge].number + 1
                    self.posted[r, edge, number] = sending[edge]
                    room.append(sending[edge])
                turn = sending[edge]
                if edge not in lent:
                    targets.append(self._slot(turn, sent_index[s, edge], piece))
                    ends[edge] = max(
                        ends.get(edge, 0),
                        targets[-1].offset % self.plan.slot_bytes + targets[-1].size,
                    )
                to_send[edge] -= 1
                if not to_send[edge]:
                    post.append(turn)
                    if self.plan.is_remote(self.rank, edge.peer):
                        whole = Region(
                            "slot",
                            turn.edge,
                            turn.number % self.plan.slots * self.plan.slot_bytes,
                            ends.get(edge, 0),
                        )
                        sent.append(
                            (
                                turn,
                                (
                                    self._region(self.rank, home(step), loop, piece)
                                    if edge in lent
                                    else whole
                                ),
                            )
                        )
            pulled = schedule.returns_at(self.rank, self.track, r, s) if schedule.returns else ()
            back = tuple(self.posted[each.round, each.edge, number] for each in pulled)
            # Peers may pull before the rank makes its own copy.
            if is_copy(step) and step.dst is not None and post and lent.issuperset(step.send):
                actions.append(
                    Action(place, (), tuple(room), (), (), (), False, tuple(post), (), tuple(sent))
                )
                room, post, sent = [], [], []
            divide = (
                Place(0 if schedule.is_symmetric else self.rank, self.track, r, s)
                in self.plan.proof.complete
            )
            actions.append(
                Action(
                    place,
                    tuple(take),
                    tuple(room),
                    back,
                    tuple(operands),
                    tuple(targets),
                    divide,
                    tuple(post),
                    tuple(free),
                    tuple(sent),
                )
            )
        return actions

    def _chunk_of(self, place: Place) -> int:
        """The chunk of the loop that the step works on: given by what its operands hold, not by
        where they lie.
        """
        schedule, proof = self.plan.schedule, self.plan.proof
        if not schedule.is_symmetric:
            return proof.chunks[place]
        chunk = proof.chunks[Place(0, *place[1:])]
        return (chunk + self.rank) % self.plan.n if schedule.chunks["in"] == self.plan.n else chunk

    def _piece(self, chunk: int, loop: Loop, number: int) -> tuple[int, int]:
        """First byte, from the chunk's start, and size of one slice of a chunk of this loop."""
        size = (
            min(loop.chunk, max(0, loop.size - chunk * loop.chunk))
            if self.is_interleaved
            else loop.size
        )
        first = min(number * self.plan.piece_bytes, size)
        return first, min(self.plan.piece_bytes, size - first)

    def _region(self, owner: int, operand: Operand, loop: Loop, piece: tuple[int, int]) -> Region:
        first, size = piece
        if operand.buffer == "tmp":
            base = (
                self.channel * self.plan.schedule.chunks["tmp"] + operand.chunk
            ) * self.plan.chunk_bytes
        elif self.is_interleaved:
            base = loop.offset + min(operand.chunk * loop.chunk, loop.size)
        else:
            base = loop.offset + operand.chunk * self.plan.problem.block_bytes
        return Region(operand.buffer, owner, base + first, size)

    def _slot(self, turn: Turn, index: int, piece: tuple[int, int]) -> Region:
        slot = turn.number % self.plan.slots
        return Region(
            "slot", turn.edge, slot * self.plan.slot_bytes + index * self.plan.piece_bytes, piece[1]
        )


def room_wanted(turn: Turn, slices: int, slots: int) -> int:
    """How many slices of a connection must be free, counted from the start of a launch, before
    slice `turn` may fill its slot.

    Slots restart at 0 with every launch, so the slot's last user may be in the launch before. Then
    the number is negative or 0.

    >>> room_wanted(Turn(0, 5), slices=8, slots=4), room_wanted(Turn(0, 1), slices=6, slots=4)
    (2, 0)
    """
    if turn.number >= slots:
        return turn.number - slots + 1
    before = turn.number + slots * ((slices - 1 - turn.number) // slots)
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
