"""The events of a schedule: which track does what, and what each waits for.

    events_of(schedule, slices=..., loops=..., launches=..., slots=...) -> Events

An event is what one track of a rank does for one slice of a stage of a round: it waits for slices
that arrive and for slots that come back, reads, reduces, writes, and hands on. Where it happens and
how long it takes is not known here. One channel stands for all: they do the same at the same time.
Events are listed in an order in which they can happen, all tracks by turns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from collbench.core.errors import HangError
from collbench.schedules.ir import MAX_KEPT, Edge, Round, Schedule, stages
from collbench.schedules.passes import message_chunks
from collbench.schedules.symmetry import symmetry

Port = tuple[int, int, str]  # source, destination, name
_End = tuple[int, int, int, Edge]  # of a message: rank, track, round, edge


class Duty(NamedTuple):
    """What a CTA does: messages that it takes and posts, steps, and pieces."""

    takes: int = 0
    posts: int = 0
    steps: int = 0
    loads: int = 0
    writes: int = 0
    stores: int = 0


class Amounts(NamedTuple):
    """What an event takes of a core, as of PricedEvent."""

    is_launch: bool
    steps: int
    takes: int
    posts: int
    reads: int
    loads: int
    writes: int
    stores: int


class PricedEvent(NamedTuple):
    """after: the events of the own rank that must be over; arrived: (event, port) that fill what it
    takes; returned: (event, port) that give slots, or the user's buffer, free. is_launch: the rank
    begins a launch. takes, posts: messages of which it is the first to take, the last to fill.
    steps: of the stage. reads, writes: pieces of local memory. sent, pulled: pieces that it stores
    into a peer's memory, or loads from there, as (port, pieces).
    """

    rank: int
    after: tuple[int, ...]
    is_launch: bool = False
    arrived: tuple[tuple[int, int], ...] = ()
    returned: tuple[tuple[int, int], ...] = ()
    takes: int = 0
    posts: int = 0
    steps: int = 0
    reads: int = 0
    writes: int = 0
    sent: tuple[tuple[int, int], ...] = ()
    pulled: tuple[tuple[int, int], ...] = ()

    @property
    def loads(self) -> int:
        """Pieces that it reads, from a peer's memory too."""
        return self.reads + sum(pieces for _, pieces in self.pulled)

    @property
    def duty(self) -> Duty:
        """What its CTA does."""
        return Duty(
            self.takes, self.posts, int(self.steps > 0), self.loads, self.writes, self.stores
        )

    @property
    def stores(self) -> int:
        """Pieces that it stores into the memory of peers."""
        return sum(pieces for _, pieces in self.sent)


@dataclass(frozen=True, eq=False)
class Events:
    """ends: the last events of each launch. ports: by the numbers that events name them by; where a
    few ranks stand for all, a port begins at one of those.
    """

    events: tuple[PricedEvent, ...]
    ends: tuple[tuple[int, ...], ...]
    ports: tuple[Port, ...]

    @cached_property
    def each(self) -> list[Duty]:
        """The duty of each event."""
        return [event.duty for event in self.events]

    @cached_property
    def duties(self) -> tuple[Duty, ...]:
        """What each track does altogether, once where several do the same."""
        found: dict[int, Duty] = {}  # by the latest event of each track
        for number, event in enumerate(self.events):
            if not event.is_launch:
                before = found.pop(event.after[0], Duty())
                found[number] = Duty(*map(sum, zip(before, self.each[number], strict=True)))
        return tuple(dict.fromkeys(found.values()))

    @cached_property
    def most_local(self) -> int:
        """Pieces of local memory that the busiest rank reads and writes."""
        local: dict[int, int] = {}
        for event in self.events:
            local[event.rank] = local.get(event.rank, 0) + event.reads + event.writes
        return max(local.values(), default=0)

    @cached_property
    def on_cores(self) -> tuple[list[Amounts], list[tuple[int, int, list[int], list[int]]]]:
        """Each amount of work of an event once; and of every event its rank, the number of its
        amount, and those that it waits for of its own rank and of others.
        """
        amounts: dict[Amounts, int] = {}
        waits = list[tuple[int, int, list[int], list[int]]]()
        for event in self.events:
            amount = Amounts(
                event.is_launch, event.steps, event.takes, event.posts, event.reads, event.loads,
                event.writes, event.stores,
            )  # fmt: skip
            number = amounts.setdefault(amount, len(amounts))
            own = [one for one in event.after if one >= 0]
            others = [one for one, _ in (*event.arrived, *event.returned)]
            waits.append((event.rank, number, own, others))
        return list(amounts), waits

    @cached_property
    def causes(self) -> list[int]:
        """How many others each event waits for."""
        return [len(_causes(event)) for event in self.events]

    @cached_property
    def effects(self) -> list[list[int]]:
        """Which events wait for each."""
        then: list[list[int]] = [[] for _ in self.events]
        for number, event in enumerate(self.events):
            for one in _causes(event):
                then[one].append(number)
        return then


