"""A schedule in time: what every step of every rank forms and when, which messages fly between
ranks, and what each rank has after each of them.

Everything follows from a list of timed events, one for each step of each rank in each slice of each
loop: every message takes one step of the same length, waits for a slot, and for the message before
it on its connection. Pure.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from string import ascii_lowercase
from typing import NamedTuple

from collbench.core.collectives import collective
from collbench.core.errors import HangError
from collbench.schedules.ir import Edge, Round, Schedule, Step, execution_order, expanded
from collbench.schedules.passes import message_chunks
from collbench.schedules.verify.check import Place, formed
from collbench.schedules.verify.proof import Value


class StepEvent(NamedTuple):
    """One step of a rank (`place.program`): the step, what it forms, and when.

    start: all that it receives is there, and it begins. end: all that it sends has arrived.
    """

    place: Place
    step: Step
    value: Value
    start: float
    end: float


class Flight(NamedTuple):
    """A slice of a message. taken: when its receiver uses it, which may be after its end. freed:
    when its receiver has read all of it.
    """

    source: int
    target: int
    port: str
    values: tuple[Value, ...]
    start: float
    end: float
    taken: float
    freed: float


class CellKey(NamedTuple):
    """What one cell of a rank stands for: an input chunk; of which rank (`source`), or -1 where
    contributions of ranks are reduced; of which slice of all loops (`piece`).
    """

    chunk: int
    source: int
    piece: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CellState:
    """What a cell holds: the ranks whose contributions are in it, as a bit mask."""

    mask: int = 0
    is_output: bool = False


Cells = dict[CellKey, CellState]


class CellUpdate(NamedTuple):
    """From a time on, a cell of a rank has another state."""

    time: float
    rank: int
    key: CellKey
    state: CellState


@dataclass(frozen=True, slots=True, kw_only=True)
class Playback:
    """An expanded schedule with its events. loops: how many slices a message has in each. stops:
    the times at which messages have arrived, which are the ends of its steps.
    """

    schedule: Schedule
    events: tuple[StepEvent, ...]
    flights: tuple[Flight, ...]
    stops: tuple[float, ...]
    loops: tuple[int, ...] = (1,)

    def part_of(self, piece: int) -> tuple[str, str]:
        """The loop and the slice of a piece, as a number and a letter, each where there are
        several.

        >>> Playback(schedule=None, events=(), flights=(), stops=(), loops=(2, 2, 1)).part_of(3)
        ('1', 'b')
        """
        parts = [(loop, one) for loop, slices in enumerate(self.loops) for one in range(slices)]
        loop, one = parts[piece]
        is_cut = max(self.loops) > 1
        return str(loop) if len(self.loops) > 1 else "", ascii_lowercase[one % 26] if is_cut else ""

    @property
    def is_reduction(self) -> bool:
        """Whether contributions of several ranks end in one value."""
        return collective(self.schedule.op).is_reduction

    def key(self, value: Value) -> CellKey:
        """The cell that shows a value."""
        source = -1 if self.is_reduction else value.mask.bit_length() - 1
        return CellKey(value.chunk, source, value.piece)

    def inputs(self, rank: int) -> Cells:
        """What a rank has before anything happens."""
        schedule, what = self.schedule, collective(self.schedule.op)
        count = schedule.chunks["in"] if what.blocks("in", schedule.n, schedule.root, rank) else 0
        return {
            self.key(Value(piece, chunk, 1 << rank)): CellState(mask=1 << rank)
            for piece in range(sum(self.loops))
            for chunk in range(count)
        }

    def wanted(self, rank: int) -> dict[CellKey, int]:
        """What the definition of the collective asks of a rank: the mask of each cell."""
        schedule, what = self.schedule, collective(self.schedule.op)
        masks: dict[CellKey, int] = {}
        for want in what.wants(schedule.n, schedule.root, rank):
            mask = sum(1 << giver for giver in want.ranks)
            chunks = range(schedule.chunks["in"]) if what.is_interleaved else (want.in_block,)
            for piece in range(sum(self.loops)):
                masks.update({self.key(Value(piece, chunk, mask)): mask for chunk in chunks})
        return masks

    def updates(self) -> Iterator[CellUpdate]:
        """How the cells of the ranks change, in the order of time.

        A cell shows the largest sum of its chunk that the rank has formed. What a rank forms of its
        own data alone counts from the next stop on, so that the start is shown as it is.
        """
        cells = [self.inputs(rank) for rank in range(self.schedule.n)]
        for time, event in sorted(map(self._shown, self.events), key=lambda pair: pair[0]):
            rank, key = event.place.program, self.key(event.value)
            old = cells[rank].get(key, CellState())
            new = _grown(old, event)
            if new != old:
                cells[rank][key] = new
                yield CellUpdate(time, rank, key, new)

    def _shown(self, event: StepEvent) -> tuple[float, StepEvent]:
        """When what a step forms is shown."""
        if event.step.recv:
            return event.start, event
        return next((stop for stop in self.stops if stop > event.start), event.start), event

    def states(self) -> list[list[Cells]]:
        """The cells of every rank at the start and at every stop."""
        ranks = [self.inputs(rank) for rank in range(self.schedule.n)]
        updates = deque(self.updates())
        states = [[dict(cells) for cells in ranks]]
        for stop in self.stops:
            while updates and updates[0].time <= stop:
                update = updates.popleft()
                ranks[update.rank][update.key] = update.state
            states.append([dict(cells) for cells in ranks])
        return states

    def keys(self) -> list[list[CellKey]]:
        """The cells that each rank ever has, in order: of its own data first where both the source
        and the chunk tell them apart.
        """
        last = self.states()[-1]
        found = [set(last[rank]) | set(self.wanted(rank)) for rank in range(self.schedule.n)]
        return [
            sorted(
                keys,
                key=lambda key: (key.piece, self.is_crossed and key.source != rank, *key[1::-1]),
            )
            for rank, keys in enumerate(found)
        ]

    @property
    def is_crossed(self) -> bool:
        """Whether it takes both the source and the chunk to name a cell, as in an alltoall."""
        return self.has_sources and self.schedule.chunks["in"] > 1

    @property
    def has_sources(self) -> bool:
        """Whether what several ranks give stays apart."""
        schedule, what = self.schedule, collective(self.schedule.op)
        givers = sum(
            what.blocks("in", schedule.n, schedule.root, rank) > 0 for rank in range(schedule.n)
        )
        return givers > 1 and not what.is_reduction


def _grown(old: CellState, event: StepEvent) -> CellState:
    """The state of a cell after a step has formed something of it."""
    mask = event.value.mask
    if mask | old.mask != mask:
        return old
    is_kept = event.step.dst is not None and event.step.dst.buffer == "out"
    return CellState(mask=mask, is_output=is_kept or (old.is_output and old.mask == mask))


@dataclass(slots=True, kw_only=True)
class _Message:
    """A slice of a message, with what is known of it so far. unsent, unread: of its chunks."""

    unsent: int
    unread: int
    values: list[Value] = field(default_factory=list)
    start: float = 0
    taken: float = inf
    freed: float = 0


class _Run:
    """The tracks of an expanded schedule, each on its way. mail: the messages of each connection,
    by source, target and port.
    """

    def __init__(self, schedule: Schedule, loops: Sequence[int], slots: int) -> None:
        self.schedule, self.loops, self.slots = schedule, loops, slots
        self.formed = formed(schedule)
        self.begun: list[tuple[StepEvent, list[_Message]]] = []  # and what each sends
        self.mail: dict[tuple[int, int, str], list[_Message]] = defaultdict(list)

    def run(self) -> None:
        running = [
            self._track(rank, track)
            for rank, program in enumerate(self.schedule.programs)
            for track in range(len(program))
        ]
        while running:
            before = len(self.begun)
            still = [track for track in running if next(track, "done") != "done"]
            if len(still) == len(running) and len(self.begun) == before:
                raise HangError("the steps of a schedule wait for each other")
            running = still

    def events(self) -> Iterator[StepEvent]:
        """Every step, once all messages are known."""
        for event, sending in self.begun:
            ends = [message.start + 1 for message in sending]
            yield event._replace(end=max(ends, default=event.start))

    def _track(self, rank: int, track: int) -> Iterator[None]:
        now, piece = 0.0, 0
        done: tuple[Counter[Edge], Counter[Edge]] = Counter(), Counter()  # sent, received
        for slices in self.loops:
            for r, steps in enumerate(self.schedule.programs[rank][track].rounds):
                for one in range(piece, piece + slices):
                    now = yield from self._round(Place(rank, track, r, 0), steps, one, now, done)
            piece += slices

    def _round(
        self,
        at: Place,
        steps: Round,
        piece: int,
        now: float,
        done: tuple[Counter[Edge], Counter[Edge]],
    ) -> Generator[None, None, float]:
        """One slice of a round, whose steps happen at once; returns when the last of them begins.
        done: the messages before, of each edge.
        """
        chunks, _ = counts = message_chunks(steps)
        (sent, received), latest = done, now
        for s in execution_order(steps):
            step, start = steps[s], now
            taking, sending = list[_Message](), list[_Message]()
            for edge in step.recv:
                mail, number = self.mail[edge.peer, at.program, edge.port], received[edge]
                while len(mail) <= number or mail[number].unsent:
                    yield
                taking.append(mail[number])
                start = max(start, mail[number].start + 1)
            for edge in step.send:
                mail, number = self.mail[at.program, edge.peer, edge.port], sent[edge]
                if number:
                    start = max(start, mail[number - 1].start + 1)
                if number >= self.slots > 0:
                    while mail[number - self.slots].unread:
                        yield
                    start = max(start, mail[number - self.slots].freed)
                if len(mail) == number:
                    mail.append(_Message(unsent=chunks[edge], unread=chunks[edge]))
                sending.append(mail[number])
            place = at._replace(step=s)
            value = self.formed[place]._replace(piece=piece)
            for message in taking:
                message.unread -= 1
                message.taken = min(message.taken, start)
                message.freed = max(message.freed, start + bool(step.send))
            for message in sending:
                message.unsent -= 1
                message.values.append(value)
                message.start = max(message.start, start)
            self.begun.append((StepEvent(place, step, value, start, start), sending))
            latest = max(latest, start)
        for numbers, edges in zip(done, counts, strict=True):
            numbers.update(edges.keys())
        return latest


def play(schedule: Schedule, loops: Sequence[int] = (1,), slots: int = 0) -> Playback:
    """A schedule played with messages that all take one step, in loops of so many slices a message.
    slots: of each connection; 0: as many as it has messages. Raises ScheduleError as check does.

    >>> from collbench.schedules.algorithms import ring
    >>> from collbench.schedules.ir import build
    >>> from collbench.core.world import World
    >>> ring = play(build("allreduce", "ring", ring.allreduce, World(n=3)))
    >>> ring.stops, ring.flights[0]
    ((1, 2, 3, 4), Flight(source=0, ..., values=(Value(piece=0, chunk=2, mask=1),), start=0, ...))
    """
    run = _Run(expanded(schedule), loops, slots)
    run.run()
    flights = [
        Flight(
            source=source,
            target=target,
            port=port,
            values=tuple(one.values),
            start=one.start,
            end=one.start + 1,
            taken=one.taken,
            freed=one.freed,
        )
        for (source, target, port), mail in run.mail.items()
        for one in mail
    ]
    flights.sort(key=lambda flight: (flight.start, flight.source, flight.target, flight.port))
    return Playback(
        schedule=run.schedule,
        events=tuple(sorted(run.events(), key=lambda event: event.place)),
        flights=tuple(flights),
        stops=tuple(sorted({flight.end for flight in flights})),
        loops=tuple(loops),
    )
