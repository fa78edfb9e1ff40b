"""What backends of CPU libraries share: a rank whose private buffers rotate and are checked like
ours, while the library's own blocking calls are timed. Blocking calls are the library's, so what
watches over the rank ends the process if one does not return.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Container
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from collbench.backends.base import (
    Batch,
    CpuTimedRank,
    RankTiming,
    Samples,
    Session,
    checked_sets,
    clocked,
    compare_output,
    poison_again,
    prepare_buffers,
    repeat_on_cpus,
    rotations,
    sets_in_turn,
    stride_bytes,
    timed_sets,
)
from collbench.launch.group import RankContext, WorkerGroup
from collbench.machine.host import cpu_name
from collbench.spec.case import Case, Problem
from collbench.spec.dtypes import dtype
from collbench.spec.pattern import Wrong

if TYPE_CHECKING:
    from collbench.spec.dtypes import Array

# of the libraries here; a collective of ours that they lack is waived
COLLECTIVES = (
    *("allreduce", "allgather", "reducescatter", "broadcast", "reduce"),
    *("alltoall", "gather", "scatter", "sendrecv"),
)
Call = tuple[Callable[..., object], tuple[object, ...]]


@dataclass(slots=True)
class _Prepared:
    """Sets of buffers of one problem, and the library's call on each."""

    problem: Problem
    inputs: list["Array"]
    outputs: list["Array"]
    calls: list[Call]

    def buffers(self) -> list[tuple["Array", "Array"]]:
        """Input and output of each set."""
        return list(zip(self.inputs, self.outputs, strict=True))