def _causes(event: PricedEvent) -> set[int]:
    return {
        *(one for one in event.after if one >= 0),
        *(one for one, _ in (*event.arrived, *event.returned)),
    }


@lru_cache(maxsize=MAX_KEPT)
def events_of(
    schedule: Schedule,
    *,
    slices: int,
    loops: int,
    launches: int,
    slots: int,
    few: int = 0,
    together: int = 1,
) -> Events:
    """The events of launches one behind the other, each with so many loops, every message in so
    many slices. few: so many first ranks stand for all (symmetry.py). together: so many
    neighbours begin each launch together. Raises HangError if events wait for each other; those of
    a proved schedule never do.
    """
    few = few or schedule.n
    ranks = range(few)
    ports = _Ports(schedule, few)
    tracks = [
        _Track(rank, list(_of_track(schedule, rank, track, ports, slices, loops, launches)))
        for rank in ranks
        for track in range(len(schedule.program(rank)))
    ]
    return _in_order(tracks, ports, slots, launches, together)


# ------------------------------------------------------------------------------------- what is done


class _Part(NamedTuple):
    """An event before it is known which others it waits for: slices are (port, number). kind:
    "launch", "work", or "end" of a launch, where pulled slices must have been read.
    """

    kind: str
    launch: int
    take: tuple[tuple[int, int], ...] = ()
    room: tuple[tuple[int, int], ...] = ()
    ready: tuple[int, ...] = ()
    post: tuple[tuple[int, int], ...] = ()
    free: tuple[tuple[int, int], ...] = ()
    event: PricedEvent | None = None


class _Ports:
    """Numbers of ports, and how the messages of each round travel."""

    def __init__(self, schedule: Schedule, few: int) -> None:
        self.schedule, self.few = schedule, few
        self.moved = None if few == schedule.n else symmetry(schedule, few)
        self.numbers: dict[Port, int] = {}
        self.pulled: set[tuple[bool, int, int, int, Edge]] = set()  # (is the sender's, end of it)
        self.pushed: set[tuple[bool, int, int, int, Edge]] = set()
        self._find_zero_copy()
        self.ready = {
            rank: tuple(self.into(rank, edge) for edge in sorted(schedule.ready_at(rank)))
            for rank in range(few)
            if schedule.ready
        }
        self.is_awaited = {port for ports in self.ready.values() for port in ports}

    def out(self, rank: int, edge: Edge) -> int:
        return self._number(rank, edge.peer, edge.port)

    def into(self, rank: int, edge: Edge) -> int:
        return self._number(edge.peer, rank, edge.port)

    def _number(self, source: int, target: int, name: str) -> int:
        if self.moved is not None:
            first = source % self.few
            source, target = first, self.moved(target, source, first, self.schedule.n)
        return self.numbers.setdefault((source, target, name), len(self.numbers))

    def _find_zero_copy(self) -> None:
        """Which messages are pulled or pushed, seen from both of their ends."""
        schedule = self.schedule
        if not schedule.pulled and not schedule.pushed:
            return
        sent: dict[Port, list[_End]] = {}
        received: dict[Port, list[_End]] = {}
        for rank in range(schedule.n):
            for t, track in enumerate(schedule.program(rank)):
                for r, steps in enumerate(track.rounds):
                    out, into = message_chunks(steps)
                    for edge in out:
                        sent.setdefault((rank, edge.peer, edge.port), []).append((rank, t, r, edge))
                    for edge in into:
                        ends = received.setdefault((edge.peer, rank, edge.port), [])
                        ends.append((rank, t, r, edge))
        for port, senders in sent.items():
            for one, other in zip(senders, received[port], strict=True):
                both = {(True, *one), (False, *other)}
                if one[3] in schedule.pulled_at(*one[:3]):
                    self.pulled |= both
                if other[3] in schedule.pushed_at(*other[:3]):
                    self.pushed |= both


