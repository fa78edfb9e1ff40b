"""Launches beside computing on one rank, against streams that only keep clocks: who waits for whom,
what is marked, copied and compared.
"""

import pickle
from contextlib import closing
from dataclasses import replace
from functools import wraps
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from collbench.backends.base import Batch, GpuOptions
from collbench.backends.gpu import concurrent, timing
from collbench.backends.gpu import copies as gpu_copies
from collbench.backends.gpu import session as gpu_session
from collbench.backends.gpu.concurrent import (
    LEAST_QUEUED,
    PATIENCE,
    WINDOW_S,
    ConcurrentWork,
    EventTimes,
    work_of,
)
from collbench.backends.gpu.rank import DeviceRank, Launches
from collbench.backends.gpu.session import GpuHealth, GpuRank
from collbench.backends.repeat import RankTiming
from collbench.core.case import Case
from collbench.core.errors import UnavailableError
from collbench.core.options import LaunchMode
from collbench.core.pattern import Wrong
from collbench.device import loads
from collbench.device.loads import Copies, Gemm
from collbench.launch.local import LocalGroup
from tests.support.gpu_session import Workers, session_on
from tests.support.gpus_in_threads import Machine, run_on
from tests.support.overlap import COMM, COMPUTE, Card, marks

PROBLEM = Case(op="allreduce", backend="cuda", ranks=2, size_bytes=1 << 20).problem()
WRONG = Wrong(rank=1, count=1, index=0, got="0", wanted="1")


class FakeProduct:
    """Products of a millisecond."""

    def __init__(self, card: Card, size: int) -> None:
        self.card, self.stream = card, COMPUTE

    def queue(self, gemms: int) -> None:
        self.card.work(COMPUTE, 1e-3 * gemms)

    def close(self) -> None: ...


def lane_on(card: Any, monkeypatch: pytest.MonkeyPatch) -> DeviceRank:
    """Rank 0 of 2 on a made-up card, whose meetings take 5 ms."""
    gpu = DeviceRank(0, 2, card, is_alone=True)
    gpu.loads[None] = cast(Gemm, FakeProduct(card, 64))
    monkeypatch.setattr(gpu, "barrier", lambda hold_ns=0: card.work(COMM, 5e-3))
    monkeypatch.setattr(
        gpu, "compare", lambda problem, sets: WRONG if list(sets) == [0, 1] else None
    )
    monkeypatch.setattr(
        gpu,
        "prepare",
        lambda problem, sets, stride, is_warm: card.log.append(("poison", COMM, sets)),
    )
    return gpu


def run(gpu: DeviceRank, card: Card, waits: list[float], **work: Any) -> EventTimes:
    queue = lambda number, stream: card.work(stream, 0.5e-3)  # noqa: E731
    launches = Launches(gpu=gpu, problem=PROBLEM, queue=queue, sets=3, wait=waits.append, graphs={})
    return concurrent.run(launches, ConcurrentWork(seconds=7.0, **work))


def test_both_begin_behind_the_meeting_and_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    card, waits = Card(), list[float]()
    gpu = lane_on(card, monkeypatch)
    found = run(gpu, card, waits, turns=4, gemms=2, replays=3, launches=2)
    assert found.computing == pytest.approx((0.0, 2e-3, 4e-3, 6e-3, 8e-3))
    assert found.launches == pytest.approx((0.0, 1e-3, 2e-3, 3e-3))
    assert found.wrong is WRONG
    assert waits == [7.0]
    poison, _, begun, waited = card.log[:4]
    assert poison == ("poison", COMM, range(2)), "a replay has launches on two sets"
    assert begun[:2] == ("record", COMM)
    assert waited == ("wait", COMPUTE, begun[2])
    assert card.log[-1][:2] == ("wait", COMM), (
        "the stream that is waited for ends behind the last product"
    )
    assert card.clock[COMM] == pytest.approx(13e-3)


