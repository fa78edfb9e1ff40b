"""What backends of libraries share whose calls block: a rank whose private buffers rotate and are
checked like ours, while the library's own calls are timed. Blocking calls are the library's, so
what watches over the rank ends the process if one does not return.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any, Protocol

import numpy as np

from collbench.backends.base import Batch, Samples, Session
from collbench.backends.proof import ProvedPart, prove
from collbench.backends.repeat import (
    ANSWER_S,
    CpuTimedRank,
    RankTiming,
    checked_sets,
    clocked,
    compare_output,
    host_data,
    poison_again,
    prepare_buffers,
    proved_launches,
    repeat_on_cpus,
    rotations,
    sets_in_turn,
    stride_bytes,
    timed_sets,
)
from collbench.core.case import Case, Problem
from collbench.core.collectives import UNEVEN_OPS
from collbench.core.dtypes import Array, dtype
from collbench.core.group import RankContext, WorkerGroup
from collbench.core.host import cpu_name
from collbench.core.pattern import Wrong

# of the libraries here; a collective of ours that they lack is waived
COLLECTIVES = (
    *("allreduce", "allgather", "reducescatter", "broadcast", "reduce"),
    *("alltoall", "gather", "scatter", "sendrecv"),
)
# around user buffers: a multiple of what buffers on GPUs begin at; every byte is GUARD
MARGIN_BYTES, GUARD = 512, 0xA5
Call = tuple[Callable[..., object], tuple[object, ...]]


class BufferSets(Protocol):
    """A rank's sets of user buffers for one problem."""

    problem: Problem
    sets: int

    @abstractmethod
    def memory(self, number: int) -> tuple[Any, Any]:
        """The bytes of a set's input and output, as the library takes them."""

    @abstractmethod
    def prepare(self) -> None:
        """Write the inputs of all sets and poison their outputs."""

    @abstractmethod
    def poison(self, numbers: Iterable[int], *, is_warm: bool) -> None:
        """Poison the outputs of sets that launches have written (see base.poison_again)."""

    @abstractmethod
    def compare(self, numbers: range) -> Wrong | None:
        """The wrong elements of the first of some sets that has any."""

    @abstractmethod
    def prove(
        self, order: Sequence[int], launch: Callable[[int], object]
    ) -> tuple[Wrong | None, float]:
        """As proof.prove(), on the sets of `order`."""


def zones(problem: Problem, rank: int) -> list[range]:
    """Where the guard zones of a set of user buffers are, in bytes from its beginning: nobody may
    write there.

    >>> of = {"root": 0, "dtype": "int8", "redop": "sum", "in_place": False, "margin_bytes": 512}
    >>> zones(Problem(op="broadcast", n=2, block_count=100, **of), 0)
    [range(0, 512), range(612, 1152), range(1252, 1764)]
    """
    at, end = problem.buffers(rank), 0
    buffers = sorted([(at.in_offset, at.in_bytes), (at.out_offset, at.out_bytes)])
    found = list[range]()
    for first, size in [*(one for one in buffers if one[1]), (at.total_bytes, 0)]:
        found += [range(end, first)] if first > end else []
        end = max(end, first + size)
    return found if problem.margin_bytes else []


def stray(problem: Problem, rank: int, seen: Sequence[bytes]) -> Wrong | None:
    """What was written in the zones of a set, whose bytes are given."""
    at = problem.buffers(rank)
    for zone, data in zip(zones(problem, rank), seen, strict=True):
        written = np.flatnonzero(np.frombuffer(data, np.uint8) != GUARD)
        if written.size:
            behind, before = int(written[0]) + 1, len(zone) - int(written[-1])
            is_behind = zone.start and (behind <= before or zone.stop == at.total_bytes)
            edge, far = (zone.start, behind) if is_behind else (zone.stop, before)
            of = "output" if edge in (at.out_offset, at.out_offset + at.out_bytes) else "input"
            got = f"{written.size} bytes written, the nearest is byte {far}"
            got += f" {'behind' if is_behind else 'before'} its {of}"
            return Wrong(rank=rank, count=written.size, got=got, wanted="none there")
    return None


class HostBuffers(BufferSets):
    """User buffers in the memory of the host."""

    def __init__(self, problem: Problem, rank: int, *, hot: bool) -> None:
        self.problem, self._rank = problem, rank
        self.sets = rotations(problem, hot=hot)
        at, stride = problem.buffers(rank), stride_bytes(problem)
        memory, element = np.zeros(self.sets * stride + 4096, np.uint8), dtype(problem.dtype)
        self._memory = memory = memory[-memory.__array_interface__["data"][0] % 4096 :]
        self._inputs, self._outputs = (
            [
                memory[base + first : base + first + size].view(element.numpy())
                for base in range(0, self.sets * stride, stride)
            ]
            for first, size in (
                (at.in_offset, at.in_bytes),
                (at.out_offset, at.out_bytes + at.guard_bytes),
            )
        )
        self._out_bytes = at.out_bytes

    def memory(self, number: int) -> tuple["Array", "Array"]:
        output = self._outputs[number].view(np.uint8)
        return self._inputs[number].view(np.uint8), output[: self._out_bytes]

    def prepare(self) -> None:
        for number, buffers in enumerate(zip(self._inputs, self._outputs, strict=True)):
            prepare_buffers(self.problem, self._rank, *buffers, number)
            for zone in self._zones(number):
                zone[...] = GUARD

    def _zones(self, number: int) -> "list[Array]":
        """The guard zones of a set."""
        memory = self._memory[number * stride_bytes(self.problem) :]
        return [memory[zone.start : zone.stop] for zone in zones(self.problem, self._rank)]

    def poison(self, numbers: Iterable[int], *, is_warm: bool) -> None:
        for number in numbers:
            source, target = self._inputs[number], self._outputs[number]
            poison_again(self.problem, self._rank, source, target, number, is_warm=is_warm)

    def compare(self, numbers: range) -> Wrong | None:
        of = self.problem, self._rank
        wrong = [compare_output(*of, self._outputs[number], number) for number in numbers]
        guarded = map(self._zones, numbers and range(self.sets))
        wrong += [stray(*of, [zone.tobytes() for zone in found]) for found in guarded]
        return next((one for one in wrong if one is not None), None)

    def prove(
        self, order: Sequence[int], launch: Callable[[int], object]
    ) -> tuple[Wrong | None, float]:
        def buffers(number: int) -> tuple["Array", "Array"]:
            return self._inputs[number], self._outputs[number]

        return prove([ProvedPart(self.problem, self._rank, order, buffers)], launch)


