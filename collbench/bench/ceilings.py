"""What a case could reach on the wires under it: its ceiling in GB/s, the hop that sets it, and the
algorithm of the lowest price.

The traffic is the schedule's own; the protocol's share is what a slot carries of what it takes on
the wire. A library's algorithm is not known, so its rows are measured by the best of ours, in the
numbering of the ranks or spread over all orders that the wires allow side by side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from collbench.machine.topology.ceiling import Ceiling, ceiling
from collbench.machine.topology.model import Topology
from collbench.machine.topology.rings import rings, trees
from collbench.planning.choice import resolve
from collbench.planning.choice_gpu import Limits
from collbench.planning.cost import link_price
from collbench.planning.plan import Plan, along, registered
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.selection import algorithms_of
from collbench.schedules.passes import pair_traffic
from collbench.spec.case import Case
from collbench.spec.collectives import OpName, collective
from collbench.spec.world import World, host_numbers
from collbench.util.errors import ScheduleError, UsageError

Orders = tuple[tuple[int, ...], ...]
_SLOT_BYTES = 1 << 20  # large enough for whole lines
FAR_BELOW = 0.6  # of the ceiling: what a row of this size should pass
# from where on bytes, not latency, take the time: S at the ceiling takes so long
FAR_BELOW_FROM_S = 100e-6


def efficiency(proto: str) -> float:
    """Payload over bytes on the wire.

    >>> efficiency("ll"), efficiency("ll128"), efficiency("simple")
    (0.5, 0.9375, 1.0)
    """
    return float(PROTOCOLS.load(proto).payload_bytes(_SLOT_BYTES)) / _SLOT_BYTES


class Ceilings:
    """A topology, and on which of its GPUs each rank runs."""

    def __init__(self, topology: Topology, gpus: Sequence[str]) -> None:
        self.topology, self.gpus = topology, tuple(gpus)
        self._place_of = [_place(topology, gpu) for gpu in self.gpus]
        self._orders: dict[tuple[str, str, int, int], Orders] = {}
        self._cheapest: dict[Case, str] = {}
        self._known: dict[tuple[str, str, int, int, str, bool], Ceiling | None] = {}

    def of(self, case: Case, plan: Plan | None) -> Ceiling | None:
        """The ceiling of a case, as bus bandwidth; None if it is not known."""
        if case.ranks > len(self.gpus):
            return None
        proto = case.proto if plan is not None and case.proto in PROTOCOLS.names() else "simple"
        through_host = (
            plan is not None and plan.kernel is not None and plan.transport in ("shm", "shm+net")
        )
        if (
            plan is not None
            and plan.kernel is not None
            and plan.transport == "net"
            and not self.hosts(case.ranks)
        ):
            return None  # processors copy messages inside a host, at a rate that no wire tells
        key = (
            case.op,
            plan.schedule.name if plan is not None else "",
            case.ranks,
            case.root,
            proto,
            through_host,
        )
        if key not in self._known:
            ways = (
                [pair_traffic(plan.schedule)]
                if plan is not None
                else _all(
                    case.op, case.ranks, case.root, self.orders(case.ranks), self.hosts(case.ranks)
                )
            )
            found = [
                one
                for traffic in ways
                if (one := ceiling(self.topology, self.gpus, traffic, through_host=through_host))
                is not None
            ]
            best, share = (
                max(found, key=lambda one: one.gbs, default=None),
                collective(case.op).factor(case.ranks) * efficiency(proto),
            )
            self._known[key] = (
                None if best is None else Ceiling(gbs=best.gbs * share, limit=best.limit)
            )
        return self._known[key]

    def orders(self, ranks: int) -> Orders:
        """The orders of the first so many ranks that use the wires best."""
        return rings(self.topology, self.gpus[:ranks])

    def hosts(self, ranks: int) -> tuple[int, ...]:
        """The hosts of the first so many ranks, where they are on several; hosts whose GPUs share
        an NVLink switch are one.
        """
        return host_numbers(self._place_of[:ranks])

    def orders_for(self, case: Case) -> Orders:
        """The orders in which the case's algorithm gets most out of the wires; none where the
        numbering of the ranks does as well.
        """
        if case.ranks > len(self.gpus):
            return ()
        key = case.op, case.algo, case.ranks, case.root
        if key not in self._orders:
            found, plain = self.orders(case.ranks), (tuple(range(case.ranks)),)
            if found == plain:
                found = ()
            elif case.algo in algorithms_of(case.op):
                found = max(
                    [(), found, trees(self.topology, self.gpus[: case.ranks])],
                    key=lambda orders: self._gbs(case, orders),
                )
            self._orders[key] = found
        return self._orders[key]

    def cheapest(self, case: Case) -> str:
        """The algorithm of the lowest price (cost.wire_price) for what the case computes; "auto",
        which leaves it to a table, where none has a price.
        """
        problem = replace(case.rounded(), algo="auto")
        if problem not in self._cheapest:
            found = [
                (price, algo)
                for algo in algorithms_of(case.op)
                if (price := self._price(replace(problem, algo=algo))) is not None
            ]
            self._cheapest[problem] = min(found)[1] if found else "auto"
        return self._cheapest[problem]

    def _price(self, case: Case) -> float | None:
        """Seconds of one launch; None where the algorithm does not serve these ranks, or the wires
        are not known.
        """
        try:
            return link_price(
                resolve(
                    case, Limits(orders=self.orders_for(case), hosts=self.hosts(case.ranks))
                ).plan,
                self.topology,
            )
        except UsageError:
            return None

    def _gbs(self, case: Case, orders: Orders) -> float:
        """What the wires allow the case's algorithm in those orders; 0 where it is not served or
        not known.
        """
        try:
            schedule = along(
                case.op, case.algo, case.ranks, case.root, orders, self.hosts(case.ranks)
            )
            found = ceiling(self.topology, self.gpus, pair_traffic(schedule))
        except ScheduleError:
            return 0.0
        return found.gbs if found is not None else 0.0


def _place(topology: Topology, gpu: str) -> str | int:
    """The switch that joins a GPU to those of other hosts, or else its host."""
    near = [topology.by_id[link.other(gpu)] for link in topology.links_of[gpu]]
    return next(
        (node.id for node in near if node.kind == "nvswitch" and node.host < 0),
        topology.by_id[gpu].host,
    )


def is_far_below(busbw_gbs: float, seconds: float, ceiling_gbs: float) -> bool:
    """Whether a row's rate wants an explanation: far below what its wires allow, at a size where
    latency does not explain it.

    >>> is_far_below(100, 1e-3, 360), is_far_below(1, 3e-6, 360)
    (True, False)
    """
    return (
        busbw_gbs < FAR_BELOW * ceiling_gbs and seconds * busbw_gbs / ceiling_gbs > FAR_BELOW_FROM_S
    )


@lru_cache(maxsize=64)
def _all(
    op: OpName, n: int, root: int, orders: Orders, hosts: tuple[int, ...]
) -> list[Mapping[tuple[int, int], Fraction]]:
    """What our schedules of a collective send from rank to rank: as the ranks are numbered, and an
    equal part in each of the orders.
    """
    found: list[Mapping[tuple[int, int], Fraction]] = []
    for algo in algorithms_of(op):
        for side_by_side in ((),), orders:
            try:
                parts = [
                    pair_traffic(
                        registered(op, algo, World(n=n, root=root, order=order, hosts=hosts))
                    )
                    for order in side_by_side
                ]
            except ScheduleError:
                continue
            pairs = dict.fromkeys(pair for part in parts for pair in part)
            found.append(
                {
                    pair: (
                        sum((part.get(pair, Fraction(0)) for part in parts), Fraction(0))
                        / len(parts)
                    )
                    for pair in pairs
                }
            )
    return found
