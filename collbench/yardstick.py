"""What a case could reach on the wires under it: its ceiling in GB/s, and the hop that sets it.

The traffic is the schedule's own; the protocol's share is what a slot carries of what it takes on the wire. A library's algorithm is not
known, so its rows are measured by the best of ours.
"""

from collections.abc import Sequence
from functools import lru_cache

from collbench.case import Case
from collbench.collectives import collective
from collbench.errors import ScheduleError
from collbench.passes import pair_traffic
from collbench.plan import Plan, registered
from collbench.protocols import FAMILY as PROTOCOLS
from collbench.schedule import Schedule
from collbench.topology.ceiling import Ceiling, ceiling
from collbench.topology.model import Topology
from collbench.tuning import algorithms_of
from collbench.world import World

_SLOT_BYTES = 1 << 20  # large enough for whole lines
FAR_BELOW = 0.6  # of the ceiling: what a row of this size should pass
FAR_BELOW_FROM_S = 100e-6  # from where on bytes, not latency, take the time: S at the ceiling takes so long


def efficiency(proto: str) -> float:
    """Payload over bytes on the wire.

    >>> efficiency("ll"), efficiency("ll128"), efficiency("simple")
    (0.5, 0.9375, 1.0)
    """
    return float(PROTOCOLS.load(proto).payload_bytes(_SLOT_BYTES)) / _SLOT_BYTES


class Yardstick:
    """A topology, and on which of its GPUs each rank runs."""

    def __init__(self, topology: Topology, gpus: Sequence[str]) -> None:
        self.topology, self.gpus = topology, tuple(gpus)
        self._known: dict[tuple[str, str, int, int, str], Ceiling | None] = {}

    def of(self, case: Case, plan: Plan | None) -> Ceiling | None:
        """The ceiling of a case, as bus bandwidth; None if it is not known."""
        if case.ranks > len(self.gpus):
            return None
        proto = case.proto if plan is not None and case.proto in PROTOCOLS.names() else "simple"
        key = (case.op, plan.schedule.name if plan is not None else "", case.ranks, case.root, proto)
        if key not in self._known:
            schedules = [plan.schedule] if plan is not None else _all(case.op, case.ranks, case.root)
            found = [self._of(schedule, proto) for schedule in schedules]
            self._known[key] = max((one for one in found if one is not None), key=lambda one: one.gbs, default=None)
        return self._known[key]

    def _of(self, schedule: Schedule, proto: str) -> Ceiling | None:
        found = ceiling(self.topology, self.gpus, pair_traffic(schedule))
        if found is None:
            return None
        return Ceiling(gbs=found.gbs * collective(schedule.op).factor(schedule.n) * efficiency(proto), limit=found.limit)


def is_far_below(busbw_gbs: float, seconds: float, ceiling_gbs: float) -> bool:
    """Whether a row's rate wants an explanation: far below what its wires allow, at a size where latency does not explain it.

    >>> is_far_below(100, 1e-3, 360), is_far_below(1, 3e-6, 360)
    (True, False)
    """
    return busbw_gbs < FAR_BELOW * ceiling_gbs and seconds * busbw_gbs / ceiling_gbs > FAR_BELOW_FROM_S


@lru_cache(maxsize=64)
def _all(op: str, n: int, root: int) -> list[Schedule]:
    """Our schedules of a collective for so many ranks."""
    found = []
    for algo in algorithms_of(op):
        try:
            found.append(registered(op, algo, World(n=n, root=root)))
        except ScheduleError:
            continue
    return found
