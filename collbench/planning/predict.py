"""What collectives should take on any number of hosts that are all alike.

    Prediction(cluster, "allreduce").best(hosts, size_bytes) -> Point

Few ranks take what the chooser takes, at the price of that plan: what `--backend model` shows. More
are priced by closed forms (price/far.py), each algorithm with the knobs that it has on the most
hosts that are played. Messages between hosts go from GPU to GPU by the NICs (GPUDirect RDMA),
without a CPU that copies.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from collbench.core.case import Case
from collbench.core.collectives import OpName, collective
from collbench.core.errors import RefusedError, ScheduleError
from collbench.core.units import rate_gbs
from collbench.planning.chooser import least, planned
from collbench.planning.limits import Limits, edges_of
from collbench.planning.plan import Plan
from collbench.planning.price.cluster import CONSTANTS, Cluster
from collbench.planning.price.errors import errors_of, own_errors, own_scope
from collbench.planning.price.far import MOST_PLAYED, WIDE, WIDTHS, Far, most_played
from collbench.planning.price.gpus import hops_of
from collbench.planning.price.ways import RATES
from collbench.planning.price.work import work_of
from collbench.planning.selection import algorithms_of

_ITEM_BYTES = 4  # of float32
_STEP = 0.02  # of a constant, for slopes
LATENCY = "latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The price of an algorithm at a number of hosts and a size, in seconds. is_far: by a
    closed form, with the knobs of the plan, which is of fewer ranks. busy: seconds that what is
    busiest of each kind is at work.
    """

    hosts: int
    domains: int
    ranks: int
    size_bytes: int
    algo: str
    is_far: bool
    plan: Plan
    seconds: float
    busy: Mapping[str, float]

    def busbw_gbs(self, op: OpName) -> float:
        """Bus bandwidth."""
        return rate_gbs(self.size_bytes, self.seconds) * collective(op).factor(self.ranks)

    @property
    def limit(self) -> str:
        """What is at work for most of the time, if it is for more than half; else latency."""
        most = max(self.busy, key=lambda kind: self.busy[kind])
        return most if self.busy[most] > self.seconds / 2 else LATENCY


