"""Copy engines: the queued commands give right outputs in any order in which streams may run, on a
simulated runtime; and the kernels compile.
"""

import re
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collbench.backends.base import Batch, GpuOptions
from collbench.backends.cuda.backend import CudaSession
from collbench.backends.cuda.copy_engine import ENGINE, MOVE, NOTE
from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.dtypes import DTYPES, REDOPS, DtypeName, RedopName
from collbench.core.errors import HangError, ScheduleError
from collbench.core.pattern import Wrong
from collbench.core.world import World
from collbench.device.compile import kernel_source, move_widths
from collbench.device.engine import CopyCommand, MoveCommand, SignalCommand, WaitCommand, script
from collbench.device.program import ctas, lower
from collbench.launch.local import LocalGroup
from collbench.planning.layout import lay_out, registered
from collbench.planning.limits import Limits
from collbench.planning.plan import Kernel, Plan
from collbench.planning.planner import resolve
from collbench.planning.selection import algorithms_of
from collbench.schedules.ir import Schedule
from tests.support.batteries import PAIRS, placements, problem
from tests.support.device import memory_of, place_of
from tests.support.gpus_in_threads import Machine, run_on
from tests.support.nvrtc import compiled_once
from tests.support.random_schedules import random_allreduce, random_blocks
from tests.support.structures import structure
from tests.support.tiers import tiered

ARCHS = (70, 80, 90, 100, 120)
KERNEL = Kernel(proto="simple", threads=64, unroll=2, ctas=4)
# several loops and uneven slices; one loop; empty channels
SHAPES: tuple[dict[str, Any], ...] = (
    {"count": 611, "channels": 2, "slots": 5, "chunk_bytes": 512, "slices": 2},
    {"count": 1024, "chunk_bytes": 1 << 20, "slots": 8, "slices": 3},
    {"count": 3, "channels": 3, "slots": 6, "chunk_bytes": 128},
)


def plan_of(schedule: Schedule, shape: int, *, direct: bool, **what: Any) -> Plan:
    knobs = dict(SHAPES[shape % len(SHAPES)])
    what |= {"root": schedule.root, "count": knobs.pop("count")}
    asked = problem(schedule.op, schedule.n, **what)
    return lay_out(
        asked, schedule, direct=direct, p2p="push", kernel=KERNEL, transport="ce", **knobs
    )


