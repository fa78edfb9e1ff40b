"""The price of a plan on GPUs: its events on the links of a topology, by a machine's constants.

What a CTA does takes its time; bytes also queue at every link in their direction, and at each GPU's
memory. Lines with flags are passed on as they come, other slices as a whole. A row of a sweep is
the mean of launches one behind the other, so the price is what one more launch adds, unless it is
asked for a launch alone. Nothing is faster than the bound that links set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

from collbench.core.collectives import collective
from collbench.core.errors import RefusedError
from collbench.machine.topology.hosts import equal_hosts
from collbench.machine.topology.model import Topology
from collbench.planning.plan import Plan
from collbench.planning.price.bound import Bound, bound_of
from collbench.planning.price.constants import FULL_THREADS, GpuCosts
from collbench.planning.price.events import Duty, Events, Port, PricedEvent, events_of
from collbench.planning.price.ways import RATES, SPINE, Way, way
from collbench.planning.price.work import THROUGH_HOST, Work, launch_seconds, work_of
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules.ir import MAX_KEPT, Schedule
from collbench.schedules.passes import message_chunks, rounds_of
from collbench.schedules.symmetry import symmetry

CTA, MEMORY = "cta", "memory"
BUSY = (*RATES, CTA, MEMORY)
_SLOTS = 8  # which suffice for every schedule of one slice


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """What neither links nor constants say. oversubscription: NICs over the links between rails.
    factors, seconds: of hops, by constants.WAYS.
    """

    oversubscription: float = 1.0
    factors: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Wiring:
    """Where ranks run: rank r on gpus[r] of a topology."""

    topology: Topology
    gpus: tuple[str, ...]
    network: Network = field(default_factory=Network)

    def way(self, source: int, target: int, *, through_host: bool = False) -> Way:
        """The way from rank to rank. Raises RefusedError if a link has no known rate."""
        found = way(self.topology, self.gpus[source], self.gpus[target], through_host)
        if found is None:
            raise RefusedError(
                f"{self.topology.name}: a link between its GPUs has no known rate",
                "see collbench topo --rates",
            )
        return found

    @cached_property
    def domains(self) -> int:
        """Hosts that are all alike, or racks where an NVSwitch joins hosts; 1 if they differ, or
        not every GPU has a rank.
        """
        topology = self.topology
        racks = sum(node.host < 0 for node in topology.of_kind("nvswitch"))
        domains = racks or len(topology.hosts)
        width, rest = divmod(len(self.gpus), domains)
        if rest or {*self.gpus} != {gpu.id for gpu in topology.gpus}:
            return 1
        places = _places(topology, domains)
        blocks = {
            tuple(places[gpu] for gpu in self.gpus[first : first + width])
            for first in range(0, len(self.gpus), width)
        }
        return domains if len(blocks) == len(equal_hosts(topology)) == 1 else 1

    @property
    def width(self) -> int:
        """Ranks of a domain."""
        return len(self.gpus) // self.domains

    @cached_property
    def is_uniform(self) -> bool:
        """Whether NVLinks join all ranks, and treat them alike."""
        links = self.topology.links_of
        ends = {
            frozenset(replace(link, a=link.other(gpu), b="") for link in links[gpu])
            for gpu in self.gpus
        }
        return len(ends) == 1 and bool(self.topology.bundles(self.gpus[0]))

    @cached_property
    def places(self) -> dict[str, object]:
        """What stands for each node where the first domain stands for all."""
        return _places(self.topology, self.domains)


@dataclass(frozen=True, kw_only=True, eq=False)
class Site:
    """The wiring of ranks, and the constants that price what they do."""

    wiring: Wiring
    costs: GpuCosts

    def hop_s(self, kind: str, over: str) -> float:
        """Seconds until a peer sees what was stored, by a kind of the constants and one of WAYS."""
        network = self.wiring.network
        own_s = self.costs.hop_us(self.costs.kinds[kind], over) * 1e-6
        return network.seconds.get(over, own_s) * network.factors.get(over, 1.0)


def site_of(
    topology: Topology, gpus: Sequence[str], costs: GpuCosts, network: Network | None = None
) -> Site:
    """Ranks on GPUs of a topology."""
    wiring = Wiring(topology=topology, gpus=tuple(gpus), network=network or Network())
    return Site(wiring=wiring, costs=costs)


def _places(topology: Topology, domains: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for kind in {node.kind for node in topology.nodes}:
        nodes = sorted(topology.of_kind(kind), key=lambda node: (node.host, node.index))
        each, rest = divmod(len(nodes), domains)
        for number, node in enumerate(nodes):
            found[node.id] = node.id if rest else (kind, number % each)
    return found


def gpu_price(plan: Plan, site: Site, *, is_alone: bool = False) -> float:
    """Seconds of one launch. Raises RefusedError if there are too few GPUs, or if a link on a path
    has no known rate.
    """
    if len(site.wiring.gpus) < plan.n:
        raise RefusedError(
            f"{site.wiring.topology.name} has {len(site.wiring.gpus)} GPUs, not {plan.n}",
            "use fewer --ranks",
        )
    seconds = work_seconds(work_of(plan), site, is_alone=is_alone)
    least = plan_bound(plan, site)
    return seconds if least is None else max(seconds, least.seconds)


class FullestLink(NamedTuple):
    """The seconds in which the fullest link carries its bytes, and which it is."""

    seconds: float
    name: str


def plan_bound(plan: Plan, site: Site) -> FullestLink | None:
    """What no launch can take less time than, however many are under way at once, at the best rate
    that was measured of each link; None if a link has no known rate.
    """
    is_copied = plan.transport == "ce"
    found: Bound | None = bound_of(
        plan.schedule,
        site.wiring.topology,
        site.wiring.gpus,
        plan.transport in THROUGH_HOST,
        "copy engines" if is_copied else "stores",
    )
    if found is None:
        return None
    blocks = plan.n if collective(plan.problem.op).size_in_blocks else 1
    size_bytes = plan.problem.block_bytes * blocks * (1.0 if is_copied else wire_share(plan.proto))
    return FullestLink(size_bytes / (found.gbs * 1e9), found.limit)


def wire_share(proto: str) -> float:
    """Bytes on a link for each byte of payload."""
    return float(PROTOCOLS.load(proto).wire_bytes(1 << 20)) / (1 << 20)


def payload_gbs(topology: Topology, proto: str, on: GpuCosts) -> float | None:
    """What the fastest NVLink of a GPU carries of the payload of a protocol; None if it has none of
    a known rate.

    >>> from collbench.machine.topology.machines import machine_topology
    >>> from collbench.planning.price.constants import gpu_costs
    >>> payload_gbs(machine_topology("k40x8"), "ll", gpu_costs()) is None
    True
    """
    rates = [
        link.usable_gbs or 0.0
        for link in topology.links_of[topology.gpus[0].id]
        if link.kind == "nvlink"
    ]
    fastest = max(rates, default=0.0)
    return fastest * on.kinds[proto].link_share / wire_share(proto) or None


# --------------------------------------------------------------------------------- few for all


@lru_cache(maxsize=MAX_KEPT)
def few_of(schedule: Schedule, wiring: Wiring, through_host: bool) -> int:
    """How many first ranks stand for all; 0: each for itself."""
    if schedule.is_symmetric and wiring.is_uniform and schedule.n == len(wiring.gpus):
        return 1
    if _are_apart(schedule, wiring, through_host):
        return 1
    if schedule.n == len(wiring.gpus) and wiring.domains > 1 and not through_host:
        return wiring.width if symmetry(schedule, wiring.width) is not None else 0
    return 0


def _are_apart(schedule: Schedule, wiring: Wiring, through_host: bool) -> bool:
    """Whether all ranks of a symmetric schedule do the same over links that are alike and that no
    two ranks share, as those of a ring on one switch: each then takes the same time, to the bit.
    """
    if not schedule.is_symmetric:
        return False
    n = schedule.n
    edges = sorted({edge for at, steps in rounds_of(schedule) for edge in message_chunks(steps)[0]})
    owners: dict[object, int] = {}
    looks = set()
    for rank in range(n):
        places: dict[object, int] = {}
        look = []
        for edge in edges:
            there = wiring.way(rank, (rank + edge.peer) % n, through_host=through_host)
            if any(owners.setdefault(hop, rank) != rank for hop in there.hops):
                return False
            seen = tuple(
                (places.setdefault(hop, len(places)), hop.link.usable_gbs) for hop in there.hops
            )
            look.append((seen, there.kind, there.times, there.changes_rail))
        looks.add(tuple(look))
    return len(looks) == 1


# ------------------------------------------------------------------------------------ the links


class _Route(NamedTuple):
    """What a port goes over: for each link its number, bytes a second that it has for this port,
    and bytes a second of one message; the name of its rate. kind, times: as of a Way.
    """

    hops: tuple[tuple[int, float, float, str], ...]
    kind: str
    times: int


@lru_cache(maxsize=MAX_KEPT)
def _routes(
    ports: tuple[Port, ...],
    wiring: Wiring,
    through_host: bool,
    turns: tuple[int, ...],
    is_folded: bool,
) -> tuple[_Route, ...]:
    """The route of each port. turns: orders of the ranks that are used at once, of which the ports
    are the first's: a link that all of them load is the slower for each. is_folded: the first
    domain stands for all. Raises RefusedError if a link has no known rate.
    """
    places = wiring.places if is_folded else {}
    numbers: dict[object, int] = {}
    uses: dict[int, int] = {}
    users: dict[int, int] = {}
    found: list[tuple[Way, list[tuple[int, float, str]]]] = []
    for source, target, _ in ports:
        for turn in turns:
            there = wiring.way(
                _turned(source, turn, wiring.width),
                _turned(target, turn, wiring.width),
                through_host=through_host,
            )
            hops = []
            for hop in there.hops:
                ends = places.get(hop.here, hop.here), places.get(hop.there, hop.there)
                key: tuple[object, ...] = (*ends, hop.link.kind if is_folded else hop.link)
                hops.append((numbers.setdefault(key, len(numbers)), _bytes_s(hop.link), hop.rate))
            if there.changes_rail and wiring.network.oversubscription > 1:
                nic = next(hop for hop in there.hops if hop.link.kind == "network")
                key = "above", places.get(nic.here, nic.here)
                rate = _bytes_s(nic.link) / wiring.network.oversubscription
                hops.append((numbers.setdefault(key, len(numbers)), rate, SPINE))
            for number, _, _ in hops:
                uses[number] = uses.get(number, 0) + 1
                users[number] = users.get(number, 0) + (turn == turns[0])
            if turn == turns[0]:
                found.append((there, hops))
    return tuple(
        _Route(
            tuple(
                (number, rate * users[number] / uses[number], rate, name)
                for number, rate, name in hops
            ),
            there.kind,
            there.times,
        )
        for there, hops in found
    )


def _bytes_s(link: object) -> float:
    return (getattr(link, "usable_gbs", None) or 0.0) * 1e9


def _turned(rank: int, turn: int, width: int) -> int:
    """Where a rank is in an order that begins each domain `turn` ranks later."""
    return rank - rank % width + (rank + turn) % width if turn else rank


# ------------------------------------------------------------------------------------- the play


def work_seconds(work: Work, site: Site, *, is_alone: bool = False) -> float:
    """Seconds of one launch, before the bound of the links."""
    player = _Player(work, site, is_alone=is_alone)
    seconds = launch_seconds(
        work, player.ends, few=player.few, together=player.together, is_alone=is_alone
    )
    return seconds if is_alone else max(seconds, *busy_seconds(work, site).values())


def hops_of(schedule: Schedule, wiring: Wiring) -> tuple[int, int]:
    """Hops of the longest chain of one loop, and those between hosts of the chain that has most."""
    few = few_of(schedule, wiring, False)
    events = events_of(schedule, slices=1, loops=1, launches=1, slots=_SLOTS, few=few)
    routes = _routes(events.ports, wiring, False, (0,), few > 1)
    longest: list[int] = []
    between: list[int] = []
    for event in events.events:  # causes come first
        hops = net = 0
        for one in event.after:
            hops, net = max(hops, longest[one]), max(net, between[one])
        for one, port in (*event.arrived, *event.returned):
            route = routes[port]
            hops = max(hops, longest[one] + route.times)
            net = max(net, between[one] + (route.kind == "net"))
        longest.append(hops)
        between.append(net)
    return max(longest), max(between)


def busy_seconds(work: Work, site: Site) -> dict[str, float]:
    """Seconds of one launch that what is busiest of each kind is at work: a link of each of RATES,
    a CTA with its launch, and a GPU's memory. No launch behind others takes less.
    """
    player = _Player(work, site, is_alone=False)
    events = player.events(launches=1)
    number, piece = max(1.0, work.amount), work.piece_bytes * min(1.0, work.amount)
    wire = piece * player.wire * number
    loads = _loads(events, site.wiring, work.through_host, work.turns, player.few > 1)
    busy = {name: wire * loads.get(name, 0.0) for name in RATES}
    cta = max((player.cta_seconds(duty, piece) for duty in events.duties), default=0.0)
    busy[CTA] = player.launch_s + cta * number
    busy[MEMORY] = events.most_local * player.memory_s(piece) * number
    return busy


@lru_cache(maxsize=MAX_KEPT)
def _loads(
    events: Events, wiring: Wiring, through_host: bool, turns: tuple[int, ...], is_folded: bool
) -> dict[str, float]:
    """Seconds of the fullest link of each rate, for pieces of one byte."""
    routes = _routes(events.ports, wiring, through_host, turns, is_folded)
    seconds: dict[tuple[int, str], float] = {}
    for event in events.events:
        for port, pieces in event.sent:
            for link, bytes_s, _, name in routes[port].hops:
                seconds[link, name] = seconds.get((link, name), 0.0) + pieces / bytes_s
    loads: dict[str, float] = {}
    for (_, name), load in seconds.items():
        loads[name] = max(loads.get(name, 0.0), load)
    return loads


class _Player:
    """Gives each event its time. All channels store at once, so a slice loads a link with the
    slices of all of them.
    """

    def __init__(self, work: Work, site: Site, *, is_alone: bool) -> None:
        on, costs = site.costs, site.costs.kinds[work.kind]
        is_copied = work.kind == "ce"
        self.work, self.site, self.on, self.costs = work, site, on, costs
        self.few = few_of(work.schedule, site.wiring, work.through_host)
        self.together = site.wiring.width if len(work.turns) > 1 else 1
        self.passes_on = PROTOCOLS.load(work.proto).HAS_SLICES is False and not is_copied
        # bytes on a link, of all channels, for each byte of a slice
        self.wire = work.spread * (1.0 if is_copied else wire_share(work.proto)) / costs.link_share
        saved_us = on.pdl_us if work.has_pdl and not is_alone else 0.0
        begun_us = on.launch_us + on.cta_us * (work.channels - 1) - saved_us
        self.launch_s = 1e-6 * (max(0.0, begun_us) + on.cold_us * on.is_cold(work.set_bytes))
        self.rate = 1.0
        if work.threads and not is_copied:
            self.rate = min(1.0, work.threads / FULL_THREADS) ** costs.thread_power
        self.step_s = costs.step_us * 1e-6

    def events(self, launches: int) -> Events:
        """The events of one loop of one slice."""
        return events_of(
            self.work.schedule,
            slices=1,
            loops=1,
            launches=launches,
            slots=self.work.slots,
            few=self.few,
            together=self.together,
        )

    def routes(self, events: Events) -> tuple[_Route, ...]:
        is_folded = self.few > 1
        return _routes(
            events.ports, self.site.wiring, self.work.through_host, self.work.turns, is_folded
        )

    def memory_s(self, piece_bytes: float) -> float:
        """Seconds of a GPU's memory for a piece of all channels and orders."""
        bytes_ = self.work.spread * piece_bytes * len(self.work.turns)
        return bytes_ / (self.on.memory_gbs * 1e9)

    def cta_seconds(self, duty: Duty, piece_bytes: float) -> float:
        """What a CTA does, with its steps."""
        costs = self.costs
        per_gb = (
            duty.loads / costs.read_gbs
            + duty.writes / costs.write_gbs
            + duty.stores / costs.send_gbs
        )
        us = duty.takes * costs.take_us + duty.posts * costs.post_us + duty.steps * costs.step_us
        return us * 1e-6 + per_gb * piece_bytes / (self.rate * 1e9)

    def ends(self, events: Events, piece_bytes: float) -> list[float]:
        """When each launch is over on all ranks, in seconds. Events are played in the order of
        their time: who comes first to a link has it first.
        """
        self.routes_of, all_ = self.routes(events), events.events
        self.hop_s = [
            self.site.hop_s(self.work.kind, route.kind) * route.times for route in self.routes_of
        ]
        self.cta_s = {
            does: self.cta_seconds(does.duty, piece_bytes) for does in {one.does for one in all_}
        }
        self.local_s = self.memory_s(piece_bytes)
        self.bytes = piece_bytes * self.wire
        self.begin, self.end, self.seen = ([0.0] * len(all_) for _ in range(3))
        self.links: dict[int, float] = {}
        self.memory: dict[int, float] = {}
        self.loads: dict[tuple[int, float], list[tuple[int, float, float]]] = {}
        effects = events.effects
        waits = [len(one.after) + len(one.arrived) + len(one.returned) for one in all_]
        ready = [(0.0, number) for number, count in enumerate(waits) if not count]
        while ready:
            start, number = heappop(ready)
            self._play(all_[number], number, start)
            for one in effects[number]:
                waits[one] -= 1
                if not waits[one]:
                    heappush(ready, (self._start(all_[one]), one))
        return [max(max(self.end[one], self.seen[one]) for one in ends) for ends in events.ends]

    def _start(self, event: PricedEvent) -> float:
        """When an event can begin whose causes are known."""
        end, hop_s = self.end, self.hop_s
        handed = self.begin if self.passes_on else self.seen
        start = 0.0  # millions of turns: no call in them
        for one in event.after:
            if end[one] > start:
                start = end[one]
        for one, port in event.arrived:
            if (there := handed[one] + hop_s[port]) > start:
                start = there
        for one, port in event.returned:
            if (back := end[one] + hop_s[port]) > start:
                start = back
        return start

    def _play(self, event: PricedEvent, number: int, start: float) -> None:
        """Give an event its times, and the links what it loads them with."""
        does = event.does
        if does.is_launch:
            self.begin[number] = self.end[number] = self.seen[number] = start + self.launch_s
            return
        self.begin[number] = start + self.step_s if does.steps else start
        over = start + self.cta_s[does]
        for one, port in event.arrived:
            if (there := self.seen[one] + self.hop_s[port]) > over:
                over = there
        if local := does.reads + does.writes:
            free = max(self.memory.get(event.rank, 0.0), start) + local * self.local_s
            self.memory[event.rank] = free
            over = max(over, free)
        for port, pieces in event.pulled:
            over = self._passed(port, start, pieces / self.on.pull_share, over)
        there = over
        for port, pieces in event.sent:
            there = self._passed(port, start, pieces, there)
        # a counter is stored once the slice has arrived; nobody waits for lines with flags
        self.end[number] = over if self.passes_on else there
        self.seen[number] = there

    def _passed(self, port: int, start: float, pieces: float, over: float) -> float:
        """When every link of a route is over with pieces that come to it at `start`."""
        links, loads = self.links, self.loads.get((port, pieces))
        if loads is None:
            bytes_ = pieces * self.bytes
            loads = self.loads[port, pieces] = [
                (link, bytes_ / bytes_s, bytes_ / own_bytes_s)
                for link, bytes_s, own_bytes_s, _ in self.routes_of[port].hops
            ]
        for link, load_s, own_s in loads:
            free = links.get(link, 0.0)
            if start > free:
                free = start
            links[link] = free + load_s
            if free + own_s > over:
                over = free + own_s
        return over