def test_each_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card()
    gpu = lane_on(card, monkeypatch)
    alone = run(gpu, card, [], replays=2, launches=4)
    assert alone.computing == ()
    assert alone.launches == pytest.approx((0.0, 2e-3, 4e-3))
    assert not [entry for entry in card.log if entry[1] == COMPUTE]
    computing = run(gpu, card, [], turns=2)
    assert computing.computing == pytest.approx((0.0, 1e-3, 2e-3))
    assert (computing.launches, computing.wrong) == ((), None)


@pytest.mark.parametrize("launch", ["graph", "stream"])
def test_a_sweep_times_launches_alike_in_graphs_and_on_streams(
    monkeypatch: pytest.MonkeyPatch, launch: LaunchMode
) -> None:
    card, waits, sets, graphs = Card(), list[bool](), list[int](), dict[Any, Any]()
    gpu = lane_on(card, monkeypatch)

    def queue(number: int, stream: int) -> None:
        sets.append(number)
        card.work(stream, 0.5e-3)

    batch, options = Batch(iterations=4, is_checked=False), GpuOptions(launch=launch)
    wait: Any = lambda work_s: waits.append(True)  # noqa: E731
    of = {"gpu": gpu, "problem": PROBLEM, "queue": queue, "sets": 3, "wait": wait}
    answer = timing.timed(Launches(**of, graphs=graphs), batch, options, 0.0)
    assert answer.seconds == pytest.approx(0.5e-3)
    assert sets[:4] == [0, 1, 2, 0]
    assert (len(graphs), waits) == ((1, [True] * 4) if launch == "graph" else (0, [True]))


# The driver


def event_times(work: ConcurrentWork, turn_s: float, replay_s: float) -> EventTimes:
    """Marks of what was asked for, one behind the other."""
    return EventTimes(
        computing=marks(0.0, turn_s, work.turns) if work.turns else (),
        launches=marks(0.0, replay_s, work.replays) if work.replays else (),
    )


class FakeWorkers(Workers):
    """Two ranks; products take 1 ms, launches 2 ms, and what is asked for is kept."""

    def __init__(self, wrong: Wrong | None = None) -> None:
        self.asked: list[tuple[str, ConcurrentWork | None]] = []
        self.wrong = wrong

    def _call(self, method: str, args: Any, timeout_s: float) -> list[Any]:
        work = args[1] if method == GpuRank.run_concurrently.__name__ else None
        self.asked.append((method, work))
        if method == "first":
            return [RankTiming(wrong=None, seconds=3e-3)] * 2
        if work is None:
            return [None, None]
        assert timeout_s > work.seconds
        times = event_times(work, 1e-3 * work.gemms, 2e-3 * work.launches)
        return [replace(times, wrong=self.wrong if work.turns and work.replays else None)] * 2


WATCH = cast(GpuHealth, SimpleNamespace(notes=lambda: ("clocks-low",)))


def test_each_repeat_is_alone_alone_and_together() -> None:
    workers = FakeWorkers()
    found, wrong = session_on(workers, WATCH, 1 << 10).run_concurrently("key", 64, 2)
    assert [method for method, _ in workers.asked] == [
        "reset",
        "first",
        "compute",
        *[GpuRank.run_concurrently.__name__] * 3,
        *(["reset"] + [GpuRank.run_concurrently.__name__] * 3) * 2,
    ]
    # behind two that find out how long each takes, and one that warms up
    works = [work for _, work in workers.asked if work is not None][3:]
    assert [(bool(work.turns), bool(work.replays)) for work in works] == [
        (True, False),
        (False, True),
        (True, True),
    ] * 2
    both = works[2]
    assert both.turns * both.gemms * 1e-3 == pytest.approx(WINDOW_S, rel=0.05)
    assert both.replays * both.launches * 2e-3 == pytest.approx(WINDOW_S, rel=0.05)
    assert both.seconds == pytest.approx(PATIENCE * WINDOW_S)
    assert len(found) == 2
    assert found[0].notes == ("in-cache", "clocks-low")
    assert wrong == []


def test_what_was_wrong_on_any_rank_is_told() -> None:
    found, wrong = session_on(FakeWorkers(WRONG), WATCH, 1 << 30).run_concurrently("key", 64, 2)
    assert wrong == [WRONG] * 4
    assert found[0].notes == ("clocks-low",)


