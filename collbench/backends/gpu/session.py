"""What GPU backends share on both sides: a rank that takes its GPU, a session that opens, a repeat,
launches concurrent with matrix multiplications, and what disturbed them.
"""

import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import ClassVar, Generic, Never, TypeVar, cast

from collbench.backends.base import Batch, GpuOptions, Job_contra, Samples, Session
from collbench.backends.gpu import concurrent, timing
from collbench.backends.gpu.child import ChildWorkerGroup
from collbench.backends.gpu.concurrent import (
    ConcurrentRepeat,
    ConcurrentWork,
    EventTimes,
    last_of,
    work_of,
)
from collbench.backends.gpu.rank import (
    HOLD_NS,
    DeviceRank,
    ExportedMemory,
    Launches,
    sets_of,
    stride_bytes,
)
from collbench.backends.repeat import (
    ANSWER_S,
    GPU_BATCH,
    REPLAYS,
    SLOWER_SINGLE,
    CountedRank,
    Key_contra,
    RankTiming,
    agreed,
    auto_iterations,
    cache_notes,
    counters_of,
    samples_of,
    single_launches,
    slowest_s,
)
from collbench.core.case import Problem
from collbench.core.collectives import collective
from collbench.core.errors import CollbenchError, UnavailableError
from collbench.core.group import Group, RankContext, WorkerGroup
from collbench.core.host import has_nvidia_gpus
from collbench.core.launcher import with_switches
from collbench.core.pattern import Wrong
from collbench.core.peers import Variables
from collbench.core.world import ranks_per_gpu
from collbench.device.card import Card, cuda_errors, device_count
from collbench.device.layout import ABORT_AT
from collbench.device.loads import Copies, Gemm
from collbench.launch.local import own_processes
from collbench.machine import gpus
from collbench.machine.discovery.counters import CounterReading, moved, read

Key = TypeVar("Key", bound=Hashable)
# times as long as the first launches, on average, later ones may take: a GPU that grows hot lowers
# its clocks
SLOWER = 2
START_S = 120.0  # for contexts, allocations and first compilations
_CUDA_SWITCHES = ("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING")
# Deadlines of ranks that may pass one after the other in a call, each of which ends with an answer.
_WAITS_OF_A_REPEAT, _WAITS_OF_A_SOAK = 4, 8
_FIRST_TURNS = 3  # of one matrix multiplication each, to learn how long one takes
_FIRST_REPLAYS = 2


def repeat_limit_s(timeout_s: float) -> float:
    """How long ranks may wait for each other in a call of a repeat."""
    return _WAITS_OF_A_REPEAT * timeout_s


def soak_limit_s(options: GpuOptions) -> float:
    """How long a call may take that queues launches of many sizes, or more than one stream."""
    return _WAITS_OF_A_SOAK * options.timeout_s + ANSWER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """What the driver wants to know of a rank's GPU.

    arch: ten times the compute capability. pids: the processes of ours that use it. buffers: a note
    on how a library holds user buffers, or an empty text.
    """

    name: str
    uuid: str
    arch: int
    cache_bytes: int
    pids: tuple[int, ...]
    version: str
    buffers: str = ""


def why_no_gpus() -> str:
    """Why no GPU backend can run here, or an empty text."""
    if not has_nvidia_gpus() and find_spec("cupy") is None:
        return "this host has no NVIDIA GPU"
    if device_count() == 0:
        return "CUDA shows no GPU" if has_nvidia_gpus() else "this host has no NVIDIA GPU"
    return ""


def take_gpu(context: RankContext, options: GpuOptions) -> tuple[DeviceRank, GpuFacts]:
    """The GPU of a rank's number on its host, or the only one that its launcher shows it; and what
    the driver wants to know of it.
    """
    count = device_count()
    indices = options.gpus or tuple(range(count))
    if context.local_rank >= len(indices) > 1 or not indices:
        raise UnavailableError(
            f"rank {context.rank} has no GPU: {len(indices)} for the ranks of its host",
            "start one rank a GPU",
        )
    index = indices[context.local_rank if len(indices) > 1 else 0]
    if index >= count:
        raise UnavailableError(
            f"there is no GPU {index}: CUDA shows 0 to {count - 1}",
            "give others with --gpus, or look at CUDA_VISIBLE_DEVICES",
        )
    card = Card(index)
    if options.is_urgent:
        card.take_highest_priority()
    runtime = card.runtime
    cuda = with_switches(f"cuda {runtime.runtimeGetVersion()}", _CUDA_SWITCHES)
    facts = GpuFacts(
        name=card.name,
        uuid=card.uuid or gpus.uuid_at(runtime.deviceGetPCIBusId(index)),
        arch=card.arch,
        cache_bytes=card.cache_bytes,
        pids=(os.getpid(), os.getppid()) if context.is_process else (os.getpid(),),
        version=(f"{cuda}; driver {runtime.driverGetVersion()}; cupy {card.cupy.__version__}"),
    )
    return (
        DeviceRank(
            context.rank, context.n, card, is_alone=context.comm is None and not context.is_process
        ),
        facts,
    )


