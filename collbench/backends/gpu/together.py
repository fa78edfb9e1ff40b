"""Several collectives at once on GPUs: groups of ranks that do not know of each other,
communicators that share ranks, and grouped launches of several operations.

Each part has a region of its own in the arena, and in the user memory, of each of its ranks, and is
a rank of its own there: its user buffers, and the flags of its barriers, are its own; abort words
are those of all. A grouped launch of a rank that is in several groups has a stream for each, which
leaves the main stream before it and comes back behind it; the operations of a mix follow each other
in the stream of their group. With another order of launches all follow each other in the main
stream. What is launched, this module does not know.
"""

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Generic, NamedTuple, TypeVar, cast

from collbench.backends.base import Batch, Samples
from collbench.backends.gpu import timing
from collbench.backends.gpu.proof import Queue, prove
from collbench.backends.gpu.rank import Graphs, Launches, QueueOne, captured, stride_bytes
from collbench.backends.gpu.session import (
    SLOWER,
    START_S,
    GpuRank,
    GpuRanksSession,
    GpuRankT,
    Key,
    repeat_limit_s,
)
from collbench.backends.repeat import (
    REPLAYS,
    RankTiming,
    agreed,
    checked_sets,
    samples_together,
    slowest_s,
    timed_sets,
)
from collbench.core.case import Case
from collbench.core.errors import HangError, ScheduleError
from collbench.core.group import Group, RankContext, WorkerGroup
from collbench.core.pattern import Wrong
from collbench.device.card import Card
from collbench.device.layout import CONTROL_BYTES
from collbench.planning.plan import Plan
from collbench.planning.together import LaunchesOfRanks, Part, Together

PartJob = TypeVar("PartJob", bound=Plan | Case)
# Streams whose kernels CUDA can run at once, unless the environment says otherwise: work of more
# streams than queues waits for what another stream has in the same queue.
_QUEUES_VARIABLE, _QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", 8
_REGION_BYTES = 4096  # regions of parts begin at multiples of this


class PartOfRanks(NamedTuple):
    """A part's ranks, their group and its name, and where its regions begin in the arena and the
    user memory of each rank.
    """

    ranks: tuple[int, ...]
    group: int
    name: str
    arenas_at: tuple[int, ...]
    users_at: tuple[int, ...]


class PartRank(GpuRank[Key]):
    """One rank of a part, on the GPU of a rank of all."""

    def __init__(self, whole: GpuRank[Key], part: PartOfRanks) -> None:
        gpu = whole.gpu.part(part.ranks, part.arenas_at, part.users_at)
        super().__init__(RankContext(rank=gpu.rank, n=gpu.n))
        self._gpu, self.options, self.part = gpu, whole.options, part
        self.stream = gpu.card.new_stream()
        self.arrived = _untimed_event(gpu.card)

    def launches(self, key: Key) -> Launches:
        """The launches of this part."""
        return self._launches(key)

    def beside(self, key: Key, launches: Launches) -> QueueOne:
        """What queues a launch of a rank that has several parts."""
        return launches.queue


PartQueue = tuple[PartRank[Key], Queue]  # whose stream, and what queues something in it


