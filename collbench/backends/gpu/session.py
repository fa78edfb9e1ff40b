"""What GPU backends share on both sides: a rank that takes its GPU, a session that opens, a repeat,
launches concurrent with matrix multiplications, and what disturbed them.
"""

import os
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Generic, TypeVar

from collbench.backends.base import (
    ANSWER_S,
    GPU_BATCH,
    REPLAYS,
    Batch,
    GpuOptions,
    Job_contra,
    Key_contra,
    RankTiming,
    Samples,
    SessionFacts,
    auto_iterations,
    cache_notes,
    samples_of,
)
from collbench.backends.gpu.child import ChildWorkerGroup
from collbench.backends.gpu.concurrent import ConcurrentRepeat, EventTimes, Work, last_of, work_of
from collbench.backends.gpu.rank import DeviceRank, ExportedMemory, sets_of, stride_bytes
from collbench.device.card import Card, cuda_errors, device_count
from collbench.device.gemm import Gemm
from collbench.launch.group import Group, Rank, RankContext, WorkerGroup
from collbench.machine import gpus
from collbench.machine.host import has_nvidia_gpus
from collbench.spec.case import Problem
from collbench.spec.collectives import collective
from collbench.spec.pattern import Wrong
from collbench.spec.peers import Variables
from collbench.util.errors import CollbenchError, UnavailableError

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
    facts = GpuFacts(
        name=card.name,
        uuid=card.uuid,
        arch=card.arch,
        cache_bytes=card.cache_bytes,
        pids=(os.getpid(), os.getppid()) if context.is_process else (os.getpid(),),
        version=(
            f"cuda {runtime.runtimeGetVersion()}{_switches()}; driver {runtime.driverGetVersion()};"
            f" cupy {card.cupy.__version__}"
        ),
    )
    return (
        DeviceRank(
            context.rank, context.n, card, is_alone=context.comm is None and not context.is_process
        ),
        facts,
    )


class GpuRank(Rank):
    """One rank's part, as far as all GPU backends have it alike."""

    def __init__(self, context: RankContext) -> None:
        self.context = context
        self._gpu: DeviceRank | None = None

    @property
    def gpu(self) -> DeviceRank:
        """The rank's GPU, once it has taken it."""
        assert self._gpu is not None
        return self._gpu

    def device(self, options: GpuOptions) -> GpuFacts:
        """Take this rank's GPU; what the driver wants to know of it."""
        self.faults, self.options = cuda_errors(), options
        self._gpu, facts = take_gpu(self.context, options)
        return facts

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

    def compute(self, size: int) -> None:
        """Make the matrix multiplication that concurrent() queues. It takes seconds, in which no
        other rank may wait at a barrier.
        """
        if self.gpu.gemm is None:
            self.gpu.gemm = Gemm(self.gpu.card, size)

    def close(self) -> None:
        """Give memory back."""
        if self._gpu is not None:
            self._gpu.close()


class LaunchingRank(GpuRank, Generic[Key_contra]):
    """A rank that launches what a key names."""

    @abstractmethod
    def reset(self, key: Key_contra) -> None:
        """Clear what launches have left, and write inputs and poison. No kernel of any rank may be
        running.
        """

    @abstractmethod
    def first(self, key: Key_contra, is_checked: bool) -> RankTiming:
        """Run every set of buffers once and compare."""

    @abstractmethod
    def run_concurrently(self, key: Key_contra, work: Work) -> EventTimes:
        """Launches concurrent with matrix multiplications."""


class GpuTimedRank(LaunchingRank[Key_contra]):
    """One whose launches can be timed by themselves."""

    @abstractmethod
    def timed(self, key: Key_contra, batch: Batch, work_s: float) -> RankTiming:
        """Time the batch's launches, which should take so long altogether, and compare."""


GpuRankT = TypeVar("GpuRankT", bound=GpuRank)


def _switches() -> str:
    """What the environment sets that changes how CUDA runs launches, in words."""
    given = [f"{name}={os.environ[name]}" for name in _CUDA_SWITCHES if name in os.environ]
    return f" with {' '.join(given)}" if given else ""


def open_ranks(
    group: Group, rank: type[GpuRankT], n: int, options: GpuOptions, variables: Variables = ()
) -> tuple[WorkerGroup[GpuRankT], list[GpuFacts]]:
    """A worker group with a GPU a rank, no two the same, and what each is; in new processes with
    those environment variables if there are any.
    """
    count = len(options.gpus) or device_count()
    if group.kind == "local" and n > count:
        raise UnavailableError(f"{n} ranks, {count} GPUs", "use fewer --ranks")
    workers: WorkerGroup[GpuRankT] = (
        ChildWorkerGroup(group, rank, n, variables) if variables else group.gpu_workers(rank, n)
    )
    try:
        facts = workers.call(GpuRank.device, options, timeout_s=START_S)
    except CollbenchError:
        workers.close()
        raise
    if is_shared(facts):
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
    names = list(dict.fromkeys(fact.name for fact in facts))
    return ", ".join(
        f"{sum(fact.name == name for fact in facts)} x {name}" for name in names
    ), facts[0].version


def share_memory(
    workers: WorkerGroup[GpuRank],
    arena_bytes: int,
    user_bytes: int,
    options: GpuOptions,
    host_bytes: int = 0,
    *,
    is_peered: bool = True,
    hosts: Sequence[str] = (),
) -> None:
    """Allocate on every rank, and let every rank reach the others' memory: their GPUs' if
    is_peered, and host_bytes of each in host memory.

    hosts: of the ranks, if there are several and each rank reaches only those of its own.
    """
    exported = workers.call(
        GpuRank.allocate, arena_bytes, user_bytes, host_bytes, timeout_s=START_S
    )
    workers.call(GpuRank.connect, exported, options.timeout_s, is_peered, hosts, timeout_s=START_S)


