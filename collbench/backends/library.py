"""What backends of libraries share whose calls block: a rank whose private buffers rotate and are
checked like ours, while the library's own calls are timed. Blocking calls are the library's, so
what watches over the rank ends the process if one does not return.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Container, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from collbench.backends.base import Batch, Samples, Session
from collbench.backends.blocking import BlockingRank, BufferSets, own_buffers, repeat_on_cpus
from collbench.backends.repeat import ANSWER_S, host_data, rotations, stride_bytes
from collbench.core.case import Case, Problem
from collbench.core.collectives import UNEVEN_OPS
from collbench.core.group import RankContext, WorkerGroup
from collbench.core.host import cpu_name

# of the libraries here; a collective of ours that they lack is waived
COLLECTIVES = (
    *("allreduce", "allgather", "reducescatter", "broadcast", "reduce"),
    *("alltoall", "gather", "scatter", "sendrecv"),
)
Call = tuple[Callable[..., object], tuple[object, ...]]


@dataclass(slots=True)
class _Prepared:
    """User buffers, and the library's call on each set."""

    buffers: BufferSets
    calls: list[Call]


class LibraryRank(BlockingRank[Problem, _Prepared]):
    """One rank's part: private buffers and prepared calls."""

    def __init__(self, context: RankContext) -> None:
        self.rank, self.n, self.watchdog = context.rank, context.n, context.watchdog
        self.prepared: _Prepared | None = None

    @abstractmethod
    def describe(self) -> str:
        """The library, its version and its switches."""

    @abstractmethod
    def _call(self, problem: Problem, source: Any, target: Any) -> Call:
        """The library's function for a problem and its arguments: the bytes of input and output."""

    def _buffers(self, problem: Problem, *, hot: bool) -> BufferSets:
        return own_buffers(problem, self.rank, hot=hot)

    @abstractmethod
    def _meet(self) -> None:
        """Wait at the library's barrier."""

    def flag(self, limit_s: float) -> float:
        """Seconds of the library's least call that exchanges a flag with one other rank; 0: not
        known.
        """
        return 0.0

    def _limit(self, call: str, limit_s: float) -> AbstractContextManager[None]:
        if self.watchdog is None:  # the driver has a deadline for each call
            return nullcontext()
        return self.watchdog.limit(f"the library's {call}", limit_s)

    def _ready(self, problem: Problem, hot: bool) -> _Prepared:
        if self.prepared is None or self.prepared.buffers.problem != problem:
            self.prepared = None  # the old buffers go before the new ones come
            buffers = self._buffers(problem, hot=hot)
            memory = map(buffers.memory, range(buffers.sets))
            self.prepared = _Prepared(buffers, [self._call(problem, *pair) for pair in memory])
        return self.prepared

    def _launch(self, ready: _Prepared, number: int, limit_s: float) -> Callable[[], object]:
        function, args = ready.calls[number]
        return partial(function, *args)

    def _barrier(self, ready: _Prepared, limit_s: float) -> None:
        self._meet()

    def _time(self, ready: _Prepared, order: Sequence[int], batch: Batch) -> float:
        calls = [ready.calls[number] for number in order]
        self._meet()
        start = time.perf_counter()
        for number, (function, args) in enumerate(calls, start=1):
            function(*args)
            if batch.blocking and number % batch.aggregate == 0:
                self._meet()
        seconds = (time.perf_counter() - start) / len(calls)
        self._meet()
        return seconds


class LibrarySession(Session[Case]):
    """Drives the ranks of a library's collectives. begin: what they do first, of which workers are
    closed that fail. margin_bytes: around user buffers.
    """

    def __init__(
        self,
        workers: WorkerGroup[LibraryRank],
        *,
        hot: bool,
        start_s: float,
        begin: Callable[[], object] = list,
        margin_bytes: int = 0,
    ) -> None:
        self._workers, self.device, self.hot = workers, cpu_name(), hot
        self._margin_bytes = margin_bytes
        try:
            begin()
            self.version = workers.call(LibraryRank.describe, timeout_s=start_s)[0]
        except BaseException:
            self.close()
            raise

    def run(self, case: Case, batch: Batch) -> Samples:
        """One repeat: prepare, check, time."""
        problem = replace(case.problem(), margin_bytes=self._margin_bytes)
        data_bytes, notes = self._data(problem)
        return repeat_on_cpus(
            self._workers, problem, batch, hot=self.hot, data_bytes=data_bytes, notes=notes
        )

    def flag_s(self, limit_s: float, ways: int) -> float:
        if ways < 2:
            return 0.0
        return max(self._workers.call(LibraryRank.flag, limit_s, timeout_s=limit_s + ANSWER_S))

    def _data(self, problem: Problem) -> tuple[int, list[str]]:
        """Bytes of all user buffers, and notes on them."""
        return host_data(problem, rotations(problem, hot=self.hot), hot=self.hot)

    def close(self) -> None:
        self._workers.close()


def why_lacking(
    library: str,
    case: Case,
    redops: Container[str],
    types: Container[str],
    *,
    is_reduction: bool,
    has_uneven: bool = False,
) -> str:
    """What a library has not, that has those reductions and reduces those types; or an empty text.
    has_uneven: it is measured with unequal blocks, too.
    """
    if case.op in UNEVEN_OPS:
        if not has_uneven:
            return f"{library} is measured with equal blocks only: {case.op} is of cpu, mpi, nccl"
    elif case.op not in COLLECTIVES:
        return f"{library} has no {case.op}"
    if is_reduction and case.redop not in redops:
        return f"{library} has no reduction {case.redop}"
    if is_reduction and case.dtype not in types:
        return f"{library} cannot reduce {case.dtype}"
    return ""


def private_bytes(case: Case, *, hot: bool) -> int:
    """Memory of its own that a rank needs for a case."""
    problem = case.problem()
    return rotations(problem, hot=hot) * stride_bytes(problem)
