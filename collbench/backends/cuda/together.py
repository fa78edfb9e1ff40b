"""Several plans at once on GPUs: groups of ranks that do not know of each other, communicators that
share ranks, and grouped launches of several operations.

Each part has a region of its own in the arena, and in the user memory, of each of its ranks, and is
a CudaRank there: its states, flags, FIFOs, reports and barriers are its own; abort words are those
of all. A rank that has several parts queues each in a stream of its own, which leaves the main
stream before a launch and comes back behind it; with another order of launches they follow each
other in the main stream.

CTAs of all parts of a rank wait for other ranks, so all must be resident at once: a part that finds
no place could be what others wait for.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import NamedTuple

from collbench.backends.base import (
    ANSWER_S,
    GPU_BATCH,
    MAX_LOADED_PLANS,
    REPLAYS,
    Batch,
    GpuOptions,
    RankTiming,
    Samples,
    SessionOptions,
    TogetherOpener,
    auto_iterations,
    cache_notes,
    checked_sets,
    samples_together,
    slowest_s,
    timed_sets,
)
from collbench.backends.cuda.compilation import Compilation
from collbench.backends.cuda.rank import DROP_AFTER, CudaRank, LoadedGpuPlan
from collbench.backends.gpu import timing
from collbench.backends.gpu.hang import diagnosis
from collbench.backends.gpu.rank import Graphs, Launches, stride_bytes
from collbench.backends.gpu.session import (
    SLOWER,
    START_S,
    GpuRank,
    GpuRanksSession,
    is_shared,
    repeat_limit_s,
)
from collbench.device.card import Card, Launch
from collbench.device.layout import CONTROL_BYTES, is_in_host, layouts
from collbench.device.program import ctas, launches_counted
from collbench.launch.group import Group, RankContext
from collbench.planning.plan import Plan
from collbench.planning.together import LaunchesOfRanks, Part, Together
from collbench.spec.collectives import collective
from collbench.spec.pattern import Wrong
from collbench.util.errors import CollbenchError, HangError, ScheduleError

# Streams whose kernels CUDA can run at once, unless the environment says otherwise: work of more
# streams than queues waits for what another stream has in the same queue.
_QUEUES_VARIABLE, _QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", 8
_REGION_BYTES = 4096  # regions of parts begin at multiples of this
_CLUSTERED_SHARE = 2  # only one in so many places can be promised to CTAs of clusters: see below

Queue = Callable[[int], None]  # queues something in a stream


class PartOfRanks(NamedTuple):
    """A part's ranks, its name, and where its regions begin in the arena and the user memory of
    each rank.
    """

    ranks: tuple[int, ...]
    name: str
    arenas_at: tuple[int, ...]
    users_at: tuple[int, ...]


class _PartRank(CudaRank):
    """One rank of a part."""

    def __init__(self, whole: CudaRank, part: PartOfRanks) -> None:
        gpu = whole.gpu.part(part.ranks, part.arenas_at, part.users_at)
        super().__init__(RankContext(rank=gpu.rank, n=gpu.n))
        self._gpu, self.options, self.part = gpu, whole.options, part
        self.stream = gpu.card.new_stream()
        self.arrived = _untimed_event(gpu.card)
        self._beside: dict[tuple[str, int], Launch] = {}

    def first(self, digest: str, is_checked: bool) -> RankTiming:
        """As of CudaRank; faults of tests are those of the whole rank."""
        return GpuRank.first(self, digest, is_checked)

    def launches(self, digest: str) -> Launches:
        """The launches of a plan alone."""
        return self._launches(digest)

    def queue_beside(self, loaded: LoadedGpuPlan, number: int, stream: int) -> None:
        """Queue one launch of a rank that has several parts on a set of user buffers. It does not
        take its place before what is in front of it has ended: the place might be one that another
        part needs.
        """
        key = loaded.plan.digest, number
        if key not in self._beside:
            self._beside[key] = self.launch(
                loaded, loaded.function, loaded.memory, number, is_alone=True
            )
        self._beside[key](stream)

    def diagnosis(self, plan: Plan) -> HangError | None:
        """What the CTAs of a plan of this part were waiting for, if any was."""
        return diagnosis(self.gpu, plan, self.part.ranks, self.part.name)

    def _diagnosis(self, plan: Plan) -> HangError | None:
        return self.diagnosis(plan)


class TogetherRank(CudaRank):
    """One rank's part of several plans."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.parts: dict[int, _PartRank] = {}
        self.graphs: Graphs = {}

    def divide(self, parts: Sequence[PartOfRanks]) -> None:
        """Have a part for each that this rank is in."""
        self._left = _untimed_event(self.gpu.card)
        self.parts = {
            number: _PartRank(self, part)
            for number, part in enumerate(parts)
            if self.context.rank in part.ranks
        }

    def load_part(
        self, number: int, plan: Plan, sets: int, cubins: Sequence[bytes], is_full: bool
    ) -> str:
        """Load a part's kernel and program; returns the plan's hash, empty where this rank has no
        such part.
        """
        if number not in self.parts:
            return ""
        if is_full:
            self.graphs.clear()
        return self.parts[number].load(plan, sets, cubins, is_full)

    def refuse_crowd(self, digests: Sequence[str]) -> None:
        """Raise ScheduleError if the launches of this rank's parts may not run at once."""
        loaded = [part.loaded[digests[number]] for number, part in self.parts.items()]
        queues = int(os.environ.get(_QUEUES_VARIABLE) or _QUEUES)
        if len(loaded) > queues:
            raise ScheduleError(
                f"rank {self.context.rank} has {len(loaded)} launches at once, CUDA has {queues}"
                " queues for them",
                f"set {_QUEUES_VARIABLE}, at most 32, or use --launch-order same",
            )
        places, wanted = resident_places(loaded), sum(ctas(one.plan) for one in loaded)
        if len(loaded) > 1 and wanted > places:
            raise ScheduleError(
                f"{wanted} CTAs of {len(loaded)} launches wait for each other on rank"
                f" {self.context.rank}, {places} are sure to be resident together on"
                f" {self.gpu.card.name}",
                "use fewer --channels, --cluster 1, or --launch-order same",
            )

    def reset_parts(self, digests: Sequence[str]) -> None:
        """Clear what launches of all parts have left, and write inputs and poison. No kernel of any
        rank may be running.
        """
        for number, part in self.parts.items():
            part.reset(digests[number])

    def first_of_part(self, number: int, digest: str, is_checked: bool) -> RankTiming | None:
        """Run every set of buffers of one part once and compare, while ranks that are not in it do
        nothing.
        """
        if number not in self.parts:
            return None
        if number == min(self.parts):
            self._misbehave()
        return self.parts[number].first(digest, is_checked)

    def timed_alone(
        self, number: int, digest: str, batch: Batch, work_s: float
    ) -> RankTiming | None:
        """Time one part, while ranks that are not in it do nothing."""
        if number not in self.parts:
            return None
        return self.parts[number].timed(digest, batch, work_s)

    def timed_together(
        self, digests: Sequence[str], batch: Batch, job: LaunchesOfRanks, work_s: float
    ) -> RankTiming:
        """Time launches of all parts behind a barrier of all ranks, on poisoned outputs, and
        compare what the last ones left. Every plan's FIFOs are as the launches before left them.
        """
        gpu, options, order = self.gpu, self.options, job.orders[self.context.rank]
        count = batch.iterations if options.isolated else batch.iterations * batch.aggregate
        launches = [self.parts[number].launches(digests[number]) for number in order]
        checked = [
            checked_sets(one.problem, one.sets, count) if batch.is_checked else range(0)
            for one in launches
        ]
        queues = self._launches_together(digests, launches, count, job)

        def poison() -> None:
            for one, sets in zip(launches, checked, strict=True):
                one.poison(sets)

        def each(stream: int) -> None:
            for queue in queues:
                queue(stream)

        wait = partial(self._wait_for_parts, digests, work_s)
        if options.isolated:
            poison()
            seconds = fmean(timing.times_apart(gpu, queues, wait))
        else:
            key = *digests, job.is_grouped, order, count
            capture = partial(self._captured, key) if options.launch == "graph" else None
            seconds = sum(timing.replayed(gpu, each, poison, wait, capture)[1:]) / REPLAYS / count
        wrong: Wrong | None = None
        for one, sets in zip(launches, checked, strict=True):
            wrong = wrong or one.compare(sets)
        return RankTiming(wrong=wrong, seconds=seconds)

    def _captured(self, key: tuple[object, ...], body: Queue) -> Callable[[], None]:
        """What queues a graph of this rank, captured once."""
        card = self.gpu.card
        if key not in self.graphs:
            self.graphs[key] = card.capture(body)
        return partial(self.graphs[key].launch, card.as_cupy(card.stream))

    def _launches_together(
        self, digests: Sequence[str], launches: Sequence[Launches], count: int, job: LaunchesOfRanks
    ) -> list[Queue]:
        """What queues each of so many launches of all parts of this rank."""
        order = job.orders[self.context.rank]
        sets = [timed_sets(one.problem, one.sets, count) for one in launches]
        if len(order) == 1:
            return [partial(launches[0].queue, number) for number in sets[0]]
        parts = [self.parts[number] for number in order]
        loaded = [part.loaded[digests[number]] for part, number in zip(parts, order, strict=True)]
        queue = self._fork if job.is_grouped else _in_turn
        return [
            partial(
                queue,
                [
                    (part, partial(part.queue_beside, one, number))
                    for part, one, number in zip(parts, loaded, numbers, strict=True)
                ],
            )
            for numbers in zip(*sets, strict=True)
        ]

    def _fork(self, queues: Sequence[tuple[_PartRank, Queue]], stream: int) -> None:
        """Queue each part's launch in its own stream, behind what the main stream has; what follows
        there is behind all of them.
        """
        runtime = self.gpu.card.runtime
        runtime.eventRecord(self._left, stream)
        for part, queue in queues:
            runtime.streamWaitEvent(part.stream, self._left)
            queue(part.stream)
            runtime.eventRecord(part.arrived, part.stream)
        for part, _ in queues:
            runtime.streamWaitEvent(stream, part.arrived)

    def _wait_for_parts(self, digests: Sequence[str], work_s: float) -> None:
        """Until the GPU is done, which may take so long. Raises HangError with the part, of this
        rank's, whose CTAs had come least far.
        """
        try:
            self.gpu.wait(repeat_limit_s(self.gpu.timeout_s) + work_s)
        except HangError as error:
            if error.suspect is not None:
                raise
            found = [
                part.diagnosis(part.loaded[digests[number]].plan)
                for number, part in self.parts.items()
            ]
            hangs = [one for one in found if one is not None and one.suspect is not None]
            raise min(hangs, key=lambda one: one.suspect or (), default=error) from None


