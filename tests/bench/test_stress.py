"""Soaks without a GPU: which launches are asked for, and what is said of them. The session is a
stand-in; tests/gpu has the real one.
"""

import pickle
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pytest

from collbench.bench.points import SweepPoint
from collbench.bench.soak import LAUNCHES, PAUSES_NS, _counts, stress
from collbench.core.case import Case
from collbench.core.errors import CollbenchError, HangError, RefusedError, ScheduleError
from collbench.core.pattern import Wrong
from collbench.launch.driver import hang_error
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve


class Session:
    """Remembers what it was asked for; the first plan of a soak comes out wrong."""

    def __init__(self) -> None:
        self.asked: list[tuple[Plan, tuple[int, ...], int]] = []

    def stress(self, plan: Plan, counts: Sequence[int], pause_ns: int) -> tuple[Wrong, ...]:
        self.asked.append((plan, tuple(counts), pause_ns))
        wrong = Wrong(rank=1, count=3, index=7, got="?", wanted="?")
        return (wrong,) if plan is self.asked[0][0] else ()


def points() -> list[SweepPoint]:
    of = Case(op="allreduce", backend="cuda", proto="ll", ranks=4, size_bytes=4096)
    found = [resolve(replace(of, algo=algo)) for algo in ("ring", "oneshot", "tree")]
    return [SweepPoint(choice.case, choice.plan) for choice in found]


def test_every_plan_comes_before_any_comes_again() -> None:
    session, few = Session(), points()
    bursts = list(islice(stress(few, {("cuda", 4): session}, 60.0, seed=1), 6))
    assert (
        {id(plan) for plan, _, _ in session.asked[:3]}
        == {id(plan) for plan, _, _ in session.asked[3:]}
        == {id(point.plan) for point in few}
    )
    assert [bool(burst.wrong) for burst in bursts].count(True) == 2
    assert all(len(burst.counts) == LAUNCHES and burst.pause_ns in PAUSES_NS for burst in bursts)


@pytest.mark.parametrize("kind", [ScheduleError, RefusedError])
def test_a_plan_that_cannot_run_comes_once_with_the_reason(kind: type[CollbenchError]) -> None:
    class Choosy(Session):
        def stress(self, plan: Plan, counts: Sequence[int], pause_ns: int) -> tuple[Wrong, ...]:
            if plan.schedule.name == "ring":
                raise kind("too many CTAs")
            return super().stress(plan, counts, pause_ns)

    bursts = list(islice(stress(points(), {("cuda", 4): Choosy()}, 60.0, seed=1), 9))
    assert [burst.refused for burst in bursts if burst.refused] == ["too many CTAs"]
    assert {burst.point.case.algo for burst in bursts if not burst.refused} == {"oneshot", "tree"}


def test_the_end_of_time_and_nothing_to_soak_end_it() -> None:
    assert list(stress(points(), {("cuda", 4): Session()}, -1.0, seed=1)) == []
    assert list(stress([], {}, 60.0, seed=1)) == []


def test_counts_are_the_plans_own_or_anything_up_to_it() -> None:
    plan = points()[0].plan
    assert plan is not None
    most = plan.problem.block_count
    drawn = [_counts(random.Random(seed), plan) for seed in range(40)]
    own = [counts for counts in drawn if set(counts) == {most}]
    assert 5 < len(own) < 35
    mixed = [count for counts in drawn if counts not in own for count in counts]
    assert min(mixed) <= 4
    assert most // 2 < max(mixed) <= most


def test_of_several_waits_the_least_far_names_the_rank_at_the_root() -> None:
    waits = [
        HangError("rank 0 waited for rank 3", suspect=((2, 6), 3)),
        HangError("rank 1 waited for rank 0", suspect=((2, 3), 0)),
        HangError("rank 2 was told to stop"),
    ]
    assert (
        hang_error(waits).message
        == "rank 0 keeps the others waiting: rank 0 waited for rank 3; rank 1 waited for rank 0;"
        " rank 2 was told to stop"
    )


def test_suspects_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(HangError("late", "hint", suspect=((-1,), 2))))
    assert (error.message, error.hint, error.suspect) == ("late", "hint", ((-1,), 2))
