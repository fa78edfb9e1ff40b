"""Ranks whose launches end before the call returns, so that the CPU's clock times them: our own on
CPUs, and those of libraries. How a repeat prepares, times, compares and proves launches; what is
launched, this module does not know.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from collbench.backends.base import Batch, Samples
from collbench.backends.proof import ProvedPart, prove
from collbench.backends.repeat import (
    ANSWER_S,
    SINGLE_BARRIER_S,
    SLOWER_SINGLE,
    SLOWEST_FILL_BYTES_S,
    CountedRank,
    Key_contra,
    RankTiming,
    agreed,
    auto_iterations,
    checked_sets,
    clocked,
    compare_output,
    counters_of,
    poison_again,
    prepare_buffers,
    proved_launches,
    rotations,
    samples_of,
    sets_in_turn,
    single_launches,
    stride_bytes,
    timed_sets,
)
from collbench.core.case import Problem
from collbench.core.dtypes import Array, dtype
from collbench.core.group import WorkerGroup
from collbench.core.pattern import Wrong

if TYPE_CHECKING:  # a rank that starts reads no host
    from collbench.machine.discovery.counters import CounterReading

ReadyT = TypeVar("ReadyT", bound="Ready")
# around user buffers: a multiple of what buffers on GPUs begin at; every byte is GUARD
MARGIN_BYTES, GUARD = 512, 0xA5


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
        """Poison the outputs of sets that launches have written (see repeat.poison_again)."""

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
    if not problem.margin_bytes:
        return []
    at, end = problem.buffers(rank), 0
    buffers = sorted([(at.in_offset, at.in_bytes), (at.out_offset, at.out_bytes)])
    found = list[range]()
    for first, size in [*(one for one in buffers if one[1]), (at.total_bytes, 0)]:
        found += [range(end, first)] if first > end else []
        end = max(end, first + size)
    return found


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
    """User buffers in the memory of the host. memory: the bytes of each set."""

    def __init__(self, problem: Problem, rank: int, memory: "Sequence[Array]") -> None:
        self.problem, self.sets, self._rank, self._memory = problem, len(memory), rank, memory
        at, element = problem.buffers(rank), dtype(problem.dtype).numpy()
        self._inputs, self._outputs = (
            [of_set[first : first + size].view(element) for of_set in memory]
            for first, size in (
                (at.in_offset, at.in_bytes),
                (at.out_offset, at.out_bytes + at.guard_bytes),
            )
        )
        self._out_bytes = at.out_bytes

    def arrays(self, number: int) -> tuple["Array", "Array"]:
        """The elements of a set's input, and of its output with the guard behind it."""
        return self._inputs[number], self._outputs[number]

    def memory(self, number: int) -> tuple["Array", "Array"]:
        source, target = self.arrays(number)
        return source.view(np.uint8), target.view(np.uint8)[: self._out_bytes]

    def prepare(self) -> None:
        for number in range(self.sets):
            prepare_buffers(self.problem, self._rank, *self.arrays(number), number)
            for zone in self._zones(number):
                zone[...] = GUARD

    def _zones(self, number: int) -> "list[Array]":
        """The guard zones of a set."""
        found, memory = zones(self.problem, self._rank), self._memory[number]
        return [memory[zone.start : zone.stop] for zone in found]

    def poison(self, numbers: Iterable[int], *, is_warm: bool) -> None:
        for number in numbers:
            of_set = *self.arrays(number), number
            poison_again(self.problem, self._rank, *of_set, is_warm=is_warm)

    def compare(self, numbers: range) -> Wrong | None:
        of = self.problem, self._rank
        wrong = [compare_output(*of, self._outputs[number], number) for number in numbers]
        guarded = map(self._zones, numbers and range(self.sets))
        wrong += [stray(*of, [zone.tobytes() for zone in found]) for found in guarded]
        return next((one for one in wrong if one is not None), None)

    def proved(self, order: Sequence[int]) -> ProvedPart:
        """What is proved by launches on the sets of `order`."""
        return ProvedPart(self.problem, self._rank, order, self.arrays)

    def prove(
        self, order: Sequence[int], launch: Callable[[int], object]
    ) -> tuple[Wrong | None, float]:
        return prove([self.proved(order)], launch)