class TakesGpu(CountedRank):
    """A rank with a GPU of its own."""

    context: RankContext
    _gpu: DeviceRank | None = None

    @property
    def gpu(self) -> DeviceRank:
        """The rank's GPU, once it has taken it."""
        assert self._gpu is not None
        return self._gpu

    def device(self, options: GpuOptions) -> GpuFacts:
        """Take this rank's GPU; what the driver wants to know of it. Raises UnavailableError."""
        self.faults, self.options = cuda_errors(), options
        self._gpu, facts = take_gpu(self.context, options)
        return facts

    def counters(self) -> CounterReading:
        """As of other ranks; of the links only where this rank is the first of its host: a driver
        that several ask at once refuses some.
        """
        return read(has_links=self.context.local_rank == 0)

    def close(self) -> None:
        """Give memory back."""
        if self._gpu is not None:
            self._gpu.close()


class GpuRank(TakesGpu, Generic[Key_contra]):
    """One rank's part, as far as all GPU backends have it alike; a key names what is launched.

    why_not_shared: why ranks cannot share a GPU, in words, where they cannot.
    """

    why_not_shared: ClassVar[str] = ""

    def __init__(self, context: RankContext) -> None:
        self.context = context

    def allocate(self, arena_bytes: int, user_bytes: int, host_bytes: int) -> ExportedMemory:
        """Make the memory that the others write to and read."""
        return self.gpu.allocate(arena_bytes, user_bytes, host_bytes)

    def connect(
        self,
        exported: Sequence[ExportedMemory],
        timeout_s: float,
        is_peered: bool,
        hosts: Sequence[str],
    ) -> None:
        """Reach the others' memory; hosts: of the ranks, if there are several."""
        near = (
            [rank for rank, host in enumerate(hosts) if host == hosts[self.context.rank]]
            if hosts
            else None
        )
        self.gpu.connect(exported, timeout_s, is_peered=is_peered, near=near)

    def compute(self, size: int | None) -> None:
        """Make the load that run_concurrently() queues. It takes seconds, in which no other rank
        may wait at a barrier.
        """
        if size not in self.gpu.loads:
            card = self.gpu.card
            self.gpu.loads[size] = Copies(card) if size is None else Gemm(card, size)

    @abstractmethod
    def _launches(self, key: Key_contra) -> Launches:
        """What a key names, ready to be launched."""

    def _wait(self, work_s: float) -> None:
        """Until the GPU is done, which may take so long. Raises HangError."""
        self.gpu.wait(repeat_limit_s(self.gpu.timeout_s) + work_s)

    def _queue_clear(self, key: Key_contra) -> None:
        """Queue the clearing of what launches have left, besides the user buffers."""
        self.gpu.card.clear(self.gpu.control + ABORT_AT, 4)

    def reset(self, key: Key_contra) -> None:
        """Clear what launches have left, and write inputs and poison. No kernel of any rank may be
        running.
        """
        self._queue_clear(key)
        launches = self._launches(key)
        problem = launches.problem
        self.gpu.prepare(problem, range(launches.sets), stride_bytes(problem))
        self.gpu.card.wait(self.gpu.timeout_s)

    def first(self, key: Key_contra, is_checked: bool) -> RankTiming:
        """Run every set of buffers once and compare."""
        return timing.first(self._launches(key), is_checked=is_checked)

    def timed(self, key: Key_contra, batch: Batch, work_s: float) -> RankTiming:
        """Time the batch's launches, which should take so long altogether, and compare."""
        return timing.timed(self._launches(key), batch, self.options, work_s)

    def timed_singly(self, key: Key_contra, batch: Batch, work_s: float) -> RankTiming:
        """Time each of the batch's single launches, which should take so long altogether, on
        buffers that were reset, and compare.
        """
        return timing.timed_singly(self._launches(key), batch, self.options, work_s)

    def flag(self, ways: int) -> float:
        """Seconds of the least launch, see timing.flag_s()."""
        return timing.flag_s(self.gpu, self.options, ways)

    def run_concurrently(self, key: Key_contra, work: ConcurrentWork) -> EventTimes:
        """Launches concurrent with matrix multiplications."""
        return concurrent.run(self._launches(key), work)


