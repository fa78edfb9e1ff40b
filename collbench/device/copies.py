"""Plain copies: how one is queued, by a copy engine, by a kernel or through pinned host memory; and
how fast they are between two GPUs of this process, timed by the host's clock and verified.

The kernel copies and does nothing else: nothing here reduces or synchronises ranks. A backend that
times copies as it times collectives is backends/gpu/copies.py.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import median

from collbench.core.errors import HangError, UnavailableError
from collbench.device.card import NOT_READY, Card, Launch, load_cupy
from collbench.device.compile import copy_source, cubin
from collbench.device.cupy_types import Cupy, Runtime

_COPY_THREADS = 512  # of a CTA of the kernel
_ANY_KIND = 4  # cudaMemcpyDefault: addresses determine where memory is
_PIECE_BYTES = 8 << 20  # through the host: one piece arrives while the previous one leaves
_ROUNDS, _REPEATS = 4, 3
_DEADLINE_S = 20.0
_WARM_UP, _PATTERN = 0xA5, 0x5A  # what every byte of the copies is, untimed and timed
_PORTABLE = 1  # cudaHostAllocPortable: pinned for all GPUs


def queue_copy(runtime: Runtime, target: int, source: int, size: int, stream: int) -> None:
    """Queue one copy, by the copy engine of the stream's GPU, between any two memories."""
    runtime.memcpyAsync(target, source, size, _ANY_KIND, stream)


class CopyKernel:
    """The kernel that copies, loaded on a GPU."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._function = card.function(cubin(copy_source(), card.arch), "collbench_copy")

    def queue(self, target: int, source: int, size: int, ctas: int, stream: int) -> None:
        """Queue one copy, by so many CTAs."""
        args = [word.to_bytes(8, "little") for word in (target, source, size)]
        Launch(self._card, self._function, (ctas, 1), _COPY_THREADS, args)(stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRate:
    """Seconds of one copy of `size_bytes` each way, and the number of wrong bytes."""

    seconds: float
    size_bytes: int
    wrong: int

    @property
    def gbs(self) -> float:
        """GB/s per direction."""
        return self.size_bytes / self.seconds / 1e9


class _Direction:
    """One direction: source and target memory, and the streams of both GPUs. open() may fail
    half-way; close() frees what was allocated.
    """

    def __init__(self, runtime: Runtime, source: int, target: int, size: int) -> None:
        self.runtime, self.source, self.target, self.size = runtime, source, target, size
        self.memory: list[int] = []  # of the source and of the target
        self.pinned: list[int] = []
        self.streams: list[int] = []
        self.events: list[int] = []

    def open(self, *, through_host: bool) -> None:
        """Allocate memory and streams."""
        runtime = self.runtime
        for device in (self.source, self.target):
            runtime.setDevice(device)
            self.memory.append(int(runtime.malloc(self.size)))
            self.streams.append(int(runtime.streamCreateWithFlags(runtime.streamNonBlocking)))
            if through_host:
                self.pinned.append(int(runtime.hostAlloc(_PIECE_BYTES, _PORTABLE)))
                self.events += [
                    int(runtime.eventCreateWithFlags(runtime.eventDisableTiming)) for _ in range(2)
                ]

    def enable_peers(self) -> None:
        """Let both GPUs access each other's memory where they can; or else the driver stages."""
        for device, peer in ((self.source, self.target), (self.target, self.source)):
            if self.runtime.deviceCanAccessPeer(device, peer):
                self.runtime.setDevice(device)
                # it raises where it is enabled already
                with suppress(self.runtime.CUDARuntimeError):
                    self.runtime.deviceEnablePeerAccess(peer)

    def fill(self, word: int) -> None:
        """Write a byte everywhere at the source, and another at the target. The rest of the GPU is
        not waited for: that would break a graph that another thread captures on it.
        """
        ends = zip((self.source, self.target), self.memory, self.streams, strict=True)
        for (device, pointer, stream), value in zip(ends, (word, ~word & 0xFF), strict=True):
            self.runtime.setDevice(device)
            self.runtime.memsetAsync(pointer, value, self.size, stream)
            self.runtime.streamSynchronize(stream)

    def by_engine(self) -> None:
        """Queue one copy by the copy engine of the source's GPU."""
        source, target = self.memory
        queue_copy(self.runtime, target, source, self.size, self.streams[0])

    def by_host(self) -> None:
        """Queue one copy through two pieces of pinned memory: one is read while the other is
        written.
        """
        runtime, (out, into) = self.runtime, self.streams
        source, target = self.memory
        for number, offset in enumerate(range(0, self.size, _PIECE_BYTES)):
            size, piece = min(_PIECE_BYTES, self.size - offset), number % 2
            filled, emptied = self.events[piece], self.events[2 + piece]
            pinned = self.pinned[piece]
            runtime.setDevice(self.source)
            # the piece that used this memory last has left it, also one of the previous copy
            runtime.streamWaitEvent(out, emptied)
            queue_copy(runtime, pinned, source + offset, size, out)
            runtime.eventRecord(filled, out)
            runtime.setDevice(self.target)
            runtime.streamWaitEvent(into, filled)
            queue_copy(runtime, target + offset, pinned, size, into)
            runtime.eventRecord(emptied, into)

    def is_done(self) -> bool:
        """Whether all queued copies are done. Raises the runtime's error if a copy failed."""
        states = [self.runtime.streamQuery(stream) for stream in self.streams]
        for state in states:
            if state not in (0, NOT_READY):
                raise self.runtime.CUDARuntimeError(state)
        return not any(states)

    def wrong(self, cupy: Cupy) -> int:
        """Bytes of the target that differ from the source; piece by piece, because a comparison
        needs memory.
        """
        with cupy.cuda.Device(self.target):
            memory = cupy.cuda.UnownedMemory(self.memory[1], self.size, self)
            bytes_there = cupy.ndarray(
                (self.size,), dtype=cupy.uint8, memptr=cupy.cuda.MemoryPointer(memory, 0)
            )
            right = sum(
                int(cupy.count_nonzero(bytes_there[first : first + _PIECE_BYTES] == _PATTERN))
                for first in range(0, self.size, _PIECE_BYTES)
            )
        return self.size - right

    def close(self) -> None:
        """Free what was allocated. After an error of the GPU nothing can be freed any more."""
        runtime = self.runtime
        with suppress(runtime.CUDARuntimeError):
            for device, pointer in zip((self.source, self.target), self.memory, strict=False):
                runtime.setDevice(device)
                runtime.free(pointer)
            for pointer in self.pinned:
                runtime.freeHost(pointer)
            for event in self.events:
                runtime.eventDestroy(event)
            for stream in self.streams:
                runtime.streamDestroy(stream)


