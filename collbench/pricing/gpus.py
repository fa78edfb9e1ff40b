"""The price of a plan on GPUs: its events on the links of a topology, by a machine's constants.

What a CTA does takes its time; bytes also queue at every link in their direction, and at each GPU's
memory. Lines with flags are passed on as they come, other slices as a whole. A row of a sweep is
the mean of launches one behind the other, so the price is what one more launch adds.
"""

from collections.abc import Sequence
from functools import lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

from collbench.machine.topology.ceiling import Ceiling, ceiling
from collbench.machine.topology.model import Link, Topology
from collbench.machine.topology.paths import GPU_CLASSES, Path, like, path, path_to_cpu
from collbench.machine.topology.rates import Engine
from collbench.planning.plan import Plan
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.pricing.constants import FULL_THREADS, WAYS, GpuCosts
from collbench.pricing.events import Events, Port
from collbench.pricing.launches import Shape, one_more_launch, shape_of
from collbench.schedules.ir import MAX_KEPT, Schedule
from collbench.schedules.passes import message_chunks, pair_traffic, rounds_of
from collbench.spec.collectives import collective
from collbench.util.errors import RefusedError

NVLINK_PATHS, NETWORK_PATHS = (*GPU_CLASSES, "C2C"), ("NET",)  # all others are over PCIe
THROUGH_HOST = ("shm", "shm+net")  # transports with memory of the host
Hop = tuple[str, str, Link]  # a link in one direction


def gpu_price(plan: Plan, topology: Topology, costs: GpuCosts, gpus: Sequence[str] = ()) -> float:
    """Seconds of one launch, rank r on gpus[r] (default: the r-th GPU). Raises RefusedError if
    there are too few GPUs, or if a link on a path has no known rate.
    """
    names = tuple(gpus or (gpu.id for gpu in topology.gpus[: plan.n]))
    if len(names) < plan.n:
        raise RefusedError(
            f"{topology.name} has {len(names)} GPUs, not {plan.n}", "use fewer --ranks"
        )
    through_host = plan.transport in THROUGH_HOST
    is_one = plan.schedule.is_symmetric and _is_uniform(topology, names)
    few = int(is_one or _are_apart(plan.schedule, topology, names, through_host))
    shape = shape_of(plan)

    def play(events: Events) -> list[float]:
        ways = _ways(events.ports, topology, names, through_host)
        return _Player(plan, shape, events, ways, costs).ends()

    seconds = one_more_launch(plan, shape, play, is_one=is_one, few=few)
    full = fullest_link(plan, topology, names, costs)
    return max(seconds, full.seconds if full is not None else 0.0)


class FullestLink(NamedTuple):
    """The seconds in which the fullest link carries its bytes, and which it is."""

    seconds: float
    name: str


def fullest_link(
    plan: Plan, topology: Topology, gpus: tuple[str, ...], on: GpuCosts
) -> FullestLink | None:
    """The link that no launch can take less time than, however many are under way at once, at the
    best rate that was measured of it, or that was fitted to the machine if that is higher; None if
    a link has no known rate.
    """
    through_host = plan.transport in THROUGH_HOST
    what, is_copied = collective(plan.problem.op), plan.transport == "ce"
    engine: Engine = "copy engines" if is_copied else "stores"
    usual = _ceiling(plan.schedule, topology, gpus, through_host, None)
    top = _ceiling(plan.schedule, topology, gpus, through_host, engine)
    if usual is None or top is None:
        return None
    fitted_gbs = usual.gbs * on.kinds["ce" if is_copied else plan.proto].link_share
    size_bytes = plan.problem.block_bytes * (plan.n if what.size_in_blocks else 1)
    wire = 1.0 if is_copied else _wire_share(plan.proto)
    return FullestLink(size_bytes * wire / (max(top.gbs, fitted_gbs) * 1e9), top.limit)


@lru_cache(maxsize=MAX_KEPT)
def _ceiling(
    schedule: Schedule,
    topology: Topology,
    gpus: tuple[str, ...],
    through_host: bool,
    engine: Engine | None,
) -> Ceiling | None:
    traffic = pair_traffic(schedule)
    return ceiling(topology, gpus, traffic, through_host=through_host, engine=engine)


def _wire_share(proto: str) -> float:
    """Bytes on a link for each byte of payload."""
    return float(PROTOCOLS.load(proto).wire_bytes(1 << 20)) / (1 << 20)


