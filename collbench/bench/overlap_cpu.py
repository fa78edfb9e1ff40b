"""What computes on CPUs beside a collective: a process a rank, which computes in its cache or
copies in memory. The collective is timed as in a sweep, and all clocks are the host's.
"""

import math
import mmap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np

from collbench.backends.base import Batch, Samples, Session, SessionFacts
from collbench.backends.gpu.concurrent import ConcurrentRepeat, EventTimes
from collbench.bench.points import Job
from collbench.core.group import Group, Rank, RankContext
from collbench.core.pattern import Wrong

_ALONE_S = 0.2  # of a load without launches
_ITEMS, _TURNS = 4096, 50  # 16 KiB stay in the cache of a core; the turns take about 1 ms
_COPY_BYTES = 64 << 20
_PIECE_BYTES = 4 << 20  # takes about 1 ms
_PATIENCE_S = 600.0


class LoadRank(Rank):
    """One process of the load."""

    stop: ClassVar[mmap.mmap]  # shared with the driver, which ends a load by its first byte

    def __init__(self, context: RankContext) -> None:
        self._items = np.linspace(-1, 1, _ITEMS, dtype=np.float32)
        self._computed = np.empty_like(self._items)
        self._source = np.ones((_COPY_BYTES // _PIECE_BYTES, _PIECE_BYTES), np.uint8)
        self._target, self._piece = np.ones_like(self._source), 0

    def _compute(self) -> None:
        for _ in range(_TURNS):
            np.exp(self._items, out=self._computed)

    def _copy(self) -> None:
        self._piece = (self._piece + 1) % len(self._source)
        np.copyto(self._target[self._piece], self._source[self._piece])

    def run(self, is_memory: bool, seconds: float) -> list[float]:
        """Marks between turns, until the time is up or the driver ends it."""
        turn: Callable[[], None] = self._copy if is_memory else self._compute
        marks = [time.perf_counter()]
        while marks[-1] < marks[0] + seconds and not self.stop[0]:
            turn()
            marks.append(time.perf_counter())
        return marks


class CpuOverlapSession(SessionFacts):
    """A session of a backend of CPUs, with loads beside its launches."""

    def __init__(self, group: Group, session: Session[Job], ranks: int) -> None:
        self._session = session
        self.device, self.version, self.host = session.device, session.version, session.host
        LoadRank.stop = mmap.mmap(-1, mmap.PAGESIZE)
        self._loads = group.shared_workers(LoadRank, ranks, mmap.PAGESIZE)

    def _load(self, is_memory: bool, seconds: float) -> list[list[float]]:
        LoadRank.stop[0] = 0
        return self._loads.call(LoadRank.run, is_memory, seconds, timeout_s=_PATIENCE_S)

    def run_concurrently(
        self, job: Job, size: int | None, repeats: int
    ) -> tuple[list[ConcurrentRepeat], list[Wrong]]:
        """Launches alone, a load alone, and both at once. size: None: memory is copied; else cores
        compute, whatever it is.
        """
        found, wrong = list[ConcurrentRepeat](), list[Wrong]()
        is_memory, batch = size is None, Batch()
        for _ in range(repeats):
            loads, alone = self._load(is_memory, _ALONE_S), self._session.run(job, batch)
            # as many launches beside the load as alone, whatever they take there
            batch = Batch(iterations=alone.iterations)
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(self._load, is_memory, math.inf)
                try:
                    both = self._session.run(job, batch)
                finally:
                    LoadRank.stop[0] = 1
                marks = running.result()
            wrong += [*alone.wrong, *both.wrong]
            found.append(
                ConcurrentRepeat(
                    gemms=1,
                    launches=alone.iterations,
                    computing_alone=tuple(_since(one[0], one) for one in loads),
                    launches_alone=(_launches(alone),),
                    both=tuple(_since(both.span[0], one, both) for one in marks),
                    notes=tuple(dict.fromkeys((*alone.notes, *both.notes))),
                )
            )
        return found, wrong

    def close(self) -> None:
        """End the loads and the ranks."""
        self._loads.close()
        self._session.close()


def _launches(samples: Samples) -> EventTimes:
    return EventTimes(launches=(0.0, samples.span[1] - samples.span[0]))


def _since(start: float, marks: list[float], beside: Samples | None = None) -> EventTimes:
    """Marks of a load since a moment, with the launches beside it."""
    launches = _launches(beside).launches if beside else ()
    return EventTimes(computing=tuple(mark - start for mark in marks), launches=launches)
