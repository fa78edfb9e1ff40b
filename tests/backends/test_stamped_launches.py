"""A rank of the cuda backend that launches kernels with stamps, on a card that only notes what is
queued: the order of it, how long memory lives, and which stamps are kept.
"""

import struct
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from collbench.backends.base import GpuOptions
from collbench.backends.cuda.rank import CudaRank, LoadedGpuPlan, StampOrder
from collbench.backends.gpu.rank import DeviceRank
from collbench.core.case import Case
from collbench.core.errors import HangError, ScheduleError
from collbench.core.group import RankContext
from collbench.core.pattern import Wrong
from collbench.device import layout
from collbench.device.layout import STAMP_BYTES, Memory
from collbench.planning.limits import Limits
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve

PLAIN, STAMPING, TABLE = 11, 12, 1 << 30  # functions, and where stamps go


class NotingCard:
    """In the place of a Card; resident: CTAs of a kernel. A launch with stamps counts itself."""

    name, stream = "card", 7

    def __init__(self, resident: int) -> None:
        self.resident, self.log = resident, list[str]()
        self.stamped = 0
        self.cupy = SimpleNamespace(
            cuda=SimpleNamespace(driver=SimpleNamespace(launchKernel=self._launched))
        )

    def _launched(self, function: int, *shape: int) -> None:
        self.stamped += function == STAMPING
        self.log.append({PLAIN: "plain", STAMPING: "stamping"}[function])

    def function(self, cubin: bytes, name: str) -> int:
        assert (cubin, name) == (b"mine", "collbench_run")
        return STAMPING

    def resident_ctas(self, function: int, threads: int, cluster: int) -> int:
        return self.resident

    def allocate(self, size: int) -> int:
        self.log.append(f"allocate {size}")
        return TABLE

    def event(self) -> int:
        return 1

    def elapsed_s(self, start: int, stop: int) -> float:
        return 1e-5

    def __getattr__(self, name: str) -> Callable[..., None]:
        """What is only noted, of the stamps or of an event."""

        def note(what: int, *size: int) -> None:
            assert what == (1 if name == "record" else TABLE)
            self.log.append(name)

        return note

    def download(self, pointer: int, size: int) -> bytes:
        assert pointer == TABLE
        self.log.append("download")
        return bytes([self.stamped]) * size


def rank_on(card: NotingCard, plan: Plan, *, hangs: bool = False) -> CudaRank:
    """Rank 1 of two, with the plan loaded."""

    def wait(limit_s: float) -> None:
        if hangs:
            raise HangError("rank 0 keeps the others waiting", suspect=((0,), 0))
        card.log.append("wait")

    gpu = SimpleNamespace(
        card=card,
        outside=None,
        timeout_s=10.0,
        prepare=lambda problem, sets, stride: card.log.append("prepare"),
        barrier=lambda: card.log.append("barrier"),
        expect=lambda launches: None,
        wait=wait,
        compare=lambda problem, sets: Wrong(rank=1, count=3, index=0, got="1", wanted="2"),
    )
    rank = CudaRank(RankContext(rank=1, n=2))
    rank._gpu, rank.options = cast(DeviceRank, gpu), GpuOptions()
    memory = Memory(
        arenas=(1 << 20, 2 << 20), own=2 << 20, abort=0, inputs=(1, 2), outputs=(3, 4), program=5,
        aborts=6,
    )  # fmt: skip
    rank.loaded["plan"] = LoadedGpuPlan(plan, 1, b"", PLAIN, memory)
    return rank


def plan_with(limits: Limits | None = None, **knobs: Any) -> Plan:
    case = Case(
        op="allreduce", backend="cuda", transport="p2p", algo="ring", proto="simple", ranks=2,
        size_bytes=1 << 16, cluster=1, **knobs,
    )  # fmt: skip
    return resolve(case, limits or Limits()).plan


def test_launches_take_turns_behind_barriers_and_the_last_keep_their_stamps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, card, slept = plan_with(channels=3), NotingCard(resident=100), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        card.log.append("sleep")

    monkeypatch.setattr(time, "sleep", sleep)
    rank = rank_on(card, plan)
    rank.prepare_trace("plan", [b"other", b"mine"], 5)
    assert card.log == [f"allocate {3 * 5 * STAMP_BYTES}"]
    found = rank.trace("plan", StampOrder(launches=4, kept=2, delays_s=(0.0, 0.5)))
    before = ["prepare", "clear", "barrier"]
    pair = [*before, "record", "plain", "record", "wait"]
    pair += [*before, "sleep", "record", "stamping", "record", "wait"]
    assert card.log[1:] == [*pair * 2, *([*pair, "download"] * 2), "free"]
    assert slept == [0.5] * 4
    assert [set(one) for one in found.stamps] == [{3}, {4}]
    assert {len(one) for one in found.stamps} == {3 * 5 * STAMP_BYTES}
    assert (found.seconds, found.wrong) == ([(1e-5, 1e-5)] * 4, 3)


def test_memory_is_given_back_where_a_rank_hangs() -> None:
    card = NotingCard(resident=100)
    rank = rank_on(card, plan_with(), hangs=True)
    rank.prepare_trace("plan", [b"", b"mine"], 5)
    with pytest.raises(HangError):
        rank.trace("plan", StampOrder(launches=2, kept=2))
    assert card.log[-1] == "free"


def test_stamping_kernels_that_cannot_all_be_resident_are_refused() -> None:
    card = NotingCard(resident=2)
    rank = rank_on(card, plan_with(channels=3))
    with pytest.raises(ScheduleError, match="3 CTAs that stamp wait for each other, 2 can be"):
        rank.prepare_trace("plan", [b"", b"mine"], 5)
    assert not card.log


def test_launches_alone_are_not_dependent() -> None:
    """Otherwise a kernel would begin, and stamp that it does, while ranks are at the barrier."""
    rank = rank_on(NotingCard(resident=100), plan_with(Limits(has_clusters=True), pdl="late"))
    loaded = rank.loaded["plan"]
    assert loaded.plan.kernel is not None
    assert loaded.plan.kernel.pdl == "late"
    stamps = layout.TRACE_ARGS.pack(TABLE, 5)
    assert struct.unpack("<2Q", stamps) == (TABLE, 5)
    launch = rank.launch(loaded, STAMPING, loaded.memory, 0, more_args=[stamps], is_alone=True)
    assert launch._attributed is None
