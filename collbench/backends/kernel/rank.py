"""Somebody's kernel on CPU cores: a rank, whose buffers lie between guard zones, and the session
that drives all.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collbench.backends.kernel.contract import KernelFile
from collbench.backends.kernel.guards import GUARD, guarded, stray, zones
from collbench.backends.kernel.part import START_S, KernelPart, arena_bytes
from collbench.backends.library import BufferSets, Call, HostBuffers, LibraryRank, LibrarySession
from collbench.backends.repeat import RankTiming, stride_bytes
from collbench.core.case import Case, Problem
from collbench.core.dtypes import dtype
from collbench.core.errors import CollbenchError
from collbench.core.pattern import Wrong
from collbench.launch.group import Group, RankContext

if TYPE_CHECKING:
    from collbench.core.dtypes import Array


class GuardedBuffers(HostBuffers):
    """User buffers between guard zones."""

    def _zones(self, number: int) -> "list[Array]":
        base = number * stride_bytes(self.problem)
        found = zones(self.problem, self._rank)
        return [self._memory[base + zone.start : base + zone.stop] for zone in found]

    def prepare(self) -> None:
        super().prepare()
        for number in range(self.sets):
            for zone in self._zones(number):
                zone[...] = GUARD

    def compare(self, numbers: range) -> Wrong | None:
        wrong = super().compare(numbers)
        for number in numbers and range(self.sets):
            seen = [zone.tobytes() for zone in self._zones(number)]
            wrong = wrong or stray(self.problem, self._rank, seen)
        return wrong


class KernelCpuRank(LibraryRank):
    """One rank's part."""

    part: KernelPart

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        assert context.arena is not None
        self._arena = context.arena

    def load(self, path: str) -> None:
        """Make the rank's part of the kernel in that file."""
        self.file = KernelFile(Path(path))
        self.part = KernelPart(self.file, self._arena, self.rank, self.n)
        with self._limit("make", START_S):
            self.part.make()

    def named(self, error: Exception) -> CollbenchError | None:
        return self.file.named(error)

    def describe(self) -> str:
        return self.file.version

    def _buffers(self, problem: Problem, *, hot: bool) -> BufferSets:
        return GuardedBuffers(problem, self.rank, hot=hot)

    def _call(self, problem: Problem, source: "Array", target: "Array") -> Call:
        kind = dtype(problem.dtype).numpy()
        call = self.part.call(problem, source.view(kind), target.view(kind))
        return self.part.kernel.run, (call,)

    def _meet(self) -> None:
        self.part.meet()

    def flag(self, limit_s: float) -> float:
        """Seconds of an exchange of a flag with one other rank, which is the tool's own."""
        with self._limit("flag", limit_s):
            return self.part.barrier.flag_s(limit_s)

    @contextmanager
    def _limit(self, call: str, limit_s: float) -> Iterator[None]:
        is_watched = self.watchdog is not None  # over calls that do not come back from C code
        with (
            super()._limit(call, 2 * limit_s),
            self.part.limit(call, limit_s, is_watched=is_watched),
        ):
            yield

    def prepare(self, problem: Problem, hot: bool, batch: Any) -> RankTiming:
        self.part.arena[0] = 0  # what was refused before is over
        return super().prepare(problem, hot, batch)

    def close(self) -> None:
        self.part.close()


class KernelCpuSession(LibrarySession):
    """Drives the ranks of a kernel."""

    def __init__(self, group: Group, cases: Sequence[Case], file: KernelFile, *, hot: bool) -> None:
        n = cases[0].ranks
        workers = group.shared_workers(KernelCpuRank, n, arena_bytes(n, file.shared_bytes))
        try:
            workers.call(KernelCpuRank.load, str(file.path), timeout_s=START_S)
        except BaseException:
            workers.close()
            raise
        super().__init__(workers, hot=hot, start_s=START_S)

    def _problem(self, case: Case) -> Problem:
        return guarded(case)
