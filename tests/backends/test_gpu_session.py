"""The driver's side of GPU backends with a made-up worker group: what ranks are asked, and how long
they may take.
"""

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from collbench.backends.base import Batch, GpuOptions
from collbench.backends.cuda import backend as cuda
from collbench.backends.cuda import compilation
from collbench.backends.cuda.copy_engine import CopyEngine
from collbench.backends.gpu import session as gpu_session
from collbench.backends.gpu.rank import POOL_BYTES, DeviceRank
from collbench.backends.gpu.session import GpuHealth, take_gpu
from collbench.backends.repeat import REPLAYS, RankTiming
from collbench.core.case import Case
from collbench.core.errors import UnavailableError
from collbench.core.group import RankContext
from collbench.device.card import Card
from collbench.launch.local import LocalGroup
from collbench.planning.limits import slot_wire_bytes
from collbench.planning.planner import resolve
from tests.support.gpu_session import Workers, facts_of, session_on

QUIET = cast(GpuHealth, SimpleNamespace(notes=lambda: ()))  # GPUs that nothing disturbs


class FakeWorkers(Workers):
    """Two ranks whose first launches take a second, and those of a graph 100 us."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[tuple[Any, ...], float]] = {}
        self.timed: list[int] = []
        self.calls: list[str] = []

    def _call(self, method: str, args: tuple[object, ...], timeout_s: float) -> list[Any]:
        self.asked[method] = args, timeout_s
        self.calls.append(method)
        if method == "timed_singly":
            assert isinstance(args[1], Batch)
            rank_s = ((1e-6, 9e-6), (3e-6, 2e-6))
            return [RankTiming(wrong=None, seconds=2e-6, launch_times_s=one) for one in rank_s]
        if method == "timed":
            assert isinstance(args[1], Batch)
            self.timed.append(args[1].iterations)
            return [RankTiming(wrong=None, seconds=1e-4)] * 2
        return [RankTiming(wrong=None, seconds=1.0)] * 2


def test_ranks_that_cannot_have_their_memory_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise their GPUs would lack what they have had until then for whatever is measured next.
    FIFOs are asked for once.
    """
    asked: list[tuple[int, int, int]] = []

    def refuse(session: object, arena: int, user: int, host: int, **more: object) -> None:
        asked.append((arena, user, host))
        raise UnavailableError("GPU 1 has no memory")

    facts, closed = [facts_of(0), facts_of(1)], list[bool]()
    monkeypatch.setattr(
        gpu_session,
        "open_ranks",
        lambda *args: (SimpleNamespace(close=lambda: closed.append(True)), facts),
    )
    monkeypatch.setattr(compilation, "cubin", lambda *args: b"")
    monkeypatch.setattr(cuda.CudaSession, "_share_memory", refuse)
    case = Case(op="allreduce", backend="cuda", algo="ring", ranks=2, size_bytes=1 << 20)
    ways = [replace(case, transport=transport, direct="off") for transport in ("p2p", "shm")]
    plans = [resolve(way).plan for way in ways]
    for plan in plans:
        with pytest.raises(UnavailableError, match="GPU 1 has no memory"):
            cuda.CudaSession(LocalGroup(), [plan], hot=False, options=GpuOptions())
    assert closed == [True] * 2
    fifos = [plan.channels * plan.slots * slot_wire_bytes(plan) for plan in plans]
    (gpu, _, none), (little, _, host) = asked
    assert none == 0
    assert gpu > fifos[0]
    assert host > fifos[1] > little


def test_asking_for_many_launches_is_no_deadline() -> None:
    workers, options = FakeWorkers(), GpuOptions(timeout_s=1.0)
    batch = Batch(iterations=50, aggregate=2, deadline_s=1.0)
    session_on(workers, QUIET, options=options).run("plan", batch)
    (_, _, work_s), timeout_s = workers.asked["timed"]
    assert timeout_s > 4 * options.timeout_s + work_s > (REPLAYS + 1) * 50 * 2 * 1.0
    assert workers.asked["first"][1] < 15


def test_launches_are_as_many_as_their_own_time_wants() -> None:
    """A first launch, which takes a second here, says little about one in a graph."""
    workers = FakeWorkers()
    session = session_on(workers, QUIET)
    for _ in range(2):
        found = session.run("plan", Batch())
        assert found.iterations == 40
    assert workers.timed == [4, 40, 40]


