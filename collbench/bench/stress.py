"""The stress test: launches back to back at random sizes, with random pauses on every rank, all of
them verified, for a given time.

It finds faults that single measurements cannot find: those that need a rank to be early or late, an
empty channel, or a launch of another size than the one before.
"""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from collbench.bench.points import SessionKey, SweepPoint
from collbench.core.errors import RefusedError, ScheduleError
from collbench.core.pattern import Wrong
from collbench.planning.plan import Plan

BACKENDS = ("cuda", "cpu")  # whose sessions can be stressed
LAUNCHES = 48  # queued before the host compares
PAUSES_NS = (0, 3_000, 30_000, 300_000)  # the longest pause of a rank before a launch


class StressSession(Protocol):
    """A session that can run launches of other sizes than a plan's."""

    def stress(self, plan: Plan, counts: Sequence[int], delay_ns: int) -> tuple[Wrong, ...]:
        """As many launches with random pauses, on GPUs each of its own of these block counts, on
        CPUs all of the first; what was wrong.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """LAUNCHES launches of one plan: the block counts, the longest pause, and what was wrong."""

    point: SweepPoint
    counts: tuple[int, ...]
    pause_ns: int
    wrong: tuple[Wrong, ...] = ()
    refused: str = ""  # why the plan cannot run here; it is not tried again


def stress(
    points: Sequence[SweepPoint], sessions: Mapping[SessionKey, object], seconds: float, seed: int
) -> Iterator[Burst]:
    """Bursts of random plans and sizes until the time is up; every plan runs once before any runs
    again. Raises the errors of a session except ScheduleError and RefusedError, which say that a
    plan cannot run here.

    sessions: those of BACKENDS, by (backend, ranks).
    """
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    left = list(points)
    while left:
        for point in chance.sample(left, len(left)):
            if time.monotonic() > end:
                return
            assert point.plan is not None
            counts, pause_ns = _counts(chance, point.plan), chance.choice(PAUSES_NS)
            try:
                session = cast(StressSession, sessions[point.case.backend, point.case.ranks])
                wrong = session.stress(point.plan, counts, pause_ns)
            except (RefusedError, ScheduleError) as error:
                left.remove(point)
                yield Burst(point=point, counts=counts, pause_ns=pause_ns, refused=error.text)
            else:
                yield Burst(point=point, counts=counts, pause_ns=pause_ns, wrong=wrong)


def _counts(chance: random.Random, plan: Plan) -> tuple[int, ...]:
    """The block counts of a burst: for half of the bursts, and for all of unequal blocks, that of
    the plan, which runs its own kernel; otherwise random ones up to it, evenly distributed on a
    logarithmic scale.
    """
    most = plan.problem.block_count
    if plan.problem.counts or chance.random() < 0.5:
        return (most,) * LAUNCHES
    return tuple(
        max(1, min(most, int(most ** chance.random()) + chance.randrange(4)))
        for _ in range(LAUNCHES)
    )
