"""Somebody's kernel on GPUs: in the same graphs, by the same clock and checks as ours.

Nothing ends a kernel that hangs but the end of its process, so each rank is a process of its own.
"""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from collbench.backends.base import GpuOptions
from collbench.backends.gpu.memory import GpuArray
from collbench.backends.gpu.rank import Graphs, Launches, stride_bytes
from collbench.backends.gpu.session import START_S, GpuRank, GpuSession, repeat_limit_s
from collbench.backends.kernel.contract import KernelCall, KernelFile
from collbench.backends.kernel.guards import GUARD, guarded, stray, zones
from collbench.backends.kernel.part import KernelPart, arena_bytes
from collbench.core.case import Case, Problem
from collbench.core.errors import CollbenchError
from collbench.core.pattern import Wrong
from collbench.launch.group import Group

KernelKey = tuple[Problem, int]  # what is launched, and how many sets of user buffers there are
# a kernel that is loaded at its first launch waits for those that run, which may wait for it
VARIABLES = (("CUDA_MODULE_LOADING", "EAGER"),)


class GuardedLaunches(Launches):
    """Launches on user buffers between guard zones."""

    __slots__ = ()

    def compare(self, sets: range) -> Wrong | None:
        wrong = super().compare(sets)
        for number in sets and range(self.sets):
            seen = [self.gpu.card.download(*zone) for zone in placed(self, number)]
            wrong = wrong or stray(self.problem, self.gpu.rank, seen)
        return wrong


def placed(launches: Launches, number: int) -> list[tuple[int, int]]:
    """Address and bytes of each guard zone of a set."""
    gpu, problem = launches.gpu, launches.problem
    base = gpu.user + number * stride_bytes(problem)
    return [(base + zone.start, len(zone)) for zone in zones(problem, gpu.rank)]


class KernelGpuRank(GpuRank[KernelKey]):
    """One rank's part."""

    part: KernelPart
    why_not_shared = "a kernel may wait for another rank's, which a shared GPU need not run"

    def load(self, path: str, meeting: str) -> None:
        """Make the rank's part of the kernel in that file. meeting: a file that all ranks map."""
        self.file, card = KernelFile(Path(path)), self.gpu.card
        with Path(meeting).open("r+b") as file:
            arena = memoryview(mmap.mmap(file.fileno(), 0))
        self.part = KernelPart(self.file, arena, self.context.rank, self.context.n)
        self.calls: list[KernelCall] = []
        self.graphs: Graphs = {}
        self.ready: KernelKey | None = None  # what the graphs and calls are of
        self.part.make(card.index, card.stream)

    def named(self, error: Exception) -> CollbenchError | None:
        return self.file.named(error) if hasattr(self, "file") else None

    def reset(self, key: KernelKey) -> None:
        """As of other ranks; also write the guard zones."""
        super().reset(key)
        launches = self._launches(key)
        for number in range(launches.sets):
            for address, size in placed(launches, number):
                self.gpu.card.upload(address, bytes([GUARD]) * size)

    def _call(self, problem: Problem, number: int) -> KernelCall:
        """What the kernel is called with on a set of user buffers."""
        source, target = (
            GpuArray(*self.gpu.buffer(problem, which, number), problem.dtype)
            for which in ("in", "out")
        )
        return self.part.call(problem, source, target)

    def _queue(self, number: int, stream: int) -> None:
        """Have a launch queued in the stream that the kernel was made with."""
        self.part.kernel.run(self.calls[number])

    def _launches(self, key: KernelKey) -> Launches:
        problem, sets = key
        if self.ready != key:
            self.graphs, self.ready = {}, key
            self.calls = [self._call(problem, number) for number in range(sets)]
        wait_s = repeat_limit_s(self.gpu.timeout_s)
        return GuardedLaunches(
            gpu=self.gpu,
            problem=problem,
            queue=self._queue,
            sets=sets,
            wait=lambda work_s: self.gpu.wait(wait_s + work_s),
            graphs=self.graphs,
        )

    def close(self) -> None:
        self.part.close()
        super().close()


class KernelGpuSession(GpuSession[Case, KernelKey, KernelGpuRank]):
    """Drives the ranks of a kernel."""

    def __init__(
        self, group: Group, cases: Sequence[Case], file: KernelFile, *, hot: bool, gpu: GpuOptions
    ) -> None:
        n = cases[0].ranks
        self._folder = TemporaryDirectory(prefix="collbench-kernel-")
        meeting = Path(self._folder.name, "meeting")
        meeting.touch()
        os.truncate(meeting, arena_bytes(n, file.shared_bytes))
        try:
            super().__init__(group, KernelGpuRank, n, hot=hot, options=gpu, variables=VARIABLES)
        except BaseException:
            self._folder.cleanup()
            raise
        with self._opening():
            problems = [guarded(case) for case in cases]
            size = max(self._sets(one) * stride_bytes(one) for one in problems)
            self._share_memory(0, size)
            paths = str(file.path), str(meeting)
            self._workers.call(KernelGpuRank.load, *paths, timeout_s=START_S)
        self.version += f"; {file.version}"

    def _loaded(self, case: Case) -> tuple[KernelKey, Problem, int]:
        problem = guarded(case)
        sets = self._sets(problem)
        return (problem, sets), problem, sets

    def _notes_of(self, case: Case) -> tuple[str, ...]:
        return ("processes",)

    def close(self) -> None:
        """End the ranks."""
        super().close()
        self._folder.cleanup()