def test_single_launches_are_on_buffers_that_were_reset_and_the_slowest_rank_counts() -> None:
    workers = FakeWorkers()
    session = session_on(workers, QUIET)
    batch = Batch(iterations=4, single_launches=700, single_s=0.05)  # a launch takes 100 us
    samples = session.run("plan", batch)
    assert workers.calls == ["reset", "first", "timed", "reset", "timed_singly"]
    (_, asked, work_s), timeout_s = workers.asked["timed_singly"]
    assert asked.single_launches == 500
    assert timeout_s > work_s > 500 * 1e-4
    assert samples.launch_times_s == (3e-6, 9e-6)
    assert samples.seconds == (1e-4, 1e-4)
    assert session.run("plan", Batch(iterations=4)).launch_times_s == ()


@pytest.mark.parametrize("size", [1000, POOL_BYTES])
def test_what_a_soak_keeps_takes_no_more_memory_than_its_longest_burst(size: int) -> None:
    """Tables of launches by copy engines, which differ from burst to burst."""
    uploaded: list[int] = []
    allocated: list[int] = []

    def allocate(size: int) -> int:
        allocated.append(size)
        return len(allocated) << 40

    card = SimpleNamespace(allocate=allocate, upload=lambda at, data: uploaded.append(at))
    gpu = DeviceRank(0, 2, cast(Card, card), is_alone=True)
    first = gpu.keep("for good", b"1")
    for burst in range(50):
        before = gpu.kept()
        own = [
            gpu.keep((burst, launch), bytes(size))
            for launch in range(3 if size < POOL_BYTES else 1)
        ]
        assert first not in own
        gpu.forget(before)
    assert gpu.keep("for good", b"1") == first
    assert len(set(uploaded)) <= 4
    assert len(allocated) <= 2


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_session, "device_count", lambda: 4)
    with pytest.raises(UnavailableError, match=r"there is no GPU 9: CUDA shows 0 to 3"):
        take_gpu(RankContext(rank=1, n=2, local_rank=1), GpuOptions(gpus=(0, 9)))
    monkeypatch.setattr(gpu_session, "device_count", lambda: 2)
    with pytest.raises(UnavailableError, match=r"rank 2 has no GPU: 2 for the ranks of its host"):
        take_gpu(RankContext(rank=2, n=3, local_rank=2), GpuOptions())


@pytest.mark.parametrize("is_urgent", [False, True])
def test_launches_come_first_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, is_urgent: bool
) -> None:
    """By the copy engine, too, whose kernels have streams of their own."""
    made: list[tuple[str, int, int]] = []

    def make(flags: int, priority: int) -> int:
        made.append(("made", flags, priority))
        return 8

    runtime = SimpleNamespace(
        streamNonBlocking=1,
        streamCreateWithPriority=make,
        streamDestroy=lambda stream: made.append(("destroyed", stream, 0)),
        runtimeGetVersion=lambda: 13000,
        driverGetVersion=lambda: 13000,
    )
    card: Any = Card.__new__(Card)
    vars(card).update(name="GPU", uuid="GPU-0", arch=90, multiprocessors=132, cache_bytes=1)
    vars(card).update(stream=7, _priority=0, cupy=SimpleNamespace(__version__="14"))
    card.runtime = runtime
    monkeypatch.setattr(gpu_session, "Card", lambda index: card)
    monkeypatch.setattr(gpu_session, "device_count", lambda: 1)
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    gpu, facts = take_gpu(RankContext(rank=0, n=1), GpuOptions(is_urgent=is_urgent))
    assert facts.version == "cuda 13000 with CUDA_DEVICE_MAX_CONNECTIONS=32; driver 13000; cupy 14"
    assert gpu.card.stream == (8 if is_urgent else 7)
    assert [what for what, _, _ in made] == (["destroyed", "made"] if is_urgent else [])
    CopyEngine(gpu)
    priorities = {priority for what, _, priority in made if what == "made"}
    assert len(priorities) == 1
    assert (priorities.pop() < 0) == is_urgent, "a lower number is a higher priority"


def test_streams_are_cupys_by_the_protocol() -> None:
    """CuPy 14 warns of its older way, which 15 may not have."""
    card: Any = Card.__new__(Card)
    card.cupy = pytest.importorskip("cupy")
    with warnings.catch_warnings(action="error"):
        assert card.as_cupy(1234).ptr == 1234


def test_a_rank_that_is_shown_one_gpu_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def stop(index: int) -> None:
        taken.append(index)
        raise UnavailableError("seen enough")

    monkeypatch.setattr(gpu_session, "Card", stop)
    for shown in (1, 4):
        monkeypatch.setattr(gpu_session, "device_count", lambda shown=shown: shown)
        with pytest.raises(UnavailableError, match="seen enough"):
            take_gpu(RankContext(rank=3, n=4, local_rank=3), GpuOptions())
    assert taken == [0, 3]
