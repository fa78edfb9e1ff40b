"""Sentinel on GPUs made of NumPy arrays: slots that alternate and are cleared, whatever the ranks'
order, and what shows where a reader, a sender or a plan does not keep its part.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.core.case import Case, Problem
from collbench.core.collectives import OpName, collective
from collbench.core.dtypes import DTYPES, DtypeName
from collbench.core.errors import ScheduleError
from collbench.core.world import World
from collbench.planning.layout import lay_out, registered
from collbench.planning.limits import Limits
from collbench.planning.plan import Kernel, Plan, most_messages
from collbench.planning.planner import resolve
from collbench.schedules.ir import Schedule
from tests.support.batteries import PAIRS, placements, problem, world_of
from tests.support.device import Gpus, Run
from tests.support.device_wire import WireShare
from tests.support.random_schedules import random_schedule
from tests.support.tiers import tiered

RUNS = [Run(k % 2) for k in range(7)]
FLOATS: tuple[DtypeName, ...] = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")


def plan_of(what: Problem, schedule: Schedule, slots: int = 0, channels: int = 2) -> Plan:
    """A plan of one loop a channel, by default with as many slots as two launches fill."""
    return lay_out(
        what,
        schedule,
        p2p="push",
        channels=channels,
        slots=slots or 2 * most_messages(schedule),
        chunk_bytes=what.block_bytes + 16,
        kernel=Kernel(proto="sentinel", threads=64),
    )


def plan_for(op: OpName, algo: str, n: int, count: int, dtype: DtypeName = "float32") -> Plan:
    """A plan of a registered algorithm, in place for every other number of elements."""
    root = n // 2 if collective(op).is_rooted else 0
    in_place = count % 2 == 0 and True in placements(op)
    what = problem(op, n, root=root, count=count, dtype=dtype, in_place=in_place)
    return plan_of(what, registered(op, algo, world_of(algo, n, root)))


@tiered(("op", "algo"), PAIRS, 1)
def test_launches_that_run_ahead_are_right(op: OpName, algo: str) -> None:
    """Chunks of many lines, and so few elements that messages and channels are empty."""
    for number, n in enumerate((2, 3, 4, 8)):
        for count in (1, 3, 610):
            Gpus(plan_for(op, algo, n, count, FLOATS[number]), seed=count).run(*RUNS)


@pytest.mark.parametrize(("op", "algo"), [("allreduce", "twoshot"), ("scatter", "direct")])
def test_a_plan_serves_smaller_problems(op: OpName, algo: str) -> None:
    counts = (610, 1, 305, 3, 610, 2, 2, 610)
    gpus = Gpus(plan_for(op, algo, 4, 610), any_size=True)
    gpus.run(*(Run(k % 2, count) for k, count in enumerate(counts)))


@pytest.mark.exhaustive
@given(random_schedule, st.integers(1, 400), st.integers(1, 3), st.integers(0, 7))
@settings(max_examples=30)
def test_schedules_that_nobody_registered(
    schedule: Schedule, count: int, channels: int, seed: int
) -> None:
    what = problem(schedule.op, schedule.n, count=count, dtype=FLOATS[seed % len(FLOATS)])
    Gpus(plan_of(what, schedule, channels=channels), seed).run(*RUNS)


def assert_found(plan: Plan, message: str) -> None:
    """In one of some orders of events a launch writes to a slot that is not clear, or hangs."""
    with pytest.raises(AssertionError, match=message):
        for seed in range(20):
            Gpus(plan, seed).run(*RUNS)


def test_a_reader_that_does_not_clear_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        WireShare, "received", lambda wire, memory: memory.view("<u4")[wire.words].view("u1")
    )
    assert_found(plan_for("allreduce", "oneshot", 2, 100), "filled before it was cleared|wrong")


def test_a_word_that_never_comes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WireShare, "send", lambda wire, memory, payload, flag: None)
    assert_found(plan_for("allreduce", "oneshot", 2, 100), "all wait for each other")


@tiered(
    ("op", "algo", "slots"),
    [("broadcast", "direct", 2), ("gather", "direct", 2), ("allreduce", "oneshot", 1)],
    1,
)
def test_a_sender_that_runs_ahead_uncounted_is_found(op: OpName, algo: str, slots: int) -> None:
    """What receives nothing does not know that its peers have begun: it needs their counts. So does
    one that fills all slots in a launch.
    """
    plan = replace(plan_for(op, algo, 3, 100), slots=slots)
    all_gpus = [Gpus(plan, seed) for seed in range(20)]
    for gpus in all_gpus:
        assert {sizes["UNCREDITED"] for sizes in gpus.sizes} == {0}
        gpus.run(*RUNS)
    with pytest.raises(AssertionError, match="filled before it was cleared"):
        for gpus in all_gpus:
            gpus.sizes = [{**sizes, "UNCREDITED": 1} for sizes in gpus.sizes]
            gpus.run(*RUNS)


def test_slots_of_one_launch_are_too_few() -> None:
    plan = plan_for("allreduce", "oneshot", 2, 100)
    with pytest.raises(ScheduleError, match="needs 2 for two launches, not 1"):
        plan_of(plan.problem, plan.schedule, slots=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_without_a_free_pattern_are_refused(dtype: DtypeName) -> None:
    what, schedule = (
        problem("allreduce", 2, dtype=dtype),
        registered("allreduce", "oneshot", World(n=2)),
    )
    if dtype in FLOATS:
        assert plan_of(what, schedule).proto == "sentinel"
        return
    with pytest.raises(ScheduleError, match=f"{dtype} can be any bits"):
        plan_of(what, schedule)


@pytest.mark.parametrize("size", [64, 4096, 1 << 20, 16 << 20])
@pytest.mark.parametrize(
    ("op", "algo"),
    [
        *(("allreduce", algo) for algo in ("oneshot", "twoshot", "ring")),
        *((op, "direct") for op in ("allgather", "reducescatter", "alltoall", "broadcast")),
        *((op, "direct") for op in ("gather", "scatter", "sendrecv")),
    ],
)
def test_the_planner_lays_it_out_on_two_to_eight_gpus(op: OpName, algo: str, size: int) -> None:
    for n in (2, 4, 8):
        case = Case(
            op=op, algo=algo, proto="sentinel", backend="cuda", ranks=n, size_bytes=size
        ).rounded()
        plan = resolve(case, Limits(memory_bytes=4 << 30)).plan
        assert (plan.most_loops, plan.p2p) == (1, "push")
        assert plan.slots >= 2 * plan.most_messages