def own_buffers(problem: Problem, rank: int, *, hot: bool) -> HostBuffers:
    """User buffers in memory of the rank's own, from a page on."""
    stride, sets = stride_bytes(problem), rotations(problem, hot=hot)
    memory = np.zeros(sets * stride + 4096, np.uint8)
    memory = memory[-memory.__array_interface__["data"][0] % 4096 :][: sets * stride]
    return HostBuffers(problem, rank, np.split(memory, sets))


class Ready(Protocol):
    """What a rank is ready to launch."""

    @property
    def buffers(self) -> BufferSets: ...


class BlockingRank(CountedRank, Protocol[Key_contra, ReadyT]):
    """A rank whose launches the CPU's clock times; a key names what is launched. Where a method has
    limit_s, no rank may wait for another for longer.
    """

    @abstractmethod
    def _ready(self, key: Key_contra, hot: bool) -> ReadyT:
        """What a key names."""

    @abstractmethod
    def _launch(self, ready: ReadyT, number: int, limit_s: float) -> Callable[[], object]:
        """What does one launch on a set of user buffers."""

    @abstractmethod
    def _barrier(self, ready: ReadyT, limit_s: float) -> None:
        """All ranks are here."""

    @abstractmethod
    def _time(self, ready: ReadyT, order: Sequence[int], batch: Batch) -> float:
        """Mean seconds of launches on those sets, between two barriers."""

    def _limit(self, call: str, limit_s: float) -> AbstractContextManager[None]:
        """What watches over the body, where waits have no deadline of their own."""
        return nullcontext()

    def _clear(self, ready: ReadyT, launches: int, limit_s: float) -> None:
        """Forget what launches have left besides user buffers; so many follow behind a barrier."""
        return

    def _expect(self, ready: ReadyT, launches: int) -> None:
        """So many more launches follow behind a barrier."""
        return

    def _missing(self, ready: ReadyT) -> Wrong | None:
        """What says that launches were left out, where they are counted."""
        return None

    def prepare(self, key: Key_contra, hot: bool, batch: Batch) -> RankTiming:
        """Write inputs and poison, run every set of buffers once, compare, poison, warm up."""
        busy, ready, warmup = time.process_time(), self._ready(key, hot), max(batch.warmup, 1)
        buffers, limit_s, wrong = ready.buffers, batch.deadline_s, None
        with self._limit(buffers.problem.op, limit_s):
            self._clear(ready, buffers.sets + warmup, limit_s)
            buffers.prepare()
            self._barrier(ready, limit_s)
            for number in range(buffers.sets):
                self._launch(ready, number, limit_s)()
            if batch.is_checked:
                wrong = buffers.compare(range(buffers.sets))
                buffers.poison(range(buffers.sets), is_warm=False)
            self._barrier(ready, limit_s)
            start = time.perf_counter()
            for number in sets_in_turn(buffers.problem, buffers.sets, warmup):
                self._launch(ready, number, limit_s)()
            seconds = (time.perf_counter() - start) / warmup
        return RankTiming(wrong=wrong, seconds=seconds, busy_s=time.process_time() - busy)

    def timed(self, key: Key_contra, hot: bool, batch: Batch) -> RankTiming:
        """Poison what the warm-up wrote, time the batch's launches behind a barrier, compare what
        they left, and prove them.
        """
        busy, ready = time.process_time(), self._ready(key, hot)
        buffers, launches = ready.buffers, batch.iterations * batch.aggregate
        of = buffers.problem, buffers.sets
        checked = checked_sets(*of, launches) if batch.is_checked else range(0)
        warm = set(checked).intersection(sets_in_turn(*of, max(batch.warmup, 1)))
        with self._limit(buffers.problem.op, batch.deadline_s):
            buffers.poison(sorted(warm), is_warm=True)
            self._expect(ready, launches)
            begun = time.perf_counter()
            seconds = self._time(ready, timed_sets(*of, launches), batch)
            span = begun, time.perf_counter()
        wrong, proved_s = self._missing(ready) or buffers.compare(checked), 0.0
        if batch.is_checked:
            meet_each = batch.aggregate if batch.blocking else 0
            unproved, proved_s = self._prove(ready, launches, batch, meet_each)
            wrong = wrong or unproved
        busy_s = time.process_time() - busy
        return RankTiming(wrong=wrong, seconds=seconds, proved_s=proved_s, busy_s=busy_s, span=span)

    def _prove(
        self, ready: ReadyT, launches: int, batch: Batch, meet_each: int, work_s: float = 0.0
    ) -> tuple[Wrong | None, float]:
        """What is wrong in launches that prove so many, and the seconds of the shortest. meet_each:
        all ranks meet after so many of them, 0: never. work_s: that they may take beyond a wait.
        """
        buffers, proved, limit_s = ready.buffers, proved_launches(launches), batch.deadline_s
        order = timed_sets(buffers.problem, buffers.sets, proved)

        def launch(number: int) -> None:
            self._launch(ready, order[number], limit_s)()
            if meet_each and (number + 1) % meet_each == 0:
                self._barrier(ready, limit_s)

        with self._limit(buffers.problem.op, limit_s + work_s):
            self._expect(ready, proved)
            self._barrier(ready, limit_s)
            return buffers.prove(order, launch)

    def timed_singly(self, key: Key_contra, hot: bool, batch: Batch) -> RankTiming:
        """Poison what was launched, time each of the batch's single launches behind a barrier of
        its own, behind one that does not count, compare what they left, and prove them.
        """
        busy, ready = time.process_time(), self._ready(key, hot)
        buffers, limit_s = ready.buffers, batch.deadline_s
        of = buffers.problem, buffers.sets, 1 + batch.single_launches
        checked = checked_sets(*of) if batch.is_checked else range(0)
        self._clear(ready, of[2], limit_s)
        buffers.poison(checked, is_warm=True)
        order = (self._launch(ready, number, limit_s) for number in timed_sets(*of))
        # one limit for all: it costs more than a launch
        with self._limit(buffers.problem.op, limit_s + batch.single_s):
            times_s = clocked(order, partial(self._barrier, ready, limit_s))
            self._barrier(ready, limit_s)
        wrong = self._missing(ready) or buffers.compare(checked)
        if batch.is_checked:
            unproved, _ = self._prove(ready, of[2], batch, 1, batch.single_s)
            wrong = wrong or unproved
        return RankTiming(
            wrong=wrong,
            seconds=fmean(times_s),
            busy_s=time.process_time() - busy,
            launch_times_s=times_s,
        )


