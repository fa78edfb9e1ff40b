"""A rank's part of somebody's kernel, whatever it runs on: how it is made, how ranks meet in a
memory of their host, and what ends one that hangs.
"""

import faulthandler
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from collbench.backends.cpu.flags import LINE_WORDS, FlagBarrier
from collbench.backends.kernel.contract import MEND, KernelCall, KernelFile, KernelRank
from collbench.core.case import Problem
from collbench.core.errors import HangError, UsageError

if TYPE_CHECKING:
    from collbench.core.dtypes import Array

START_S = 120.0  # for all ranks to load what the file imports, and to make their parts
_MESSAGE_BYTES = 4096  # of a rank in an allgather, with its length
_LOOK_S = 0.2  # between two looks at the clock, which interrupt what is timed for microseconds
_GRACE_S = 5.0  # beyond its deadline, until a process ends that sits in C code
_LINE_BYTES = 8 * LINE_WORDS


def arena_bytes(n: int, shared_bytes: int) -> int:
    """Shared memory of n ranks, of which each has so many bytes for its kernel."""
    return (n + 1) * _LINE_BYTES + n * (_MESSAGE_BYTES + shared_bytes)


class KernelPart:
    """A rank's part. arena: memory that all ranks share, zeroed; its first byte says that somebody
    gave up. Behind it are the flags of a barrier, messages, and what is the kernel's.
    """

    def __init__(self, file: KernelFile, arena: memoryview, rank: int, n: int) -> None:
        self.file, self.rank, self.n, self.limit_s = file, rank, n, START_S
        self.arena: Array = np.frombuffer(arena, np.uint8)
        flags = (n + 1) * _LINE_BYTES
        self.barrier = FlagBarrier(
            self.arena[:flags].data.cast("q"), rank, n, lambda: bool(self.arena[0])
        )
        rest = self.arena[flags : flags + n * (_MESSAGE_BYTES + self.file.shared_bytes)]
        self._messages, shared = np.split(rest, [n * _MESSAGE_BYTES])
        self._shared = shared.reshape(n, self.file.shared_bytes)
        self.kernel: Any = None

    def make(self, device: int = -1, stream: int = 0) -> None:
        """Have the file make what it runs. Raises UsageError for what has no run."""
        self.kernel = self.file.module.make(
            KernelRank(
                rank=self.rank,
                ranks=self.n,
                shared=self._shared,
                allgather=self._allgather,
                device=device,
                stream=stream,
            )
        )
        if not callable(getattr(self.kernel, "run", None)):
            raise UsageError(f"what make of {self.file.path.name} returns has no run", MEND)

    def _allgather(self, data: bytes) -> list[bytes]:
        if len(data) > _MESSAGE_BYTES - 8:
            raise ValueError(f"allgather of {len(data)} bytes, of at most {_MESSAGE_BYTES - 8}")
        messages = self._messages.reshape(self.n, _MESSAGE_BYTES)
        framed = len(data).to_bytes(8, "little") + data
        messages[self.rank, : len(framed)] = np.frombuffer(framed, np.uint8)
        self.meet()
        sizes = [int.from_bytes(one[:8].tobytes(), "little") for one in messages]
        found = [one[8 : 8 + size].tobytes() for one, size in zip(messages, sizes, strict=True)]
        self.meet()
        return found

    def meet(self) -> None:
        """Wait for all ranks."""
        self.barrier.meet(range(self.n), self.limit_s)

    def call(self, problem: Problem, source: Any, target: Any) -> KernelCall:
        """What the kernel is called with."""
        return KernelCall(
            op=problem.op,
            source=source,
            target=target,
            count=problem.block_count,
            dtype=problem.dtype,
            redop=problem.redop,
            root=problem.root,
        )

    @contextmanager
    def limit(self, what: str, limit_s: float, *, is_watched: bool = False) -> Iterator[None]:
        """Raise HangError in the body when it has not ended by then, or when another rank gave up;
        it names the line of the file that the rank is at. is_watched: somebody else ends a process
        that does not come back from C code.
        """
        end_s, self.limit_s = time.monotonic() + limit_s, limit_s

        def look(number: int, frame: FrameType | None) -> None:
            is_late = time.monotonic() > end_s
            if not is_late and not self.arena[0]:
                return
            while frame is not None and frame.f_code.co_filename != str(self.file.path):
                frame = frame.f_back
            line = f"line {frame.f_lineno} of " if frame is not None else ""
            after = f"after {limit_s:.0f} s" if is_late else "told to stop"
            raise HangError(
                f"rank {self.rank} is at {line}{self.file.path.name}, in {what}, {after}"
            )

        before = signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
        with Path(os.devnull).open("w") as nowhere:
            if not is_watched:
                faulthandler.dump_traceback_later(limit_s + _GRACE_S, exit=True, file=nowhere)
            try:
                yield
            finally:
                faulthandler.cancel_dump_traceback_later()
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)

    def close(self) -> None:
        """End the rank's part."""
        if hasattr(self.kernel, "close"):
            self.kernel.close()
