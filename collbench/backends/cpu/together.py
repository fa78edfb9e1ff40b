"""Several plans at once on CPU ranks: groups of ranks that do not know of each other, communicators
that share ranks, and grouped launches of several operations.

Each part has an arena of its own in the memory that all ranks share, and is a CpuRank in it, with
its own flags, barrier and user buffers. A rank that has several parts steps the actions of all in
turn, so that none waits for another; with another order of launches it ends one before it begins
the next.
"""

import mmap
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from collbench.backends.base import Batch, Samples, Session, SessionOptions, TogetherOpener
from collbench.backends.cpu.backend import private_bytes
from collbench.backends.cpu.flags import LINE_WORDS, YIELDS_A_LOOK, patience
from collbench.backends.cpu.interpreter import BoundStep, Runner
from collbench.backends.cpu.layout import aligned, has_lines, layout, sets_of
from collbench.backends.cpu.lines import refuse_repeats
from collbench.backends.cpu.rank import SLOWEST_LOAD_S, CpuRank, LoadedCpuPlan
from collbench.backends.proof import prove
from collbench.backends.repeat import (
    ANSWER_S,
    MAX_LOADED_PLANS,
    SLOWEST_FILL_BYTES_S,
    RankTiming,
    auto_iterations,
    checked_sets,
    host_data,
    proved_launches,
    refuse_other_plans,
    samples_together,
    sets_in_turn,
    slowest_s,
    timed_sets,
)
from collbench.core.group import Group, RankContext
from collbench.core.host import cpu_name
from collbench.core.pattern import Wrong
from collbench.planning.plan import Plan
from collbench.planning.together import LaunchesOfRanks, Together

Launch = tuple[Runner, Sequence[Sequence[BoundStep]]]  # a part's runner, and its programs for a set


def launch_grouped(launches: Sequence[Launch], limit_s: float) -> None:
    """One launch of several parts, whose tracks a rank steps in turn. Raises HangError when none of
    them got on for limit_s, or somebody aborted.
    """
    tracks = [
        (runner, index, program)
        for runner, programs in launches
        for index, program in enumerate(programs)
    ]
    positions, running = [0] * len(tracks), list(range(len(tracks)))
    first, polls, blocked_since = launches[0][0], 0, 0.0
    while running:
        for track in running:
            runner, _, program = tracks[track]
            flags, count, position = runner.flags, runner.launches, positions[track]
            while position < len(program):
                waits, calls, posts, lines = program[position]
                if any(flags[word] < each * count + offset for word, each, offset in waits):
                    break
                if lines is not None and not lines.have_arrived(count):
                    break
                for function, args in calls:
                    function(*args)
                if lines is not None:
                    lines.set(count)
                for word, each, offset in posts:
                    flags[word] = each * count + offset
                position += 1
            if position != positions[track]:
                positions[track], polls = position, 0
        running = [track for track in running if positions[track] < len(tracks[track][2])]
        polls += 1
        if polls > first.polls and running:
            first.offer_core()
            if polls == first.polls + 1:
                blocked_since = time.monotonic()
            if polls % YIELDS_A_LOOK == 0:
                runner = tracks[running[0]][0]
                waiting = [(*tracks[track], positions[track]) for track in running]
                at = [(program, p, index) for one, index, program, p in waiting if one is runner]
                runner.refuse_to_hang(at, blocked_since, limit_s)
    for runner, _ in launches:
        runner.launches += 1


class _PartRank(CpuRank):
    """One rank of a part. whole: the arena of all parts, whose first byte says that somebody gave
    up.
    """

    whole: "memoryview"

    def is_aborted(self) -> bool:
        return bool(self.whole[0])