def _untimed_event(card: Card) -> int:
    """An event that orders streams and takes no time."""
    return int(card.runtime.eventCreateWithFlags(card.runtime.eventDisableTiming))


def _in_turn(queues: Sequence[tuple[_PartRank, Queue]], stream: int) -> None:
    """Queue one part's launch after the other in the main stream."""
    for _, queue in queues:
        queue(stream)


def resident_places(loaded: Sequence[LoadedGpuPlan]) -> int:
    """CTAs of any of these kernels that are sure to be resident at once, whichever come first.

    If k CTAs of every kernel fit a multiprocessor, none takes more than one k-th of anything there:
    as long as fewer than k have come to each, there is room for another. Clusters need several
    places in one GPC; while half of all places are free, some GPC has as many.
    """
    places = min(one.resident for one in loaded)
    has_clusters = any(
        one.plan.kernel is not None and one.plan.kernel.cluster > 1 for one in loaded
    )
    return places // _CLUSTERED_SHARE if has_clusters else places


class CudaTogetherSession(GpuRanksSession[Together[Plan], TogetherRank]):
    """Drives the ranks: a repeat runs each part once, times each alone, and then all together."""

    def __init__(
        self, group: Group, jobs: Sequence[Together[Plan]], *, hot: bool, options: GpuOptions
    ) -> None:
        super().__init__(group, TogetherRank, jobs[0].n, hot=hot, options=options)
        self._known: set[tuple[str, ...]] = set()
        self._compilation = Compilation(DROP_AFTER if options.inject == "drop" else None)
        plans = [part.job for job in jobs for part in job.parts]
        for job in jobs:
            for part in job.parts:
                self._compilation.begin(part.job, self._archs(part))
        parts, arena_bytes, user_bytes = self._regions(jobs)
        with self._opening():
            self._share_memory(
                arena_bytes,
                user_bytes,
                arena_bytes if any(map(is_in_host, plans)) else 0,
                is_peered=not all(map(is_in_host, plans)),
            )
            self._workers.call(TogetherRank.divide, parts, timeout_s=START_S)
        self.headline = (
            f"{self.device}: {-(-arena_bytes >> 20)}M of FIFOs, flags and scratch memory a GPU for"
            f" {len(parts)} parts"
        )

    def _archs(self, part: Part[Plan]) -> list[int]:
        return [self.facts[rank].arch for rank in part.ranks]

    def _regions(self, jobs: Sequence[Together[Plan]]) -> tuple[list[PartOfRanks], int, int]:
        """Where each part has its regions, large enough for that part of every job; and bytes of
        the arena and of the user memory of the rank that has most of them. The arenas begin with
        the control words of all.
        """
        arena_ends, user_ends = [CONTROL_BYTES] * self.n, [0] * self.n
        parts = []
        for of_jobs in zip(*(job.parts for job in jobs), strict=True):
            plans = [part.job for part in of_jobs]
            arena = max(
                max(CONTROL_BYTES, where.total, where.fifos_end)
                for plan in plans
                for where in layouts(plan)
            )
            user = max(stride_bytes(plan.problem) * self._sets(plan.problem) for plan in plans)
            ranks = of_jobs[0].ranks
            parts.append(PartOfRanks(ranks, of_jobs[0].name, tuple(arena_ends), tuple(user_ends)))
            for rank in ranks:
                arena_ends[rank] += -(-arena // _REGION_BYTES) * _REGION_BYTES
                user_ends[rank] += -(-user // _REGION_BYTES) * _REGION_BYTES
        return parts, max(arena_ends), max(user_ends)

    def _load(self, job: Together[Plan]) -> tuple[str, ...]:
        """Have the plans of a job on their ranks; returns their hashes. Raises ScheduleError for
        what a GPU cannot run, or not at once.
        """
        digests = tuple(part.job.digest for part in job.parts)
        if digests not in self._known:
            if is_full := len(self._known) >= MAX_LOADED_PLANS:
                self._known.clear()
            for number, part in enumerate(job.parts):
                plan, cubins = part.job, self._compilation.cubins(part.job, self._archs(part))
                sets = self._sets(plan.problem)
                loaded = self._workers.call(
                    TogetherRank.load_part, number, plan, sets, cubins, is_full, timeout_s=START_S
                )
                if set(filter(None, loaded)) != {plan.digest}:
                    raise CollbenchError(
                        f"the ranks disagree about the plan: {loaded}",
                        "start all ranks from the same installation",
                    )
            self._known.add(digests)
        if job.order == "grouped":
            self._workers.call(TogetherRank.refuse_crowd, digests, timeout_s=START_S)
        return digests

    def run(self, job: Together[Plan], batch: Batch) -> Samples:
        """One repeat. Raises HangError, which explains an order of launches that can deadlock."""
        with job.explaining():
            return self._run(job, batch)

    def _run(self, job: Together[Plan], batch: Batch) -> Samples:
        digests, call = self._load(job), self._workers.call
        limit_s = repeat_limit_s(self.options.timeout_s) + batch.deadline_s + ANSWER_S
        parts_limit_s = len(digests) * limit_s
        call(TogetherRank.reset_parts, digests, timeout_s=parts_limit_s)
        first = [
            call(TogetherRank.first_of_part, number, digest, batch.is_checked, timeout_s=limit_s)
            for number, digest in enumerate(digests)
        ]
        launch_s = list(map(slowest_s, first))
        all_s = job.alone_s(launch_s)
        iterations = (
            batch.iterations or self._iterations.get(digests) or auto_iterations(all_s, GPU_BATCH)
        )
        while True:
            each = replace(batch, iterations=iterations)
            self._refuse_uncounted(job, each)
            work_s = SLOWER * (REPLAYS + 1) * iterations * batch.aggregate
            alone = [
                call(
                    TogetherRank.timed_alone,
                    *(number, digest, each, work_s * launch_s[number]),
                    timeout_s=limit_s + work_s * launch_s[number],
                )
                for number, digest in enumerate(digests)
            ]
            timed = call(
                TogetherRank.timed_together,
                *(digests, each, job.launches, work_s * all_s),
                timeout_s=limit_s + work_s * all_s,
            )
            wanted = auto_iterations(slowest_s(timed), GPU_BATCH)
            if batch.iterations or digests in self._iterations or wanted <= iterations:
                break
            # launched one by one for the first time, they took longer: see GpuSession.run
            self._iterations[digests] = iterations = wanted
            call(TogetherRank.reset_parts, digests, timeout_s=parts_limit_s)
        return samples_together(job, first, alone, timed, iterations, self._notes(job))

    def _refuse_uncounted(self, job: Together[Plan], batch: Batch) -> None:
        """Raise ScheduleError for more launches than kernels can count between two resets."""
        for plan in (part.job for part in job.parts):
            # alone and together
            timed = 2 * timing.launches_of(batch, self.options)
            launches, most = self._sets(plan.problem) + timed, launches_counted(plan)
            if launches > most:
                raise ScheduleError(
                    f"{launches} launches in a repeat: kernels count the slices of {most}",
                    "use fewer --iters or a larger --chunk",
                )

    def _notes(self, job: Together[Plan]) -> tuple[str, ...]:
        """Notes on a repeat, as other sessions on GPUs have them."""
        problems = [part.job.problem for part in job.parts]
        user_bytes = [
            sum(
                self._sets(problems[number]) * stride_bytes(problems[number])
                for number in job.parts_of(rank)
            )
            for rank in range(job.n)
        ]
        notes = cache_notes(max(user_bytes), self._cache_bytes, hot=self.hot)
        if self.options.isolated:
            notes.append("isolated")
        elif any(collective(problem.op).is_rooted for problem in problems):
            notes.append("pipelined")
        if is_shared(self.facts):
            notes.append("shared-gpu")
        return (*notes, *self._watch.notes())

    def close(self) -> None:
        """End the ranks, and what is being compiled."""
        self._compilation.close()
        super().close()


class CudaTogether(TogetherOpener[Plan]):
    """What opens sessions for launches together."""

    name = "cuda"
    is_gpu = True

    def why_not(self, group: Group) -> str:
        if len(set(group.hosts)) > 1:
            return "groups and mixes on GPUs are of one host: start all ranks there"
        return ""

    def why_waived(self, job: Together[Plan]) -> str:
        transports = {part.job.transport for part in job.parts}
        if "ce" in transports:
            return (
                "copy engines take turns with one collective at a time: use --transport p2p or shm"
            )
        if any(part.job.domains for part in job.parts):
            return (
                "a rank's host moves the messages of one collective at a time: use --transport p2p"
                " or shm"
            )
        return ""

    def open(
        self, group: Group, jobs: Sequence[Together[Plan]], options: SessionOptions
    ) -> CudaTogetherSession:
        return CudaTogetherSession(group, jobs, hot=options.hot, options=options.gpu)


TOGETHER = CudaTogether()