@pytest.mark.parametrize(
    ("gemm_s", "launch_s"),
    [(1e-3, 1e-3), (0.5, 1e-5), (1e-5, 0.5), (1e-6, 1e-6), (0.0, 0.0), (2.0, 2.0)],
)
def test_both_fill_the_window_with_few_marks(gemm_s: float, launch_s: float) -> None:
    work = work_of(gemm_s, launch_s)
    assert pickle.loads(pickle.dumps(work)) == work, "it goes to other processes"
    assert work.turns * work.gemms * gemm_s >= WINDOW_S or not gemm_s
    assert work.turns * work.gemms >= LEAST_QUEUED
    assert work.replays * work.launches >= LEAST_QUEUED
    assert 1 <= work.launches <= 100
    if min(gemm_s, launch_s) > 1e-5:
        assert max(work.turns, work.replays) <= 10 * LEAST_QUEUED
        assert work.turns * work.gemms * gemm_s == pytest.approx(
            work.replays * work.launches * launch_s, rel=0.5
        )


# The product


class Cublas:
    """cuBLAS as CuPy binds it: whatever stream the handle has, a call takes the current one, which
    is the computing one inside the context.
    """

    def __init__(self) -> None:
        self.current, self.calls, self.handles = 0, list[tuple[Any, ...]](), 0

    def __enter__(self) -> None:
        self.current = COMPUTE

    def __exit__(self, *args: object) -> None:
        self.current = 0

    def create(self) -> int:
        self.handles += 1
        return 99

    def destroy(self, handle: int) -> None:
        assert handle == 99
        self.handles -= 1

    def gemmEx(self, *args: Any) -> None:
        self.calls.append((self.current, *args))


class ProductCard(Card):
    """A card with memory."""

    def __init__(self, cublas: Cublas) -> None:
        super().__init__()
        self.filled: dict[int, int] = {}

        self.cublas = cublas
        self.runtime.streamNonBlocking, self.runtime.memcpyDeviceToDevice = 1, 3
        self.runtime.streamCreateWithFlags = lambda flags: COMPUTE
        self.runtime.memcpyAsync = self._copy

    def as_cupy(self, stream: int) -> Any:
        assert stream == COMPUTE
        return self.cublas

    def allocate(self, size: int) -> int:
        address = (len(self.filled) + 1) << 40
        self.filled[address] = 0
        return address

    def free(self, pointer: int) -> None:
        del self.filled[pointer]

    def upload(self, pointer: int, data: bytes) -> None:
        self.filled[pointer] = len(data)

    def _copy(self, target: int, source: int, size: int, kind: int, stream: int) -> None:
        assert (target, size <= target - source) == (source + self.filled[source], True), (
            "past what is filled, and from what is"
        )
        self.filled[source] += size

    def wait(self, deadline_s: float) -> None:
        self.log.append(("waited", COMM))


def test_products_run_on_their_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    cublas = Cublas()
    monkeypatch.setattr(loads, "load_cublas", lambda: cublas)
    card = ProductCard(cublas)
    made = Gemm(cast(Any, card), 2048)
    a, b, c = card.filled
    assert (card.filled[a], card.filled[b]) == (2048 * 2048 * 2,) * 2
    assert len(cublas.calls) == 1, "kernels are loaded before anybody waits for this rank"
    assert [entry[0] for entry in card.log[-2:]] == ["wait", "waited"]
    made.queue(3)
    assert len(cublas.calls) == 4
    stream, handle, _, _, *sizes, _, first, kind, _, second, _, _, _, out, _, _, compute, _ = (
        cublas.calls[-1]
    )
    assert (stream, handle, sizes, kind, compute) == (COMPUTE, 99, [2048] * 3, 14, 68)
    assert (first, second, out) == (a, b, c)
    made.close()
    assert (cublas.handles, card.filled) == (0, {})


def test_copies_run_on_their_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    card, copied = ProductCard(Cublas()), list[tuple[int, ...]]()
    card.runtime.memcpyAsync = lambda *copy: copied.append(copy)
    made = Copies(cast(Any, card))
    source, target = card.filled
    made.queue(2)
    assert [copy[:2] for copy in copied] == [(target, source)] * 3, "one before anybody waits"
    assert {copy[-1] for copy in copied} == {COMPUTE}
    made.close()
    assert card.filled == {}