@dataclass(slots=True)
class _Prepared:
    """User buffers, and the library's call on each set."""

    buffers: BufferSets
    calls: list[Call]


class LibraryRank(CpuTimedRank[Problem]):
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
        return HostBuffers(problem, self.rank, hot=hot)

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

    def prepare(self, problem: Problem, hot: bool, batch: Batch) -> RankTiming:
        """Write inputs and poison, run every set of buffers once, compare, poison, warm up."""
        busy = time.process_time()
        if self.prepared is None or self.prepared.buffers.problem != problem:
            self.prepared = None  # the old buffers go before the new ones come
            buffers = self._buffers(problem, hot=hot)
            memory = map(buffers.memory, range(buffers.sets))
            self.prepared = _Prepared(buffers, [self._call(problem, *pair) for pair in memory])
        buffers, calls, wrong = self.prepared.buffers, self.prepared.calls, None
        with self._limit(problem.op, batch.deadline_s):
            buffers.prepare()
            self._meet()
            for function, args in calls:
                function(*args)
            if batch.is_checked:
                wrong = buffers.compare(range(buffers.sets))
                buffers.poison(range(buffers.sets), is_warm=False)
            self._meet()
            start = time.perf_counter()
            for number in sets_in_turn(problem, buffers.sets, max(batch.warmup, 1)):
                function, args = calls[number]
                function(*args)
            seconds = (time.perf_counter() - start) / max(batch.warmup, 1)
        return RankTiming(wrong=wrong, seconds=seconds, busy_s=time.process_time() - busy)

    def timed(self, problem: Problem, hot: bool, batch: Batch) -> RankTiming:
        """Poison what the warm-up wrote, time calls behind a barrier, compare what they left."""
        assert self.prepared is not None
        busy, buffers = time.process_time(), self.prepared.buffers
        of = problem, buffers.sets, batch.iterations * batch.aggregate
        calls = [self.prepared.calls[number] for number in timed_sets(*of)]
        checked = checked_sets(*of) if batch.is_checked else range(0)
        warm = set(checked).intersection(sets_in_turn(*of[:2], max(batch.warmup, 1)))
        with self._limit(problem.op, batch.deadline_s):
            buffers.poison(sorted(warm), is_warm=True)
            self._meet()
            start = time.perf_counter()
            for number, (function, args) in enumerate(calls, start=1):
                function(*args)
                if batch.blocking and number % batch.aggregate == 0:
                    self._meet()
            seconds = (time.perf_counter() - start) / len(calls)
            self._meet()
        wrong, proved_s = buffers.compare(checked), 0.0
        if batch.is_checked:
            meet_each = batch.aggregate if batch.blocking else 0
            unproved, proved_s = self._prove(problem, len(calls), batch, meet_each)
            wrong = wrong or unproved
        busy_s = time.process_time() - busy
        return RankTiming(wrong=wrong, seconds=seconds, proved_s=proved_s, busy_s=busy_s)

    def _prove(
        self, problem: Problem, launches: int, batch: Batch, meet_each: int
    ) -> tuple[Wrong | None, float]:
        """What is wrong in calls that prove so many, and the seconds of the shortest. meet_each:
        all ranks meet after so many calls, 0: never.
        """
        assert self.prepared is not None
        buffers, calls = self.prepared.buffers, self.prepared.calls
        order = timed_sets(problem, buffers.sets, proved_launches(launches))

        def launch(number: int) -> None:
            function, args = calls[order[number]]
            function(*args)
            if meet_each and (number + 1) % meet_each == 0:
                self._meet()

        with self._limit(problem.op, batch.deadline_s):
            self._meet()
            return buffers.prove(order, launch)

    def timed_singly(self, problem: Problem, hot: bool, batch: Batch) -> RankTiming:
        """Poison what was launched, time each call behind a barrier of its own, behind one that
        does not count, and compare what they left.
        """
        assert self.prepared is not None
        busy, ready = time.process_time(), self.prepared
        of = problem, ready.buffers.sets, 1 + batch.single_launches
        checked = checked_sets(*of) if batch.is_checked else range(0)
        ready.buffers.poison(checked, is_warm=True)
        calls = (ready.calls[number] for number in timed_sets(*of))
        order = (partial(function, *args) for function, args in calls)
        # one limit for all: it costs more than a launch
        limit_s = batch.deadline_s + batch.single_s
        with self._limit(problem.op, limit_s):
            times_s = clocked(order, self._meet)
            self._meet()
        wrong = ready.buffers.compare(checked)
        if batch.is_checked:
            unproved, _ = self._prove(problem, of[2], replace(batch, deadline_s=limit_s), 1)
            wrong = wrong or unproved
        return RankTiming(
            wrong=wrong,
            seconds=fmean(times_s),
            busy_s=time.process_time() - busy,
            launch_times_s=times_s,
        )


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

    def flag_s(self, limit_s: float, *, is_mutual: bool) -> float:
        if not is_mutual:
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