def session_of(
    plan: Plan, machine: Machine, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> closing[CudaSession]:
    run_on(machine, plan.n, monkeypatch)
    of = {"hot": False, "options": GpuOptions(), **more}
    return closing(CudaSession(LocalGroup(), [plan], **of))


def wrong_of(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, *counts: int, seed: int = 0, hot: bool = False
) -> tuple[Wrong, ...]:
    """What is wrong in launches of those block counts, or in three of the plan's."""
    with session_of(plan, Machine(seed), monkeypatch, hot=hot) as session:
        return session.stress(plan, counts or [plan.problem.block_count] * 3, 0)


@tiered(
    ("op", "algo", "direct"), [(*pair, direct) for pair in PAIRS for direct in (True, False)], 1
)
def test_every_pair_is_right_in_any_order(
    op: Any, algo: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, n in enumerate((2, 3, 4)):
        for in_place in placements(op):
            schedule = registered(
                op, algo, World(n=n, root=n - 1 if collective(op).is_rooted else 0)
            )
            plan = plan_of(schedule, number, direct=direct, in_place=in_place)
            assert wrong_of(plan, monkeypatch, seed=number) == ()


@pytest.mark.exhaustive
@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
@given(
    schedule=st.one_of(random_allreduce(4), random_blocks(3)),
    shape=st.integers(0, 2),
    direct=st.booleans(),
    seed=st.integers(0, 99),
)
def test_schedules_that_nobody_registered(
    schedule: Schedule, shape: int, direct: bool, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        for in_place in placements(schedule.op):
            try:
                plan = plan_of(schedule, shape, direct=direct, in_place=in_place)
            except ScheduleError:
                continue  # too few slots
            assert wrong_of(plan, monkeypatch, seed=seed) == ()


@tiered(("dtype", "redop"), [(dtype, REDOPS[k % len(REDOPS)]) for k, dtype in enumerate(DTYPES)], 4)
def test_types_and_reductions(
    dtype: DtypeName, redop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for algo in ("ring", "twoshot"):
        schedule = registered("allreduce", algo, World(n=4))
        plan = plan_of(schedule, 0, direct=True, in_place=True, dtype=dtype, redop=redop)
        with session_of(plan, Machine(), monkeypatch) as session:
            assert session.run(plan, Batch(iterations=3)).wrong == ()


@tiered(
    ("op", "algo"),
    [
        ("allreduce", "twoshot"),
        ("allgather", "direct"),
        ("reducescatter", "ring"),
        ("broadcast", "chain"),
    ],
    1,
)
def test_launches_of_other_sizes(op: Any, algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(registered(op, algo, World(n=4)), 0, direct=True, in_place=False)
    for seed in range(5):
        assert wrong_of(plan, monkeypatch, 611, 5, 1, 300, 611, 2, seed=seed) == ()


def test_a_missing_ready_flag_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation detects writes into an output that is not free yet."""
    plan = plan_of(registered("allgather", "direct", World(n=4)), 1, direct=True, in_place=False)
    blind = replace(plan, schedule=replace(plan.schedule, ready={}))
    assert any(wrong_of(blind, monkeypatch, seed=seed, hot=True) for seed in range(9))


def test_a_rank_that_stops_signalling_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(registered("allreduce", "ring", World(n=3)), 1, direct=True, in_place=False)
    silent, machine = GpuOptions(inject="drop"), Machine(hangs_s=0.3)
    with (
        pytest.raises(HangError),
        session_of(plan, machine, monkeypatch, options=silent) as session,
    ):
        session.run(plan, Batch(iterations=3))


# Automatic choices


def chosen(op: Any, size_bytes: int, memory: int = 1 << 30, **knobs: Any) -> tuple[Case, Plan]:
    return resolve(
        Case(op=op, backend="cuda", transport="ce", ranks=4, size_bytes=size_bytes, **knobs),
        Limits(memory_bytes=memory),
    )


def test_a_gather_follows_the_next_scatter() -> None:
    """Piece q travels while piece q + 1 is reduced, and every rank begins with the next rank."""
    case, plan = chosen("allreduce", 1 << 30)
    assert (case.algo, case.slices, plan.slots, case.channels, case.threads, ctas(plan)) == (
        "twoshot",
        2,
        2,
        1,
        512,
        64,
    )
    for rank in range(4):
        memory = memory_of(plan.problem, rank)
        commands = script(plan, rank, memory)
        copies = [command for command in commands if isinstance(command, CopyCommand)]
        inputs = [
            memory.inputs[rank] <= copy.source < memory.inputs[rank] + (1 << 30) for copy in copies
        ]
        assert inputs == [True] * 6 + [False] * 6
        assert [place_of(copy.target)[0][1] for copy in copies] == [
            (rank + away) % 4 for away in (1, 2, 3)
        ] * 4
        order = [type(one) for one in commands if isinstance(one, CopyCommand | MoveCommand)]
        half = [MoveCommand, *[CopyCommand] * 3]
        assert order == [CopyCommand] * 6 + half * 2


@pytest.mark.parametrize("op", ["allgather", "alltoall"])
def test_one_hop_is_one_copy_a_peer(op: Any) -> None:
    _, plan = chosen(op, 1 << 30)
    commands = script(plan, 0, memory_of(plan.problem, 0))
    assert [one.size for one in commands if isinstance(one, CopyCommand)] == [1 << 28] * 3
    kinds = [type(one) for one in commands]
    assert (kinds.count(WaitCommand), kinds.count(SignalCommand)) == (2, 1)


def moves_of(plan: Plan) -> int:
    """The moves by kernels that all ranks queue."""
    scripts = [script(plan, rank, memory_of(plan.problem, rank)) for rank in range(plan.n)]
    return sum(isinstance(command, MoveCommand) for commands in scripts for command in commands)


def test_what_needs_no_kernel_has_none() -> None:
    case, plan = chosen("allgather", 1 << 28, placement="in")
    assert (ctas(plan), case.threads, case.unroll, moves_of(plan)) == (0, 0, 0, 0)
    for op in ("allgather", "sendrecv", "broadcast", "allreduce", "alltoall", "scatter"):
        for algo in algorithms_of(op):
            for placement in ("in", "out"):
                if algo == "hierarchical" or (placement == "in" and True not in placements(op)):
                    continue
                _, plan = chosen(op, 1 << 24, algo=algo, placement=placement)
                assert bool(moves_of(plan)) == bool(ctas(plan))


def test_less_memory_is_more_loops() -> None:
    for memory in (1 << 28, 1 << 26):
        case, plan = chosen("allreduce", 1 << 30, memory)
        assert sum(1 for _ in plan.loops(0)) == -(-(1 << 28) // case.chunk) > 1


# Kernels


def test_the_host_packs_what_kernels_take() -> None:
    assert structure("FlagEntry", {}, "engine.cu").itemsize == NOTE.size
    assert structure("Engine", {}, "engine.cu").itemsize == ENGINE.size
    assert structure("MoveArgs", {"MAX_SOURCES": 3}, "engine.cu").itemsize == MOVE.size + 3 * 8


DAILY_KERNELS = [
    (90 if dtype.startswith("float8") else ARCHS[k % 5], dtype, (4, 13)[k % 2], REDOPS[k % 5])
    for k, dtype in enumerate(DTYPES)
]


@tiered(("arch", "dtype", "ranks", "redop"), DAILY_KERNELS, 1)
def test_kernels_compile(arch: int, dtype: DtypeName, ranks: int, redop: RedopName) -> None:
    case = Case(op="allreduce", backend="cuda", transport="ce", ranks=ranks, size_bytes=1 << 20)
    source = kernel_source(resolve(replace(case, dtype=dtype, redop=redop)).plan, 0)
    made, log = compiled_once(source, arch, "--ptxas-options=-v")
    assert all(name in made for name in (b"collbench_wait", b"collbench_signal", b"collbench_move"))
    if ranks == 4 and arch == 90:
        spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
        assert set(spills) == {("0", "0")}


def test_widths_are_those_of_the_steps() -> None:
    case = Case(op="allreduce", backend="cuda", transport="ce", ranks=13, size_bytes=1 << 20)
    plan = resolve(replace(case, algo="twoshot")).plan
    assert move_widths(plan) == [1, 13]
    assert max(len(step.sources) for step in lower(plan, 0).steps) == 13