def test_matrices_that_do_not_fit_are_to_be_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size: int) -> int:
        raise UnavailableError("GPU 0 has no 8192M of memory", "use smaller sizes")

    monkeypatch.setattr(loads, "load_cublas", Cublas)
    card: Any = ProductCard(Cublas())
    card.allocate = refuse
    with pytest.raises(UnavailableError) as caught:
        Gemm(card, 65536)
    assert (caught.value.message, caught.value.hint) == (
        "GPU 0 has no 8192M of memory",
        "use a smaller --gemm",
    )


def test_random_values_are_finite_and_spread() -> None:
    values = (loads.random_bfloat16(10_000, 0).astype(np.uint32) << np.uint32(16)).view(np.float32)
    assert np.isfinite(values).all()
    assert 0.9 < float(values.std()) < 1.1


# Plain copies, on GPUs made of NumPy arrays


def copied(way: str, **more: Any) -> Case:
    of: dict[str, Any] = {"op": "sendrecv", "backend": "copies", "proto": "", "ranks": 3}
    return Case(**{**of, "algo": way, "size_bytes": 1 << 12, **more})


def copying(
    machine: Machine, cases: list[Case], monkeypatch: pytest.MonkeyPatch
) -> closing[gpu_copies.CopySession]:
    """A session beside products that take no time, as copies do, so that few fill the window."""

    def no_product(card: Any, size: int) -> Any:
        nothing = lambda *_: None  # noqa: E731
        card.log.append("product")
        return SimpleNamespace(stream=card.new_stream(), queue=nothing, close=nothing)

    run_on(machine, 3, monkeypatch)
    monkeypatch.setattr(gpu_session, "Gemm", no_product)
    monkeypatch.setattr(concurrent, "WINDOW_S", 1e-5)
    session = gpu_copies.CopySession(LocalGroup(), cases, hot=False, options=GpuOptions())
    return closing(session)


@pytest.mark.parametrize("way", gpu_copies.COPY_ALGOS)
def test_copies_go_to_the_next_rank_and_idle_ones_are_noticed(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Also those to host memory, from which the data of earlier ones could be copied on."""
    machine, case = Machine(), copied(way, channels=5 if way == "kernel" else 0)
    real = concurrent.run

    def idle(launches: Launches, work: ConcurrentWork) -> EventTimes:
        return real(replace(launches, queue=lambda *_: None, graphs={}), work)

    with copying(machine, [case], monkeypatch) as session:
        found, wrong = session.run_concurrently(case, 64, 2)
        assert (len(found), len(found[0].both), wrong) == (2, 3, [])
        copies = {what for what in machine.cards[1].log if what.startswith("copy")}
        assert copies == {"copy by 5 CTAs" if way == "kernel" else "copy"}
        monkeypatch.setattr(concurrent, "run", idle)
        assert session.run_concurrently(case, 64, 2)[1]
    assert machine.cards[1].log.count("product") == 1, "a product is made once"


def test_one_rank_copies_to_itself() -> None:
    problem = copied("engine", ranks=1, size_bytes=1000).rounded().problem()
    assert problem.buffers(0).out_bytes == problem.buffers(0).in_bytes == 1000
    assert problem.buffers(0).out_offset >= 1000


def test_a_session_of_copies_shares_what_its_cases_need(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated, allocate = list[tuple[int, ...]](), GpuRank.allocate

    @wraps(allocate)  # the driver calls it by its name
    def noted(rank: GpuRank[Any], *sizes: int) -> Any:
        allocated.append(sizes)
        return allocate(rank, *sizes)

    monkeypatch.setattr(GpuRank, "allocate", noted)
    cases = [copied("engine", size_bytes=32 << 10), copied("host")]
    with copying(Machine(), cases, monkeypatch) as session:
        assert session._loaded(cases[1])[0] == (cases[1], 1)
    # one set of 32K and 32K passes the cache twice; host memory for the case that wants it
    assert allocated == [(0, 64 << 10, 1 << 12)] * 3