@contextmanager
def _opened(
    cupy: Cupy, pairs: Sequence[tuple[int, int]], size_bytes: int, *, through_host: bool
) -> Iterator[list[_Direction]]:
    """Directions with their memory, which is given back. Raises UnavailableError if there is not
    enough memory.
    """
    runtime = cupy.cuda.runtime
    directions = [_Direction(runtime, a, b, size_bytes) for a, b in pairs]
    before = runtime.getDevice()
    try:
        for direction in directions:
            direction.open(through_host=through_host)
        yield directions
    # CuPy's own allocations raise a MemoryError
    except (runtime.CUDARuntimeError, MemoryError) as error:
        raise UnavailableError(
            f"copies between {', '.join(f'GPU {a} and GPU {b}' for a, b in pairs)}: {error}",
            "look at nvidia-smi for who uses the memory",
        ) from None
    except HangError:
        directions = []  # freeing memory would wait for the copies; the end of the process frees it
        raise
    finally:
        for direction in directions:
            direction.close()
        runtime.setDevice(before)


def copy_rate(a: int, b: int, size_bytes: int, *, is_both: bool, through_host: bool) -> CopyRate:
    """Copy from GPU a to GPU b, or both ways at once, several times; the median of the repeats.
    GPUs are CUDA indices; through the host they may be the same one.

    Raises UnavailableError if there is not enough memory, HangError if copies do not end.
    """
    cupy = load_cupy()
    pairs = [(a, b), (b, a)] if is_both else [(a, b)]
    with _opened(cupy, pairs, size_bytes, through_host=through_host) as directions:
        queue = _Direction.by_host if through_host else _Direction.by_engine
        for word, repeats in ((_WARM_UP, 1), (_PATTERN, _REPEATS)):
            for direction in directions:
                direction.fill(word)
            times = [_timed(directions, queue) for _ in range(repeats)]
        wrong = sum(direction.wrong(cupy) for direction in directions)
        return CopyRate(seconds=median(times), size_bytes=size_bytes, wrong=wrong)


def copy_rates(
    pairs: Sequence[tuple[int, int]],
    size_bytes: int,
    window_s: float,
    meet: Callable[[], None] = lambda: None,
) -> list[CopyRate]:
    """Copy from the first to the second GPU of every pair, all at once, each again and again for
    window_s; the mean of each. meet: what others wait for too, before the first timed copy.

    Raises UnavailableError if there is not enough memory, HangError if copies do not end.
    """
    cupy = load_cupy()
    with _opened(cupy, pairs, size_bytes, through_host=False) as directions:
        for direction in directions:
            direction.enable_peers()
        for word, seconds in ((_WARM_UP, 0.0), (_PATTERN, window_s)):
            for direction in directions:
                direction.fill(word)
            if word == _PATTERN:
                meet()
            times = _repeated(directions, seconds)
        return [
            CopyRate(seconds=time, size_bytes=size_bytes, wrong=direction.wrong(cupy))
            for direction, time in zip(directions, times, strict=True)
        ]


def _repeated(directions: Sequence[_Direction], window_s: float) -> list[float]:
    """Seconds of a copy of each, all of which repeat theirs for window_s. Raises HangError."""
    start = time.perf_counter()
    copies, ends = [0] * len(directions), [0.0] * len(directions)
    running = list(range(len(directions)))
    while running:
        for number in running:
            if copies[number] == 0 or directions[number].is_done():
                ends[number] = time.perf_counter() - start
                if copies[number] and ends[number] >= window_s:
                    running = [other for other in running if other != number]
                    continue
                directions[number].by_engine()
                copies[number] += 1
            elif time.perf_counter() - start > window_s + _DEADLINE_S:
                raise HangError(f"copies have not ended after {_DEADLINE_S:.0f} s")
        time.sleep(0)
    return [end / number for end, number in zip(ends, copies, strict=True)]


def _timed(directions: list[_Direction], queue: Callable[[_Direction], None]) -> float:
    """Seconds of one copy each way; the host's clock, over copies that take milliseconds."""
    start = time.perf_counter()
    for _ in range(_ROUNDS):
        for direction in directions:
            queue(direction)
    while not all(direction.is_done() for direction in directions):
        if time.perf_counter() - start > _DEADLINE_S:
            raise HangError(f"copies have not ended after {_DEADLINE_S:.0f} s")
        time.sleep(20e-6)
    return (time.perf_counter() - start) / _ROUNDS
