"""A schedule in time: what every step of every rank forms and when, which messages fly between
ranks, and what each rank has after each of them.

Everything follows from a list of timed events, one for each step of each rank, from the schedule
alone: every message takes one step of the same length. Pure.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from collbench.core.collectives import collective
from collbench.schedules.ir import Edge, Schedule, Step, expanded
from collbench.schedules.passes import arrivals
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
    """One message. taken: when its receiver uses it, which may be after its end."""

    source: int
    target: int
    port: str
    values: tuple[Value, ...]
    start: float
    end: float
    taken: float


class CellKey(NamedTuple):
    """What one cell of a rank stands for: an input chunk; of which rank (`source`), or -1 where
    contributions of ranks are reduced.
    """

    chunk: int
    source: int


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
    """An expanded schedule with its events. stops: the times at which messages have arrived, which
    are the ends of its steps.
    """

    schedule: Schedule
    events: tuple[StepEvent, ...]
    flights: tuple[Flight, ...]
    stops: tuple[float, ...]

    @property
    def is_reduction(self) -> bool:
        """Whether contributions of several ranks end in one value."""
        return collective(self.schedule.op).is_reduction

    def key(self, value: Value) -> CellKey:
        """The cell that shows a value."""
        return CellKey(value.chunk, -1 if self.is_reduction else value.mask.bit_length() - 1)

    def inputs(self, rank: int) -> Cells:
        """What a rank has before anything happens."""
        schedule, what = self.schedule, collective(self.schedule.op)
        count = schedule.chunks["in"] if what.blocks("in", schedule.n, schedule.root, rank) else 0
        return {
            self.key(Value(0, chunk, 1 << rank)): CellState(mask=1 << rank)
            for chunk in range(count)
        }

    def wanted(self, rank: int) -> dict[CellKey, int]:
        """What the definition of the collective asks of a rank: the mask of each cell."""
        schedule, what = self.schedule, collective(self.schedule.op)
        masks: dict[CellKey, int] = {}
        for want in what.wants(schedule.n, schedule.root, rank):
            mask = sum(1 << giver for giver in want.ranks)
            chunks = range(schedule.chunks["in"]) if what.is_interleaved else (want.in_block,)
            masks.update({self.key(Value(0, chunk, mask)): mask for chunk in chunks})
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
            sorted(keys, key=lambda key: (self.is_crossed and key.source != rank, *key[::-1]))
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


def play(schedule: Schedule) -> Playback:
    """A schedule played with messages that all take one step. Raises ScheduleError as check does.

    >>> from collbench.schedules.algorithms import ring
    >>> from collbench.schedules.ir import build
    >>> from collbench.core.world import World
    >>> ring = play(build("allreduce", "ring", ring.allreduce, World(n=3)))
    >>> ring.stops, ring.flights[0]
    ((1, 2, 3, 4), Flight(source=0, ..., values=(Value(piece=0, chunk=2, mask=1),), start=0, ...))
    """
    whole = expanded(schedule)
    steps = formed(schedule)
    leaves: dict[tuple[Place, Edge], int] = {}  # a message, at step 0 of its round
    for place, found in steps.items():
        for edge in _step_at(whole, place).send:
            message = place._replace(step=0), edge
            leaves[message] = max(leaves.get(message, 0), found.hops)
    events = []
    for place, found in sorted(steps.items()):
        step = _step_at(whole, place)
        ends = [leaves[place._replace(step=0), edge] + 1 for edge in step.send]
        events.append(
            StepEvent(place, step, found.value, found.hops, max(ends, default=found.hops))
        )
    by_round = {
        at: list(found)
        for at, found in groupby(sorted(events), lambda event: tuple(event.place[:3]))
    }
    flights = []
    for sent, taken in arrivals(whole).items():
        given = [event for event in by_round[tuple(sent.at)] if sent.edge in event.step.send]
        got = [event for event in by_round[tuple(taken.at)] if taken.edge in event.step.recv]
        flights.append(
            Flight(
                source=sent.at.program,
                target=taken.at.program,
                port=sent.edge.port,
                values=tuple(event.value for event in given),
                start=max(event.start for event in given),
                end=max(event.end for event in given),
                taken=min(event.start for event in got),
            )
        )
    flights.sort(key=lambda flight: (flight.start, flight.source, flight.target, flight.port))
    return Playback(
        schedule=whole,
        events=tuple(events),
        flights=tuple(flights),
        stops=tuple(sorted({flight.end for flight in flights})),
    )


def _step_at(schedule: Schedule, place: Place) -> Step:
    return schedule.programs[place.program][place.track].rounds[place.round][place.step]