class TogetherRank(GpuRank[Key]):
    """One rank's part of several collectives. keys: what each part launches; leaders: the first
    part of each group, whose stream all parts of the group take.
    """

    parts: Mapping[int, PartRank[Key]]
    leaders: Mapping[int, PartRank[Key]]

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.parts, self.graphs = {}, Graphs()
        self.leaders = {}

    def divide(self, parts: Sequence[PartOfRanks]) -> None:
        """Have a part for each that this rank is in."""
        self._left = _untimed_event(self.gpu.card)
        self.parts = {
            number: self._part(part)
            for number, part in enumerate(parts)
            if self.context.rank in part.ranks
        }
        # the first part of a group is the last that is put here
        self.leaders = {one.part.group: one for one in reversed([*self.parts.values()])}

    @abstractmethod
    def _part(self, part: PartOfRanks) -> PartRank[Key]:
        """The rank as it is in a part."""

    def _graphs_of(self, keys: Sequence[Key]) -> Graphs:
        """The graphs of launches together, by how they are launched."""
        return self.graphs

    def _hang(self, keys: Sequence[Key], error: HangError) -> HangError:
        """The error of a wait for launches of all parts, with what is known of them."""
        return error

    def _group(self, queues: Sequence[Queue], stream: int) -> None:
        """Queue several operations of a group of ranks in its stream."""
        timing.each(queues, stream)

    def refuse_queues(self) -> None:
        """Raise ScheduleError if this rank launches more at once than CUDA runs streams."""
        queues = int(os.environ.get(_QUEUES_VARIABLE) or _QUEUES)
        if len(self.leaders) > queues:
            raise ScheduleError(
                f"rank {self.context.rank} has {len(self.leaders)} launches at once, CUDA has"
                f" {queues} queues for them",
                f"set {_QUEUES_VARIABLE}, at most 32, or use --launch-order same",
            )

    def reset_parts(self, keys: Sequence[Key]) -> None:
        """Clear what launches of all parts have left, and write inputs and poison. No kernel of any
        rank may be running.
        """
        for number, part in self.parts.items():
            part.reset(keys[number])

    def first_of_part(self, number: int, key: Key, is_checked: bool) -> RankTiming | None:
        """Run every set of buffers of one part once and compare, while ranks that are not in it do
        nothing.
        """
        return self.parts[number].first(key, is_checked) if number in self.parts else None

    def timed_alone(self, number: int, key: Key, batch: Batch, work_s: float) -> RankTiming | None:
        """Time one part, while ranks that are not in it do nothing."""
        return self.parts[number].timed(key, batch, work_s) if number in self.parts else None

    def timed_together(
        self, keys: Sequence[Key], batch: Batch, job: LaunchesOfRanks, work_s: float
    ) -> RankTiming:
        """Time launches of all parts behind a barrier of all ranks, on poisoned outputs, compare
        what the last ones left, and prove them.
        """
        gpu, options, order = self.gpu, self.options, job.orders[self.context.rank]
        count = batch.iterations if options.isolated else batch.iterations * batch.aggregate
        launches = [self.parts[number].launches(keys[number]) for number in order]
        checked = [
            checked_sets(one.problem, one.sets, count) if batch.is_checked else range(0)
            for one in launches
        ]
        queues = self._launches_together(keys, launches, count, job)

        def poison() -> None:
            for one, sets in zip(launches, checked, strict=True):
                one.poison(sets)

        wait = partial(self._wait_for_parts, keys, work_s)
        graphs, is_graph = self._graphs_of(keys), options.launch == "graph"

        def run(
            name: str,
            queues: Sequence[Queue],
            poison: Callable[[], object] = lambda: None,
            replays: int = 1,
        ) -> float:
            """Seconds of a launch; the first of several replays does not count."""
            if options.isolated:
                poison()
                return timing.time_apart(gpu, queues, wait)
            key = (*keys, job.is_grouped, order, name, len(queues))
            capture = partial(captured, gpu.card, graphs, key) if is_graph else None
            each = partial(timing.each, queues)
            times_s = timing.replayed(gpu, each, wait, capture, poison, replays)
            return fmean(times_s[replays > 1 :]) / len(queues)

        seconds, proved_s = run("timed", queues, poison, REPLAYS + 1), 0.0
        wrong: Wrong | None = None
        for one, sets in zip(launches, checked, strict=True):
            wrong = wrong or one.compare(sets)
        if batch.is_checked:
            queues = self._launches_together(keys, launches, timing.proved(count), job)
            unproved, proved_s = prove(launches, queues, run)
            wrong = wrong or unproved
            proved_s = proved_s if timing.has_pure_times(options) else 0.0
        return RankTiming(wrong=wrong, seconds=seconds, proved_s=proved_s)

    def _launches_together(
        self, keys: Sequence[Key], launches: Sequence[Launches], count: int, job: LaunchesOfRanks
    ) -> list[Queue]:
        """What queues each of so many launches of all parts of this rank."""
        order = job.orders[self.context.rank]
        sets = [timed_sets(one.problem, one.sets, count) for one in launches]
        if len(order) == 1:
            return [partial(launches[0].queue, number) for number in sets[0]]
        if job.is_grouped and len(self.leaders) == 1:  # a mix, in the main stream
            return [
                partial(
                    self._group,
                    [partial(one.queue, k) for one, k in zip(launches, numbers, strict=True)],
                )
                for numbers in zip(*sets, strict=True)
            ]
        parts = [self.parts[number] for number in order]
        beside = [
            part.beside(keys[number], one)
            for part, number, one in zip(parts, order, launches, strict=True)
        ]
        queue = self._fork if job.is_grouped else _in_turn
        return [
            partial(
                queue,
                [
                    (part, partial(one, number))
                    for part, one, number in zip(parts, beside, numbers, strict=True)
                ],
            )
            for numbers in zip(*sets, strict=True)
        ]

    def _fork(self, queues: Sequence[PartQueue[Key]], stream: int) -> None:
        """Queue the launches of each group in a stream of its own, behind what the main stream has;
        what follows there is behind all of them.
        """
        runtime, of_groups = self.gpu.card.runtime, dict[int, list[Queue]]()
        for part, queue in queues:
            of_groups.setdefault(part.part.group, []).append(queue)
        runtime.eventRecord(self._left, stream)
        for group, several in of_groups.items():
            leader = self.leaders[group]
            runtime.streamWaitEvent(leader.stream, self._left)
            self._group(several, leader.stream)
            runtime.eventRecord(leader.arrived, leader.stream)
        for group in of_groups:
            runtime.streamWaitEvent(stream, self.leaders[group].arrived)

    def _wait_for_parts(self, keys: Sequence[Key], work_s: float) -> None:
        """Until the GPU is done, which may take so long. Raises HangError."""
        try:
            self.gpu.wait(repeat_limit_s(self.gpu.timeout_s) + work_s)
        except HangError as error:
            raise self._hang(keys, error) from None