class GpuHealth:
    """Looks at the GPUs between repeats, and says what may have disturbed one."""

    def __init__(self, facts: Sequence[GpuFacts]) -> None:
        self._uuids, self._pids = (
            [fact.uuid for fact in facts],
            {pid for fact in facts for pid in fact.pids},
        )
        self._last = gpus.conditions(self._uuids, self._pids)
        self.cache_bytes: int = facts[0].cache_bytes
        self.iterations: dict[Hashable, int] = {}  # of what was timed, by key

    def notes(self) -> tuple[str, ...]:
        """What happened since the last look."""
        before, self._last = self._last, gpus.conditions(self._uuids, self._pids)
        return gpus.disturbances(before, self._last)


class GpuSession(SessionFacts, Generic[Job_contra, GpuRankT]):
    """The driver's side, as far as all GPU backends have it alike: ranks with a GPU each."""

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

    @abstractmethod
    def run_concurrently(
        self, job: Job_contra, size: int, repeats: int
    ) -> tuple[list[ConcurrentRepeat], list[Wrong]]:
        """Launches alone, multiplications of matrices of that size alone, and both at once."""

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

    def _sets(self, problem: Problem) -> int:
        """Sets of user buffers of each rank."""
        return sets_of(problem, self.facts[0].cache_bytes, hot=self.hot)

    def close(self) -> None:
        """End the ranks."""
        self._workers.close()


def repeat_on_gpus(
    workers: WorkerGroup[GpuTimedRank[Key_contra]],
    watch: GpuHealth,
    key: Key_contra,
    problem: Problem,
    batch: Batch,
    sets: int,
    options: GpuOptions,
    *,
    hot: bool,
) -> Samples:
    """One repeat: clear and fill, run every set of buffers once and compare, time, compare
    again.
    """
    limit_s = repeat_limit_s(options.timeout_s) + batch.deadline_s + ANSWER_S
    workers.call(GpuTimedRank.reset, key, timeout_s=limit_s)
    first = workers.call(GpuTimedRank.first, key, batch.is_checked, timeout_s=limit_s)
    launch_s = max(timing.seconds for timing in first)
    known = watch.iterations.get(key)
    iterations = batch.iterations or known or auto_iterations(launch_s, GPU_BATCH)
    while True:
        work_s = SLOWER * (REPLAYS + 1) * iterations * batch.aggregate * launch_s
        timed = workers.call(
            GpuTimedRank.timed,
            key,
            replace(batch, iterations=iterations),
            work_s,
            timeout_s=limit_s + work_s,
        )
        wanted = auto_iterations(max(timing.seconds for timing in timed), GPU_BATCH)
        if batch.iterations or key in watch.iterations or wanted <= iterations:
            break
        # launched one by one for the first time, small ones took ten times as long as in a graph
        watch.iterations[key] = iterations = wanted
        workers.call(GpuTimedRank.reset, key, timeout_s=limit_s)
    notes = cache_notes(sets * stride_bytes(problem), watch.cache_bytes, hot=hot)
    if options.isolated:
        notes.append("isolated")
    elif collective(problem.op).is_rooted:
        notes.append("pipelined")
    return samples_of(first, timed, iterations, [*notes, *watch.notes()])


def measured(
    workers: WorkerGroup[LaunchingRank[Key_contra]],
    watch: GpuHealth,
    key: Key_contra,
    data_bytes: int,
    size: int,
    repeats: int,
    options: GpuOptions,
) -> tuple[list[ConcurrentRepeat], list[Wrong]]:
    """The driver's part: launches once and compared, then each repeat alone, alone and together;
    and what was wrong in any of it. Buffers,
    data_bytes a rank, are filled anew before every repeat.
    """
    cached = ("in-cache",) if data_bytes < watch.cache_bytes else ()
    limit_s = soak_limit_s(options)

    def ask(work: Work) -> tuple[EventTimes, ...]:
        return tuple(
            workers.call(
                LaunchingRank.run_concurrently,
                key,
                work,
                timeout_s=START_S + limit_s + work.seconds,
            )
        )

    workers.call(LaunchingRank.reset, key, timeout_s=limit_s)
    first = workers.call(LaunchingRank.first, key, True, timeout_s=limit_s)
    wrong: list[Wrong] = [timing.wrong for timing in first if timing.wrong is not None]
    workers.call(LaunchingRank.compute, size, timeout_s=START_S + limit_s)
    gemm_s = last_of(
        [marks.computing for marks in ask(Work(seconds=options.timeout_s, turns=_FIRST_TURNS))]
    )
    launches = auto_iterations(max(timing.seconds for timing in first), GPU_BATCH)
    started = ask(Work(seconds=options.timeout_s, replays=_FIRST_REPLAYS, launches=launches))
    launch_s = last_of([marks.launches for marks in started]) / launches
    work = work_of(gemm_s, launch_s)
    overlaps: list[ConcurrentRepeat] = []
    ask(replace(work, replays=0))  # untimed: clocks settle under the power that GEMMs draw
    for _ in range(repeats):
        workers.call(LaunchingRank.reset, key, timeout_s=limit_s)
        computing, alone, both = (
            ask(replace(work, replays=0)),
            ask(replace(work, turns=0)),
            ask(work),
        )
        wrong += [marks.wrong for marks in (*alone, *both) if marks.wrong is not None]
        overlaps.append(
            ConcurrentRepeat(
                gemms=work.gemms,
                launches=work.launches,
                computing_alone=computing,
                launches_alone=alone,
                both=both,
                notes=(*cached, *watch.notes()),
            )
        )
    return overlaps, wrong
