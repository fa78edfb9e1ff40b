"""Launches that do nothing, or less than they should, while they are timed: every backend sees it
by its outputs, which are poisoned after the first check. tests/mpi and tests/gpu have MPI, CUDA and
NCCL themselves.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import product, takewhile
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collbench.backends import reference, repeat
from collbench.backends.base import Batch, GpuOptions
from collbench.backends.cpu.backend import CpuSession
from collbench.backends.cpu.together import TogetherSession
from collbench.backends.gpu import timing
from collbench.backends.gpu.rank import DeviceRank, Launches
from collbench.backends.nccl.backend import NcclSession
from collbench.backends.repeat import checked_sets, phase, timed_sets
from collbench.bench.points import plan_points
from collbench.core.case import Case
from collbench.core.collectives import OPS, OpName, collective
from collbench.core.dtypes import DTYPES, REDOPS, DtypeName, RedopName, dtype
from collbench.core.knobs import Placement
from collbench.core.options import LaunchMode
from collbench.core.pattern import PERIOD, Wrong, fill, inputs, reduced
from collbench.launch.local import LocalGroup
from collbench.planning.planner import resolve
from tests.support.gpus_in_threads import Machine, run_on
from tests.support.nccl_in_threads import nccl_on
from tests.support.plants import PLANTS, PlantKind, plant
from tests.support.tiers import tiered

PLACES: tuple[Placement, ...] = ("out", "in")
PLACED = [
    (op, place) for op in OPS for place in PLACES if place == "out" or collective(op).has_in_place
]


def case(op: OpName, place: Placement, **more: Any) -> Case:
    given = {"backend": "cpu", "algo": "auto", "ranks": 2, "size_bytes": 4096, **more}
    return Case(op=op, placement=place, **given)


# Which sets are poisoned and compared


@pytest.mark.parametrize("launches", [1, 2, 3, 7, 8, 100])
@pytest.mark.parametrize(("op", "place"), PLACED)
def test_what_is_compared_was_launched_and_is_known(
    op: OpName, place: Placement, launches: int
) -> None:
    """Where the definition only knows the first launch on a set, there is exactly one."""
    for redop, hot in product(("sum", "max"), (False, True)):
        problem = case(op, place, redop=redop, size_bytes=1 << 22).problem()
        sets = repeat.rotations(problem, hot=hot)
        order, checked = timed_sets(problem, sets, launches), checked_sets(problem, sets, launches)
        assert len(order) == launches
        assert max(order) < sets
        assert set(checked) <= set(order)
        if repeat.accumulates(problem):
            assert [number for number in order if number in checked] == [order[-1]]
        else:
            assert set(checked) == set(order)


@pytest.mark.parametrize("redop", REDOPS)
@tiered("name", DTYPES, 4)
def test_the_first_element_is_one_that_a_reduction_in_place_changes(
    name: DtypeName, redop: RedopName
) -> None:
    """Its size may be one element."""
    for n, op in product((2, 3, 8, 33), OPS):
        what = collective(op)
        if what.is_reduction:
            given = {
                "dtype": name,
                "redop": redop,
                "ranks": n,
                "root": n - 1 if what.is_rooted else 0,
            }
            problem = case(op, "in", **given, size_bytes=dtype(name).item_bytes * n).problem()
            values = inputs(name, redop, n, problem.root), reduced(name, redop, n)
            first, last = (table[phase(problem, 0)].tobytes() for table in values)
            assert first != last


def test_no_two_sets_hold_the_same() -> None:
    problem = case("allreduce", "out").problem()
    assert len({phase(problem, number) for number in range(repeat.MAX_ROTATIONS + 1)}) == 257
    source, target = (np.empty(problem.block_count, np.float32) for _ in range(2))
    fill(target, "broadcast", "sum", 2, 0, phase(problem, 0))
    broadcast = case("broadcast", "out").problem()
    assert repeat.compare_output(broadcast, 1, target, 0) is None
    assert repeat.compare_output(broadcast, 1, target, 1) is not None
    repeat.prepare_buffers(problem, 0, source, target, 3)
    assert source[0] == inputs("float32", "sum", 2, 0)[3 * repeat.SET_PHASE % PERIOD]


# The reference


@pytest.mark.parametrize("place", PLACES)
def test_an_idle_reference_is_noticed(monkeypatch: pytest.MonkeyPatch, place: Placement) -> None:
    plan = resolve(case("allreduce", place, backend="reference")).plan
    launch, count = reference.ReferenceRun.launch, 0

    def first_alone(machine: reference.ReferenceRun) -> None:
        nonlocal count
        count += 1
        if count == 1:
            launch(machine)

    assert not reference.ReferenceSession().run(plan, Batch(iterations=3)).wrong
    monkeypatch.setattr(reference.ReferenceRun, "launch", first_alone)
    assert reference.ReferenceSession().run(plan, Batch(iterations=1)).wrong


# GPUs: made of NumPy arrays, and NCCL of queues

MODES: list[tuple[LaunchMode, bool, bool]] = [
    ("graph", False, False),
    ("stream", False, False),
    ("stream", True, False),
    ("graph", False, True),
    ("stream", False, True),
]


def in_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on launches are timed as those of which a host moves the messages, which meet as
    all others do.
    """
    outside = SimpleNamespace(
        proxy=None, wait=lambda card, deadline_s, _: card.wait(deadline_s), is_aborted=lambda: False
    )
    meeting, barrier = set[int](), DeviceRank.barrier

    def meet(gpu: DeviceRank, hold_ns: int = 0) -> None:
        meeting.add(id(gpu))
        barrier(gpu, hold_ns)
        meeting.discard(id(gpu))

    found = property(lambda gpu: None if id(gpu) in meeting else outside, lambda gpu, _: None)
    monkeypatch.setattr(DeviceRank, "outside", found, raising=False)
    monkeypatch.setattr(DeviceRank, "barrier", meet)


