"""Soaks: launches back to back in random sizes, with random pauses on every rank, each compared,
until the time is up.

It finds what single measurements cannot: faults that need a rank to be early or late, a channel to
be empty, or a launch to be of another size than the one before.
"""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.bench.runner import Point
from collbench.planning.plan import Plan
from collbench.spec.pattern import Wrong
from collbench.util.errors import RefusedError, ScheduleError

LAUNCHES = 48  # queued before the host looks
PAUSES_NS = (0, 3_000, 30_000, 300_000)  # longest pause of a rank before a launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """LAUNCHES launches of one plan: block counts, longest pause, and what was wrong."""

    point: Point
    counts: tuple[int, ...]
    pause_ns: int
    wrong: tuple[Wrong, ...] = ()
    refused: str = ""  # why the plan cannot run here: it does not come again


def soak(
    points: Sequence[Point], sessions: Mapping[Any, Any], seconds: float, seed: int
) -> Iterator[Burst]:
    """Bursts of random plans and sizes until the time is up; every plan comes once before any comes
    again. Raises what a session raises, but ScheduleError and RefusedError, which say that a plan
    cannot run here.
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
                wrong = sessions[point.case.backend, point.case.ranks].soak(
                    point.plan, counts, pause_ns
                )
            except (RefusedError, ScheduleError) as error:
                left.remove(point)
                yield Burst(point=point, counts=counts, pause_ns=pause_ns, refused=error.text)
            else:
                yield Burst(point=point, counts=counts, pause_ns=pause_ns, wrong=wrong)


def _counts(chance: random.Random, plan: Plan) -> tuple[int, ...]:
    """Block counts: the plan's own for half of the bursts, which runs its own kernel; else anything
    up to it, small ones as often as large.
    """
    most = plan.problem.block_count
    if chance.random() < 0.5:
        return (most,) * LAUNCHES
    return tuple(
        max(1, min(most, int(most ** chance.random()) + chance.randrange(4)))
        for _ in range(LAUNCHES)
    )
