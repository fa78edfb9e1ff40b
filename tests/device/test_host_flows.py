"""Copies of GPUs to host memory against a CUDA runtime that only records calls."""

import ctypes
import os
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.core.errors import HangError, UnavailableError
from collbench.device import host_flows
from collbench.device.host_flows import HostFlows

BYTES = 1 << 12


class FakeError(Exception):
    """As CUDARuntimeError."""


class Runtime:
    """Memory is host memory, and copies are done at once. held: what is not freed. is_lazy: copies
    do nothing. state: of every stream.
    """

    CUDARuntimeError = FakeError
    streamNonBlocking = 1

    def __init__(self, *, fails_at: int = -1, is_lazy: bool = False, state: int = 0) -> None:
        self.held: dict[int, Any] = {}
        self.copies: list[tuple[int, int]] = []
        self.numbers, self.fails_at = count(1), fails_at
        self.is_lazy, self.state, self.cores = is_lazy, state, list[int]()

    def malloc(self, size: int) -> int:
        if next(self.numbers) == self.fails_at:
            raise FakeError("out of memory")
        memory = ctypes.create_string_buffer(size)
        self.held[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def hostAlloc(self, size: int, flags: int) -> int:
        self.cores += os.sched_getaffinity(0)
        return self.malloc(size)

    def free(self, pointer: int) -> None:
        del self.held[pointer]

    freeHost = free

    def memsetAsync(self, pointer: int, value: int, size: int, stream: int) -> None:
        ctypes.memset(pointer, value, size)

    def memcpyAsync(self, target: int, source: int, size: int, kind: int, stream: int) -> None:
        self.copies.append((source, target))
        if not self.is_lazy:
            ctypes.memmove(target, source, size)

    def streamCreateWithFlags(self, flags: int) -> int:
        self.held[-(number := next(self.numbers))] = None
        return -number

    streamDestroy = free

    def streamQuery(self, stream: int) -> int:
        return self.state

    def setDevice(self, device: int) -> None: ...
    def streamSynchronize(self, stream: int) -> None: ...


def use(monkeypatch: pytest.MonkeyPatch, runtime: Runtime) -> HostFlows:
    """Copies of three GPUs."""
    monkeypatch.setattr(
        host_flows, "load_cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    )
    monkeypatch.setattr(host_flows, "device_count", lambda: 3)
    monkeypatch.setattr(host_flows, "BYTES", BYTES)
    monkeypatch.setattr(host_flows, "_WINDOW_S", 0.001)
    return HostFlows()


def test_flows_to_the_host_are_compared_and_everything_is_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime, before = Runtime(), os.sched_getaffinity(0)
    with use(monkeypatch, runtime) as flows:
        assert runtime.cores == [min(before), max(before)]
        assert os.sched_getaffinity(0) == before
        rates = flows.rates(((0, 1), (2, 1)))
        assert len(rates) == 2
        assert all(rate > 0 for rate in rates)
        sources, targets = zip(*dict.fromkeys(runtime.copies), strict=True)
        assert (len(set(sources)), len(set(targets))) == (2, 2)
    assert not runtime.held


def test_wrong_bytes_and_copies_that_do_not_end_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime(is_lazy=True)
    with (
        use(monkeypatch, runtime) as flows,
        pytest.raises(UnavailableError, match="came out wrong"),
    ):
        flows.rates(((0, 0),))
    assert not runtime.held
    monkeypatch.setattr("collbench.device.copies._DEADLINE_S", 0.01)
    runtime = Runtime(state=600)
    with use(monkeypatch, runtime) as flows, pytest.raises(HangError, match="have not ended"):
        flows.rates(((0, 0),))
    assert runtime.held  # freeing would wait for the copies


@pytest.mark.parametrize("fails_at", [1, 3, 7, 8])
def test_memory_is_freed_after_a_failed_allocation(
    monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    runtime = Runtime(fails_at=fails_at)
    with pytest.raises(UnavailableError, match="out of memory"), use(monkeypatch, runtime):
        pass
    assert not runtime.held