@tiered(
    ("op", "place", "mode", "isolated", "is_outside"),
    [(*placed, *mode) for placed in PLACED for mode in MODES],
    2,
)
def test_idle_gpus_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
    op: OpName,
    place: Placement,
    mode: LaunchMode,
    isolated: bool,
    is_outside: bool,
) -> None:
    """And what is right is right. Nothing but launches is between two events, until the batch is
    proved; each single launch is behind a barrier of its own.
    """
    number = PLACED.index((op, place)) + MODES.index((mode, isolated, is_outside))
    ways: tuple[tuple[RedopName, bool, int], ...] = (
        ("sum", False, 70), ("sum", True, 2), ("max", True, 65)
    )  # fmt: skip
    redop, hot, count = ways[number % 3]
    nccl_on(machine := Machine(number), monkeypatch)
    run_on(machine, 3, monkeypatch)
    if is_outside:
        in_bursts(monkeypatch)
    given = {"algo": "library", "proto": "", "redop": redop, "size_bytes": 1024, "ranks": 3}
    root = int(op in ("reduce", "gather"))
    one = case(op, place, backend="nccl", root=root, **given)
    options = GpuOptions(launch=mode, isolated=isolated)
    batch, singly = Batch(iterations=count), Batch(iterations=2, single_launches=count + 60)
    with closing(NcclSession(LocalGroup(), [one], hot=hot, options=options)) as session:
        assert session.run(one, batch).wrong == ()
        log = list(takewhile(lambda what: what != "exchange", machine.cards[1].log))
        timed = list(between_events(log))
        assert set(timed) <= {"run"} or (mode == "graph" and is_outside)
        sets = session._loaded(one)[2]
        assert len(timed) == sets + count * (1 if isolated else repeat.REPLAYS + 1)
        unchecked = replace(batch, is_checked=False)
        some_plants = PLANTS[("sum", "max").index(redop) + hot :: 3]
        for kind, method in product(("idle", *some_plants), ("timed", "timed_singly")):
            with plant(kind, method):
                assert session.run(one, singly if method == "timed_singly" else batch).wrong
        with plant("idle", "timed"):
            assert session.run(one, unchecked).wrong == ()
        machine.cards[1].log.clear()
        assert len(session.run(one, singly).launch_times_s) == count + 60
        log = machine.cards[1].log
        most = min(count + 60, timing.GRAPH_LAUNCHES) + 1
        assert " ".join(["barrier record run record"] * most) in " ".join(log)


def between_events(log: list[str]) -> Iterator[str]:
    is_timed = False
    for what in log:
        if what == "record":
            is_timed = not is_timed
        elif is_timed:
            yield what


