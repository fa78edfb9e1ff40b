"""The transport of messages: who takes it, what a plan says of it, and every algorithm over it,
between ranks that are threads with mail of their own.
"""

import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from collbench.backends.base import Batch
from collbench.backends.cpu import backend as cpu
from collbench.backends.cpu.layout import own_bytes
from collbench.backends.cpu.rank import CpuRank
from collbench.backends.net.proxy import DataComm
from collbench.core.case import Case
from collbench.core.collectives import OPS
from collbench.core.errors import CollbenchError, HangError, RankLostError, UnavailableError
from collbench.core.group import RankContext
from collbench.launch.local import LocalGroup
from collbench.planning.limits import Limits
from collbench.planning.lowering import Region, SlotSequence, actors
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve
from collbench.planning.selection import algorithms_of
from collbench.schedules.algorithms import FAMILY
from tests.support.fake_mpi import FakeComm, World
from tests.support.gpu_session import Workers
from tests.support.tiers import tiered

ONE_HOST, TWO_HOSTS = Limits(), Limits(hosts=(0, 0, 1, 1))


def case(**more: object) -> Case:
    return Case(**{"op": "allreduce", "backend": "cpu", "ranks": 4, "size_bytes": 4096, **more})  # type: ignore[arg-type]


RING_OF_THREE = resolve(case(algo="ring", ranks=3, transport="net"))