def repeat_on_cpus(
    workers: WorkerGroup[BlockingRank[Key_contra, ReadyT]],
    key: Key_contra,
    batch: Batch,
    *,
    hot: bool,
    data_bytes: int,
    notes: Sequence[str],
) -> Samples:
    """One repeat of ranks that the CPU's clock times: run every set of buffers once and compare,
    poison, warm up, time, compare again; and the same of launches that are timed one by one, where
    the batch asks for them. data_bytes: of the user buffers of all ranks.
    """
    batch = replace(batch, deadline_s=batch.deadline_s + data_bytes / SLOWEST_FILL_BYTES_S)
    limit_s = batch.deadline_s + ANSWER_S
    prepare = partial(workers.call, BlockingRank.prepare, key, hot, batch, timeout_s=limit_s)
    prepared = prepare()
    iterations = batch.iterations or auto_iterations(max(timing.seconds for timing in prepared))
    batch = replace(batch, iterations=iterations)
    before: list[CounterReading] = []

    def time_batch() -> list[RankTiming]:
        before[:] = counters_of(workers, batch)
        return workers.call(BlockingRank.timed, key, hot, batch, timeout_s=limit_s)

    timed = agreed(time_batch, prepare)
    after = counters_of(workers, batch)
    singly: list[RankTiming] = []
    if batch.single_launches:
        launch_s = max(timing.seconds for timing in timed)
        count = single_launches(batch, launch_s)
        work_s = (1 + count + proved_launches(1 + count)) * (
            SLOWER_SINGLE * launch_s + SINGLE_BARRIER_S
        )
        batch = replace(batch, single_launches=count, single_s=work_s)
        singly = workers.call(
            BlockingRank.timed_singly, key, hot, batch, timeout_s=limit_s + work_s
        )
    samples = samples_of(prepared, timed, iterations, notes, singly)
    launches = iterations * batch.aggregate
    launches += proved_launches(launches) * batch.is_checked
    if not after:
        return samples
    from collbench.machine.discovery.counters import moved

    return replace(samples, wire=moved(before, after, launches))