def test_the_first_launch_of_each_part_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = lambda launches, key, queues, work_s: [9.0, *[1.0] * (len(queues) - 1)]  # noqa: E731
    monkeypatch.setattr(timing, "_times_in_graph", clock)
    gpu: Any = SimpleNamespace(outside=None)
    problem, nothing = case("allreduce", "out").problem(), lambda *_: None
    real = Launches(gpu=gpu, problem=problem, queue=nothing, sets=3, wait=nothing, graphs={})
    singly = Batch(single_launches=250, is_checked=False)
    assert timing.timed_singly(real, singly, GpuOptions(), 0.0).launch_times_s == (1.0,) * 250


# CPUs: launches that do less than they should, by modes

SINGLY, SIZES = "timed_singly", (8, 65536)
# of each mode what its case and its batch have, and what times the launches
CPU_MODES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "plain": ({}, {}, "timed"),
    "in place": ({"placement": "in"}, {}, "timed"),
    "in place, as often as one likes": ({"placement": "in", "redop": "max"}, {}, "timed"),
    "distribution": ({}, {"single_launches": 20}, SINGLY),
    "distribution in place": ({"placement": "in"}, {"single_launches": 20}, SINGLY),
    "uneven": ({"op": "allgatherv", "skew": "hot:2"}, {}, "timed"),
    "uneven distribution": ({"op": "alltoallv"}, {"single_launches": 20}, SINGLY),
    "blocking": ({"op": "alltoall"}, {"blocking": True}, "timed"),
    "several launches": ({"op": "reducescatter"}, {"aggregate": 3}, "timed"),
    "messages": ({"proto": "ll"}, {"blocking": True, "aggregate": 2}, "timed"),
    "rooted": ({"op": "gather", "root": 1}, {}, "timed"),
    "from a root": ({"op": "broadcast", "root": 1}, {}, "timed"),
    "reduced at a root": ({"op": "reduce", "proto": "ll128"}, {}, "timed"),
    "shifted": ({"op": "sendrecv"}, {}, "timed"),
    "groups": ({"groups": "0,1/2,3", "ranks": 4}, {}, "timed_together"),
    "groups alone": ({"groups": "0,1/2,3", "ranks": 4}, {}, "timed"),
    "mix": ({"mix": "allreduce:8K+alltoall:8K"}, {}, "timed_together"),
    "mix of small ones": ({"mix": "allreduce:8+allgather:16"}, {}, "timed_together"),
}
CELLS: list[tuple[str, bool, int, PlantKind]]
CELLS = list(product(CPU_MODES, (False, True), SIZES, PLANTS))
# of modes in which all ranks leave out the same launches
ALIKE = ("plain", "in place", "distribution", "blocking", "several launches", "messages")
KEPT: list[tuple[str, bool, int, PlantKind]]
KEPT = list(product(ALIKE, (False, True), SIZES[1:], ("kept",)))


def wrong_of(mode: str, hot: bool, size_bytes: int) -> tuple[Wrong, ...]:
    """What is wrong in a repeat of that mode."""
    given, batch, _ = CPU_MODES[mode]
    case = Case(
        **{
            **{"op": "allreduce", "backend": "cpu", "algo": "auto", "ranks": 2},
            **given,
            "size_bytes": size_bytes * (1 + (given.get("op") in ("allgatherv", "alltoallv"))),
        }
    ).rounded()
    (point,) = plan_points([case], LocalGroup())
    assert point.job is not None, point.waived
    opener: Any = TogetherSession if case.is_together else CpuSession
    with closing(opener(LocalGroup(), [point.job], hot=hot)) as session:
        wrong: tuple[Wrong, ...] = session.run(
            point.job, Batch(**{"iterations": 20, **batch})
        ).wrong
        return wrong


@tiered(("mode", "hot", "size_bytes", "kind"), CELLS + KEPT, 3)
def test_what_is_left_out_is_noticed(
    monkeypatch: pytest.MonkeyPatch, mode: str, hot: bool, size_bytes: int, kind: PlantKind
) -> None:
    monkeypatch.setattr(repeat, "MAX_ROTATIONS", 3)
    with plant(kind, CPU_MODES[mode][-1]):
        assert wrong_of(mode, hot, size_bytes)


@tiered(("hot", "size_bytes"), [*product((True, False), SIZES)], 1)
def test_what_is_right_is_right(
    monkeypatch: pytest.MonkeyPatch, hot: bool, size_bytes: int
) -> None:
    monkeypatch.setattr(repeat, "MAX_ROTATIONS", 3)
    assert not {mode: wrong for mode in CPU_MODES if (wrong := wrong_of(mode, hot, size_bytes))}
