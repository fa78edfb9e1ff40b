"""The MPI library's own collectives on user buffers in GPU memory, for an MPI that is CUDA-aware.

MPI knows no streams: its calls block until the data is there, and the clock of the host times them.
Inputs, poison and comparisons are kernels of ours, which end before a call begins and begin after
it has returned.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from collbench.backends.base import GpuOptions
from collbench.backends.blocking import BufferSets
from collbench.backends.gpu.proof import Changing
from collbench.backends.gpu.rank import DeviceRank, sets_of, stride_bytes
from collbench.backends.gpu.session import (
    START_S,
    GpuFacts,
    TakesGpu,
    describe,
    is_shared,
    why_no_gpus,
)
from collbench.backends.library import LibrarySession
from collbench.backends.mpi.rank import DESCRIBE_S, MpiRank
from collbench.backends.net.gpu_proxy import gpu_bytes, why_not_cuda_aware
from collbench.backends.proof import shortest_s
from collbench.backends.repeat import cache_notes
from collbench.core.case import Case, Problem
from collbench.core.errors import UnavailableError
from collbench.core.group import Group, RankContext
from collbench.core.pattern import Wrong
from collbench.core.world import ranks_per_gpu
from collbench.device.card import device_count

_HINT = "use an MPI library that is built with CUDA, or leave mpi out beside backends of GPUs"


class GpuBuffers(BufferSets):
    """User buffers in the memory of a GPU."""

    def __init__(self, problem: Problem, gpu: DeviceRank, *, hot: bool) -> None:
        self.problem, self._gpu = problem, gpu
        self.sets = sets_of(problem, gpu.card.cache_bytes, hot=hot)

    def memory(self, number: int) -> tuple[Any, Any]:
        source, target = (
            gpu_bytes(*self._gpu.buffer(self.problem, which, number)) for which in ("in", "out")
        )
        return source, target

    def prepare(self) -> None:
        self._write(range(self.sets), is_warm=False)

    def poison(self, numbers: Iterable[int], *, is_warm: bool) -> None:
        # in place what is poisoned is also input, which must be the pattern
        self._write(numbers, is_warm=is_warm and not self.problem.in_place)

    def _write(self, numbers: Iterable[int], *, is_warm: bool) -> None:
        stride = stride_bytes(self.problem)
        for number in numbers:
            self._gpu.prepare(self.problem, range(number, number + 1), stride, is_warm=is_warm)
        self._gpu.card.wait(self._gpu.timeout_s)

    def compare(self, numbers: range) -> Wrong | None:
        return self._gpu.compare(self.problem, numbers) if numbers else None

    def prove(
        self, order: Sequence[int], launch: Callable[[int], object]
    ) -> tuple[Wrong | None, float]:
        changing, gpu, last = Changing(self._gpu, self.problem, order), self._gpu, len(order) - 1
        times_s: list[float] = []
        for number in range(last):
            changing.before(number, gpu.card.stream)
            gpu.card.wait(gpu.timeout_s)
            start = time.perf_counter()
            launch(number)
            times_s.append(time.perf_counter() - start)
            changing.after(number, gpu.card.stream)
        self._write(order[last:], is_warm=False)
        launch(last)
        some = range(order[last], order[last] + 1)
        return changing.wrong() or self.compare(some), shortest_s(times_s)


class MpiGpuRank(TakesGpu, MpiRank):
    """One rank's part, with a GPU of its own."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.context = context

    def device(self, options: GpuOptions) -> GpuFacts:
        """As of other ranks; also raises UnavailableError where MPI takes no GPU memory."""
        if why := why_not_cuda_aware():
            raise UnavailableError(why, _HINT)
        return super().device(options)

    def allocate(self, user_bytes: int, timeout_s: float) -> None:
        """Have the memory of user buffers, which no other GPU reaches. Raises UnavailableError."""
        self.gpu.connect([self.gpu.allocate(0, user_bytes)], timeout_s, is_peered=False)

    def _buffers(self, problem: Problem, *, hot: bool) -> BufferSets:
        return GpuBuffers(problem, self.gpu, hot=hot)

    def _copy(self, source: Any, target: Any) -> None:
        card, runtime = self.gpu.card, self.gpu.card.runtime
        addresses = target.address, source.address
        runtime.memcpyAsync(*addresses, len(source), runtime.memcpyDefault, card.stream)
        runtime.streamSynchronize(card.stream)


class MpiGpuSession(LibrarySession):
    """Drives the ranks of the library's collectives on GPU memory."""

    def __init__(
        self, group: Group, cases: Sequence[Case], *, hot: bool, options: GpuOptions
    ) -> None:
        n = cases[0].ranks
        if why := why_no_gpus():
            raise UnavailableError(why)
        count = len(options.gpus) or device_count()
        if group.kind == "local" and n > count:
            raise UnavailableError(f"{n} ranks, {count} GPUs", "use fewer --ranks")
        workers = group.mpi_workers(MpiGpuRank, n)
        super().__init__(workers, hot=hot, start_s=DESCRIBE_S)
        try:
            facts = workers.call(MpiGpuRank.device, options, timeout_s=START_S)
            if is_shared(facts) and ranks_per_gpu(options.gpus) == 1:
                raise UnavailableError("two ranks share a GPU", "start one rank a GPU")
            self._cache_bytes = facts[0].cache_bytes
            size = max(self._bytes(case.problem()) for case in cases)
            workers.call(MpiGpuRank.allocate, size, options.timeout_s, timeout_s=START_S)
        except BaseException:
            self.close()
            raise
        self.device, versions = describe(facts)
        self.version = f"{self.version}; {versions}"

    def _bytes(self, problem: Problem) -> int:
        """Bytes of a rank's user buffers."""
        return sets_of(problem, self._cache_bytes, hot=self.hot) * stride_bytes(problem)

    def _data(self, problem: Problem) -> tuple[int, list[str]]:
        size = self._bytes(problem)
        notes = cache_notes(size, self._cache_bytes, hot=self.hot)
        return size * problem.n, [*notes, "host-clock"]
