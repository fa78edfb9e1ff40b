"""Copies of several GPUs to blocks of the host's memory at once, by copy engines: what each reaches
while all of them run.

Memory is allocated once: which NUMA node the pages of a block came from must stay the same. The
blocks are allocated on the first and on the last core, because the pages come from the node of the
core that asks. Every copy is compared byte by byte.
"""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from collbench.core.errors import HangError, UnavailableError
from collbench.device.card import NOT_READY, device_count, load_cupy
from collbench.device.copies import queue_copy, repeated
from collbench.device.cupy_types import Runtime

BYTES = 32 << 20  # of a copy
_MOST = 2  # copies at once: each writes to its own half of a block
_WINDOW_S = 0.03
_PATTERN, _OTHER = 0x5A, 0xA5
_PORTABLE = 1  # cudaHostAllocPortable: pinned for all GPUs


@dataclass(slots=True)
class _Queued:
    """One copy that is repeated."""

    runtime: Runtime
    device: int
    target: int
    source: int
    stream: int

    def by_engine(self) -> None:
        """Queue it once more, by the copy engine of its GPU."""
        self.runtime.setDevice(self.device)
        queue_copy(self.runtime, self.target, self.source, BYTES, self.stream)

    def is_done(self) -> bool:
        """Whether all that were queued are done. Raises the runtime's error if one failed."""
        state: int = self.runtime.streamQuery(self.stream)
        if state not in (0, NOT_READY):
            raise self.runtime.CUDARuntimeError(state)
        return state == 0


class HostFlows:
    """The memory and the streams of all GPUs, and two blocks of host memory. Use as a context.
    Raises UnavailableError where there is not enough memory.
    """

    def __init__(self) -> None:
        self._runtime: Runtime = load_cupy().cuda.runtime
        self.gpus = device_count()
        self._memory: list[int] = []  # of each GPU: what it sends
        self._streams: list[int] = []
        self._blocks: list[int] = []
        self._is_hung = False

    def __enter__(self) -> "HostFlows":
        runtime = self._runtime
        try:
            self._allocate()
        except runtime.CUDARuntimeError as error:
            self.close()
            raise UnavailableError(
                f"memory for copies of {self.gpus} GPUs: {error}",
                "look at nvidia-smi for who uses the memory",
            ) from None
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

    def _allocate(self) -> None:
        runtime = self._runtime
        for gpu in range(self.gpus):
            runtime.setDevice(gpu)
            self._memory.append(int(runtime.malloc(BYTES)))
            self._streams.append(int(runtime.streamCreateWithFlags(runtime.streamNonBlocking)))
            runtime.memsetAsync(self._memory[-1], _PATTERN, BYTES, self._streams[-1])
            runtime.streamSynchronize(self._streams[-1])
        before = os.sched_getaffinity(0)
        runtime.setDevice(0)
        try:
            for core in (min(before), max(before)):
                os.sched_setaffinity(0, {core})
                self._blocks.append(int(runtime.hostAlloc(_MOST * BYTES, _PORTABLE)))
        finally:
            os.sched_setaffinity(0, before)

    def rates(self, flows: Sequence[tuple[int, int]]) -> list[float]:
        """GB/s of one or two flows, from a GPU to a block, while all run. Raises UnavailableError
        if bytes came out wrong, HangError if copies do not end.
        """
        runtime = self._runtime
        targets = [self._blocks[block] + part * BYTES for part, (_, block) in enumerate(flows)]
        queued = [
            _Queued(runtime, gpu, target, self._memory[gpu], self._streams[gpu])
            for (gpu, _), target in zip(flows, targets, strict=True)
        ]
        try:
            repeated(queued, 0.0)  # what is slow the first time
            for target in targets:
                ctypes.memset(target, _OTHER, BYTES)
            seconds = repeated(queued, _WINDOW_S)
        except HangError:
            self._is_hung = True
            raise
        except runtime.CUDARuntimeError as error:
            raise UnavailableError(f"copies failed: {error}", "look at dmesg for an Xid") from None
        right = bytes([_PATTERN]) * BYTES
        if any(ctypes.string_at(target, BYTES) != right for target in targets):
            raise UnavailableError(
                f"copies of GPU {' and '.join(str(gpu) for gpu, _ in flows)} to the host came out"
                " wrong",
                "look at dmesg for an Xid",
            )
        return [BYTES / each / 1e9 for each in seconds]

    def close(self) -> None:
        """Free everything; after a hang freeing would wait for the copies, and the end of the
        process frees it.
        """
        if self._is_hung:
            return
        runtime = self._runtime
        try:
            for gpu, pointer in enumerate(self._memory):
                runtime.setDevice(gpu)
                runtime.free(pointer)
            for pointer in self._blocks:
                runtime.freeHost(pointer)
            for stream in self._streams:
                runtime.streamDestroy(stream)
        except runtime.CUDARuntimeError:
            pass  # after an error of the GPU nothing can be freed any more
        self._memory, self._blocks, self._streams = [], [], []
