"""Plain copies between two GPUs of this process, timed and verified: by the copy engines, or
through pinned host memory.

They show what a transport by copy engines, or one through the host, could reach. Nothing here runs
a kernel of ours.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

from collbench.device.card import NOT_READY, load_cupy
from collbench.util.errors import HangError, UnavailableError

_PIECE_BYTES = 8 << 20  # through the host: one piece arrives while the previous one leaves
_ROUNDS, _REPEATS = 4, 3
_DEADLINE_S = 20.0
_PATTERN = 0x5A
_PORTABLE = 1  # cudaHostAllocPortable: pinned for all GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Seconds of one copy of `size_bytes` each way, and the number of wrong bytes."""

    seconds: float
    size_bytes: int
    wrong: int

    @property
    def gbs(self) -> float:
        """GB/s per direction."""
        return self.size_bytes / self.seconds / 1e9


class _Way:
    """One direction: source and target memory, and the streams of both GPUs. open() may fail
    half-way; close() frees what was allocated.
    """

    def __init__(self, runtime: Any, source: int, target: int, size: int) -> None:
        self.runtime, self.source, self.target, self.size = runtime, source, target, size
        self.at: dict[int, int] = {}
        self.pinned: list[int] = []
        self.streams: list[int] = []
        self.events: list[int] = []

    def open(self, *, through_host: bool) -> None:
        """Allocate memory and streams."""
        runtime = self.runtime
        for device in (self.source, self.target):
            runtime.setDevice(device)
            self.at[device] = int(runtime.malloc(self.size))
            self.streams.append(int(runtime.streamCreateWithFlags(runtime.streamNonBlocking)))
            if through_host:
                self.pinned.append(int(runtime.hostAlloc(_PIECE_BYTES, _PORTABLE)))
                for _ in range(2):
                    self.events.append(
                        int(runtime.eventCreateWithFlags(runtime.eventDisableTiming))
                    )

    def fill(self) -> None:
        """Write a pattern at the source and poison at the target."""
        for device, word in ((self.source, _PATTERN), (self.target, ~_PATTERN & 0xFF)):
            self.runtime.setDevice(device)
            self.runtime.memset(self.at[device], word, self.size)
            self.runtime.deviceSynchronize()

    def by_engine(self) -> None:
        """Queue one copy by the copy engine of the source's GPU."""
        self.runtime.memcpyPeerAsync(
            self.at[self.target],
            self.target,
            self.at[self.source],
            self.source,
            self.size,
            self.streams[0],
        )

    def by_host(self) -> None:
        """Queue one copy through two pieces of pinned memory: one is read while the other is
        written.
        """
        runtime, (out, into) = self.runtime, self.streams
        for number, offset in enumerate(range(0, self.size, _PIECE_BYTES)):
            size, turn = min(_PIECE_BYTES, self.size - offset), number % 2
            came, left = self.events[turn], self.events[2 + turn]
            runtime.setDevice(self.source)
            # the piece that used this memory last has left it, also one of the previous copy
            runtime.streamWaitEvent(out, left)
            runtime.memcpyAsync(
                self.pinned[turn],
                self.at[self.source] + offset,
                size,
                runtime.memcpyDeviceToHost,
                out,
            )
            runtime.eventRecord(came, out)
            runtime.setDevice(self.target)
            runtime.streamWaitEvent(into, came)
            runtime.memcpyAsync(
                self.at[self.target] + offset,
                self.pinned[turn],
                size,
                runtime.memcpyHostToDevice,
                into,
            )
            runtime.eventRecord(left, into)

    def is_done(self) -> bool:
        """Whether all queued copies are done. Raises the runtime's error if a copy failed."""
        states = [self.runtime.streamQuery(stream) for stream in self.streams]
        for state in states:
            if state not in (0, NOT_READY):
                raise self.runtime.CUDARuntimeError(state)
        return not any(states)

    def wrong(self, cupy: Any) -> int:
        """Bytes of the target that differ from the source; piece by piece, because a comparison
        needs memory.
        """
        with cupy.cuda.Device(self.target):
            memory = cupy.cuda.UnownedMemory(self.at[self.target], self.size, self)
            there = cupy.ndarray(
                (self.size,), dtype=cupy.uint8, memptr=cupy.cuda.MemoryPointer(memory, 0)
            )
            right = sum(
                int(cupy.count_nonzero(there[at : at + _PIECE_BYTES] == _PATTERN))
                for at in range(0, self.size, _PIECE_BYTES)
            )
        return self.size - right

    def close(self) -> None:
        """Free what was allocated. After an error of the GPU nothing can be freed any more."""
        runtime = self.runtime
        with suppress(runtime.CUDARuntimeError):
            for device, pointer in self.at.items():
                runtime.setDevice(device)
                runtime.free(pointer)
            for pointer in self.pinned:
                runtime.freeHost(pointer)
            for event in self.events:
                runtime.eventDestroy(event)
            for stream in self.streams:
                runtime.streamDestroy(stream)


def copied(a: int, b: int, size_bytes: int, *, is_both: bool, through_host: bool) -> Copied:
    """Copy from GPU a to GPU b, or both ways at once, several times; the median of the repeats.
    GPUs are CUDA indices.

    Raises UnavailableError if there is not enough memory, HangError if copies do not end.
    """
    cupy = load_cupy()
    runtime = cupy.cuda.runtime
    ways = [
        _Way(runtime, source, target, size_bytes)
        for source, target in ([(a, b), (b, a)] if is_both else [(a, b)])
    ]
    before = runtime.getDevice()
    try:
        for way in ways:
            way.open(through_host=through_host)
            way.fill()
        queue: Callable[[_Way], None] = _Way.by_host if through_host else _Way.by_engine
        _, *times = (_timed(ways, queue) for _ in range(1 + _REPEATS))  # the first warms up
        return Copied(
            seconds=median(times), size_bytes=size_bytes, wrong=sum(way.wrong(cupy) for way in ways)
        )
    # CuPy's own allocations raise a MemoryError
    except (runtime.CUDARuntimeError, MemoryError) as error:
        raise UnavailableError(
            f"copies between GPU {a} and GPU {b}: {error}",
            "look at nvidia-smi for who uses the memory",
        ) from None
    except HangError:
        ways = []  # freeing memory would wait for the copies; the end of the process frees it
        raise
    finally:
        for way in ways:
            way.close()
        runtime.setDevice(before)


def _timed(ways: list[_Way], queue: Callable[[_Way], None]) -> float:
    """Seconds of one copy each way; the host's clock, over copies that take milliseconds."""
    start = time.perf_counter()
    for _ in range(_ROUNDS):
        for way in ways:
            queue(way)
    while not all(way.is_done() for way in ways):
        if time.perf_counter() - start > _DEADLINE_S:
            raise HangError(f"copies have not ended after {_DEADLINE_S:.0f} s")
        time.sleep(20e-6)
    return (time.perf_counter() - start) / _ROUNDS