def payload_gbs(topology: Topology, proto: str, on: GpuCosts) -> float | None:
    """What the fastest NVLink of a GPU carries of the payload of a protocol; None if it has none of
    a known rate.

    >>> from collbench.machine.topology.machines import machine_topology
    >>> from collbench.pricing.constants import gpu_costs
    >>> payload_gbs(machine_topology("k40x8"), "ll", gpu_costs()) is None
    True
    """
    rates = [
        link.usable_gbs or 0.0
        for link in topology.links_of[topology.gpus[0].id]
        if link.kind == "nvlink"
    ]
    fastest = max(rates, default=0.0)
    return fastest * on.kinds[proto].link_share / _wire_share(proto) or None


@lru_cache(maxsize=256)
def _is_uniform(topology: Topology, gpus: tuple[str, ...]) -> bool:
    """Whether the links treat all ranks alike."""
    return len({like(topology, gpu) for gpu in gpus}) == 1 and _has_nvlink(topology, gpus[0])


@lru_cache(maxsize=MAX_KEPT)
def _are_apart(
    schedule: Schedule, topology: Topology, gpus: tuple[str, ...], through_host: bool
) -> bool:
    """Whether all ranks of a symmetric schedule do the same over links that are alike and that no
    two ranks share, as those of a ring on one switch: each then takes the same time, to the bit.
    """
    if not schedule.is_symmetric:
        return False
    n = schedule.n
    edges = sorted({edge for at, steps in rounds_of(schedule) for edge in message_chunks(steps)[0]})
    ports = tuple((rank, (rank + edge.peer) % n, edge.port) for rank in range(n) for edge in edges)
    ways = _ways(ports, topology, gpus, through_host)
    owners: dict[int, int] = {}
    looks = set()
    for rank in range(n):
        own = ways[rank * len(edges) : (rank + 1) * len(edges)]
        if any(owners.setdefault(hop, rank) != rank for way in own for hop, _ in way.hops):
            return False
        places: dict[int, int] = {}
        looks.add(
            tuple(
                (
                    tuple((places.setdefault(hop, len(places)), rate) for hop, rate in way.hops),
                    way.kind,
                    way.times,
                )
                for way in own
            )
        )
    return len(looks) == 1


def _has_nvlink(topology: Topology, gpu: str) -> bool:
    return any(link.kind == "nvlink" for link in topology.links_of[gpu])


class _Way(NamedTuple):
    """What a port goes over: hops, each with bytes a second, and how many hops over NVLink its
    latency counts as: ("nvlink" or "pcie" or "net", how many).
    """

    hops: tuple[tuple[int, float], ...]
    kind: str
    times: int


@lru_cache(maxsize=MAX_KEPT)
def _ways(
    ports: tuple[Port, ...], topology: Topology, gpus: tuple[str, ...], through_host: bool
) -> tuple[_Way, ...]:
    """The way of each port. Raises RefusedError if a link has no known rate."""
    numbers: dict[Hop, int] = {}
    ways = []
    for source, target, _ in ports:
        parts = _parts(topology, gpus[source], gpus[target], through_host=through_host)
        if not parts or any(part.usable_gbs is None for part in parts):
            raise RefusedError(
                f"{topology.name}: a link between its GPUs has no known rate",
                "see collbench topo --rates",
            )
        hops = [
            ((part.nodes[k], part.nodes[k + 1], link), (link.usable_gbs or 0.0) * 1e9)
            for part in parts
            for k, link in enumerate(part.links)
        ]
        kinds = {part.kind for part in parts}
        kind = "nvlink" if kinds <= {*NVLINK_PATHS} else "net" if "NET" in kinds else "pcie"
        between = sum(topology.by_id[node].kind == "gpu" for node in parts[0].nodes[1:-1])
        ways.append(
            _Way(
                tuple((numbers.setdefault(hop, len(numbers)), rate) for hop, rate in hops),
                kind,
                1 + between,
            )
        )
    return tuple(ways)


def _parts(topology: Topology, source: str, target: str, *, through_host: bool) -> tuple[Path, ...]:
    """The path; through the host, up to the CPU nearest to the target, and down."""
    if not through_host:
        return (path(topology, source, target),)
    near = path_to_cpu(topology, target)
    return () if near is None else (path(topology, source, near.b), path(topology, near.b, target))