def _of_track(
    schedule: Schedule, rank: int, track: int, ports: _Ports, slices: int, loops: int, launches: int
) -> Iterator[_Part]:
    """What a track does, in its order."""
    rounds = schedule.program(rank)[track].rounds
    sent: dict[int, int] = {}
    received: dict[int, int] = {}
    for launch in range(launches):
        yield _Part("launch", launch, ready=ports.ready.get(rank, ()))
        last_pulled: dict[int, int] = {}
        for _ in range(loops):
            for r, steps in enumerate(rounds):
                for _ in range(slices):
                    yield from _of_round(
                        launch, (rank, track, r), steps, ports, sent, received, last_pulled
                    )
        yield _Part("end", launch, free=tuple(last_pulled.items()))


def _of_round(
    launch: int,
    at: tuple[int, int, int],
    steps: Round,
    ports: _Ports,
    sent: dict[int, int],
    received: dict[int, int],
    last_pulled: dict[int, int],
) -> Iterator[_Part]:
    """One slice of a round, a part for each of its stages. sent, received: slices so far of each
    port; last_pulled: the last slice of this launch that a peer reads in place.
    """
    rank = at[0]
    to_send, to_take = message_chunks(steps)
    sending: dict[Edge, int] = {}
    taking: dict[Edge, int] = {}
    for stage in stages(steps):
        take, room, post, free = [], [], [], []
        ready: list[int] = []
        stores: dict[int, int] = {}
        loads: dict[int, int] = {}
        reads = writes = 0
        for step in (steps[s] for s in stage):
            reads += len(step.src)
            is_there = False
            for edge in step.recv:
                port = ports.into(rank, edge)
                if edge not in taking:
                    taking[edge] = received.get(port, 0)
                    received[port] = taking[edge] + 1
                    take.append((port, taking[edge]))
                if (False, *at, edge) in ports.pulled:
                    loads[port] = loads.get(port, 0) + 1
                elif (False, *at, edge) in ports.pushed:
                    is_there = True
                else:
                    reads += 1
                to_take[edge] -= 1
                if not to_take[edge]:
                    free.append((port, taking[edge]))
            writes += step.dst is not None and not is_there
            for edge in step.send:
                port = ports.out(rank, edge)
                if edge not in sending:
                    sending[edge] = sent.get(port, 0)
                    sent[port] = sending[edge] + 1
                    if (True, *at, edge) not in ports.pushed:
                        room.append((port, sending[edge]))
                    elif port in ports.is_awaited:
                        ready.append(port)
                if (True, *at, edge) in ports.pulled:
                    last_pulled[port] = sending[edge]
                else:
                    stores[port] = stores.get(port, 0) + 1
                to_send[edge] -= 1
                if not to_send[edge]:
                    post.append((port, sending[edge]))
        work = PricedEvent(
            rank,
            (),
            takes=len(take),
            posts=len(post),
            steps=len(stage),
            reads=reads,
            writes=writes,
            sent=tuple(stores.items()),
            pulled=tuple(loads.items()),
        )
        yield _Part(
            "work", launch, tuple(take), tuple(room), tuple(ready), tuple(post), tuple(free), work
        )


