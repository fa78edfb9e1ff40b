"""A session of GPUs without any, on a worker group that is made up."""

from collections.abc import Callable
from typing import Any

from collbench.backends.base import GpuOptions
from collbench.backends.gpu.rank import stride_bytes
from collbench.backends.gpu.session import GpuFacts, GpuHealth, GpuRank, GpuSession
from collbench.core.case import Case, Problem
from collbench.core.group import WorkerGroup
from collbench.launch.driver import ServedGroup


class MadeUpSession(GpuSession[str, str, GpuRank[str]]):
    """Knows one job: an allreduce of two ranks, on one set of buffers."""

    problem: Problem

    def _loaded(self, job: str) -> tuple[str, Problem, int]:
        return job, self.problem, 1


def facts_of(rank: int, **more: Any) -> GpuFacts:
    """What the driver is told of the GPU of a rank."""
    of: dict[str, Any] = {"name": "GPU", "uuid": f"GPU-{rank}", "arch": 90, "version": ""}
    return GpuFacts(**{**of, "cache_bytes": 1 << 20, "pids": (), **more})


class Workers(ServedGroup[Any]):
    """A worker group that answers with what a function of the method, its arguments and the timeout
    returns.
    """

    def __init__(self, answer: Callable[[str, Any, float], list[Any]]) -> None:
        self.answer = answer

    def _call(self, method: str, args: Any, timeout_s: float) -> list[Any]:
        return self.answer(method, args, timeout_s)

    def close(self) -> None: ...


def session_on(
    workers: WorkerGroup[Any],
    watch: GpuHealth,
    data_bytes: int = 8,
    options: GpuOptions | None = None,
) -> MadeUpSession:
    """A session with so many bytes of buffers, on GPUs with 1 MiB of cache."""
    session = MadeUpSession.__new__(MadeUpSession)
    session.problem = Case(op="allreduce", backend="cuda", ranks=2, size_bytes=data_bytes).problem()
    vars(session).update(
        hot=False,
        facts=[facts_of(0), facts_of(1)],
        options=options or GpuOptions(),
        _workers=workers,
        _watch=watch,
        _cache_bytes=1 << 20,
        _notes=(),
        _iterations={},
    )
    assert (stride_bytes(session.problem) < 1 << 20) == (data_bytes < 1 << 20)
    return session
