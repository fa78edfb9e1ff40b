"""Plain copies between two GPUs of this process, timed and compared: by the copy engines, or through pinned host memory.

They stand for what a transport of copy engines, or one through the host, could reach. Nothing here runs a kernel of ours.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from collbench.device.card import load_cupy
from collbench.errors import StuckError, UnavailableError

_PIECE_BYTES = 8 << 20  # through the host: one piece comes in while the one before goes out
_ROUNDS, _REPEATS = 4, 3
_DEADLINE_S = 20.0
_WORD = 0x5A


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Seconds of one copy each way of `size_bytes`, and the bytes that came out wrong."""

    seconds: float
    size_bytes: int
    wrong: int

    @property
    def gbs(self) -> float:
        """GB/s per direction."""
        return self.size_bytes / self.seconds / 1e9


class _Way:
    """One direction: source and target memory, and a stream of the source's GPU. Raises UnavailableError if memory is short."""

    def __init__(self, runtime: Any, source: int, target: int, size: int) -> None:
        self.runtime, self.source, self.target, self.size = runtime, source, target, size
        self.at: dict[int, int] = {}
        self.pinned: tuple[int, int] = (0, 0)
        for device in (target, source):
            runtime.setDevice(device)
            self.at[device] = int(runtime.malloc(size))
        self.stream, self.out = (int(runtime.streamCreateWithFlags(runtime.streamNonBlocking)) for _ in range(2))
        runtime.setDevice(target)
        self.back = int(runtime.streamCreateWithFlags(runtime.streamNonBlocking))

    def fill(self) -> None:
        """A pattern at the source, poison at the target."""
        for device, word in ((self.source, _WORD), (self.target, ~_WORD & 0xFF)):
            self.runtime.setDevice(device)
            self.runtime.memset(self.at[device], word, self.size)
            self.runtime.deviceSynchronize()

    def by_engine(self) -> None:
        """Queue one copy by the copy engine of the source's GPU."""
        self.runtime.memcpyPeerAsync(self.at[self.target], self.target, self.at[self.source], self.source, self.size, self.stream)

    def by_host(self) -> None:
        """Queue one copy through two pieces of pinned memory, out of the source and into the target side by side."""
        runtime = self.runtime
        if not self.pinned[0]:
            self.pinned = (int(runtime.hostAlloc(_PIECE_BYTES, 1)), int(runtime.hostAlloc(_PIECE_BYTES, 1)))
            self.events = [[self._event(device) for device in (self.source, self.target)] for _ in range(2)]
        for number, offset in enumerate(range(0, self.size, _PIECE_BYTES)):
            size, turn = min(_PIECE_BYTES, self.size - offset), number % 2
            came, left = self.events[turn]
            runtime.setDevice(self.source)
            if number >= 2:
                runtime.streamWaitEvent(self.stream, left)
            runtime.memcpyAsync(self.pinned[turn], self.at[self.source] + offset, size, runtime.memcpyDeviceToHost, self.stream)
            runtime.eventRecord(came, self.stream)
            runtime.setDevice(self.target)
            runtime.streamWaitEvent(self.back, came)
            runtime.memcpyAsync(self.at[self.target] + offset, self.pinned[turn], size, runtime.memcpyHostToDevice, self.back)
            runtime.eventRecord(left, self.back)

    def _event(self, device: int) -> int:
        self.runtime.setDevice(device)
        return int(self.runtime.eventCreateWithFlags(self.runtime.eventDisableTiming))

    def is_done(self) -> bool:
        """Whether nothing that was queued is left."""
        return all(self.runtime.streamQuery(stream) == 0 for stream in (self.stream, self.back))

    def wrong(self, cupy: Any) -> int:
        """Bytes of the target that are not the source's."""
        with cupy.cuda.Device(self.target):
            memory = cupy.cuda.UnownedMemory(self.at[self.target], self.size, self)
            there = cupy.ndarray((self.size,), dtype=cupy.uint8, memptr=cupy.cuda.MemoryPointer(memory, 0))
            return int(self.size - cupy.count_nonzero(there == _WORD))

    def close(self) -> None:
        """Give memory and streams back."""
        for device, pointer in self.at.items():
            self.runtime.setDevice(device)
            self.runtime.free(pointer)
        for pointer in self.pinned:
            if pointer:
                self.runtime.freeHost(pointer)
        for stream in (self.stream, self.out, self.back):
            self.runtime.streamDestroy(stream)


def copied(a: int, b: int, size_bytes: int, *, is_both: bool, through_host: bool) -> Copied:
    """Copy from GPU a to GPU b, or both ways at once, several times; the median of the repeats. GPUs are CUDA's numbers.

    Raises UnavailableError if the memory is not there, StuckError if copies do not end.
    """
    cupy = load_cupy()
    runtime = cupy.cuda.runtime
    ways: list[_Way] = []
    try:
        ways += [_Way(runtime, source, target, size_bytes) for source, target in ([(a, b), (b, a)] if is_both else [(a, b)])]
        for way in ways:
            way.fill()
        queue: Callable[[_Way], None] = _Way.by_host if through_host else _Way.by_engine
        times = sorted(_timed(ways, queue) for _ in range(_REPEATS + 1))
        return Copied(seconds=times[len(times) // 2 - 1], size_bytes=size_bytes, wrong=sum(way.wrong(cupy) for way in ways))
    except runtime.CUDARuntimeError as error:
        raise UnavailableError(f"copies between GPU {a} and GPU {b}: {error}", "look at nvidia-smi for who uses the memory") from None
    finally:
        for way in ways:
            way.close()


def _timed(ways: list[_Way], queue: Callable[[_Way], None]) -> float:
    """Seconds of one copy each way; the host's clock, over copies that take milliseconds."""
    start = time.perf_counter()
    for _ in range(_ROUNDS):
        for way in ways:
            queue(way)
    while not all(way.is_done() for way in ways):
        if time.perf_counter() - start > _DEADLINE_S:
            raise StuckError(f"copies have not ended after {_DEADLINE_S:.0f} s")
        time.sleep(20e-6)
    return (time.perf_counter() - start) / _ROUNDS