def _untimed_event(card: Card) -> int:
    """An event that orders streams and takes no time."""
    return int(card.runtime.eventCreateWithFlags(card.runtime.eventDisableTiming))


def _in_turn(queues: Sequence[tuple[object, Queue]], stream: int) -> None:
    """Queue one part's launch after the other in the main stream."""
    for _, queue in queues:
        queue(stream)


class GpuTogetherSession(
    GpuRanksSession[Together[PartJob], GpuRankT], Generic[PartJob, Key, GpuRankT]
):
    """Drives the ranks: a repeat runs each part once, times each alone, and then all together."""

    @abstractmethod
    def _load(self, job: Together[PartJob]) -> tuple[Key, ...]:
        """Have all parts of a job on their ranks: the key of each."""

    def _refuse_uncounted(self, job: Together[PartJob], batch: Batch) -> None:
        """Raise ScheduleError for more launches than a repeat can have."""
        return

    def _of_all(self) -> WorkerGroup[TogetherRank[Key]]:
        """The ranks, as their keys name what they launch (see GpuSession._ranks)."""
        return cast("WorkerGroup[TogetherRank[Key]]", self._workers)

    @abstractmethod
    def _bytes_of(self, part: Part[PartJob]) -> tuple[int, int]:
        """Bytes of the arena and of the user memory that a part takes on a rank."""

    def _user_bytes(self, part: Part[PartJob]) -> int:
        """Bytes of user memory that all sets of a part take on a rank."""
        return stride_bytes(part.problem) * self._sets(part.problem)

    def _regions(self, jobs: Sequence[Together[PartJob]]) -> tuple[list[PartOfRanks], int, int]:
        """Where each part has its regions, large enough for that part of every job; and bytes of
        the arena and of the user memory of the rank that has most of them. The arenas begin with
        the control words of all.
        """
        arena_ends, user_ends = [CONTROL_BYTES] * self.n, [0] * self.n
        parts = []
        for of_jobs in zip(*(job.parts for job in jobs), strict=True):
            arena, user = map(max, zip(*map(self._bytes_of, of_jobs), strict=True))
            ranks, group, name = of_jobs[0].ranks, of_jobs[0].group, of_jobs[0].name
            parts.append(PartOfRanks(ranks, group, name, tuple(arena_ends), tuple(user_ends)))
            for rank in ranks:
                arena_ends[rank] += -(-max(CONTROL_BYTES, arena) // _REGION_BYTES) * _REGION_BYTES
                user_ends[rank] += -(-user // _REGION_BYTES) * _REGION_BYTES
        return parts, max(arena_ends), max(user_ends)

    def run(self, job: Together[PartJob], batch: Batch) -> Samples:
        """One repeat. Raises HangError, which explains an order of launches that can deadlock."""
        keys, call = self._load(job), self._of_all().call
        if job.order == "grouped":
            call(TogetherRank.refuse_queues, timeout_s=START_S)
        with job.explaining():
            return self._run(job, keys, batch)

    def _run(self, job: Together[PartJob], keys: tuple[Key, ...], batch: Batch) -> Samples:
        call = self._of_all().call
        limit_s, alone = self._limit_s(batch), list[list[RankTiming | None]]()
        parts_limit_s = len(keys) * limit_s
        reset = partial(call, TogetherRank.reset_parts, keys, timeout_s=parts_limit_s)
        reset()
        first = [
            call(TogetherRank.first_of_part, number, key, batch.is_checked, timeout_s=limit_s)
            for number, key in enumerate(keys)
        ]
        launch_s = list(map(slowest_s, first))
        all_s = job.alone_s(launch_s)

        def time_batch(each: Batch) -> list[RankTiming]:
            self._refuse_uncounted(job, each)
            work_s = SLOWER * (REPLAYS + 2) * each.iterations * batch.aggregate
            alone[:] = [
                agreed(
                    partial(
                        call,
                        TogetherRank.timed_alone,
                        *(number, key, each, work_s * launch_s[number]),
                        timeout_s=limit_s + work_s * launch_s[number],
                    ),
                    reset,
                )
                for number, key in enumerate(keys)
            ]
            return agreed(
                partial(
                    call,
                    TogetherRank.timed_together,
                    *(keys, each, job.launches, work_s * all_s),
                    timeout_s=limit_s + work_s * all_s,
                ),
                reset,
            )

        each, timed = self._fitted(keys, batch, all_s, time_batch, reset)
        user_bytes = max(
            sum(self._user_bytes(job.parts[number]) for number in job.parts_of(rank))
            for rank in range(job.n)
        )
        notes = self._conditions(job, [part.problem for part in job.parts], user_bytes)
        return samples_together(job, first, alone, timed, each.iterations, notes)


def why_not_one_host(group: Group) -> str:
    """Why nothing runs together on GPUs in that group, or an empty text."""
    if len(set(group.hosts)) > 1:
        return "groups and mixes on GPUs are of one host: start all ranks there"
    return ""