# ------------------------------------------------------------------------------------ in what order


class _Track:
    """A track on its way: its parts, the next one, and its latest event."""

    def __init__(self, rank: int, parts: list[_Part]) -> None:
        self.rank, self.parts, self.group = rank, parts, rank
        self.next, self.latest = 0, -1

    @property
    def is_over(self) -> bool:
        return self.next == len(self.parts)

    @property
    def part(self) -> _Part:
        return self.parts[self.next]


class _Past:
    """The events so far, and which of them filled, freed or made ready what."""

    def __init__(self, slots: int, launches: int) -> None:
        self.slots = slots
        self.events: list[PricedEvent] = []
        self.filled: dict[tuple[int, int], int] = {}
        self.freed: dict[tuple[int, int], int] = {}
        self.ready: dict[tuple[int, int], int] = {}
        self.launched: dict[tuple[int, int], int] = {}
        self.ends: list[list[int]] = [[] for _ in range(launches)]

    def add(self, event: PricedEvent) -> int:
        self.events.append(event)
        return len(self.events) - 1


def _in_order(
    tracks: list[_Track], ports: _Ports, slots: int, launches: int, together: int
) -> Events:
    """The events of all tracks, one of each by turns."""
    past = _Past(slots, launches)
    mates: dict[int, list[_Track]] = {}
    for track in tracks:
        track.group = track.rank // together
        mates.setdefault(track.group, []).append(track)
    live = tracks
    while live:
        moved = [track for track in live if _moves(track, mates[track.group], past)]
        if not moved:
            raise HangError("the events of a schedule wait for each other")
        for track in moved:
            track.next += 1
        live = [track for track in live if not track.is_over]
    return Events(
        tuple(past.events), tuple(tuple(ends) for ends in past.ends), tuple(ports.numbers)
    )


def _moves(track: _Track, mates: list[_Track], past: _Past) -> bool:
    """Whether the next part of a track can happen; if so, its event is in the past now."""
    part = track.part
    if part.kind == "launch":
        return _launches(track, mates, past)
    if part.kind == "end":
        returned = [(past.freed.get(slice_), slice_[0]) for slice_ in part.free]
        if any(event is None for event, _ in returned):
            return False
        if returned:
            back = tuple((event, port) for event, port in returned if event is not None)
            track.latest = past.add(PricedEvent(track.rank, (track.latest,), returned=back))
        past.ends[part.launch].append(track.latest)
        return True
    arrived = [(past.filled.get(slice_), slice_[0]) for slice_ in part.take]
    returned = [
        (past.freed.get((port, number - past.slots)), port)
        for port, number in part.room
        if number >= past.slots
    ] + [(past.ready.get((port, part.launch)), port) for port in part.ready]
    if any(event is None for event, _ in (*arrived, *returned)):
        return False
    assert part.event is not None
    number = past.add(
        part.event._replace(
            after=(track.latest,),
            arrived=tuple((event, port) for event, port in arrived if event is not None),
            returned=tuple((event, port) for event, port in returned if event is not None),
        )
    )
    past.filled.update(dict.fromkeys(part.post, number))
    past.freed.update(dict.fromkeys(part.free, number))
    track.latest = number
    return True


def _launches(track: _Track, mates: list[_Track], past: _Past) -> bool:
    """A launch of a rank or group begins once all of its tracks have ended the one before."""
    part = track.part
    key = track.group, part.launch
    if key not in past.launched:
        if any(
            mate.is_over or mate.part.kind != "launch" or mate.part.launch != part.launch
            for mate in mates
        ):
            return False
        before = tuple(mate.latest for mate in mates if mate.latest >= 0)
        past.launched[key] = past.add(PricedEvent(track.rank, before, is_launch=True))
        for port in part.ready:
            past.ready[port, part.launch] = past.launched[key]
    track.latest = past.launched[key]
    return True
