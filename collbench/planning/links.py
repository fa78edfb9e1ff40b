"""The links between the ranks of cases: what joins them, the orders that use them best, what a plan
costs there, and the bound that a row is compared with as its ceiling.

The traffic is that of the schedule, divided by the share of a slot that is payload. The algorithm
of a library is not known, so its rows are compared with the best of our schedules, either in the
order of the ranks or spread evenly over all ring orders of the links. A link carries the best rate
that was measured of it by the engine that moves the bytes, which the limit names.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations

from collbench.core.case import Case
from collbench.core.collectives import OpName, collective
from collbench.core.errors import RefusedError, ScheduleError
from collbench.core.limits import FAR_BELOW_FROM_S, FAR_BELOW_SHARE
from collbench.core.peers import library_of
from collbench.core.world import World, host_numbers
from collbench.machine.topology.gpu_models import multiprocessors
from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import path
from collbench.machine.topology.rates import Engine, best_gbs, gfx_name, link_label
from collbench.machine.topology.rings import rings, trees
from collbench.planning.layout import along, registered
from collbench.planning.limits import Limits, keeps_lines
from collbench.planning.plan import Plan
from collbench.planning.price.bound import Bound, bound, efficiency
from collbench.planning.price.constants import GpuCosts, gpu_costs
from collbench.planning.price.gpus import Network, Site, busy_seconds, gpu_price, site_of
from collbench.planning.price.ways import NETWORK_PATHS, NVLINK_PATHS
from collbench.planning.price.work import THROUGH_HOST, work_of
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.selection import algorithms_of
from collbench.schedules.passes import pair_traffic

Orders = tuple[tuple[int, ...], ...]
_WITH_NVLS, _LEAST_NVLS = ("nccl", "torch"), 90  # libraries; compute capability


class RankLinks:
    """The links of ranks on a topology; gpus: the GPU of each rank. costs: constants by which the
    model prices them, those of the reference machine unless they are given. is_described: the
    machine is one of a file, on which nothing runs.
    """

    def __init__(
        self,
        topology: Topology,
        gpus: Sequence[str],
        costs: GpuCosts | None = None,
        *,
        is_described: bool = False,
        network: Network | None = None,
    ) -> None:
        self.site = site_of(topology, gpus, costs or gpu_costs(), network)
        self.topology, self.gpus, self.costs = topology, tuple(gpus), self.site.costs
        self.is_described = is_described
        self._place_of = [_place(topology, gpu) for gpu in self.gpus]
        self._orders: dict[tuple[str, str, int, int], Orders] = {}
        self._rings: dict[int, Orders] = {}
        self._joined: dict[int, str] = {}
        self._sites: dict[int, Site] = {len(self.gpus): self.site}
        self._known: dict[tuple[str, str, int, int, str, bool, bool, Engine], Bound | None] = {}

    def joined(self, ranks: int) -> str:
        """NVLink where no pair of so many ranks needs another link, else PCIe or, over hosts,
        network.
        """
        if ranks not in self._joined:
            pairs = combinations(self.gpus[:ranks], 2)
            kinds = {path(self.topology, one, other).kind for one, other in pairs}
            is_near = kinds <= {*NVLINK_PATHS}
            self._joined[ranks] = (
                "network" if kinds & {*NETWORK_PATHS} else "NVLink" if is_near else "PCIe"
            )
        return self._joined[ranks]

    def ceiling(self, case: Case, plan: Plan | None) -> Bound | None:
        """The bound of a case as bus bandwidth, in GB/s, or None if it is not known."""
        if case.ranks > len(self.gpus):
            return None
        proto = case.proto if plan is not None and case.proto in PROTOCOLS.names() else "simple"
        transport = plan.transport if plan is not None and plan.kernel is not None else ""
        through_host = transport in THROUGH_HOST
        if transport == "net" and not self.hosts(case.ranks):
            return None  # CPUs copy messages inside a host, at a rate that no link has
        name = plan.schedule.name if plan is not None else ""
        has_nvls = plan is None and case.backend in _WITH_NVLS
        engine = _engine(case, transport)
        key = case.op, name, case.ranks, case.root, proto, through_host, has_nvls, engine
        if key not in self._known:
            traffics = (
                [pair_traffic(plan.schedule)]
                if plan is not None
                else _all(
                    case.op, case.ranks, case.root, self.orders(case.ranks), self.hosts(case.ranks)
                )
            )
            ceilings = [
                top
                for traffic in traffics
                if (
                    top := bound(
                        self.topology, self.gpus, traffic, through_host=through_host, engine=engine
                    )
                )
                is not None
            ]
            if has_nvls and ceilings and (switched := self._in_switch(case)) is not None:
                ceilings.append(switched)
            best = max(ceilings, key=lambda top: top.gbs, default=None)
            share = collective(case.op).factor(case.ranks) * efficiency(proto)
            named = None if self.hosts(case.ranks) else engine  # NICs carry it to other hosts
            self._known[key] = (
                None
                if best is None
                else Bound(gbs=best.gbs * share, limit=best.limit, engine=named)
            )
        return self._known[key]

    def _in_switch(self, case: Case) -> Bound | None:
        """The ceiling of an allreduce whose sums the NVSwitches form (NVLS, from sm_90 on): a GPU
        sends its data once and its part of the result, S(1 + 1/n), and receives as much. None where
        the links have no such switch, or NCCL_NVLS_ENABLE=0 says that it is not used.
        """
        gpus = [self.topology.by_id[gpu] for gpu in self.gpus[: case.ranks]]
        if case.op != "allreduce" or os.environ.get("NCCL_NVLS_ENABLE") == "0":
            return None
        up = [
            link
            for gpu in gpus
            for link in self.topology.bundles(gpu.id)
            if self.topology.by_id[link.other(gpu.id)].kind == "nvswitch"
        ]
        archs = [gpu.fact("sm") for gpu in gpus]
        switches = {end for link in up for end in (link.a, link.b)} - {gpu.id for gpu in gpus}
        if len(up) != len(gpus) or len(switches) != 1 or min(map(_number, archs)) < _LEAST_NVLS:
            return None
        slowest = min(up, key=lambda link: link.usable_gbs or 0.0)
        gbs = best_gbs(slowest, "stores")
        if not gbs:
            return None
        name = f"{slowest.a.upper()} -> {slowest.b.upper()}, {link_label(slowest)}"
        return Bound(
            gbs=gbs * case.ranks / (case.ranks + 1), limit=f"{name}, sums in the switch (NVLS)"
        )

    def orders(self, ranks: int) -> Orders:
        """The ring orders of the first `ranks` ranks that use the links best."""
        if ranks not in self._rings:
            self._rings[ranks] = rings(self.topology, self.gpus[:ranks])
        return self._rings[ranks]

    def hosts(self, ranks: int) -> tuple[int, ...]:
        """The hosts of the first `ranks` ranks if there are several. Hosts whose GPUs share an
        NVLink switch count as one.
        """
        return host_numbers(self._place_of[:ranks])

    def orders_for(self, case: Case) -> Orders:
        """The ring orders in which the algorithm of the case has the highest ceiling; none where
        the order of the ranks is as good.
        """
        if case.ranks > len(self.gpus):
            return ()
        key = case.op, case.algo, case.ranks, case.root
        if key not in self._orders:
            orders, plain = self.orders(case.ranks), (tuple(range(case.ranks)),)
            if orders == plain:
                orders = ()
            elif case.algo in algorithms_of(case.op):
                orders = max(
                    [(), orders, trees(self.topology, self.gpus[: case.ranks])],
                    key=lambda orders: self._gbs(case, orders),
                )
            self._orders[key] = orders
        return self._orders[key]

    def site_of(self, ranks: int) -> Site:
        """Where the first `ranks` ranks run. Raises RefusedError if there are too few GPUs."""
        if ranks > len(self.gpus):
            raise RefusedError(
                f"{self.topology.name} has {len(self.gpus)} GPUs, not {ranks}", "use fewer --ranks"
            )
        if ranks not in self._sites:
            wiring = replace(self.site.wiring, gpus=self.gpus[:ranks])
            self._sites[ranks] = replace(self.site, wiring=wiring)
        return self._sites[ranks]

    def price(self, plan: Plan, *, is_alone: bool = False) -> float:
        """Seconds of one launch. Raises RefusedError as gpu_price does."""
        return gpu_price(plan, self.site_of(plan.n), is_alone=is_alone)

    def busy(self, plan: Plan) -> dict[str, float]:
        """Seconds that what is busiest of each kind is at work, which the price is not below.
        Raises RefusedError as gpu_price does.
        """
        return busy_seconds(work_of(plan), self.site_of(plan.n))

    def described(self, limits: Limits, ranks: int) -> Limits:
        """The limits of ranks on the GPUs of a described machine."""
        gpus = [self.topology.by_id[gpu] for gpu in self.gpus[:ranks]]
        archs = {gpu.fact("sm") or gfx_name(gpu.fact("gcn")) for gpu in gpus}
        names = {gpu.name for gpu in gpus}
        return replace(
            limits,
            ctas=min(map(multiprocessors, archs)),
            has_clusters=all(arch.isdigit() and int(arch) >= 90 for arch in archs),
            has_lines=keeps_lines(archs),
            has_peers=all(
                status in ("OK", "U")
                for (a, b, what), status in self.topology.p2p.items()
                if what in ("read", "write") and {a, b} <= {*self.gpus[:ranks]}
            ),
            model=names.pop() if len(names) == 1 else "",
            hosts=self.hosts(ranks),
            is_gpu=True,
        )

    def _gbs(self, case: Case, orders: Orders) -> float:
        """The ceiling of the case's algorithm in those orders; 0 if it does not serve the case or
        the links are not known.
        """
        try:
            schedule = along(
                case.op, case.algo, case.ranks, case.root, orders, self.hosts(case.ranks)
            )
            top = bound(self.topology, self.gpus, pair_traffic(schedule))
        except ScheduleError:
            return 0.0
        return top.gbs if top is not None else 0.0


def _engine(case: Case, transport: str) -> Engine:
    """What moves the bytes: copy engines by transport ce, in an MPI library, which copies between
    GPUs by CUDA, and in NCCL where NCCL_CTA_POLICY=ZERO lets it and nothing is summed; else kernels
    that store.
    """
    policy = {*os.environ.get("NCCL_CTA_POLICY", "").upper().split("|")}
    may_copy = policy & {"ZERO", "2"} and not collective(case.op).is_reduction
    is_copied = (
        transport == "ce"
        or case.backend == "mpi"
        or (library_of(case.backend) == "nccl" and may_copy)
    )
    return "copy engines" if is_copied else "stores"


def _number(arch: str) -> int:
    """A compute capability as a number, 0 for what is none."""
    return int(arch) if arch.isdigit() else 0


def _place(topology: Topology, gpu: str) -> str | int:
    """The switch that joins a GPU to those of other hosts, or else its host."""
    near = [topology.by_id[link.other(gpu)] for link in topology.links_of[gpu]]
    return next(
        (node.id for node in near if node.kind == "nvswitch" and node.host < 0),
        topology.by_id[gpu].host,
    )


def is_far_below(busbw_gbs: float, seconds: float, ceiling_gbs: float) -> bool:
    """Whether the rate of a row needs an explanation: it is far below its ceiling, at a size where
    latency does not explain it.

    >>> is_far_below(100, 1e-3, 360), is_far_below(1, 3e-6, 360)
    (True, False)
    """
    return (
        busbw_gbs < FAR_BELOW_SHARE * ceiling_gbs
        and seconds * busbw_gbs / ceiling_gbs > FAR_BELOW_FROM_S
    )


@lru_cache(maxsize=64)
def _all(
    op: OpName, n: int, root: int, orders: Orders, hosts: tuple[int, ...]
) -> list[Mapping[tuple[int, int], Fraction]]:
    """The traffic between ranks of each of our schedules of a collective: in the order of the
    ranks, and with an equal part in each of the orders.
    """
    in_order = World(n=n, root=root, hosts=hosts)
    spread = [replace(in_order, order=order) for order in orders]
    traffics: list[Mapping[tuple[int, int], Fraction]] = []
    for algo in algorithms_of(op):
        for worlds in ([in_order], spread):
            try:
                parts = [pair_traffic(registered(op, algo, world)) for world in worlds]
            except ScheduleError:
                continue
            total: dict[tuple[int, int], Fraction] = {}
            for part in parts:
                for pair, share in part.items():
                    total[pair] = total.get(pair, Fraction(0)) + share
            traffics.append({pair: share / len(parts) for pair, share in total.items()})
    return traffics