class TogetherRank(CpuRank):
    """One rank's part of several plans. Its own words are the barrier of all ranks."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        assert context.arena is not None
        self.whole = context.arena
        self.parts: dict[int, _PartRank] = {}

    def join(self, members: Sequence[tuple[int, ...]], ends: Sequence[tuple[int, int]]) -> None:
        """Have a part for each group of members that this rank is in, each in its bytes of the
        arena.
        """
        for number, (ranks, (first, last)) in enumerate(zip(members, ends, strict=True)):
            if self.rank not in ranks:
                continue
            own, arena = ranks.index(self.rank), self.whole[first:last]
            part = _PartRank(RankContext(rank=own, n=len(ranks), arena=arena))
            part.whole = self.whole
            self.parts[number] = part

    def load_part(self, number: int, plan: Plan, hot: bool, sets: int, is_full: bool) -> str:
        """Bind a part's plan; returns its hash, empty where this rank has no such part."""
        if number not in self.parts:
            return ""
        part = self.parts[number]
        digest = part.load(plan, hot, sets, is_full)
        # all ranks are there, not those of the part alone
        part.loaded[digest, hot].runner.polls = patience(self.n)
        return digest

    def prepare_parts(self, digests: Sequence[str], hot: bool, batch: Batch) -> RankTiming:
        """Run every set of buffers of one part after the other, and compare."""
        timings = [part.prepare(digests[at], hot, batch) for at, part in self.parts.items()]
        return RankTiming(
            wrong=next((one.wrong for one in timings if one.wrong is not None), None),
            seconds=sum(one.seconds for one in timings),
            busy_s=sum(one.busy_s for one in timings),
        )

    def timed_alone(self, number: int, digest: str, hot: bool, batch: Batch) -> RankTiming | None:
        """Time one part, while ranks that are not in it do nothing."""
        if number not in self.parts:
            return None
        return self.parts[number].timed(digest, hot, batch)

    def timed_together(
        self, digests: Sequence[str], hot: bool, batch: Batch, job: LaunchesOfRanks
    ) -> RankTiming:
        """Poison what was launched, time launches of all parts behind a barrier of all ranks,
        compare what they left, and prove them. Every plan's FIFOs are as the launches before left
        them.
        """
        busy, launches = time.process_time(), batch.iterations * batch.aggregate
        order = job.orders[self.rank]
        mine = [self.parts[number].loaded[digests[number], hot] for number in order]
        checked: list[range] = []
        for loaded in mine:
            problem, sets = loaded.plan.problem, loaded.layout.rotations
            some = checked_sets(problem, sets, launches) if batch.is_checked else range(0)
            warm = set(some).intersection(sets_in_turn(problem, sets, launches))
            loaded.buffers.poison(sorted(warm), is_warm=True)
            checked.append(some)
        queue = self._queued(mine, launches)
        self._barrier(mine[0], batch.deadline_s)
        start = time.perf_counter()
        for launch in queue:
            self._launch_parts(launch, job.is_grouped, batch.deadline_s)
        seconds = (time.perf_counter() - start) / launches
        self._barrier(mine[0], batch.deadline_s)
        wrong = next(self._wrong(order, mine, checked), None)
        if batch.is_checked:
            proved = proved_launches(launches)
            queue = self._queued(mine, proved)
            parts = [
                one.buffers.proved(timed_sets(one.plan.problem, one.layout.rotations, proved))
                for one in mine
            ]
            self._barrier(mine[0], batch.deadline_s)
            unproved, _ = prove(
                parts,
                lambda number: self._launch_parts(queue[number], job.is_grouped, batch.deadline_s),
            )
            self._barrier(mine[0], batch.deadline_s)
            nothing = [range(0)] * len(mine)
            wrong = wrong or unproved or next(self._wrong(order, mine, nothing), None)
        return RankTiming(wrong=wrong, seconds=seconds, busy_s=time.process_time() - busy)

    def _queued(self, mine: Sequence[LoadedCpuPlan], launches: int) -> list[list[Launch]]:
        """So many launches of some parts."""
        for one in mine:
            one.expect(launches)
        sets_of_launch = zip(
            *(timed_sets(one.plan.problem, one.layout.rotations, launches) for one in mine),
            strict=True,
        )
        return [
            [(one.runner, one.programs[number]) for one, number in zip(mine, sets, strict=True)]
            for sets in sets_of_launch
        ]

    def _launch_parts(self, launch: Sequence[Launch], is_grouped: bool, deadline_s: float) -> None:
        if is_grouped and len(launch) > 1:
            launch_grouped(launch, deadline_s)
        else:
            for runner, programs in launch:
                runner.launch(programs, deadline_s)

    def _wrong(
        self, order: Sequence[int], mine: Sequence[LoadedCpuPlan], checked: Sequence[range]
    ) -> Iterator[Wrong]:
        """What is wrong of each part: its launches by their number, or the data of some sets."""
        for number, loaded, some in zip(order, mine, checked, strict=True):
            missing = loaded.missing_launches(self.parts[number].rank)
            if wrong := missing or loaded.buffers.compare(some):
                yield wrong