# any GpuRank, whatever names its launches
GpuRankT = TypeVar("GpuRankT", bound=GpuRank[Never])


def open_ranks(
    group: Group, rank: type[GpuRankT], n: int, options: GpuOptions, variables: Variables = ()
) -> tuple[WorkerGroup[GpuRankT], list[GpuFacts]]:
    """A worker group with a GPU a rank, no two the same unless the options name one more than once,
    and what each is; in new processes with those environment variables if there are any.

    Ranks that share a GPU are processes, which take turns: those of one process would wait forever
    where CUDA waits for the GPU to be idle.
    """
    is_sharing = ranks_per_gpu(options.gpus) > 1
    if is_sharing and rank.why_not_shared:
        raise UnavailableError(rank.why_not_shared, "start one rank a GPU")
    count = len(options.gpus) or device_count()
    if group.kind == "local" and n > count:
        raise UnavailableError(f"{n} ranks, {count} GPUs", "use fewer --ranks")
    workers: WorkerGroup[GpuRankT] = (
        ChildWorkerGroup(group, rank, n, variables)
        if variables or (is_sharing and group.kind == "local")
        else group.gpu_workers(rank, n)
    )
    try:
        facts = workers.call(GpuRank.device, options, timeout_s=START_S)
    except CollbenchError:
        workers.close()
        raise
    if is_shared(facts) and not is_sharing:
        workers.close()
        uuids = ", ".join(fact.uuid for fact in facts)
        raise UnavailableError(
            f"two ranks share a GPU: {uuids}",
            "start one rank a GPU, or give each its own with --gpus",
        )
    return workers, facts


def is_shared(facts: Sequence[GpuFacts]) -> bool:
    """Whether two ranks have the same GPU: their kernels would wait for each other's turn."""
    return len({fact.uuid for fact in facts}) < len(facts)


def describe(facts: Sequence[GpuFacts]) -> tuple[str, str]:
    """The GPUs in words, and the versions of what drives them."""
    names = {fact.uuid: fact.name for fact in facts}
    counts = ", ".join(f"{count} x {name}" for name, count in Counter(names.values()).items())
    shared = f"{len(facts)} ranks on " if is_shared(facts) else ""
    return f"{shared}{counts}", facts[0].version


class GpuHealth:
    """Looks at the GPUs between repeats, and says what may have disturbed one."""

    def __init__(self, facts: Sequence[GpuFacts]) -> None:
        self._uuids = [fact.uuid for fact in facts]
        self._pids = {pid for fact in facts for pid in fact.pids}
        self._last = self._look()

    def _look(self) -> gpus.Conditions:
        """The GPUs now. Another session of this run is not foreign, wherever its ranks are."""
        seen = gpus.conditions(self._uuids, self._pids)
        if any(reading.foreign_pids for reading in seen.readings):
            self._pids |= own_processes()
            seen = gpus.conditions(self._uuids, self._pids)
        return seen

    def notes(self) -> tuple[str, ...]:
        """What happened since the last look."""
        before, self._last = self._last, self._look()
        return gpus.disturbances(before, self._last)


