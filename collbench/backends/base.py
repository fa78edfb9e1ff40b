"""The contract of backends, and what several of them share: a backend opens sessions, and a session
runs a job for a batch and returns samples. Nothing here knows records, tables or files.

Every module of a backend has one object `BACKEND`: a Backend, whose jobs are plans, or a Peer, a
library whose jobs are cases. The process that drives a measurement has the session; the ranks that
do the work are Ranks of a worker group (see launch/group.py).
"""

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from collbench.core.case import BUFFER_GRAIN_BYTES, Case, Problem
from collbench.core.collectives import collective
from collbench.core.collector import cyclic_gc_disabled
from collbench.core.options import DEFAULT_MACHINE, LaunchMode, NetMemory
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
from collbench.launch.group import Group, Rank, RankT, WorkerGroup
from collbench.machine.discovery.counters import CounterReading, Moved, moved
from collbench.machine.host import last_level_cache_bytes
from collbench.planning.limits import Limits
from collbench.planning.plan import Plan
from collbench.planning.together import Together

if TYPE_CHECKING:
    from collbench.core.dtypes import Array

Job_contra = TypeVar("Job_contra", contravariant=True)
Key_contra = TypeVar("Key_contra", contravariant=True)
PartJob_contra = TypeVar("PartJob_contra", bound=Plan | Case, contravariant=True)
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
class Batch:
    """How to measure one repeat: untimed launches, timed iterations (0: as many as fill TARGET_S),
    and whether results are compared.

    An iteration is `aggregate` launches, followed by a barrier of all ranks if blocking.
    single_launches: after that batch, so many more at most are timed one by one, each behind a
    barrier of its own; single_s: seconds that they may take together, but LEAST_SINGLE may take
    more. deadline_s: how long no rank may wait for another.
    has_wire: read the counters of links before and after the timed iterations.
    """

    warmup: int = 1
    iterations: int = 0
    is_checked: bool = True
    aggregate: int = 1
    blocking: bool = False
    single_launches: int = 0
    single_s: float = math.inf
    deadline_s: float = 10.0
    has_wire: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One repeat: each rank's mean seconds a launch, iterations timed, wrong elements by rank,
    notes on the conditions.

    busy_s: CPU time of all ranks together, 0 if unknown. launch_times_s: of each launch that was
    timed by itself, the time of the rank that it took longest. alone_s: of launches together, what
    they take one after the other (planning/together.py). wire: what passed the links.
    """

    seconds: tuple[float, ...]
    iterations: int = 1
    busy_s: float = 0.0
    launch_times_s: tuple[float, ...] = ()
    alone_s: float = 0.0
    wrong: tuple[Wrong, ...] = ()
    notes: tuple[str, ...] = ()
    wire: Moved | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOptions:
    """How GPUs are used: which (none: all), how launches are queued and timed, how long a wait may
    last.

    is_spread: ranks are on several hosts, so that none can reach all others' memory. inject: a
    fault, for tests. is_urgent: launches get multiprocessors before what other streams of the GPU
    have. net_memory: where slots of messages lie; auto: on the GPU if MPI says that it takes its
    memory, where a CPU need not look at them. net_threads: of a rank, that receive large messages
    (None: see net/receivers.py).
    """

    gpus: tuple[int, ...] = ()
    launch: LaunchMode = "graph"
    isolated: bool = False
    timeout_s: float = 10.0
    is_spread: bool = False
    inject: str = ""
    is_urgent: bool = False
    net_memory: NetMemory = "auto"
    net_threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What holds for a whole session: whether launches take one set of buffers all the time, the
    machine that the model describes, and how GPUs are used.
    """

    hot: bool = False
    machine: str = DEFAULT_MACHINE
    gpu: GpuOptions = field(default_factory=GpuOptions)


class SessionFacts(Protocol):
    """What rows and headlines say of a session.

    device, version: what ran the launches. headline: a line to show before the first row, or an
    empty text. host: what rows name as their host; empty: this one.
    """

    device: str
    version: str
    headline: str = ""
    host: str = ""


class Session(SessionFacts, Protocol[Job_contra]):
    """Runs jobs on the ranks that it holds."""

    @abstractmethod
    def run(self, job: Job_contra, batch: Batch) -> Samples:
        """One repeat: run and compare, poison, warm up, time, compare again."""

    def flag_s(self, limit_s: float, *, is_mutual: bool) -> float:
        """Seconds of the least launch on these ranks, which each exchange a flag with another one,
        or with none; 0: not known. limit_s: how long no rank may wait. Raises CollbenchError.
        """
        return 0.0

    def close(self) -> None:
        """End the ranks."""
        return


