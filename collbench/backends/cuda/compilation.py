"""The kernels of a session, compiled while others are measured, each once."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from collbench.core.errors import ScheduleError
from collbench.core.host import usable_cores
from collbench.device.compile import Source, cubin, kernel_source
from collbench.planning.plan import Plan

FP8_ARCH = 89  # from which the conversions of 8-bit floats are instructions


class Compilation:
    """Machine code for GPUs, being made. drop: see kernel_source."""

    def __init__(self, drop: int | None = None) -> None:
        self._drop = drop
        self._compiling: dict[tuple[Source, int], Future[bytes]] = {}
        self._pool = ThreadPoolExecutor(max_workers=max(1, min(16, usable_cores() - 1)))

    def begin(self, plan: Plan, archs: Sequence[int]) -> list[Future[bytes]]:
        """The machine code of every rank's kernel, being made. archs: of their GPUs."""
        futures = []
        for rank, arch in enumerate(archs):
            key = (kernel_source(plan, 0 if plan.schedule.is_symmetric else rank, self._drop), arch)
            if key not in self._compiling:
                self._compiling[key] = self._pool.submit(cubin, *key)
            futures.append(self._compiling[key])
        return futures

    def cubins(self, plan: Plan, archs: Sequence[int]) -> list[bytes]:
        """The same, once it is made. Raises ScheduleError for what a GPU cannot run."""
        arch = min(archs)
        if plan.problem.dtype.startswith("float8") and arch < FP8_ARCH:
            raise ScheduleError(
                f"{plan.problem.dtype} needs compute capability {FP8_ARCH / 10}, this GPU has"
                f" {arch / 10}"
            )
        return [future.result() for future in self.begin(plan, archs)]

    def at_once(self, sources: Sequence[Source], archs: Sequence[int]) -> list[bytes]:
        """The machine code of sources that are wanted once, one a rank."""
        return list(self._pool.map(cubin, sources, archs))

    def close(self) -> None:
        """End what is being compiled."""
        self._pool.shutdown(wait=False, cancel_futures=True)