class LibraryRank(CpuTimedRank[Problem]):
    """One rank's part: private buffers and prepared calls."""

    def __init__(self, context: RankContext) -> None:
        self.rank, self.n, self.watchdog = context.rank, context.n, context.watchdog
        self.prepared: _Prepared | None = None

    @abstractmethod
    def describe(self) -> str:
        """The library, its version and its switches."""

    @abstractmethod
    def _call(self, problem: Problem, source: "Array", target: "Array") -> Call:
        """The library's function for a problem and its arguments."""

    @abstractmethod
    def _meet(self) -> None:
        """Wait at the library's barrier."""

    def _limit(self, problem: Problem, batch: Batch) -> AbstractContextManager[None]:
        if self.watchdog is None:  # the driver has a deadline for each call
            return nullcontext()
        return self.watchdog.limit(f"the library's {problem.op}", batch.deadline_s)

    def _prepared(self, problem: Problem, hot: bool) -> _Prepared:
        at, stride = problem.buffers(self.rank), stride_bytes(problem)
        sets = rotations(problem, hot=hot)
        memory, element = np.zeros(sets * stride + 4096, np.uint8), dtype(problem.dtype).numpy()
        memory = memory[-memory.__array_interface__["data"][0] % 4096 :]
        inputs, outputs = (
            [
                memory[base + first : base + first + size].view(element)
                for base in range(0, sets * stride, stride)
            ]
            for first, size in ((at.in_offset, at.in_bytes), (at.out_offset, at.out_bytes))
        )
        calls = [self._call(problem, a, b) for a, b in zip(inputs, outputs, strict=True)]
        return _Prepared(problem, inputs, outputs, calls)

    def prepare(self, problem: Problem, hot: bool, batch: Batch) -> RankTiming:
        """Write inputs and poison, run every set of buffers once, compare, poison, warm up."""
        busy = time.process_time()
        if self.prepared is None or self.prepared.problem != problem:
            self.prepared = None  # the old buffers go before the new ones come
            self.prepared = self._prepared(problem, hot)
        ready, sets, wrong = self.prepared, len(self.prepared.calls), None
        with self._limit(problem, batch):
            for number, (source, target) in enumerate(ready.buffers()):
                prepare_buffers(problem, self.rank, source, target, number)
            self._meet()
            for function, args in ready.calls:
                function(*args)
            if batch.is_checked:
                wrong = self._compare(ready, range(sets))
                for number, (source, target) in enumerate(ready.buffers()):
                    poison_again(problem, self.rank, source, target, number)
            self._meet()
            start = time.perf_counter()
            for number in sets_in_turn(problem, sets, max(batch.warmup, 1)):
                function, args = ready.calls[number]
                function(*args)
            seconds = (time.perf_counter() - start) / max(batch.warmup, 1)
        return RankTiming(wrong=wrong, seconds=seconds, busy_s=time.process_time() - busy)

    def timed(self, problem: Problem, hot: bool, batch: Batch) -> RankTiming:
        """Poison what the warm-up wrote, time calls behind a barrier, compare what they left."""
        assert self.prepared is not None
        busy, ready, launches = (
            time.process_time(),
            self.prepared,
            batch.iterations * batch.aggregate,
        )
        of = problem, len(ready.calls), launches
        calls = [ready.calls[number] for number in timed_sets(*of)]
        checked = checked_sets(*of) if batch.is_checked else range(0)
        with self._limit(problem, batch):
            for number in set(checked).intersection(sets_in_turn(*of[:2], max(batch.warmup, 1))):
                source, target = ready.buffers()[number]
                poison_again(problem, self.rank, source, target, number, is_warm=True)
            self._meet()
            start = time.perf_counter()
            for number, (function, args) in enumerate(calls, start=1):
                function(*args)
                if batch.blocking and number % batch.aggregate == 0:
                    self._meet()
            seconds = (time.perf_counter() - start) / len(calls)
            self._meet()
        wrong = self._compare(ready, checked)
        return RankTiming(wrong=wrong, seconds=seconds, busy_s=time.process_time() - busy)

    def timed_singly(self, problem: Problem, hot: bool, batch: Batch) -> RankTiming:
        """Poison what was launched, time each call behind a barrier of its own, behind one that
        does not count, and compare what they left.
        """
        assert self.prepared is not None
        busy, ready = time.process_time(), self.prepared
        of = problem, len(ready.calls), 1 + batch.single_launches
        checked = checked_sets(*of) if batch.is_checked else range(0)
        for number in checked:
            poison_again(problem, self.rank, *ready.buffers()[number], number, is_warm=True)
        calls = (ready.calls[number] for number in timed_sets(*of))
        order = (partial(function, *args) for function, args in calls)
        # one limit for all: it costs more than a launch
        limit_s = batch.deadline_s + batch.single_s
        with self._limit(problem, replace(batch, deadline_s=limit_s)):
            times_s = clocked(order, self._meet)
            self._meet()
        return RankTiming(
            wrong=self._compare(ready, checked),
            seconds=fmean(times_s),
            busy_s=time.process_time() - busy,
            launch_times_s=times_s,
        )

    def _compare(self, ready: _Prepared, sets: range) -> Wrong | None:
        """The wrong elements of the first of some sets of buffers that has any."""
        wrong = (
            compare_output(ready.problem, self.rank, ready.outputs[number], number)
            for number in sets
        )
        return next((one for one in wrong if one is not None), None)


class LibrarySession(Session[Case]):
    """Drives the ranks of a library's collectives."""

    def __init__(self, workers: WorkerGroup[LibraryRank], *, hot: bool, start_s: float) -> None:
        self._workers, self.device, self.hot = workers, cpu_name(), hot
        try:
            self.version = workers.call(LibraryRank.describe, timeout_s=start_s)[0]
        except BaseException:
            self.close()
            raise

    def run(self, case: Case, batch: Batch) -> Samples:
        """One repeat: prepare, check, time."""
        problem = case.problem()
        sets = rotations(problem, hot=self.hot)
        return repeat_on_cpus(self._workers, problem, problem, batch, hot=self.hot, sets=sets)

    def close(self) -> None:
        self._workers.close()


def why_lacking(
    library: str, case: Case, redops: Container[str], types: Container[str], *, is_reduction: bool
) -> str:
    """What a library has not, that has those reductions and reduces those types; or an empty
    text.
    """
    if case.op not in COLLECTIVES:
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