class TogetherSession(Session[Together[Plan]]):
    """Drives the ranks: a repeat prepares all parts, times each alone, and then all together."""

    def __init__(self, group: Group, jobs: Sequence[Together[Plan]], *, hot: bool) -> None:
        self.device, self.version, self.hot = cpu_name(), f"numpy {np.__version__}", hot
        self._known: set[tuple[str, ...]] = set()
        ends, total = _arenas(jobs, hot=hot)
        self._workers = group.shared_workers(TogetherRank, jobs[0].n, total)
        try:
            members = [part.ranks for part in jobs[0].parts]
            self._workers.call(TogetherRank.join, members, ends, timeout_s=ANSWER_S)
        except BaseException:
            self.close()
            raise

    def _load(self, job: Together[Plan], timeout_s: float) -> tuple[str, ...]:
        """Have the plans of a job on their ranks; returns their hashes. Raises CollbenchError if
        ranks disagree about one.
        """
        digests = tuple(part.job.digest for part in job.parts)
        if digests in self._known:
            return digests
        if is_full := len(self._known) >= MAX_LOADED_PLANS:
            self._known.clear()
        for number, part in enumerate(job.parts):
            plan, sets = part.job, sets_of(part.job, hot=self.hot)
            slices = sum(plan.slices_of_channel) * sum(map(len, plan.messages_of_port.values()))
            loaded = self._workers.call(
                TogetherRank.load_part,
                number,
                plan,
                self.hot,
                sets,
                is_full,
                timeout_s=timeout_s + ANSWER_S + sets * slices * SLOWEST_LOAD_S,
            )
            refuse_other_plans(plan.digest, loaded)
        self._known.add(digests)
        return digests

    def run(self, job: Together[Plan], batch: Batch) -> Samples:
        """One repeat. Raises HangError, which explains an order of launches that can deadlock."""
        digests = self._load(job, batch.deadline_s)
        data_bytes, notes = 0, list[str]()
        for part in job.parts:
            plan, sets = part.job, sets_of(part.job, hot=self.hot)
            if has_lines(plan):
                launches = max(1000, batch.iterations) * batch.aggregate
                refuse_repeats(plan, sets + 2 * (launches + proved_launches(launches)))
            part_bytes, notes = host_data(plan.problem, sets, hot=self.hot)
            data_bytes += part_bytes
        fill_s = data_bytes / SLOWEST_FILL_BYTES_S
        limit_s = len(job.parts) * (batch.deadline_s + fill_s) + ANSWER_S
        call = partial(self._workers.call, timeout_s=limit_s)
        with job.explaining():
            prepared = call(TogetherRank.prepare_parts, digests, self.hot, batch)
            iterations = batch.iterations or auto_iterations(slowest_s(prepared))
            batch = replace(batch, iterations=iterations)
            alone = [
                call(TogetherRank.timed_alone, number, digest, self.hot, batch)
                for number, digest in enumerate(digests)
            ]
            timed = call(TogetherRank.timed_together, digests, self.hot, batch, job.launches)
        return samples_together(job, [prepared], alone, timed, iterations, notes)

    def close(self) -> None:
        self._workers.close()


def _arenas(
    jobs: Sequence[Together[Plan]], *, hot: bool
) -> tuple[tuple[tuple[int, int], ...], int]:
    """First and last byte of the arena of each part, large enough for that part of every job, and
    bytes of all, behind the words of the barrier of all ranks.
    """
    first, ends = aligned((jobs[0].n + 1) * LINE_WORDS * 8, mmap.PAGESIZE), []
    for parts in zip(*(job.parts for job in jobs), strict=True):
        most = max(layout(part.job, sets_of(part.job, hot=hot)).total for part in parts)
        ends.append((first, first + aligned(most, mmap.PAGESIZE)))
        first = ends[-1][1]
    return tuple(ends), first


class CpuTogether(TogetherOpener[Plan]):
    """What opens sessions for launches together."""

    name = "cpu"

    def why_not(self, group: Group) -> str:
        if group.kind == "mpi":
            return (
                "groups and mixes on CPUs are of ranks that share memory; start it without a"
                " launcher"
            )
        return ""

    def why_waived(self, job: Together[Plan]) -> str:
        if any(part.job.domains for part in job.parts):
            return "messages of MPI move one collective at a time: use --transport shm"
        return ""

    def shared_bytes(self, job: Together[Plan], *, hot: bool) -> int:
        return _arenas([job], hot=hot)[1]

    def private_bytes(self, job: Together[Plan], *, hot: bool) -> int:
        return sum(private_bytes(part.job, hot=hot) for part in job.parts)

    def open(
        self, group: Group, jobs: Sequence[Together[Plan]], options: SessionOptions
    ) -> TogetherSession:
        return TogetherSession(group, jobs, hot=options.hot)


TOGETHER = CpuTogether()
