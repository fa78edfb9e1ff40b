"""Many prices at once: events as in gpus.py, played for arrays of constants and sizes.

A lane is one setting: bytes of a slice, a protocol, a change of the machine. All lanes have the
same events on the same ways, so what takes a microsecond for one takes little more for thousands.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from collbench.pricing.events import Event, Events, Port
from collbench.pricing.fabric import RATES, Fabric, Hop, Way

Values = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lanes:
    """piece_bytes: of a slice; channels: that send at once; wire: bytes on a link for each of the
    payload; has_flags: lines are passed on as they come. Seconds, and seconds a byte, of what a CTA
    does as in KindCosts; hop_s by kind of way; share: of each of fabric.RATES that is there.
    """

    piece_bytes: Values
    channels: Values
    wire: Values
    has_flags: Values
    launch_s: Values
    step_s: Values
    take_s: Values
    post_s: Values
    read_s: Values
    write_s: Values
    send_s: Values
    memory_s: Values
    hop_s: Mapping[str, Values]
    share: Mapping[str, Values]

    def __len__(self) -> int:
        return len(self.piece_bytes)

    def taken(self, places: Values) -> "Lanes":
        """Some of the lanes."""
        taken: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            is_table = isinstance(value, Mapping)
            taken[field.name] = (
                {key: one[places] for key, one in value.items()} if is_table else value[places]
            )
        return Lanes(**taken)

    def distinct(self) -> tuple["Lanes", Values]:
        """The lanes that differ, and which of these each lane is."""
        columns: list[Values] = []
        for field in fields(self):
            value = getattr(self, field.name)
            columns += value.values() if isinstance(value, Mapping) else [value]
        _, places, alike = np.unique(
            np.array(columns, dtype=float), axis=1, return_index=True, return_inverse=True
        )
        return self.taken(places), alike.reshape(-1)


class Queue(NamedTuple):
    """Links that the same ports pass: the slowest of each rate. uses: how often this load is there,
    as other orders of the ranks load them too.
    """

    slowest: tuple[tuple[str, float], ...]  # rate, uses / gbs
    uses: float


class Load(NamedTuple):
    """What a port loads: queues, and how its hop counts."""

    queues: tuple[int, ...]
    kind: str
    times: int


class Links(NamedTuple):
    """The loads of ports, and the queues."""

    loads: tuple[Load, ...]
    queues: tuple[Queue, ...]


def links_of(
    ports: Sequence[Port], fabric: Fabric, turns: Sequence[int], *, is_folded: bool
) -> Links:
    """How ports load the links. turns: orders of the ranks that are used at once, each of which
    begins at another GPU of its domain. is_folded: the first domain stands for all.
    """
    ways = [_ways(fabric, port, turns, is_folded=is_folded) for port in ports]
    users: dict[tuple[object, ...], set[int]] = {}
    hops: dict[tuple[object, ...], Hop] = {}
    uses: dict[tuple[object, ...], int] = {}
    for number, turned in enumerate(ways):
        for turn, way in enumerate(turned):
            for hop in way.hops:
                hops[hop.place] = hop
                uses[hop.place] = uses.get(hop.place, 0) + 1
                if turn == 0:
                    users.setdefault(hop.place, set()).add(number)
    groups: dict[frozenset[int], list[tuple[object, ...]]] = {}
    for place, numbers in users.items():
        groups.setdefault(frozenset(numbers), []).append(place)
    queues: list[Queue] = []
    of_port: list[list[int]] = [[] for _ in ports]
    for ports_of, places in groups.items():
        slowest: dict[str, float] = {}
        share = 1.0
        for place in places:
            seconds = uses[place] / len(users[place]) / (hops[place].gbs * 1e9)
            slowest[hops[place].rate] = max(slowest.get(hops[place].rate, 0.0), seconds)
            share = max(share, uses[place] / len(users[place]))
        for number in ports_of:
            of_port[number].append(len(queues))
        queues.append(Queue(tuple(slowest.items()), share))
    return Links(
        tuple(
            Load(tuple(own), turned[0].kind, turned[0].times)
            for own, turned in zip(of_port, ways, strict=True)
        ),
        tuple(queues),
    )


def _ways(fabric: Fabric, port: Port, turns: Sequence[int], *, is_folded: bool) -> list[Way]:
    """The way of a port in each order."""
    width = fabric.width
    ways = [
        fabric.way(turned(port[0], turn, width), turned(port[1], turn, width)) for turn in turns
    ]
    if not is_folded:
        return ways
    return [
        way._replace(hops=tuple(hop._replace(place=_folded(hop.place)) for hop in way.hops))
        for way in ways
    ]


def turned(rank: int, turn: int, width: int) -> int:
    """Where a rank is in an order that begins each domain `turn` GPUs later."""
    return rank - rank % width + (rank + turn) % width


def _folded(place: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(0 if isinstance(part, int) and k < 2 else part for k, part in enumerate(place))


class Played(NamedTuple):
    """ends: of each launch. busy: seconds that one launch keeps the busiest link of each rate, a
    CTA and a GPU's memory at work.
    """

    ends: list[Values]
    busy: dict[str, Values]


CTA, MEMORY = "cta", "memory"
_UNIT = 1.0
_HOP_UNITS = {"nvlink": 1.0, "pcie": 1.7, "net": 4.1}


def play(events: Events, links: Links, lanes: Lanes, tracks: int) -> Played:
    """tracks: that all launches of a rank run at once, for its memory."""
    count = len(lanes)
    zero = np.zeros(count)
    hop_s = [lanes.hop_s[load.kind] * load.times for load in links.loads]
    bytes_ = lanes.piece_bytes * lanes.channels
    rate_s = {rate: bytes_ * lanes.wire / share for rate, share in lanes.share.items()}
    piece_s = [
        np.max([rate_s[rate] * seconds for rate, seconds in queue.slowest], axis=0)
        for queue in links.queues
    ]
    memory_s = bytes_ * lanes.memory_s * tracks
    cta = _Ctas(lanes)
    finish: list[Values] = [zero] * len(events.ends)
    launch_of = {one: launch for launch, ends in enumerate(events.ends) for one in ends}
    order = _order(events, links)
    done = _last_uses(events, order)
    end: dict[int, Values] = {}
    seen: dict[int, Values] = {}
    handed: dict[int, Values] = {}
    queue_free: dict[int, Values] = {}
    memory_free: dict[int, Values] = {}
    for number in order:
        event = events.events[number]
        start = zero
        for one in event.after:
            if one >= 0:
                start = end[one] if start is zero else np.maximum(start, end[one])
        if event.is_launch:
            end[number] = seen[number] = handed[number] = start + lanes.launch_s
        else:
            least = None
            for one, port in event.arrived:
                hop = hop_s[port]
                start = np.maximum(start, handed[one] + hop)
                there = seen[one] + hop
                least = there if least is None else np.maximum(least, there)
            for one, port in event.returned:
                start = np.maximum(start, end[one] + hop_s[port])
            begin = start + lanes.step_s if event.steps else start
            over = begin + cta.seconds(event)
            if least is not None:
                over = np.maximum(over, least)
            if local := event.reads + event.writes:
                free = memory_free.get(event.rank)
                free = (start if free is None else np.maximum(free, start)) + local * memory_s
                memory_free[event.rank] = free
                over = np.maximum(over, free)
            there = over
            for port, pieces in event.sent:
                for queue in links.loads[port].queues:
                    free = queue_free.get(queue)
                    free = start if free is None else np.maximum(free, start)
                    seconds = piece_s[queue] if pieces == 1 else pieces * piece_s[queue]
                    queue_free[queue] = free + seconds
                    there = np.maximum(there, free + seconds / links.queues[queue].uses)
            seen[number] = there
            end[number] = np.where(lanes.has_flags, over, there)
            handed[number] = np.where(lanes.has_flags, begin, there)
        if number in launch_of:
            launch = launch_of[number]
            finish[launch] = np.maximum(finish[launch], np.maximum(end[number], seen[number]))
        for one in done[number]:
            del end[one], seen[one], handed[one]
    return Played(finish, _busy(events, links, lanes, rate_s, memory_s, cta))


def _order(events: Events, links: Links) -> list[int]:
    """The events by their time if each took one unit, and a hop its latency: who comes first to a
    queue that several tracks share.
    """
    begin = [0.0] * len(events.events)
    for number, event in enumerate(events.events):
        start = max((begin[one] + _UNIT for one in event.after if one >= 0), default=0.0)
        for one, port in (*event.arrived, *event.returned):
            load = links.loads[port]
            start = max(start, begin[one] + _UNIT + _HOP_UNITS[load.kind] * load.times)
        begin[number] = start
    return sorted(range(len(begin)), key=begin.__getitem__)


def _last_uses(events: Events, order: Sequence[int]) -> list[list[int]]:
    """For each event, those that no later one asks for."""
    last = list(range(len(events.events)))
    for number in order:
        event = events.events[number]
        for one in event.after:
            if one >= 0:
                last[one] = number
        for one, _ in (*event.arrived, *event.returned):
            last[one] = number
    done: list[list[int]] = [[] for _ in last]
    for one, number in enumerate(last):
        done[number].append(one)
    return done


class _Ctas:
    """What a CTA does in an event, without its step."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.known: dict[tuple[int, ...], Values] = {}

    def seconds(self, event: Event) -> Values:
        reads = event.reads + sum(pieces for _, pieces in event.pulled)
        sent = sum(pieces for _, pieces in event.sent)
        key = event.takes, event.posts, reads, event.writes, sent
        if key not in self.known:
            on = self.lanes
            self.known[key] = (
                event.takes * on.take_s
                + event.posts * on.post_s
                + on.piece_bytes
                * (reads * on.read_s + event.writes * on.write_s + sent * on.send_s)
            )
        return self.known[key]


