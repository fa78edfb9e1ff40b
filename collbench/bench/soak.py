"""A soak: the points of a sweep as configurations, in bursts until the time is up, and a line for
each that failed. A burst is launches back to back at random sizes, with random pauses on every
rank, all of them verified.

It finds faults that single measurements cannot find: those that need a rank to be early or late, an
empty channel, or a launch of another size than the one before.
"""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from collbench.bench.points import SessionKey, SweepPoint
from collbench.bench.runner import Measurement
from collbench.core.errors import (
    CollbenchError,
    RefusedError,
    ScheduleError,
    UnavailableError,
    UsageError,
)
from collbench.core.group import Group
from collbench.core.options import Settings
from collbench.core.pattern import Wrong
from collbench.core.screen import say
from collbench.core.units import format_duration, format_size
from collbench.planning.plan import Plan

BACKENDS = ("cuda", "cpu")  # whose sessions can be stressed
LAUNCHES = 48  # queued before the host compares
PAUSES_NS = (0, 3_000, 30_000, 300_000)  # the longest pause of a rank before a launch


def run_stress(
    points: list[SweepPoint], group: Group, settings: Settings, seconds: float, seed: int
) -> int:
    """Soak our engines; returns the exit code: 1 if anything was wrong."""
    live = [point for point in points if not point.waived and point.case.backend in BACKENDS]
    if not live:
        raise _nothing_to_soak(points)
    measurement = Measurement(live, group, settings)
    launches = failures = 0
    seen: set[int] = set()
    try:
        measurement.open()
        waived, live = live, [point for point in live if not point.waived]
        if not live:
            raise _nothing_to_soak(waived)
        for burst in stress(live, measurement.sessions, seconds, seed):
            case = burst.point.case
            if burst.refused:
                say(
                    f"waived: {case.op} {case.algo} {case.proto} {format_size(case.size_bytes)}"
                    f" {case.channels} ch: {burst.refused}"
                )
                continue
            launches += LAUNCHES
            seen.add(id(burst.point))
            if burst.wrong:
                failures += 1
                first = burst.wrong[0]
                say(
                    f"wrong: {case.op} {case.algo} {case.proto} {format_size(case.size_bytes)}"
                    f" {case.channels} ch, pauses up to {burst.pause_ns} ns:"
                    f" {sum(wrong.count for wrong in burst.wrong)} elements, first on rank"
                    f" {first.rank} at {first.index}"
                )
    finally:
        measurement.close()
    say(
        f"soaked {format_duration(seconds)}: {launches} launches of {len(seen)} of {len(live)}"
        f" configurations, seed {seed}; {failures} bursts wrong"
    )
    return 1 if failures else 0


def _nothing_to_soak(points: list[SweepPoint]) -> CollbenchError:
    """Why no point can be soaked: the sweep has none of ours, or they cannot run here."""
    hint = f"give --backend {' or '.join(BACKENDS)}"
    reason = next(
        (point.waived for point in points if point.waived and point.case.backend in BACKENDS), ""
    )
    if reason:
        return UnavailableError(f"nothing to soak: {reason}", hint)
    return UsageError("--soak runs our own collectives, and no point of the sweep does", hint)


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
