"""The price of a plan on GPUs: its events on the links of a topology, by a machine's constants.

What a CTA does takes its time; bytes also queue at every link in their direction, and at each GPU's
memory. Lines with flags are passed on as they come, other slices as a whole. A row of a sweep is
the mean of launches one behind the other, so the price is what one more launch adds.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from collbench.machine.topology.model import Link, Topology
from collbench.machine.topology.paths import GPU_CLASSES, Path, like, path, path_to_cpu
from collbench.planning.plan import Plan
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.pricing.constants import WAYS, GpuCosts
from collbench.pricing.events import Events, Port
from collbench.pricing.launches import Shape, one_more_launch, shape_of
from collbench.schedules.ir import MAX_KEPT
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
    is_one = plan.schedule.is_symmetric and _is_uniform(topology, names)
    shape = shape_of(plan)

    def play(events: Events) -> list[float]:
        ways = _ways(events.ports, topology, names, plan.transport in THROUGH_HOST)
        return _Player(plan, shape, events, ways, costs).ends()

    return one_more_launch(plan, shape, play, is_one=is_one)


@lru_cache(maxsize=256)
def _is_uniform(topology: Topology, gpus: tuple[str, ...]) -> bool:
    """Whether the links treat all ranks alike."""
    return len({like(topology, gpu) for gpu in gpus}) == 1 and _has_nvlink(topology, gpus[0])


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
        wire = float(PROTOCOLS.load(plan.proto).wire_bytes(1 << 20)) / (1 << 20)
        self.wire_bytes = self.all_bytes * (1.0 if is_copied else wire) / self.costs.link_share
        has_pdl = kernel is not None and kernel.pdl != "off"
        self.launch_s = 1e-6 * max(
            0.0, on.launch_us + on.cta_us * (shape.channels - 1) - on.pdl_us * has_pdl
        )
        hop_us = {kind: on.hop_us(self.costs, kind) for kind in WAYS}
        self.hop_s = [hop_us[way.kind] * 1e-6 * way.times for way in ways]

    def ends(self) -> list[float]:
        """When each launch is over on all ranks, in seconds."""
        begin, end, seen = ([0.0] * len(self.events.events) for _ in range(3))
        links: dict[int, float] = {}
        memory: dict[int, float] = {}
        costs, hop_s, ways = self.costs, self.hop_s, self.ways
        read_s, write_s, send_s = (
            self.piece_bytes / (gbs * 1e9)
            for gbs in (costs.read_gbs, costs.write_gbs, costs.send_gbs)
        )
        step_s, take_s, post_s = (us * 1e-6 for us in (costs.step_us, costs.take_us, costs.post_us))
        memory_s = self.all_bytes / (self.on.memory_gbs * 1e9)
        passes_on = self.passes_on
        for number, event in enumerate(self.events.events):
            start = max((end[one] for one in event.after if one >= 0), default=0.0)
            if event.is_launch:
                begin[number] = end[number] = seen[number] = start + self.launch_s
                continue
            least = 0.0
            for one, port in event.arrived:
                start = max(start, (begin if passes_on else seen)[one] + hop_s[port])
                least = max(least, seen[one] + hop_s[port])
            for one, port in event.returned:
                start = max(start, end[one] + hop_s[port])
            begin[number] = start + step_s * bool(event.steps)
            pulled = sum(pieces for _, pieces in event.pulled)
            over = max(
                least,
                begin[number]
                + event.takes * take_s
                + event.posts * post_s
                + (event.reads + pulled) * read_s
                + event.writes * write_s
                + sum(pieces for _, pieces in event.sent) * send_s,
            )
            if local := event.reads + event.writes:
                memory[event.rank] = max(memory.get(event.rank, 0.0), start) + local * memory_s
                over = max(over, memory[event.rank])
            for port, pieces in event.pulled:
                for hop, rate in ways[port].hops:
                    seconds = pieces * self.wire_bytes / (rate * self.on.pull_share)
                    links[hop] = max(links.get(hop, 0.0), start) + seconds
                    over = max(over, links[hop])
            there = over
            for port, pieces in event.sent:
                for hop, rate in ways[port].hops:
                    seconds = pieces * self.wire_bytes / rate
                    links[hop] = max(links.get(hop, 0.0), start) + seconds
                    there = max(there, links[hop])
            # a counter is stored once the slice has arrived; nobody waits for lines with flags
            end[number] = over if passes_on else there
            seen[number] = there
        return [max(max(end[one], seen[one]) for one in ends) for ends in self.events.ends]
