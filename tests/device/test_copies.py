"""Plain copies between GPUs, and to host memory, against a CUDA runtime that records calls: what is
allocated, what is freed, and which stream waits for which event.
"""

import ctypes
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from collbench.bench import pairs
from collbench.core.errors import HangError, UnavailableError
from collbench.device import copies

PIECES = 3
PIECE_BYTES = copies._PIECE_BYTES
SIZE = PIECES * PIECE_BYTES


class FakeError(Exception):
    """As CUDARuntimeError."""


class Runtime:
    """Memory is host memory. held: what is not freed. calls: all others. fails_at: the number of
    the allocation that fails. state: of every stream.
    """

    CUDARuntimeError = FakeError
    streamNonBlocking, eventDisableTiming, memcpyDeviceToHost, memcpyHostToDevice = (1, 2, 2, 1)
    gives_back: ClassVar = {
        "free": "memory",
        "freeHost": "pinned",
        "streamDestroy": "stream",
        "eventDestroy": "event",
    }

    def __init__(self, *, fails_at: int = -1, state: int = 0) -> None:
        self.held: dict[tuple[str, int], Any] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.fails_at, self.state = fails_at, state
        self.numbers, self.mallocs = count(1), count(1)

    def _take(self, kind: str, size: int = 0) -> int:
        memory = ctypes.create_string_buffer(size) if size else None
        handle = ctypes.addressof(memory) if memory else next(self.numbers)
        self.held[kind, handle] = memory
        return handle

    def malloc(self, size: int, kind: str = "memory") -> int:
        if next(self.mallocs) == self.fails_at:
            raise FakeError("out of memory")
        return self._take(kind, size)

    def hostAlloc(self, size: int, flags: int) -> int:
        return self.malloc(size, "pinned")

    def streamCreateWithFlags(self, flags: int) -> int:
        return self._take("stream")

    def eventCreateWithFlags(self, flags: int) -> int:
        return self._take("event")

    def memsetAsync(self, pointer: int, value: int, size: int, stream: int) -> None:
        ctypes.memset(pointer, value, size)

    def streamQuery(self, stream: int) -> int:
        return self.state

    def getDevice(self) -> int:
        return 7

    def __getattr__(self, name: str) -> Any:
        if name in self.gives_back:
            return lambda handle: self.held.pop((self.gives_back[name], handle))
        return lambda *args: self.calls.append((name, *args))


class Cupy:
    """CuPy, whose comparisons find no difference."""

    uint8 = "uint8"

    def __init__(self, runtime: Runtime) -> None:
        self.cuda = SimpleNamespace(
            runtime=runtime,
            Device=lambda device: self,
            UnownedMemory=lambda *args: None,
            MemoryPointer=lambda *args: None,
        )

    def __enter__(self) -> None: ...

    def __exit__(self, *args: object) -> None: ...

    def ndarray(self, shape: tuple[int], **more: object) -> bytes:
        return bytes(shape[0])

    def count_nonzero(self, same: object) -> int:
        return PIECE_BYTES


def use(monkeypatch: pytest.MonkeyPatch, runtime: Runtime) -> Runtime:
    monkeypatch.setattr(copies, "load_cupy", lambda: Cupy(runtime))
    return runtime


@pytest.mark.parametrize("is_both", [False, True])
@pytest.mark.parametrize("through_host", [False, True])
def test_everything_allocated_is_freed(
    monkeypatch: pytest.MonkeyPatch, is_both: bool, through_host: bool
) -> None:
    runtime = use(monkeypatch, Runtime())
    assert copies.copy_rate(0, 1, SIZE, is_both=is_both, through_host=through_host).wrong == 0
    assert not runtime.held
    assert runtime.calls[-1] == ("setDevice", 7)


def test_pairs_that_copy_at_once_meet_once_and_free_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime, met = use(monkeypatch, Runtime()), list[int]()
    rates = copies.copy_rates([(0, 1), (2, 3)], SIZE, 0.001, lambda: met.append(len(runtime.calls)))
    assert [(rate.size_bytes, rate.wrong) for rate in rates] == [(SIZE, 0)] * 2
    assert not runtime.held
    (at,) = met
    before, after = (
        [call for call in part if call[0] == "memcpyAsync"]
        for part in (runtime.calls[:at], runtime.calls[at:])
    )
    assert len(before) == 2  # the warm-up of each
    assert {call[1:3] for call in after} == {call[1:3] for call in before}


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4])
def test_memory_is_freed_after_a_failed_allocation(
    monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    runtime = use(monkeypatch, Runtime(fails_at=fails_at))
    with pytest.raises(UnavailableError, match="out of memory"):
        copies.copy_rate(0, 1, SIZE, is_both=True, through_host=True)
    assert not runtime.held


def test_a_piece_of_pinned_memory_waits_until_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the first pieces of a copy, which the previous copy may still be reading."""
    runtime = use(monkeypatch, Runtime())
    copies.copy_rate(0, 1, SIZE, is_both=False, through_host=True)
    queued = [
        call
        for call in runtime.calls
        if call[0] in ("streamWaitEvent", "memcpyAsync", "eventRecord")
    ]
    assert [call[0] for call in queued[:6]] == ["streamWaitEvent", "memcpyAsync", "eventRecord"] * 2
    # the last event recorded behind the reader of each pinned piece
    read: dict[int, int] = {}
    for k in range(0, len(queued), 6):
        wait, fill, _, _, drain, left = queued[k : k + 6]
        pinned = fill[1]
        assert drain[2] == pinned
        assert read.setdefault(pinned, wait[2]) == wait[2] == left[1]


def test_the_median_is_of_the_repeats_without_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Runtime())
    # a fast first repeat must not lower the median
    times: Iterator[float] = iter([0.1, 4.0, 3.0, 2.0])
    monkeypatch.setattr(copies, "_timed", lambda directions, queue: next(times))
    assert copies.copy_rate(0, 1, SIZE, is_both=False, through_host=False).seconds == 3.0


def test_a_copy_that_failed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Runtime(state=700))
    with pytest.raises(UnavailableError, match="GPU 0 and GPU 1: 700"):
        copies.copy_rate(0, 1, SIZE, is_both=False, through_host=False)


def test_copies_that_do_not_end_end_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeing memory, and the next pair, would wait for them forever."""
    runtime = use(monkeypatch, Runtime(state=600))
    monkeypatch.setattr(copies, "_DEADLINE_S", 0.01)
    with pytest.raises(HangError, match="have not ended"):
        list(pairs._by_copies((0, 1), (0, 1), ["copies", "host"]))
    assert runtime.held