class GpuRanksSession(Session[Job_contra], Generic[Job_contra, GpuRankT]):
    """The driver's side, as far as whatever runs on GPUs has it alike: ranks with a GPU each, which
    are watched, and the memory that they share.
    """

    def __init__(
        self,
        group: Group,
        rank: type[GpuRankT],
        n: int,
        *,
        hot: bool,
        options: GpuOptions,
        variables: Variables = (),
    ) -> None:
        self.hot, self.options, self.n = hot, options, n
        self._workers, self.facts = open_ranks(group, rank, n, options, variables)
        self.device, self.version = describe(self.facts)
        self._cache_bytes = self.facts[0].cache_bytes
        self._iterations: dict[Hashable, int] = {}  # of what was timed

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Let the ranks go if one cannot have what it needs; otherwise watch the GPUs from then
        on.
        """
        try:
            yield
        except BaseException:
            self.close()
            raise
        self._watch = GpuHealth(self.facts)

    def _share_memory(
        self,
        arena_bytes: int,
        user_bytes: int,
        host_bytes: int = 0,
        *,
        is_peered: bool = True,
        hosts: Sequence[str] = (),
    ) -> None:
        """Allocate on every rank, and let every rank reach the others' memory: their GPUs' if
        is_peered, and host_bytes of each in host memory.

        hosts: of the ranks, if there are several and each rank reaches only those of its own.
        """
        exported = self._workers.call(
            GpuRank.allocate, arena_bytes, user_bytes, host_bytes, timeout_s=START_S
        )
        self._workers.call(
            GpuRank.connect, exported, self.options.timeout_s, is_peered, hosts, timeout_s=START_S
        )

    def _fitted(
        self,
        key: Hashable,
        batch: Batch,
        launch_s: float,
        time_batch: Callable[[Batch], list[RankTiming]],
        reset: Callable[[], object],
    ) -> tuple[Batch, list[RankTiming]]:
        """A batch as it was timed, and the answers. launch_s: of the first launches, which say how
        many fill it where that is left to us.
        """
        iterations = (
            batch.iterations or self._iterations.get(key) or auto_iterations(launch_s, GPU_BATCH)
        )
        while True:
            each = replace(batch, iterations=iterations)
            timed = time_batch(each)
            wanted = auto_iterations(slowest_s(timed), GPU_BATCH)
            if batch.iterations or key in self._iterations or wanted <= iterations:
                return each, timed
            # launched one by one for the first time, small ones took ten times as long as in a
            # graph
            self._iterations[key] = iterations = wanted
            reset()

    def _limit_s(self, batch: Batch) -> float:
        """How long a call of a repeat may take, beyond the work of its GPU."""
        return repeat_limit_s(self.options.timeout_s) + batch.deadline_s + ANSWER_S

    def _notes_of(self, job: Job_contra) -> tuple[str, ...]:
        """Notes on every repeat of a job."""
        return ()

    def _conditions(
        self, job: Job_contra, problems: Iterable[Problem], user_bytes: int
    ) -> tuple[str, ...]:
        """Notes on a repeat of a job that computes those problems, in so many bytes of a rank."""
        notes = cache_notes(user_bytes, self._cache_bytes, hot=self.hot)
        if self.options.isolated:
            notes.append("isolated")
        elif any(collective(problem.op).is_rooted for problem in problems):
            notes.append("pipelined")
        if is_shared(self.facts):
            notes.append("shared-gpu")
        return (*notes, *self._watch.notes(), *self._notes_of(job))

    def _sets(self, problem: Problem) -> int:
        """Sets of user buffers of each rank."""
        return sets_of(problem, self._cache_bytes, hot=self.hot)

    def close(self) -> None:
        """End the ranks."""
        self._workers.close()


class GpuSession(GpuRanksSession[Job_contra, GpuRankT], Generic[Job_contra, Key, GpuRankT]):
    """The driver's side, as far as all GPU backends have it alike: ranks know a job by a key."""

    @abstractmethod
    def _loaded(self, job: Job_contra) -> tuple[Key, Problem, int]:
        """Have a job on all ranks: its key, what it computes, and its sets of user buffers."""

    def _ranks(self) -> WorkerGroup[GpuRank[Key]]:
        """The ranks, as their keys name what they launch; the bound of a type variable cannot say
        that of GpuRankT.
        """
        return cast("WorkerGroup[GpuRank[Key]]", self._workers)

    def run(self, job: Job_contra, batch: Batch) -> Samples:
        """One repeat: clear and fill, run every set of buffers once and compare, time, compare
        again; and the same of launches that are timed one by one, where the batch asks for them.
        """
        key, problem, sets = self._loaded(job)
        workers = self._ranks()
        limit_s, before = self._limit_s(batch), list[CounterReading]()
        reset = partial(workers.call, GpuRank.reset, key, timeout_s=limit_s)
        reset()
        first = workers.call(GpuRank.first, key, batch.is_checked, timeout_s=limit_s)
        launch_s = slowest_s(first)

        def time_batch(each: Batch) -> list[RankTiming]:
            work_s = SLOWER * (REPLAYS + 2) * each.iterations * batch.aggregate * launch_s

            def time_it() -> list[RankTiming]:
                before[:] = counters_of(workers, batch)
                return workers.call(GpuRank.timed, key, each, work_s, timeout_s=limit_s + work_s)

            return agreed(time_it, reset)

        each, timed = self._fitted(key, batch, launch_s, time_batch, reset)
        after = counters_of(workers, batch)
        singly = self._timed_singly(key, batch, slowest_s(timed), limit_s)
        notes = self._conditions(job, [problem], sets * stride_bytes(problem))
        samples = samples_of(first, timed, each.iterations, notes, singly)
        if not after:
            return samples
        launches = timing.launches_of(each, self.options)
        gpus_of_ranks = [fact.uuid for fact in self.facts]
        return replace(samples, wire=moved(before, after, launches, gpus_of_ranks))

    def flag_s(self, limit_s: float, ways: int) -> float:
        if is_shared(self.facts) or self.options.is_spread:
            return 0.0
        limit_s += START_S + repeat_limit_s(self.options.timeout_s)
        return max(self._workers.call(GpuRank.flag, ways, timeout_s=limit_s))

    def _timed_singly(
        self, key: Key, batch: Batch, launch_s: float, limit_s: float
    ) -> list[RankTiming]:
        """What the ranks return of launches that are timed one by one; nothing where the batch asks
        for none. launch_s: of a launch in a batch.
        """
        if not batch.single_launches:
            return []
        count, workers = single_launches(batch, launch_s), self._ranks()
        work_s = SLOWER * (1 + count) * (SLOWER_SINGLE * launch_s + HOLD_NS * 1e-9)
        batch = replace(batch, single_launches=count)
        workers.call(GpuRank.reset, key, timeout_s=limit_s)
        return workers.call(GpuRank.timed_singly, key, batch, work_s, timeout_s=limit_s + work_s)

    def run_concurrently(
        self, job: Job_contra, size: int | None, repeats: int
    ) -> tuple[list[ConcurrentRepeat], list[Wrong]]:
        """Launches alone, a load alone, and both at once; and what was wrong in any of it. Buffers
        are filled anew before every repeat. size: of the matrices that are multiplied; None: memory
        is copied instead.
        """
        key, problem, sets = self._loaded(job)
        workers = self._ranks()
        is_cached = sets * stride_bytes(problem) < self._cache_bytes
        limit_s = soak_limit_s(self.options)

        def run(work: ConcurrentWork) -> tuple[EventTimes, ...]:
            limit = START_S + limit_s + work.seconds
            return tuple(workers.call(GpuRank.run_concurrently, key, work, timeout_s=limit))

        reset = partial(workers.call, GpuRank.reset, key, timeout_s=limit_s)
        reset()
        first = workers.call(GpuRank.first, key, True, timeout_s=limit_s)
        wrong: list[Wrong] = [rank.wrong for rank in first if rank.wrong is not None]
        workers.call(GpuRank.compute, size, timeout_s=START_S + limit_s)
        once = ConcurrentWork(load=size, seconds=self.options.timeout_s, turns=_FIRST_TURNS)
        gemm_s = last_of([times.computing for times in run(once)])
        count = auto_iterations(slowest_s(first), GPU_BATCH)
        once = replace(once, turns=0, replays=_FIRST_REPLAYS, launches=count)
        launch_s = last_of([times.launches for times in run(once)]) / count
        work = replace(work_of(gemm_s, launch_s), load=size)
        only_gemms, only_launches = replace(work, replays=0), replace(work, turns=0)
        run(only_gemms)  # untimed: clocks settle under the power that the load draws
        rows: list[ConcurrentRepeat] = []
        for _ in range(repeats):
            workers.call(GpuRank.reset, key, timeout_s=limit_s)
            computing, alone, both = run(only_gemms), run(only_launches), run(work)
            wrong += [times.wrong for times in (*alone, *both) if times.wrong is not None]
            notes = (
                *(["in-cache"] if is_cached else []),
                *self._watch.notes(),
                *self._notes_of(job),
            )
            rows.append(
                ConcurrentRepeat(
                    gemms=work.gemms,
                    launches=work.launches,
                    computing_alone=computing,
                    launches_alone=alone,
                    both=both,
                    notes=notes,
                )
            )
        return rows, wrong