class _Player:
    """Gives each event its time. All channels store at once, so a slice loads a link with the
    slices of all of them.
    """

    def __init__(
        self, plan: Plan, shape: Shape, events: Events, ways: tuple[_Way, ...], on: GpuCosts
    ) -> None:
        kernel = plan.kernel
        is_copied = plan.transport == "ce"
        kind = "ce" if is_copied else plan.proto
        self.events, self.ways, self.on, self.costs = events, ways, on, on.kinds[kind]
        self.passes_on = PROTOCOLS.load(plan.proto).HAS_SLICES is False and not is_copied
        self.piece_bytes = shape.piece_bytes
        self.all_bytes = shape.channels * shape.piece_bytes
        wire = _wire_share(plan.proto)
        self.wire_bytes = self.all_bytes * (1.0 if is_copied else wire) / self.costs.link_share
        has_pdl = kernel is not None and kernel.pdl != "off"
        problem = plan.problem
        set_bytes = max(problem.buffers(rank).total_bytes for rank in range(plan.n))
        begun_us = on.launch_us + on.cta_us * (shape.channels - 1) - on.pdl_us * has_pdl
        self.launch_s = 1e-6 * (max(0.0, begun_us) + on.cold_us * on.is_cold(set_bytes))
        hop_us = {kind: on.hop_us(self.costs, kind) for kind in WAYS}
        self.hop_s = [hop_us[way.kind] * 1e-6 * way.times for way in ways]
        costs, rate = self.costs, 1.0
        if kernel is not None and not is_copied:
            rate = min(1.0, kernel.threads / FULL_THREADS) ** self.costs.thread_power
        self.read_s, self.write_s, self.send_s = (
            self.piece_bytes / (gbs * rate * 1e9)
            for gbs in (costs.read_gbs, costs.write_gbs, costs.send_gbs)
        )
        self.step_s, self.take_s, self.post_s = (
            us * 1e-6 for us in (costs.step_us, costs.take_us, costs.post_us)
        )
        self.memory_s = self.all_bytes / (on.memory_gbs * 1e9)

    def ends(self) -> list[float]:
        """When each launch is over on all ranks, in seconds. Events are played in the order of
        their time: who comes first to a link has it first.
        """
        events = self.events.events
        self.begin, self.end, self.seen = ([0.0] * len(events) for _ in range(3))
        self.links: dict[int, float] = {}
        self.memory: dict[int, float] = {}
        waits, then = _dependencies(self.events)
        ready = [(0.0, number) for number, count in enumerate(waits) if not count]
        while ready:
            start, number = heappop(ready)
            self._play(number, start)
            for one in then[number]:
                waits[one] -= 1
                if not waits[one]:
                    heappush(ready, (self._start(one), one))
        return [
            max(max(self.end[one], self.seen[one]) for one in ends) for ends in self.events.ends
        ]

    def _start(self, number: int) -> float:
        """When an event can begin whose causes are known."""
        event, hop_s = self.events.events[number], self.hop_s
        handed = self.begin if self.passes_on else self.seen
        causes = [
            *(self.end[one] for one in event.after if one >= 0),
            *(handed[one] + hop_s[port] for one, port in event.arrived),
            *(self.end[one] + hop_s[port] for one, port in event.returned),
        ]
        return max(causes, default=0.0)

    def _play(self, number: int, start: float) -> None:
        """Give an event its times, and the links what it loads them with."""
        event, ways = self.events.events[number], self.ways
        if event.is_launch:
            self.begin[number] = self.end[number] = self.seen[number] = start + self.launch_s
            return
        begin = self.begin[number] = start + self.step_s * bool(event.steps)
        pulled = sum(pieces for _, pieces in event.pulled)
        over = (
            begin
            + event.takes * self.take_s
            + event.posts * self.post_s
            + (event.reads + pulled) * self.read_s
            + event.writes * self.write_s
            + sum(pieces for _, pieces in event.sent) * self.send_s
        )
        for one, port in event.arrived:
            over = max(over, self.seen[one] + self.hop_s[port])
        if local := event.reads + event.writes:
            free = max(self.memory.get(event.rank, 0.0), start) + local * self.memory_s
            self.memory[event.rank] = free
            over = max(over, free)
        for port, pieces in event.pulled:
            for hop, rate in ways[port].hops:
                seconds = pieces * self.wire_bytes / (rate * self.on.pull_share)
                over = max(over, self._queued(hop, start, seconds))
        there = over
        for port, pieces in event.sent:
            for hop, rate in ways[port].hops:
                there = max(there, self._queued(hop, start, pieces * self.wire_bytes / rate))
        # a counter is stored once the slice has arrived; nobody waits for lines with flags
        self.end[number] = over if self.passes_on else there
        self.seen[number] = there

    def _queued(self, hop: int, start: float, seconds: float) -> float:
        """When a link is over with bytes that come to it at `start`."""
        self.links[hop] = max(self.links.get(hop, 0.0), start) + seconds
        return self.links[hop]


def _dependencies(events: Events) -> tuple[list[int], list[list[int]]]:
    """How many others each event waits for, and which wait for it."""
    waits: list[int] = []
    then: list[list[int]] = [[] for _ in events.events]
    for number, event in enumerate(events.events):
        causes = {
            *(one for one in event.after if one >= 0),
            *(one for one, _ in (*event.arrived, *event.returned)),
        }
        waits.append(len(causes))
        for one in causes:
            then[one].append(number)
    return waits, then
