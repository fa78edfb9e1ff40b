"""What backends share of a repeat: how long a batch lasts, the sets of user buffers that its
launches take in turn, what is poisoned and compared, and the samples that timings come to.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from collbench.backends.base import Batch, Samples
from collbench.core.case import BUFFER_GRAIN_BYTES, Case, Problem
from collbench.core.collectives import collective
from collbench.core.collector import cyclic_gc_disabled
from collbench.core.dtypes import Array
from collbench.core.errors import CollbenchError
from collbench.core.group import Rank, WorkerGroup
from collbench.core.host import last_level_cache_bytes
from collbench.core.pattern import (
    PERIOD,
    Wrong,
    compare,
    compare_guard,
    fill,
    first_changed,
    guard,
    poison,
)
from collbench.planning.plan import Plan
from collbench.planning.together import Together

if TYPE_CHECKING:  # a rank that starts reads no host
    from collbench.machine.discovery.counters import CounterReading

Key_contra = TypeVar("Key_contra", contravariant=True)
TimingT = TypeVar("TimingT", bound="RankTiming | None")
CACHES_TO_PASS = 2  # buffers rotate over this many times the last-level cache
MAX_ROTATIONS = 256  # small buffers come back after this many launches
SET_PHASE = 4099  # elements between the phases of two sets' data, so that no two sets hold the same
WARM_STEP_BYTES = 4096  # between two poisoned elements of an output that must stay in the cache
MAX_LOADED_PLANS = 64  # that ranks keep at a time
ANSWER_S = 5.0  # beyond a rank's own deadline, until its answer must be here
# a machine that writes and compares test data slower than this is not waited for
SLOWEST_FILL_BYTES_S = 2e8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLength:
    """How long a timed batch lasts whose iterations are left to us, and its bounds."""

    target_s: float
    least: int
    most: int


# A sweep without options then takes half a minute.
CPU_BATCH = BatchLength(target_s=0.04, least=3, most=1000)
GPU_BATCH = BatchLength(target_s=0.004, least=4, most=100)  # launches of one graph
# Launches that a distribution has where nobody gives their number: twice as many as show that 1 in
# 1,000 is longer, unless that takes longer than so many seconds of launches, in all repeats.
DISTRIBUTION_LAUNCHES, DISTRIBUTION_S = 2000, 4.0
LEAST_SINGLE = 3  # of them, in a repeat
# What they may take on average: so many times as long as in a batch, and a barrier on busy cores.
SLOWER_SINGLE, SINGLE_BARRIER_S = 4, 2e-4
# one launch of a batch in so many proves it, and at least so many
_PROVED_PART, LEAST_PROVED = 4, 2
# A batch that is so many times as fast as what proves it, each time of so many, did less.
_MUCH_FASTER, _ATTEMPTS = 10.0, 20
FLAG_LAUNCHES = 200  # of the least launch of GPUs, at a time: marks of time count for little
_FLAGS, _FLAG_BATCHES = 5, 40  # on CPUs
_FLAG_BURST, _FLAG_PAUSE_S = 10, 0.003  # batches without a pause, and the pause
REPLAYS = 3  # of a batch on GPUs that count, behind one that does not


def shortest_flag_s(exchange: Callable[[], object]) -> float:
    """Seconds of an exchange of a flag on CPUs, in the batch that met least load. In a batch one
    rank may find the other's first flag; in a long one a busy machine would take a core away. They
    are spread over more than a turn that others may have on a core.
    """
    times_s = list[float]()
    for batch in range(_FLAG_BATCHES):
        if batch % _FLAG_BURST == 0:
            time.sleep(_FLAG_PAUSE_S)
        start = time.perf_counter()
        for _ in range(_FLAGS):
            exchange()
        times_s.append(time.perf_counter() - start)
    return min(times_s) / _FLAGS


def auto_iterations(seconds: float, length: BatchLength = CPU_BATCH) -> int:
    """Launches that fill a batch if one takes that long.

    >>> auto_iterations(0.001), auto_iterations(1.0), auto_iterations(1e-9)
    (40, 3, 1000)
    >>> [auto_iterations(seconds, GPU_BATCH) for seconds in (3e-6, 1e-4, 1.0)]
    [100, 40, 4]
    """
    wanted = round(length.target_s / max(seconds, 1e-9))
    return max(length.least, min(length.most, wanted))


def proved_launches(launches: int) -> int:
    """How many launches prove a batch of so many on CPUs (see proof.py).

    >>> [proved_launches(launches) for launches in (1, 3, 40, 1000)]
    [2, 2, 10, 250]
    """
    return max(LEAST_PROVED, -(-launches // _PROVED_PART))


def single_launches(batch: Batch, seconds: float) -> int:
    """Launches of a repeat that are timed one by one, if one takes that long.

    >>> batch = Batch(single_launches=700, single_s=1.0)
    >>> [single_launches(batch, seconds) for seconds in (1e-5, 0.01, 1.0)]
    [700, 100, 3]
    >>> single_launches(Batch(single_launches=700), 1.0)
    700
    """
    if math.isinf(batch.single_s):
        return batch.single_launches
    fitting = int(batch.single_s / max(seconds, 1e-9))
    return min(batch.single_launches, max(LEAST_SINGLE, fitting))


def stride_bytes(problem: Problem, grain_bytes: int = BUFFER_GRAIN_BYTES) -> int:
    """Bytes of user memory that one rank's buffers take, up to the next multiple of the grain."""
    most = max(problem.buffers(rank).total_bytes for rank in range(problem.n))
    return -(-most // grain_bytes) * grain_bytes


def sets_to_pass(cache_bytes: int, set_bytes: int, most: int) -> int:
    """Sets of user buffers that launches take in turn to pass a cache."""
    return max(1, min(most, -(-CACHES_TO_PASS * cache_bytes // set_bytes)))


def rotations(problem: Problem, *, hot: bool) -> int:
    """Sets of user buffers: enough to pass the last-level cache by taking them in turn, one if hot;
    and one for the last launch where results accumulate.
    """
    set_bytes = stride_bytes(problem) * problem.n
    turning = 1 if hot else sets_to_pass(last_level_cache_bytes(), set_bytes, MAX_ROTATIONS)
    return turning + accumulates(problem)


def accumulates(problem: Problem) -> bool:
    """Whether launches on the same buffers give other results than the first: reductions in place,
    but for min and max.
    """
    is_reduction = collective(problem.op).is_reduction
    return problem.in_place and is_reduction and problem.redop not in ("min", "max")


def sets_in_turn(problem: Problem, sets: int, launches: int) -> list[int]:
    """The set of each of so many launches: all in turn, but set 0 where results accumulate."""
    first = int(accumulates(problem))
    return [first + number % (sets - first) for number in range(launches)]


def timed_sets(problem: Problem, sets: int, launches: int) -> list[int]:
    """The set of each launch of a timed batch. Where results accumulate, the definition says only
    what the first launch on a set leaves: the last launch, and no other, is on set 0.
    """
    order = sets_in_turn(problem, sets, launches)
    return [*order[:-1], 0] if accumulates(problem) else order


def checked_sets(problem: Problem, sets: int, launches: int) -> range:
    """The sets that are poisoned before a timed batch and compared after it: all that it uses of
    which the definition says what they hold then.
    """
    return range(1 if accumulates(problem) else min(sets, launches))


def phase(problem: Problem, number: int) -> int:
    """The element of the pattern with which the inputs of a set begin.

    In place there is no poison where the output is input: the first element of set 0 is one that a
    reduction changes, so that a launch that does nothing is noticed at any size.
    """
    what, start = collective(problem.op), 0
    if problem.in_place and what.is_reduction:
        rank = problem.root if what.is_rooted else 0
        start = first_changed(problem.dtype, problem.redop, problem.n, rank)
    return (start + number * SET_PHASE) % PERIOD


def prepare_buffers(
    problem: Problem, rank: int, source: "Array", target: "Array", number: int = 0
) -> None:
    """Write the rank's input of a set and poison its output (in place, what is input stays).
    target: the output, and the guard behind it where the problem has one.
    """
    at = phase(problem, number)
    _poison(problem, rank, target, at)
    if problem.counts:
        guard(target[_outputs(problem, rank) :], problem.n, rank)
    if len(source):
        fill(source, problem.op, problem.redop, problem.n, rank, at)


def poison_again(
    problem: Problem,
    rank: int,
    source: "Array",
    target: "Array",
    number: int,
    *,
    is_warm: bool = False,
) -> None:
    """Poison the rank's output of a set that launches have written; in place write its input, too.

    is_warm: the set is what the caches hold when the clock starts, and should stay that: poison one
    element in WARM_STEP_BYTES. In place that would leave input that is not the pattern.
    """
    if problem.in_place:
        prepare_buffers(problem, rank, source, target, number)
        return
    step = WARM_STEP_BYTES // problem.item_bytes if is_warm else 1
    _poison(problem, rank, target, phase(problem, number), step)


def _poison(problem: Problem, rank: int, target: "Array", at: int, step: int = 1) -> None:
    blocks = problem.blocks(rank) if problem.counts else None
    poison(target, problem.op, problem.redop, problem.n, problem.root, rank, at, step, blocks)


def _outputs(problem: Problem, rank: int) -> int:
    """Elements of the rank's output."""
    return problem.buffers(rank).out_bytes // problem.item_bytes


def compare_output(problem: Problem, rank: int, target: "Array", number: int = 0) -> Wrong | None:
    """The wrong elements of the rank's output of a set, and of the guard behind it."""
    of = problem.op, problem.redop, problem.n, problem.root, rank, phase(problem, number)
    if not problem.counts:
        return compare(target, *of)
    end = _outputs(problem, rank)
    return compare(target, *of, problem.blocks(rank)) or compare_guard(
        target[end:], problem.n, rank, end
    )


def verify_in_process(
    problem: Problem, buffer: Callable[[int, str], "Array"], launch: Callable[[], None]
) -> tuple[Wrong, ...]:
    """Fill, poison, launch and compare all ranks of a backend that holds them in one process."""
    for rank in range(problem.n):
        prepare_buffers(problem, rank, buffer(rank, "in"), buffer(rank, "out"))
    launch()
    wrong = [compare_output(problem, rank, buffer(rank, "out")) for rank in range(problem.n)]
    return tuple(one for one in wrong if one is not None)


@dataclass(slots=True, kw_only=True)
class RankTiming:
    """What a rank returns of one call: its wrong elements, seconds a launch, and of one that proved
    the batch (0: unknown, see proof.py), CPU time of the whole call, and seconds of each launch
    where each was timed.
    """

    wrong: Wrong | None
    seconds: float
    proved_s: float = 0.0
    busy_s: float = 0.0
    launch_times_s: tuple[float, ...] = ()
    span: tuple[float, float] = (0.0, 0.0)  # of the timed launches, by its host's monotonic clock


class CountedRank(Rank, Protocol):
    """A rank that reads counters."""

    def counters(self) -> "CounterReading":
        """What has passed the links of the rank's host, and the sockets of its process."""
        from collbench.machine.discovery.counters import read

        return read()


def clocked(
    launches: Iterable[Callable[[], object]], barrier: Callable[[], object]
) -> tuple[float, ...]:
    """Seconds of each launch on this rank, by the monotonic clock of its host: from where the
    rank leaves the barrier before it until its own launch returns. The first does not count:
    it finds in the caches what was done before.
    """
    times: list[float] = []
    with cyclic_gc_disabled():
        for launch in launches:
            barrier()
            start = time.perf_counter()
            launch()
            times.append(time.perf_counter() - start)
    return tuple(times[1:])


def refuse_other_plans(digest: str, loaded: Iterable[str | None]) -> None:
    """Raise CollbenchError if a rank that has a part of it loaded another plan."""
    if set(filter(None, loaded)) != {digest}:
        raise CollbenchError(
            f"the ranks disagree about the plan: {loaded}",
            "start all ranks from the same installation",
        )


def agreed(timed: Callable[[], list[TimingT]], prepare: Callable[[], object]) -> list[TimingT]:
    """The answers of a timed batch. It is prepared and timed again where a launch of it is much
    shorter than any that proved it, as if it did less: ours are also counted, a library's are not.
    On a busy machine a batch that proves is often much longer, but not every time.
    """
    proved_s = math.inf
    for attempt in range(_ATTEMPTS):
        if attempt:
            prepare()
        answers = timed()
        launch_s = slowest_s(answers)
        proved_s = min(proved_s, max(one.proved_s for one in answers if one is not None))
        if proved_s < _MUCH_FASTER * launch_s:
            return answers
    got, wanted = (f"{1e6 * seconds:.3g} us a launch" for seconds in (launch_s, proved_s))
    for rank, one in enumerate(answers):
        if one is not None and one.wrong is None:
            one.wrong = Wrong(rank=rank, count=1, got=got, wanted=wanted)
    return answers


def samples_of(
    prepared: Sequence[RankTiming],
    timed: Sequence[RankTiming],
    iterations: int,
    notes: Sequence[str],
    singly: Sequence[RankTiming] = (),
) -> Samples:
    """The samples of a repeat whose ranks answered so before it was timed, after that, and after
    launches that were timed one by one, if there were any.
    """
    calls = [prepared, timed, *([singly] if singly else [])]
    wrong = [
        next((answer.wrong for answer in of_rank if answer.wrong is not None), None)
        for of_rank in zip(*calls, strict=True)
    ]
    each = [answer.launch_times_s for answer in singly]
    return Samples(
        seconds=tuple(timing.seconds for timing in timed),
        iterations=iterations,
        span=(max(one.span[0] for one in timed), min(one.span[1] for one in timed)),
        wrong=tuple(one for one in wrong if one is not None),
        busy_s=sum(timing.busy_s for answers in calls for timing in answers),
        notes=tuple(notes),
        launch_times_s=tuple(map(max, zip(*each, strict=True))),
    )


def samples_together(
    job: Together[Plan | Case],
    before: Sequence[Sequence[RankTiming | None]],
    alone: Sequence[Sequence[RankTiming | None]],
    timed: Sequence[RankTiming],
    iterations: int,
    notes: Sequence[str],
) -> Samples:
    """The samples of a repeat of launches together, whose ranks answered so before it was timed, of
    each part alone, and of all of them. A rank that is not in a part does not answer for it; wrong
    elements have the number of the rank among all.
    """
    calls = [*before, *alone, timed]
    answers = [(rank, one) for call in calls for rank, one in enumerate(call) if one is not None]
    return Samples(
        seconds=tuple(one.seconds for one in timed),
        iterations=iterations,
        alone_s=job.alone_s(list(map(slowest_s, alone))),
        wrong=tuple(
            replace(one.wrong, rank=rank) for rank, one in answers if one.wrong is not None
        ),
        busy_s=sum(one.busy_s for _, one in answers),
        notes=tuple(notes),
    )


def slowest_s(answers: Sequence[RankTiming | None]) -> float:
    """Seconds of a launch of the slowest of the ranks that have answered."""
    return max(one.seconds for one in answers if one is not None)


def cache_notes(data_bytes: int, cache_bytes: int, *, hot: bool) -> list[str]:
    """Whether launches find their data in the cache."""
    return ["hot"] if hot else ["in-cache"] if data_bytes < cache_bytes else []


def host_data(problem: Problem, sets: int, *, hot: bool) -> tuple[int, list[str]]:
    """Bytes of so many sets of user buffers of all ranks in host memory, and notes on them."""
    data_bytes = sets * stride_bytes(problem) * problem.n
    return data_bytes, cache_notes(data_bytes, last_level_cache_bytes(), hot=hot)


def counters_of(workers: WorkerGroup[CountedRank], batch: Batch) -> "list[CounterReading]":
    """The counters of links as each rank's host has them, if the batch asks for them."""
    return workers.call(CountedRank.counters, timeout_s=ANSWER_S) if batch.has_wire else []
