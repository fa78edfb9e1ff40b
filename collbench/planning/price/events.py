"""The events of a schedule: which track does what, and what each waits for.

    events_of(schedule, slices=..., loops=..., launches=..., slots=...) -> Events

An event is what one track of a rank does for one slice of a stage of a round: it waits for slices
that arrive and for slots that come back, reads, reduces, writes, and hands on. Where it happens and
how long it takes is not known here. One channel stands for all: they do the same at the same time.
Events are listed in an order in which they can happen, all tracks by turns.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from collbench.core.errors import HangError
from collbench.schedules.ir import MAX_KEPT, Edge, Round, Schedule, Track, stages
from collbench.schedules.passes import message_chunks
from collbench.schedules.symmetry import symmetry

Port = tuple[int, int, str]  # source, destination, name
_End = tuple[int, int, int, Edge]  # of a message: rank, track, round, edge
_NONE = -1  # the number of an event that is still to come


class Duty(NamedTuple):
    """What a CTA does: messages that it takes and posts, steps, and pieces."""

    takes: int = 0
    posts: int = 0
    steps: int = 0
    loads: int = 0
    writes: int = 0
    stores: int = 0


class Amounts(NamedTuple):
    """What an event does. is_launch: the rank begins a launch. takes, posts: messages of which it
    is the first to take, the last to fill. steps: of the stage. reads, writes: pieces of local
    memory. loads: pieces that it reads, from a peer's memory too; stores: into that of peers.
    """

    is_launch: bool = False
    takes: int = 0
    posts: int = 0
    steps: int = 0
    reads: int = 0
    writes: int = 0
    loads: int = 0
    stores: int = 0

    @property
    def duty(self) -> Duty:
        """What its CTA does."""
        return Duty(
            self.takes, self.posts, int(self.steps > 0), self.loads, self.writes, self.stores
        )


class PricedEvent(NamedTuple):
    """after: the events of the own rank that must be over; arrived: (event, port) that fill what it
    takes; returned: (event, port) that give slots, or the user's buffer, free. sent, pulled: pieces
    that it stores into a peer's memory, or loads from there, as (port, pieces).
    """

    rank: int
    after: tuple[int, ...]
    arrived: tuple[tuple[int, int], ...] = ()
    returned: tuple[tuple[int, int], ...] = ()
    does: Amounts = Amounts()
    sent: tuple[tuple[int, int], ...] = ()
    pulled: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class Events:
    """ends: the last events of each launch. ports: by the numbers that events name them by; where a
    few ranks stand for all, a port begins at one of those.
    """

    events: tuple[PricedEvent, ...]
    ends: tuple[tuple[int, ...], ...]
    ports: tuple[Port, ...]

    @cached_property
    def duties(self) -> tuple[Duty, ...]:
        """What each track does altogether, once where several do the same."""
        found: dict[int, Duty] = {}  # by the latest event of each track
        for number, event in enumerate(self.events):
            if not event.does.is_launch:
                before = found.pop(event.after[0], Duty())
                found[number] = Duty(*map(sum, zip(before, event.does.duty, strict=True)))
        return tuple(dict.fromkeys(found.values()))

    @cached_property
    def most_local(self) -> int:
        """Pieces of local memory that the busiest rank reads and writes."""
        local: dict[int, int] = {}
        for event in self.events:
            local[event.rank] = local.get(event.rank, 0) + event.does.reads + event.does.writes
        return max(local.values(), default=0)

    @cached_property
    def on_cores(self) -> tuple[list[Amounts], list[tuple[int, int, tuple[int, ...], list[int]]]]:
        """What events do, each once; and of every event its rank, the number of what it does, and
        those that it waits for of its own rank and of others.
        """
        amounts: dict[Amounts, int] = {}
        waits = [
            (
                event.rank,
                amounts.setdefault(event.does, len(amounts)),
                event.after,
                [one for one, _ in (*event.arrived, *event.returned)],
            )
            for event in self.events
        ]
        return list(amounts), waits

    @cached_property
    def effects(self) -> list[list[int]]:
        """Which events wait for each, as often as they do."""
        then: list[list[int]] = [[] for _ in self.events]
        for number, event in enumerate(self.events):
            for one in event.after:
                then[one].append(number)
            for one, _ in (*event.arrived, *event.returned):
                then[one].append(number)
        return then


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
    ports = _Ports(schedule, few)
    tracks = [
        _Track(rank, track, number, ports, slices, loops)
        for rank in range(few)
        for number, track in enumerate(schedule.program(rank))
    ]
    return _in_order(tracks, ports, slots, launches, together)


# ------------------------------------------------------------------------------------- what is done


class _Part(NamedTuple):
    """What a track does for a slice of a stage of a round, by ports, or to begin or end a launch;
    the slices of a port follow each other. lent: the ports of what peers read in place; they must
    have done so when the launch ends. sends, receives: of a round whose last stage this is.
    """

    kind: Literal["launch", "work", "end"]
    take: tuple[int, ...] = ()
    room: tuple[int, ...] = ()
    ready: tuple[int, ...] = ()
    post: tuple[int, ...] = ()
    free: tuple[int, ...] = ()
    lent: tuple[int, ...] = ()
    sends: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()
    does: Amounts = Amounts()
    sent: tuple[tuple[int, int], ...] = ()
    pulled: tuple[tuple[int, int], ...] = ()


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


def _of_round(at: tuple[int, int, int], steps: Round, ports: _Ports) -> list[_Part]:
    """One slice of a round, a part for each of its stages."""
    rank = at[0]
    to_send, to_take = message_chunks(steps)
    sends: dict[Edge, int] = {}
    receives: dict[Edge, int] = {}
    found = []
    for stage in stages(steps):
        take, room, ready, post, free = [list[int]() for _ in range(5)]
        stores: dict[int, int] = {}
        loads: dict[int, int] = {}
        lent: dict[int, None] = {}
        reads = writes = 0
        for step in (steps[s] for s in stage):
            reads += len(step.src)
            is_there = False
            for edge in step.recv:
                if edge not in receives:
                    receives[edge] = ports.into(rank, edge)
                    take.append(receives[edge])
                port = receives[edge]
                if (False, *at, edge) in ports.pulled:
                    loads[port] = loads.get(port, 0) + 1
                elif (False, *at, edge) in ports.pushed:
                    is_there = True
                else:
                    reads += 1
                to_take[edge] -= 1
                if not to_take[edge]:
                    free.append(port)
            writes += step.dst is not None and not is_there
            for edge in step.send:
                if edge not in sends:
                    sends[edge] = ports.out(rank, edge)
                    if (True, *at, edge) not in ports.pushed:
                        room.append(sends[edge])
                    elif sends[edge] in ports.is_awaited:
                        ready.append(sends[edge])
                port = sends[edge]
                if (True, *at, edge) in ports.pulled:
                    lent[port] = None
                else:
                    stores[port] = stores.get(port, 0) + 1
                to_send[edge] -= 1
                if not to_send[edge]:
                    post.append(port)
        does = Amounts(
            takes=len(take),
            posts=len(post),
            steps=len(stage),
            reads=reads,
            writes=writes,
            loads=reads + sum(loads.values()),
            stores=sum(stores.values()),
        )
        part = _Part(
            "work", (*take,), (*room,), (*ready,), (*post,), (*free,), (*lent,),
            does=does, sent=(*stores.items(),), pulled=(*loads.items(),),
        )  # fmt: skip
        found.append(part)
    if found:
        found[-1] = part._replace(sends=(*sends.values(),), receives=(*receives.values(),))
    return found


# ------------------------------------------------------------------------------------ in what order


class _Track:
    """A track on its way: its parts, the next one, its latest event, and how many slices of each
    port it sent and received. lent: the last slice of each port in this launch that a peer reads in
    place.
    """

    def __init__(
        self, rank: int, program: Track, number: int, ports: _Ports, slices: int, loops: int
    ) -> None:
        self.rank = self.group = rank
        rounds = [
            _of_round((rank, number, r), steps, ports) for r, steps in enumerate(program.rounds)
        ]
        loop = [part for parts in rounds for part in parts * slices]
        begin = _Part("launch", ready=ports.ready.get(rank, ()))
        self.parts = [begin, *loop * loops, _Part("end")]
        self.launch = self.next = 0
        self.latest = -1
        self.sent = dict.fromkeys((port for part in loop for port in part.sends), 0)
        self.received = dict.fromkeys((port for part in loop for port in part.receives), 0)
        self.lent: dict[int, int] = {}

    @property
    def part(self) -> _Part:
        return self.parts[self.next]

    def turn(self) -> None:
        """Go on to the next part."""
        self.next += 1
        if self.next == len(self.parts):
            self.launch, self.next, self.lent = self.launch + 1, 0, {}


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
            track.turn()
        live = [track for track in live if track.launch < launches]
    return Events(
        tuple(past.events), tuple(tuple(ends) for ends in past.ends), tuple(ports.numbers)
    )


def _moves(track: _Track, mates: list[_Track], past: _Past) -> bool:
    """Whether the next part of a track can happen; if so, its event is in the past now."""
    part = track.part
    if part.kind == "launch":
        return _launches(track, mates, past)
    sent, received = track.sent, track.received
    arrived = [(past.filled.get((port, received[port]), _NONE), port) for port in part.take]
    returned = [
        (past.freed.get((port, sent[port] - past.slots), _NONE), port)
        for port in part.room
        if sent[port] >= past.slots
    ]
    returned += [(past.ready.get((port, track.launch), _NONE), port) for port in part.ready]
    if part.kind == "end":
        returned = [(past.freed.get(slice_, _NONE), slice_[0]) for slice_ in track.lent.items()]
    for event, _ in (*arrived, *returned):
        if event == _NONE:
            return False
    if part.kind == "work" or returned:
        track.latest = past.add(
            PricedEvent(
                track.rank, (track.latest,), tuple(arrived), tuple(returned), part.does,
                part.sent, part.pulled,
            )
        )  # fmt: skip
    if part.kind == "end":
        past.ends[track.launch].append(track.latest)
    for port in part.post:
        past.filled[port, sent[port]] = track.latest
    for port in part.free:
        past.freed[port, received[port]] = track.latest
    for port in part.lent:
        track.lent[port] = sent[port]
    for port in part.sends:
        sent[port] += 1
    for port in part.receives:
        received[port] += 1
    return True


def _launches(track: _Track, mates: list[_Track], past: _Past) -> bool:
    """A launch of a rank or group begins once all of its tracks have ended the one before."""
    key = track.group, track.launch
    if key not in past.launched:
        if any(mate.next or mate.launch != track.launch for mate in mates):
            return False
        before = tuple(mate.latest for mate in mates if mate.latest >= 0)
        does = Amounts(is_launch=True)
        past.launched[key] = past.add(PricedEvent(track.rank, before, does=does))
        for port in track.part.ready:
            past.ready[port, track.launch] = past.launched[key]
    track.latest = past.launched[key]
    return True
