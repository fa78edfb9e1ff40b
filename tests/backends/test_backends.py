"""Backends against the reference: bit for bit, on random inexact data, for registered schedules and
for ones that nobody registered.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.backends import reference, repeat
from collbench.backends.base import Batch
from collbench.backends.cpu import backend as cpu
from collbench.backends.repeat import rotations
from collbench.core.collectives import OPS, OpName, collective
from collbench.core.dtypes import DTYPES, REDOPS, DtypeName, RedopName
from collbench.core.dtypes import dtype as kind_of
from collbench.core.errors import ScheduleError
from collbench.launch.local import LocalGroup
from collbench.planning.layout import lay_out
from collbench.planning.plan import Plan
from collbench.schedules.ir import Schedule
from tests.support.batteries import CPU_PROTOCOLS as PROTOS
from tests.support.batteries import PAIRS, assert_right, plan_of, problem, random_inputs
from tests.support.random_schedules import random_schedule
from tests.support.tiers import tiered

GROUP = LocalGroup()
BIG = 6 << 20  # bytes of arena that every plan of these tests fits in


# whether direct, protocol
WAYS = ((False, "simple"), (True, "simple"), (False, "ll"), (False, "ll128"))
WIDTHS: tuple[DtypeName, ...] = ("int8", "float16", "float32", "float64")
MIXED: tuple[tuple[OpName, str, bool, bool, int], ...] = (
    ("allreduce", "ring", True, True, 2),
    ("allgather", "direct", True, True, 3),
    ("broadcast", "tree", False, False, 1),
    ("allreduce", "halving", False, True, 1),
    ("reduce", "twoshot", False, True, 2),
    ("alltoall", "direct", False, False, 3),
)


class Crowd:
    """cpu sessions kept open, one for each number of ranks: forking anew for every example would
    take the test's time.
    """

    def __init__(self) -> None:
        self.sessions: dict[int, cpu.CpuSession] = {}

    def once(self, plan: Plan, inputs: list[np.ndarray]) -> list[np.ndarray]:
        if plan.n not in self.sessions:
            largest = plan_of(
                problem("alltoall", plan.n, count=BIG // plan.n // plan.n // 8), "direct"
            )
            self.sessions[plan.n] = cpu.CpuSession(GROUP, [largest, plan], hot=True)
        return self.sessions[plan.n].once(plan, inputs)


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    found = Crowd()
    yield found
    for session in found.sessions.values():
        session.close()


def expected(plan: Plan, inputs: list[np.ndarray]) -> list[np.ndarray]:
    return reference.ReferenceSession().once(plan, inputs)


def assert_same_bits(ours: list[np.ndarray], theirs: list[np.ndarray], plan: Plan) -> None:
    for rank in range(plan.n):
        if collective(plan.problem.op).wants(plan.n, plan.problem.root, rank):
            assert ours[rank].tobytes() == theirs[rank].tobytes(), f"rank {rank} of {plan.problem}"


@tiered(("op", "algo"), PAIRS, 6)
@tiered("has_all", [False, True], 1, ids=["another protocol each", "all"])
def test_cpu_equals_reference(crowd: Crowd, op: OpName, algo: str, has_all: bool) -> None:
    for n, seed in ((2, 1), (3, 2), (5, 3)):
        for direct in (False, True):
            what = problem(op, n, root=n - 1 if collective(op).is_rooted else 0, count=611)
            knobs = {"channels": 1 + seed % 2, "slices": 1 if direct else 1 + seed % 2}
            plan = plan_of(what, algo, direct=direct, chunk_bytes=256, slots=3, **knobs)
            inputs = random_inputs(what, seed)
            wanted = expected(plan, inputs)
            known = PROTOS
            every = ("simple",) if direct else known if has_all else (known[seed % len(known)],)
            for proto in every:
                assert_same_bits(crowd.once(replace(plan, proto=proto), inputs), wanted, plan)


SUMS: tuple[tuple[OpName, str], ...] = (
    ("allreduce", "twoshot"),
    ("reducescatter", "direct"),
    ("allreduce", "ring"),
)


@tiered(
    ("dtype", "redop", "op", "algo"),
    [(dtype, redop, *way) for dtype in DTYPES for redop in REDOPS for way in SUMS],
    [
        (dtype, redop, *SUMS[(i + j) % len(SUMS)])
        for i, dtype in enumerate(DTYPES)
        for j, redop in enumerate(REDOPS)
        if (i + j) % 2 == 0
    ],
)
def test_every_type_and_reduction(
    crowd: Crowd, dtype: DtypeName, redop: RedopName, op: OpName, algo: str
) -> None:
    what = problem(op, 3, count=1009, dtype=dtype, redop=redop)
    inputs = random_inputs(what, 7)
    for direct in (False, True) if algo == "twoshot" else (False,):
        plan = plan_of(what, algo, chunk_bytes=512, direct=direct)
        assert_right(plan)
        wanted = expected(plan, inputs)
        for proto in ("simple",) if direct else PROTOS:
            assert_same_bits(crowd.once(replace(plan, proto=proto), inputs), wanted, plan)


@pytest.mark.parametrize(("dtype", "largest"), [("float8_e4m3fn", 448.0), ("float8_e5m2", 57344.0)])
def test_fp8_results_beyond_the_range_become_its_ends(
    crowd: Crowd, dtype: DtypeName, largest: float
) -> None:
    what = problem("allreduce", 3, count=64, dtype=dtype, redop="prod")
    plan = plan_of(what, "ring", chunk_bytes=64)
    one = np.array([-largest, *[largest] * 62, np.nan]).astype(kind_of(dtype).numpy())
    for outputs in (crowd.once(plan, [one] * 3), expected(plan, [one] * 3)):
        for found in (output.astype(np.float32) for output in outputs):
            assert np.isnan(found[-1])
            assert found[:-1].tolist() == [-largest, *[largest] * 62]


@pytest.mark.exhaustive
@settings(max_examples=30)
@given(
    schedule=random_schedule,
    count=st.integers(1, 300),
    knobs=st.fixed_dictionaries(
        {"channels": st.integers(1, 3), "slots": st.integers(2, 5), "slices": st.integers(1, 2)}
    ),
    way=st.sampled_from(WAYS),
    dtype=st.sampled_from(WIDTHS),
    seed=st.integers(0, 99),
)
def test_schedules_that_nobody_registered(
    crowd: Crowd,
    schedule: Schedule,
    count: int,
    knobs: dict[str, Any],
    way: tuple[bool, str],
    dtype: DtypeName,
    seed: int,
) -> None:
    what, (direct, proto) = problem(schedule.op, schedule.n, count=count, dtype=dtype), way
    try:
        plan = lay_out(what, schedule, direct=direct, proto=proto, chunk_bytes=128, **knobs)
    except ScheduleError as error:
        assert "deadlocks" in error.message  # too few slots for this one: refused, not run
        return
    assert_right(plan)
    inputs = random_inputs(what, seed)
    assert_same_bits(crowd.once(plan, inputs), expected(plan, inputs), plan)


def test_cpu_measures_and_verifies() -> None:
    plan = plan_of(problem("allreduce", 2, count=5000), "ring", chunk_bytes=4096)
    with closing(cpu.CpuSession(GROUP, [plan], hot=False)) as session:
        batch = Batch(iterations=7, aggregate=2, blocking=True, single_launches=31)
        samples = session.run(plan, batch)
    assert samples.iterations == 7
    assert samples.wrong == ()
    assert len(samples.launch_times_s) == 31
    assert min(samples.launch_times_s) > 0
    assert len(samples.seconds) == 2
    assert all(seconds > 0 for seconds in samples.seconds)


def test_the_clock_runs_from_the_barrier_to_the_end_of_a_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0

    def takes(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr(time, "perf_counter", lambda: now_s)

    launches = [partial(takes, seconds) for seconds in (9.0, 1.0, 2.0, 3.0)]
    assert repeat.clocked(launches, partial(takes, 50.0)) == (1.0, 2.0, 3.0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("hot", [True, False])
def test_cpu_runs_back_to_back_launches_of_many_plans(
    monkeypatch: pytest.MonkeyPatch, hot: bool
) -> None:
    """Counters, slots and pulls over launches and over plans that share one arena; hot with
    messages of many loops, cold with ones of a single element.
    """
    monkeypatch.setattr(repeat, "MAX_ROTATIONS", 8)
    knobs = {"chunk_bytes": 192, "slots": 2}
    plans = [
        replace(plan_of(what, algo, direct=direct, channels=channels, **knobs), proto=proto)
        for count in ((100, 2000) if hot else (1, 100))
        for op, algo, in_place, direct, channels in MIXED
        for what in (problem(op, 3, count=count, in_place=in_place),)
        for proto in (PROTOS if count == 100 and not direct else ("simple",))
    ]
    with closing(cpu.CpuSession(GROUP, plans, hot=hot)) as session:
        for _ in range(2):
            for plan in plans:
                assert session.run(plan, Batch(iterations=3)).wrong == ()


def test_rotations_pass_the_cache_unless_hot() -> None:
    assert rotations(problem("allreduce", 2, count=1 << 16), hot=True) == 1
    assert rotations(problem("allreduce", 2, count=1 << 16), hot=False) > 1
    assert rotations(problem("allreduce", 2, count=1 << 28), hot=False) == 1


def test_no_backend_names_an_algorithm_or_a_collective() -> None:
    """Peers translate collectives to a library's functions; ours must not know any."""
    from pathlib import Path

    from collbench.schedules.algorithms import FAMILY

    usual = {"direct", "reduce", "chain", "star", "scatter", "gather", "broadcast"}
    names = {*FAMILY.names(), *OPS} - usual
    for file in Path(cpu.__file__).parent.glob("*.py"):
        code = "\n".join(
            line.split("#")[0]
            for line in file.read_text().splitlines()
            if not line.lstrip().startswith(('"', "'"))
        )
        assert not [name for name in names if f'"{name}"' in code], file.name