class SessionOpener(Protocol[Job_contra]):
    """What Backend and Peer have in common. name: the member of the family.

    is_gpu: its launches are queued on GPUs. wants_machine: it invents times for the machine of the
    options. has_launch_times: its ranks time launches one by one where a batch asks for that.
    """

    name: str
    is_gpu: bool = False
    wants_machine: bool = False
    has_launch_times: bool = True

    def why_not(self, group: Group) -> str:
        """Why this backend cannot run on that group, or an empty text."""
        return ""

    def is_apart(self, job: Job_contra) -> bool:
        """Whether a job's ranks are processes of their own on GPUs, which must not be there while
        other ranks are measured.
        """
        return False

    def shared_bytes(self, job: Job_contra, *, hot: bool) -> int:
        """Shared memory that a job needs on each host."""
        return 0

    def private_bytes(self, job: Job_contra, *, hot: bool) -> int:
        """Memory of its own that a rank needs for a job."""
        return 0

    @abstractmethod
    def open(
        self, group: Group, jobs: Sequence[Job_contra], options: SessionOptions
    ) -> Session[Job_contra]:
        """A session for these jobs. Raises UnavailableError."""


class Backend(SessionOpener[Plan], Protocol):
    """Runs plans: our schedules."""

    is_peer: Literal[False] = False

    def limits(self, memory_bytes: int) -> Limits:
        """What a plan may use, with memory_bytes for its FIFOs."""
        return Limits(memory_bytes=memory_bytes)

    def why_waived(self, plan: Plan, group: Group) -> str:
        """Why this backend cannot run a plan on that group, or an empty text."""
        return ""


class TogetherOpener(SessionOpener[Together[PartJob_contra]], Protocol[PartJob_contra]):
    """Runs several plans at once, or, for a library, several cases."""

    has_launch_times: bool = False

    def why_waived(self, job: Together[PartJob_contra]) -> str:
        """Why these cannot run at once, or an empty text."""
        return ""


class Peer(SessionOpener[Case], Protocol):
    """A library that runs a case by its own algorithm. What it can be forced to: core/peers.py."""

    is_peer: Literal[True] = True

    @abstractmethod
    def why_waived(self, case: Case, is_reduction: bool) -> str:
        """Why the library cannot run a case, or an empty text."""


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
_PROVED_PART, LEAST_PROVED = (
    4,
    2,
)  # one launch of a batch in so many proves it, and at least so many
# A batch that is so many times as fast as what proves it, each time of so many, did less.
_MUCH_FASTER, _ATTEMPTS = 10.0, 5
FLAG_LAUNCHES = 20  # of the least launch of GPUs, at a time
_FLAGS, _FLAG_BATCHES = 5, 20  # on CPUs
REPLAYS = 3  # of a batch on GPUs that count, behind one that does not


def shortest_flag_s(exchange: Callable[[], object]) -> float:
    """Seconds of an exchange of a flag on CPUs, in the batch that met least load. In a batch one
    rank may find the other's first flag; in a long one a busy machine would take a core away.
    """
    times_s = list[float]()
    for _ in range(_FLAG_BATCHES):
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


class CpuTimedRank(Rank, Protocol[Key_contra]):
    """A rank whose launches the CPU's clock times; a key names what is launched."""

    @abstractmethod
    def prepare(self, key: Key_contra, hot: bool, batch: Batch) -> RankTiming:
        """Write inputs and poison, run every set of buffers once, compare, poison, warm up."""

    @abstractmethod
    def timed(self, key: Key_contra, hot: bool, batch: Batch) -> RankTiming:
        """Poison what the warm-up wrote, time the batch's launches behind a barrier, compare what
        they left, and prove them.
        """

    @abstractmethod
    def timed_singly(self, key: Key_contra, hot: bool, batch: Batch) -> RankTiming:
        """Poison what was launched, time each of the batch's single launches behind a barrier of
        its own, behind one that does not count, compare what they left, and prove them.
        """


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


def agreed(timed: Callable[[], list[TimingT]], prepare: Callable[[], object]) -> list[TimingT]:
    """The answers of a timed batch. It is prepared and timed again where a launch of it is much
    shorter than one that proved it, as if it did less: ours are also counted, a library's are not.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            prepare()
        answers = timed()
        launch_s = slowest_s(answers)
        proved_s = max(one.proved_s for one in answers if one is not None)
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


def counters_of(workers: WorkerGroup[RankT], batch: Batch) -> list[CounterReading]:
    """The counters of links as each rank's host has them, if the batch asks for them."""
    return workers.call(Rank.counters, timeout_s=ANSWER_S) if batch.has_wire else []


def repeat_on_cpus(
    workers: WorkerGroup[CpuTimedRank[Key_contra]],
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
    prepare = partial(workers.call, CpuTimedRank.prepare, key, hot, batch, timeout_s=limit_s)
    prepared = prepare()
    iterations = batch.iterations or auto_iterations(max(timing.seconds for timing in prepared))
    batch = replace(batch, iterations=iterations)
    before: list[CounterReading] = []

    def time_batch() -> list[RankTiming]:
        before[:] = counters_of(workers, batch)
        return workers.call(CpuTimedRank.timed, key, hot, batch, timeout_s=limit_s)

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
            CpuTimedRank.timed_singly, key, hot, batch, timeout_s=limit_s + work_s
        )
    samples = samples_of(prepared, timed, iterations, notes, singly)
    launches = iterations * batch.aggregate
    launches += proved_launches(launches) * batch.is_checked
    return replace(samples, wire=moved(before, after, launches) if after else None)
