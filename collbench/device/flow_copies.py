"""Copies that run at once, between GPUs of this process and blocks of the host's memory, by copy
engines: what each reaches while all of them run.

Memory is allocated once: which NUMA node the pages of a block came from must stay the same. A block
is allocated on a core of its own, because the pages come from the node of the core that asks. Every
copy is compared byte by byte.
"""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from collbench.device.card import NOT_READY, device_count, load_cupy
from collbench.device.copies import queue_copy, repeated
from collbench.device.cupy_types import Cupy, Runtime
from collbench.util.errors import HangError, UnavailableError

BYTES = 32 << 20  # of a copy
_REGIONS = 2  # of a block: so many GPUs write to memory of their own
_WINDOW_S = 0.03
_PATTERN, _OTHER = 0x5A, 0xA5
_PORTABLE = 1  # cudaHostAllocPortable: pinned for all GPUs
_STREAMS = 2  # of a GPU: what it sends at once
_PEER_COPIES = 4  # that are queued together: one takes less than what queues it over NVLink


@dataclass(slots=True)
class _Queued:
    """One copy that is repeated."""

    runtime: Runtime
    device: int
    target: int
    source: int
    stream: int
    times: int  # that it is queued together

    def by_engine(self) -> None:
        """Queue it once more, by the copy engine of its GPU."""
        self.runtime.setDevice(self.device)
        for _ in range(self.times):
            queue_copy(self.runtime, self.target, self.source, BYTES, self.stream)

    def is_done(self) -> bool:
        """Whether all that were queued are done. Raises the runtime's error if one failed."""
        state: int = self.runtime.streamQuery(self.stream)
        if state not in (0, NOT_READY):
            raise self.runtime.CUDARuntimeError(state)
        return state == 0


class FlowCopies:
    """The memory and the streams of all GPUs, and blocks of host memory allocated on some cores.
    Use as a context. Raises UnavailableError where there is not enough memory.
    """

    def __init__(self, cores: Sequence[int]) -> None:
        self._cupy: Cupy = load_cupy()
        self._runtime = self._cupy.cuda.runtime
        self._cores = cores
        self.gpus = device_count()
        self._memory: list[tuple[int, int]] = []  # of each GPU: what it sends, and receives
        self._streams: list[list[int]] = []
        self._blocks: list[int] = []
        self._is_hung = False
        self.peers: frozenset[tuple[int, int]] = frozenset()

    def __enter__(self) -> "FlowCopies":
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> None:
        runtime = self._runtime
        try:
            for gpu in range(self.gpus):
                runtime.setDevice(gpu)
                sent = int(runtime.malloc(BYTES))
                self._memory.append((sent, 0))
                self._memory[-1] = sent, int(runtime.malloc(BYTES))
                runtime.memset(sent, _PATTERN, BYTES)
                runtime.deviceSynchronize()
                self._streams.append([])
                for _ in range(_STREAMS):
                    stream = int(runtime.streamCreateWithFlags(runtime.streamNonBlocking))
                    self._streams[gpu].append(stream)
            self._allocate_blocks()
            self.peers = frozenset(self._enabled_peers())
        except runtime.CUDARuntimeError as error:
            raise UnavailableError(
                f"memory for copies of {self.gpus} GPUs: {error}",
                "look at nvidia-smi for who uses the memory",
            ) from None

    def _allocate_blocks(self) -> None:
        before = os.sched_getaffinity(0)
        self._runtime.setDevice(0)
        try:
            for core in self._cores:
                os.sched_setaffinity(0, {core})
                self._blocks.append(int(self._runtime.hostAlloc(_REGIONS * BYTES, _PORTABLE)))
        finally:
            os.sched_setaffinity(0, before)

    def _enabled_peers(self) -> list[tuple[int, int]]:
        """Pairs of GPUs of which the first reaches the other's memory, which is enabled here."""
        runtime, pairs = self._runtime, []
        for a in range(self.gpus):
            runtime.setDevice(a)
            for b in range(self.gpus):
                if a != b and runtime.deviceCanAccessPeer(a, b):
                    try:
                        runtime.deviceEnablePeerAccess(b)
                    except runtime.CUDARuntimeError as error:
                        if "AlreadyEnabled" not in str(error):
                            raise
                    pairs.append((a, b))
        return pairs

    def rates(self, flows: Sequence[tuple[int, int]]) -> list[float]:
        """GB/s of each flow, from a GPU to another one or to a block (-1 - its number), while all
        run. Raises UnavailableError if bytes came out wrong, HangError if copies do not end.
        """
        runtime = self._runtime
        sent: dict[int, int] = {}
        queued, targets = [], []
        for source, target in flows:
            stream = self._streams[source][sent.get(source, 0)]
            sent[source] = sent.get(source, 0) + 1
            to = (
                self._memory[target][1]
                if target >= 0
                else self._blocks[-1 - target] + source % _REGIONS * BYTES
            )
            times = _PEER_COPIES if target >= 0 else 1
            queued.append(_Queued(runtime, source, to, self._memory[source][0], stream, times))
            targets.append((target, to))
        try:
            repeated(queued, 0.0)  # what is slow the first time
            for target, to in targets:
                self._poison(target, to)
            seconds = repeated(queued, _WINDOW_S)
        except HangError:
            self._is_hung = True
            raise
        except runtime.CUDARuntimeError as error:
            raise UnavailableError(f"copies failed: {error}", "look at dmesg for an Xid") from None
        wrong = [target for target, to in targets if not self._is_right(target, to)]
        if wrong:
            raise UnavailableError(
                f"copies {', '.join(f'{a} > {b}' for a, b in flows)} came out wrong",
                "collbench doctor --explain redirected-peers",
            )
        return [one.times * BYTES / each / 1e9 for one, each in zip(queued, seconds, strict=True)]

    def _poison(self, target: int, pointer: int) -> None:
        if target < 0:
            ctypes.memset(pointer, _OTHER, BYTES)
            return
        self._runtime.setDevice(target)
        self._runtime.memset(pointer, _OTHER, BYTES)
        self._runtime.deviceSynchronize()

    def _is_right(self, target: int, pointer: int) -> bool:
        if target < 0:
            return ctypes.string_at(pointer, BYTES) == bytes([_PATTERN]) * BYTES
        with self._cupy.cuda.Device(target):
            memory = self._cupy.cuda.UnownedMemory(pointer, BYTES, self)
            there = self._cupy.ndarray(
                (BYTES,), dtype=self._cupy.uint8, memptr=self._cupy.cuda.MemoryPointer(memory, 0)
            )
            return int(self._cupy.count_nonzero(there == _PATTERN)) == BYTES

    def close(self) -> None:
        """Free everything; after a hang freeing would wait for the copies, and the end of the
        process frees it.
        """
        if self._is_hung:
            return
        runtime = self._runtime
        try:
            for gpu, pointers in enumerate(self._memory):
                runtime.setDevice(gpu)
                for pointer in filter(None, pointers):
                    runtime.free(pointer)
            for pointer in self._blocks:
                runtime.freeHost(pointer)
            for stream in (stream for streams in self._streams for stream in streams):
                runtime.streamDestroy(stream)
        except runtime.CUDARuntimeError:
            pass  # after an error of the GPU nothing can be freed any more
        self._memory, self._blocks, self._streams = [], [], []
