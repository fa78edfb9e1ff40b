"""Launches with stamps by the cuda backend, on GPUs made of NumPy arrays: their order, how long
memory lives, and which stamps are kept.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from collbench.backends.base import Batch, GpuOptions
from collbench.backends.cuda import rank as cuda_rank
from collbench.backends.cuda.backend import CudaSession
from collbench.backends.cuda.rank import StampOrder
from collbench.backends.gpu.rank import DeviceRank
from collbench.core.case import Case
from collbench.core.errors import HangError, ScheduleError
from collbench.device.layout import STAMP_BYTES
from collbench.launch.local import LocalGroup
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve
from tests.support.gpus_in_threads import Card, Launch, Machine, run_on, spoil

RECORDS = (5, 4)  # of a CTA of each rank
DELAY_S = 0.4375  # as nobody else sleeps


@contextmanager
def tracing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, **knobs: Any
) -> Iterator[tuple[CudaSession, Plan]]:
    case = Case(
        op="allreduce", backend="cuda", transport="p2p", algo="ring", proto="simple", ranks=2,
        size_bytes=1 << 12, channels=3, **knobs,
    )  # fmt: skip
    plan = resolve(case).plan
    run_on(machine, 2, monkeypatch)
    with closing(CudaSession(LocalGroup(), [plan], hot=True, options=GpuOptions())) as session:
        yield session, plan


def test_launches_take_turns_behind_barriers_and_the_last_keep_their_stamps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleep, machine = time.sleep, Machine()
    spoil(monkeypatch, 1)

    def noted(seconds: float) -> None:
        if seconds == DELAY_S:
            machine.cards[1].log.append("sleep")
        sleep(0)

    monkeypatch.setattr(time, "sleep", noted)
    with tracing(machine, monkeypatch, cluster=1) as (session, plan):
        session._load(plan)
        for card in machine.cards:
            card.log.clear()
        _, found = session.trace(
            plan, StampOrder(launches=4, kept=3, delays_s=(0, DELAY_S)), RECORDS
        )
    log = [what for what in machine.cards[1].log if what != "fill"]
    plain = ["clear", "barrier", "record", "run", "record"]
    stamping = ["clear", "barrier", "sleep", "record", "run", "record"]
    assert log[log.index("barrier") - 1 :][:44] == [*plain, *stamping] * 4
    assert [one[0] for one in found.stamps] == [2, 3, 4]
    assert {len(one) for one in found.stamps} == {3 * 5 * STAMP_BYTES}
    assert (found.seconds, found.wrong) == ([(1e-5, 1e-5)] * 4, 1)
    assert [len(card.freed) for card in machine.cards] == [1, 1]


def test_memory_is_given_back_where_a_rank_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, barrier = Machine(hangs_s=0.3), DeviceRank.barrier
    with tracing(machine, monkeypatch) as (session, plan):
        monkeypatch.setattr(DeviceRank, "barrier", lambda gpu, *_: gpu.rank and barrier(gpu))
        with pytest.raises(HangError):
            session.trace(plan, StampOrder(launches=2, kept=2), RECORDS)
    assert len(machine.cards[1].freed) == 1


def test_stamping_kernels_that_cannot_all_be_resident_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resident(card: Card, function: Any, *_: int) -> int:
        return 2 if "TRACE" in dict(function[0].macros) else 132

    monkeypatch.setattr(Card, "resident_ctas", resident)
    with (
        tracing(Machine(), monkeypatch, cluster=1) as (session, plan),
        pytest.raises(ScheduleError, match="3 CTAs that stamp wait for each other, 2 can be"),
    ):
        session.trace(plan, StampOrder(launches=2, kept=2), RECORDS)


def test_launches_alone_are_not_dependent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a kernel would begin, and stamp that it does, while ranks are at the barrier."""
    made: list[bool] = []

    def launch(*args: Any, **more: Any) -> Launch:
        made.append(more["is_dependent"])
        return Launch(*args, **more)

    with tracing(Machine(), monkeypatch, pdl="late") as (session, plan):
        monkeypatch.setattr(cuda_rank, "Launch", launch)
        assert session.run(plan, Batch(iterations=2)).wrong == ()
        assert set(made) == {True}
        made.clear()
        session.trace(plan, StampOrder(launches=1, kept=1), RECORDS)
        assert set(made) == {False}
