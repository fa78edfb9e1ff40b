"""The floor of a row: the least time that its launch can take, whoever runs it.

It is the least launch of these ranks that exchanges a flag, measured beside the row, and the time
of the bytes that must move, at the best rate that was measured (docs/explanation/floors.md). What
is measured is the best of the run: a busy machine makes a floor too high, and never too low.
"""

import time
from dataclasses import dataclass, field

import numpy as np

from collbench.backends.base import Session
from collbench.bench.estimate import is_gpu
from collbench.bench.points import Job, SessionKey, SweepPoint
from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.errors import CollbenchError, RankLostError
from collbench.planning.links import RankLinks

_COPIES = tuple(1 << bits for bits in range(12, 25, 2))  # bytes
_COPIED, _TRIES = 1 << 20, 4  # bytes of a try at least


@dataclass(slots=True)
class Floors:
    """What was measured in a run, the best of all times. flags_s: of the least launch of a session,
    in which a flag goes both ways, one way or none. rates: bytes a second of one process that
    copies so many bytes. failed: sessions that have no least launch.
    """

    flags_s: dict[tuple[SessionKey, int], float] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)
    failed: set[SessionKey] = field(default_factory=set)

    def measure(self, point: SweepPoint, session: Session[Job], limit_s: float) -> None:
        """Measure once more what the floor of a point is made of."""
        for ways in _ways(point.case):
            try:
                seconds = session.flag_s(limit_s, ways)
            except RankLostError:
                raise
            except CollbenchError:
                self.failed.add(point.session)
                seconds = 0.0
            key = point.session, ways
            self.flags_s[key] = min(seconds, self.flags_s.get(key, seconds))
        if not on_gpus(point.case):
            for size, rate in copy_rates().items():
                self.rates[size] = max(rate, self.rates.get(size, rate))

    def has(self, point: SweepPoint) -> bool:
        """Whether that was measured at all."""
        return all((point.session, ways) in self.flags_s for ways in _ways(point.case))

    def floor_s(self, point: SweepPoint, links: RankLinks | None) -> float:
        """Seconds that a launch of a point takes at least; 0 if that is not known."""
        if not self.has(point):
            return 0.0
        if not on_gpus(point.case):
            moving_s = self._copying_s(moved_bytes(point.case))
        elif point.together is not None:
            return 0.0
        else:
            moving_s = _on_links_s(point, links) if links is not None else 0.0
        if is_mutual(point.case):
            return self.flags_s[point.session, 2] + moving_s
        # bytes of the next launch may be on their way while the flag is
        none_s, one_way_s = (self.flags_s[point.session, ways] for ways in (0, 1))
        return max(one_way_s, none_s + moving_s)

    def accusing_s(self, point: SweepPoint) -> float:
        """The part of the floor below which a row is not believed; 0: any time is. It is that of
        the bytes: cores that other processes want may slow each exchange of a flag. Of GPUs the
        rates are those that links should have, which a virtual machine may not show.
        """
        if not self.has(point) or on_gpus(point.case):
            return 0.0
        return self._copying_s(moved_bytes(point.case))

    def _copying_s(self, size: float) -> float:
        """Seconds in which one process copies so many bytes: at the best rate of as many or more,
        and of the next size below.
        """
        known = [rate for near, rate in self.rates.items() if 4 * near > size]
        return size / max(known or [self.rates[_COPIES[-1]]])


def is_mutual(case: Case) -> bool:
    """Whether each rank waits for another one in every launch: else ranks run ahead of each other
    and wait for no flag.
    """
    return not (case.is_together or collective(case.op).is_rooted or 0 in case.counts())


def _ways(case: Case) -> tuple[int, ...]:
    """In how many ways flags go in the launches that its floor is made of."""
    return (2,) if is_mutual(case) else (1, 0)


def on_gpus(case: Case) -> bool:
    """Whether the user buffers are in GPU memory."""
    return is_gpu(case) or case.buffers == "gpu"


def moved_bytes(case: Case) -> float:
    """Bytes that ranks write for each other, on average: what is no copy of a rank's own.

    >>> [
    ...     moved_bytes(Case(op=op, backend="cpu", ranks=4, size_bytes=4096))
    ...     for op in ("allreduce", "allgather", "broadcast", "scatter")
    ... ]
    [4096.0, 3072.0, 3072.0, 768.0]
    """
    total = 0
    for part, _, _ in case.parts():
        problem, is_sum = part.problem(), collective(part.op).is_reduction
        for rank in range(problem.n):
            sizes = [one.size for one in problem.blocks(rank) if is_sum or one.giver != rank]
            total += sum(sizes) * problem.item_bytes
    return total / case.ranks


def _on_links_s(point: SweepPoint, links: RankLinks) -> float:
    """Seconds in which the best of all schedules moves the bytes over the links."""
    case, plans = point.case, (None, point.plan)
    tops = [top.gbs for plan in plans if (top := links.ceiling(case, plan)) is not None]
    bus_bytes = case.size_bytes * collective(case.op).factor(case.ranks) * (case.imbalance or 1)
    return bus_bytes / (1e9 * max(tops)) if tops else 0.0


def copy_rates() -> dict[int, float]:
    """Bytes a second of this process, which copies so many from one buffer to another, the best of
    some tries. It takes 30 ms.
    """
    source, target = np.ones((2, _COPIES[-1]), np.uint8)
    rates: dict[int, float] = {}
    for size in _COPIES:
        given, taken, times = source[:size], target[:size], max(1, _COPIED // size)
        for _ in range(_TRIES):
            start = time.perf_counter()
            for _ in range(times):
                np.copyto(taken, given)
            rate = times * size / (time.perf_counter() - start)
            rates[size] = max(rate, rates.get(size, 0.0))
    return rates