@pytest.fixture(autouse=True)
def _quick_turns() -> Iterator[None]:
    """Ranks that are threads wait for each other: let Python change between them often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_a_missing_mpirun_waives_messages_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise UnavailableError("there is no mpirun", "install it")

    monkeypatch.setattr(cpu, "find_mpirun", missing)
    monkeypatch.setattr(cpu, "find_spec", lambda name: name)
    plans = [resolve(case(transport=data_comm), ONE_HOST).plan for data_comm in ("net", "shm")]
    assert [cpu.BACKEND.why_waived(plan, LocalGroup()) for plan in plans] == [
        "the network is MPI's, and there is no mpirun; install it",
        "",
    ]


def test_plans_that_take_other_roads_are_not_the_same() -> None:
    ways = [
        resolve(case(algo="ring", transport=data_comm), limits).plan.digest
        for data_comm, limits in (("shm", ONE_HOST), ("net", ONE_HOST), ("auto", TWO_HOSTS))
    ]
    assert len(set(ways)) == 3


@pytest.mark.parametrize("algo", FAMILY.names())
@pytest.mark.parametrize("direct", ["on", "off"])
def test_what_leaves_an_island_is_said_and_fits_a_slot(algo: str, direct: str) -> None:
    op = FAMILY.load(algo).SERVES
    for name in op:
        plan = resolve(
            case(op=name, algo=algo, direct=direct, size_bytes=40_000, chunk=1024), TWO_HOSTS
        ).plan
        sent: dict[SlotSequence, Region] = {}
        for rank in range(plan.n):
            for action in (action for actor in actors(plan, rank) for action in actor.actions):
                sent.update(action.sent)
                away = [
                    turn
                    for turn in action.post
                    if plan.is_remote(
                        plan.connections[turn.edge].src, plan.connections[turn.edge].dst
                    )
                ]
                assert [turn for turn, _ in action.sent] == away
                for region in action.operands:
                    assert region.space == "slot" or not plan.is_remote(rank, region.owner)
        assert all(region.size <= plan.slot_bytes for region in sent.values())
        assert all(
            region.owner == plan.connections[turn.edge].src
            for turn, region in sent.items()
            if region.space != "slot"
        )
        apart = [c for c in plan.connections if plan.is_remote(c.src, c.dst)]
        assert len(sent) == sum(connection.slices for connection in apart)
        assert all(connection.fifo_offset >= 0 for connection in apart)


def run(
    plan: Plan, absent: int = -1, broken: int = -1, deadline_s: float = 20.0
) -> tuple[World, list[Exception]]:
    """Run the plan on ranks that are threads, each a shared-memory domain; what they compare and
    raise. absent: does not come; broken: its sends fail.
    """
    world = World(plan.n, broken=broken)
    faults: list[Exception] = []

    def serve(number: int) -> None:
        rank = CpuRank(RankContext(rank=number, n=plan.n))
        rank.data_comm = DataComm(FakeComm(world, number), OSError)
        rank.reserve(own_bytes(plan, hot=True))
        rank.load(plan, True, 1, False)
        try:
            for answer in (
                rank.prepare(plan.digest, True, Batch(warmup=3, deadline_s=deadline_s)),
                rank.timed(plan.digest, True, Batch(iterations=5, deadline_s=deadline_s)),
                rank.prepare(plan.digest, True, Batch(deadline_s=deadline_s)),
            ):
                assert answer.wrong is None, answer.wrong
        except (CollbenchError, AssertionError) as error:
            faults.append(error)

    threads = [
        threading.Thread(target=serve, args=(rank,), daemon=True)
        for rank in range(plan.n)
        if rank != absent
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return world, faults


@tiered(("op", "direct"), product(OPS, ("on", "off")), 1)
def test_every_algorithm_over_messages(op: str, direct: str) -> None:
    knobs = {"transport": "net", "size_bytes": 30_000, "chunk": 2048, "slots": 4}
    for algo in algorithms_of(op):
        plan = resolve(case(op=op, algo=algo, direct=direct, **knobs), TWO_HOSTS).plan
        world, faults = run(plan)
        assert not faults
        assert world.most <= 2 * plan.slots
        assert not any(world.mail.values())


@tiered(("slots", "slices", "channels"), [(2, 1, 1), (4, 2, 3), (5, 3, 1)], 1)
def test_knobs(slots: int, slices: int, channels: int) -> None:
    knobs = {"slots": slots, "slices": slices, "channels": channels, "chunk": 1536}
    of = case(transport="net", direct="off", size_bytes=50_000, **knobs)
    for algo in ("ring", "halving", "tree"):
        if algo == "ring" and slots == 2:
            continue  # it needs more: see test_check.py
        assert run(resolve(replace(of, algo=algo)).plan)[1] == []


def test_a_rank_that_does_not_come_is_named() -> None:
    _, faults = run(RING_OF_THREE.plan, absent=1, deadline_s=0.2)
    assert [fault for fault in faults if isinstance(fault, HangError)] == faults
    assert sorted(str(fault) for fault in faults) == [
        "rank 0 waited at a barrier for rank 1",
        "rank 2 waited at a barrier for rank 1",
    ]


def test_a_rank_whose_own_messages_do_not_leave_says_so() -> None:
    plan, rank = RING_OF_THREE.plan, CpuRank(RankContext(rank=1, n=3))
    alone = {"comm": None, "fault": OSError, "barrier": lambda *args: [1], "calm": lambda: None}
    rank.data_comm = cast(DataComm, SimpleNamespace(**alone))
    rank.reserve(own_bytes(plan, hot=True))
    rank.load(plan, True, 1, False)
    with pytest.raises(HangError, match="the messages of rank 1 do not leave"):
        rank.prepare(plan.digest, True, Batch(deadline_s=1.0))


def test_a_connection_that_mpi_loses_is_named() -> None:
    _, faults = run(RING_OF_THREE.plan, broken=1, deadline_s=0.2)
    assert any(
        isinstance(fault, RankLostError) and "rank 1 lost a connection of MPI" in str(fault)
        for fault in faults
    )


def test_plans_of_both_roads_take_the_room_of_the_same_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under a launcher shared memory and messages are one worker group's, which forgets plans when
    both together are too many.
    """
    monkeypatch.setattr(cpu, "MAX_LOADED_PLANS", 6)
    plans = [
        resolve(case(algo="ring", ranks=2, transport=data_comm, size_bytes=64 << k)).plan
        for k in range(5)
        for data_comm in ("shm", "net")
    ]
    loaded: dict[str, None] = {}

    def answer(method: str, args: Any, timeout_s: float) -> list[object]:
        if method != "load":
            return ["An MPI"] * 2
        plan, *_, is_full = args
        if is_full:
            loaded.clear()
        loaded[plan.digest] = None
        return [plan.digest] * 2

    workers = Workers(answer)
    group: Any = SimpleNamespace(
        kind="mpi",
        hosts=("a", "a"),
        shared_workers=lambda *args: workers,
        mpi_workers=lambda *args: workers,
    )
    session = cpu.CpuSession(group, plans, hot=True)
    for plan in [*plans, *plans]:
        session._load(plan, True, 1.0)
        assert plan.digest in loaded
        assert len(loaded) <= 6