class Prediction:
    """Prices of a collective on a cluster. reasons: why an algorithm has none at a number of
    hosts.
    """

    def __init__(self, cluster: Cluster, op: OpName) -> None:
        self.cluster, self.op = cluster, op
        self.algorithms = algorithms_of(op)
        self.reasons: dict[str, dict[int, str]] = {}
        self._clusters: dict[int, Cluster] = {}
        self._far: dict[tuple[int, str], Far] = {}
        self._points: dict[tuple[int, int, str, str], Point | None] = {}

    def on(self, hosts: int) -> tuple[Cluster, int]:
        """The cluster with domains of at most so many hosts, and how many domains they are. Raises
        RefusedError for a machine that cannot have so many hosts, or has one GPU.
        """
        key = min(hosts, self.cluster.hosts)
        self.cluster.on(hosts)
        if key not in self._clusters:
            self._clusters[key] = self.cluster.on(hosts)
        cluster = self._clusters[key]
        domains = max(1, hosts // cluster.hosts)
        if domains > 1:
            cluster.nic_gbs()
        if domains * cluster.width < 2:
            raise RefusedError(
                f"one host of {cluster.name} has one GPU: nothing travels", "give more --hosts"
            )
        return cluster, domains

    def best(self, hosts: int, size_bytes: int) -> Point | None:
        """The least price of all algorithms; None where nothing has one."""
        return self.of(hosts, size_bytes, "auto")

    def at(self, hosts: int, size_bytes: int) -> list[Point]:
        """The prices of all algorithms, the least first."""
        there = [self.of(hosts, size_bytes, algo) for algo in self.algorithms]
        return sorted((one for one in there if one is not None), key=lambda one: one.seconds)

    def of(self, hosts: int, size_bytes: int, algo: str, proto: str = "auto") -> Point | None:
        """The least price of an algorithm and a protocol, of all for "auto"; None where nothing has
        one.
        """
        key = hosts, size_bytes, algo, proto
        if key not in self._points:
            self._points[key] = self._found(*key)
        return self._points[key]

    def _found(self, hosts: int, size_bytes: int, algo: str, proto: str) -> Point | None:
        """The candidate of the lowest price."""
        cluster, domains = self.on(hosts)
        ranks = domains * cluster.width
        if not collective(self.op).block_count(size_bytes, _ITEM_BYTES, ranks):
            return None
        base, few = cluster, domains
        if is_far := domains > 1 and ranks > MOST_PLAYED:
            base = cluster.narrow(WIDTHS[-1]) if cluster.width > WIDE else cluster
            few = most_played(base.width)
        links = base.links(few)
        case = Case(
            op=self.op,
            backend="model",
            algo=algo,
            proto=proto,
            ranks=few * base.width,
            size_bytes=size_bytes,
        ).rounded()
        rated: list[tuple[float, Plan]] = []
        for _, plan in planned(case, Limits(), links):
            name = plan.schedule.name
            try:
                far = self.far(cluster, name) if is_far else None
                busy = far.busy(plan, domains, size_bytes) if far else links.busy(plan)
                rated.append((max(busy.values()), plan))
            except ScheduleError as error:
                self.reasons.setdefault(name, {})[hosts] = error.message

        def price(plan: Plan) -> float:
            if not is_far:
                return links.price(plan)
            try:
                return self.far(cluster, plan.schedule.name).seconds(plan, domains, size_bytes)
            except ScheduleError as error:
                self.reasons.setdefault(plan.schedule.name, {})[hosts] = error.message
                return math.inf

        if (found := least(rated, price)) is None:
            return None
        seconds, plan = found
        if math.isinf(seconds):
            return None
        if is_far:
            busy = self.far(cluster, plan.schedule.name).busy(plan, domains, size_bytes)
        else:
            busy = links.busy(plan)
        return Point(
            hosts=hosts,
            domains=domains,
            ranks=ranks,
            size_bytes=size_bytes,
            algo=plan.schedule.name,
            is_far=is_far,
            plan=plan,
            seconds=seconds,
            busy=busy,
        )

    def far(self, cluster: Cluster, algo: str) -> Far:
        """What prices an algorithm on more ranks than are played."""
        key = id(cluster), algo
        if key not in self._far:
            self._far[key] = Far(cluster, self.op, algo)
        return self._far[key]

    def hops(self, point: Point) -> tuple[int, int]:
        """Hops of the longest chain, and of the chain that has most between hosts."""
        cluster, domains = self.on(point.hosts)
        if point.is_far:
            return self.far(cluster, point.algo).hops(domains)
        return hops_of(point.plan.schedule, cluster.links(domains).site.wiring)

    def ends(self, point: Point) -> int:
        """Ends of connections of the rank that has most."""
        cluster, domains = self.on(point.hosts)
        if point.is_far:
            return self.far(cluster, point.algo).ends(domains)
        return max(sum(map(len, edges_of(own))) for own in point.plan.schedule.programs)

    def alpha_beta_s(self, point: Point) -> float:
        """Seconds of the hops by their latencies, and of the fullest link by its rate."""
        cluster, _ = self.on(point.hosts)
        links, kind = cluster.links(1), work_of(point.plan).kind
        near = "nvlink" if links.joined(cluster.width) == "NVLink" else "pcie"
        costs = links.costs.kinds[kind]
        own_s = (costs.step_us + costs.take_us + costs.post_us) * 1e-6
        hops, between = self.hops(point)
        near_s, far_s = (links.site.hop_s(kind, way) + own_s for way in (near, "net"))
        return (hops - between) * near_s + between * far_s + max(point.busy[r] for r in RATES)

    def interval_s(self, point: Point) -> tuple[float, float] | None:
        """Seconds between which nine of ten measured rows of such a price were; None for GPUs, and
        for several hosts, of which no row of our own engine was measured.
        """
        cluster, _ = self.on(point.hosts)
        scope = own_scope(cluster.name, [gpu.name for gpu in cluster.domain.gpus])
        if scope is None or point.hosts > 1:
            return None
        errors = errors_of(own_errors(), scope, point.size_bytes)
        if errors is None:
            return None
        return (point.seconds * errors.low, point.seconds * errors.high)

    def ranges(self, hosts: int, sizes: Sequence[int]) -> list[tuple[str, int, int]]:
        """Which algorithm is best from which size to which, by every doubling between them."""
        doubles = [
            few << step
            for few, more in pairwise(sizes)
            for step in range((more // few).bit_length())
        ]
        known = {size: self.best(hosts, size) for size in (*sizes, *doubles)}
        ranges: list[tuple[str, int, int]] = []
        for size, best in sorted(known.items()):
            if best is not None and ranges and ranges[-1][0] == best.algo:
                ranges[-1] = (*ranges[-1][:2], size)
            elif best is not None:
                ranges.append((best.algo, size, size))
        return ranges

    def elasticities(self, point: Point) -> dict[str, float]:
        """By how many percent the time changes for one percent more of each constant, the largest
        first.
        """
        slopes = {}
        for name in CONSTANTS:
            more, fewer = (
                self._seconds(point, self.cluster.scaled(name, factor))
                for factor in (1 + _STEP, 1 - _STEP)
            )
            slopes[name] = math.log(more / fewer) / math.log((1 + _STEP) / (1 - _STEP))
        return dict(sorted(slopes.items(), key=lambda item: -abs(item[1])))

    def _seconds(self, point: Point, cluster: Cluster) -> float:
        """The price of a point's plan on another cluster."""
        on = cluster.on(point.hosts)
        if not point.is_far:
            return on.links(point.domains).price(point.plan)
        far = Far(on, self.op, point.algo)
        return far.seconds(point.plan, point.domains, point.size_bytes)