def _busy(
    events: Events,
    links: Links,
    lanes: Lanes,
    rate_s: Mapping[str, Values],
    memory_s: Values,
    cta: _Ctas,
) -> dict[str, Values]:
    """Seconds of one launch that each resource is at work, of the busiest of its kind."""
    launches = len(events.ends)
    pieces = [0] * len(links.queues)
    local: dict[int, int] = {}
    tracks: dict[int, Values] = {}  # by the latest event of each
    for number, event in enumerate(events.events):
        local[event.rank] = local.get(event.rank, 0) + event.reads + event.writes
        for port, count in event.sent:
            for queue in links.loads[port].queues:
                pieces[queue] += count
        if event.is_launch:
            continue
        before = tracks.pop(event.after[0], None) if event.after else None
        own = cta.seconds(event) + lanes.step_s * bool(event.steps)
        tracks[number] = own if before is None else before + own
    busy = {rate: np.zeros(len(lanes)) for rate in rate_s}
    for one, count in zip(links.queues, pieces, strict=True):
        for rate, seconds in one.slowest:
            busy[rate] = np.maximum(busy[rate], count / launches * seconds * rate_s[rate])
    busy[MEMORY] = max(local.values(), default=0) / launches * memory_s
    busy[CTA] = np.max([*tracks.values(), np.zeros(len(lanes))], axis=0)
    return busy


MORE = 2.0**-20  # that a hop over the network counts more than another


def probes() -> Lanes:
    """A lane that counts the hops of the longest chain, those over the network a little more; links
    pass a byte in a time that shows only in how long they are at work.
    """
    one, none = np.ones(1), np.zeros(1)
    return Lanes(
        piece_bytes=none + 2.0**-40,
        channels=one,
        wire=one,
        has_flags=none.astype(bool),
        launch_s=none,
        step_s=none,
        take_s=none,
        post_s=none,
        read_s=none,
        write_s=none,
        send_s=none,
        memory_s=none,
        hop_s={"nvlink": one, "pcie": one, "net": one + MORE},
        share=dict.fromkeys(RATES, one),
    )
