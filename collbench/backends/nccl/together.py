"""Several of NCCL's collectives at once: see gpu/together.py. Each group of ranks has one
communicator, and each part, besides plain buffers, memory that NCCL has for it.

Grouped, the operations of a mix are one group of NCCL's on their communicator, in one stream, which
NCCL can make one launch. Communicators have a stream each. NCCL's guide asks that all ranks call in
one order, whatever communicators they call, and that kernels of several communicators keep it on
every GPU, by a stream or NCCL_LAUNCH_ORDER_IMPLICIT: each waits for other ranks, and not all need
find room. Here all ranks call in the order of the parts. What keeps kernels in order is left to the
environment, because NCCL is measured as jobs use it. One after the other, launches are in one
stream.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from collbench.backends.base import Batch, GpuOptions, Samples, SessionOptions, TogetherOpener
from collbench.backends.gpu import together
from collbench.backends.gpu.proof import Queue
from collbench.backends.gpu.rank import Graphs
from collbench.backends.gpu.session import START_S
from collbench.backends.gpu.together import (
    GpuTogetherSession,
    PartOfRanks,
    PartRank,
    why_not_one_host,
)
from collbench.backends.nccl.backend import (
    PLAIN,
    Memory,
    NcclKey,
    NcclRank,
    memory_of,
    notes_of,
    refusal,
)
from collbench.core.case import Case
from collbench.core.errors import HangError, RankLostError, RefusedError, ScheduleError
from collbench.core.group import Group
from collbench.core.peers import forced_by
from collbench.planning.together import Part, Together


class _PartRank(PartRank[NcclKey], NcclRank):
    """One rank of a part."""

    def __init__(self, whole: "TogetherRank", part: PartOfRanks) -> None:
        super().__init__(whole, part)
        self._whole, self.nccl, self.refusals = whole, whole.nccl, whole.refusals
        self._users[PLAIN] = self.gpu.user

    def give_up(self) -> None:
        """End the kernels of all parts: launches of one may be behind those of another."""
        self._whole.give_up()


class TogetherRank(together.TogetherRank[NcclKey], NcclRank):
    """One rank's part of several collectives. It has no communicator but those of its parts."""

    parts: Mapping[int, _PartRank]
    leaders: Mapping[int, _PartRank]

    def _part(self, part: PartOfRanks) -> _PartRank:
        return _PartRank(self, part)

    def unique_ids(self) -> dict[int, bytes]:
        """What ranks find each other by, of the groups that this rank is the first of."""
        return {
            group: part.unique_id()
            for group, part in self.leaders.items()
            if part.context.rank == 0
        }

    def join_groups(self, unique_ids: Mapping[int, bytes]) -> None:
        """Make the communicators, one after the other in the order of the groups, so that no two
        ranks wait for each other in different ones. Raises RefusedError.
        """
        for group, part in self.leaders.items():
            part.join(unique_ids[group])
        for part in self.parts.values():
            leader = self.leaders[part.part.group]
            part.comm, part.owns_comm = leader.comm, part is leader

    def hold_parts(self, memory: Memory, sizes: Sequence[int]) -> None:
        """Have memory for the user buffers of parts; 0: of this one none. Raises RefusedError."""
        for number, part in self.parts.items():
            if sizes[number]:
                part.hold(memory, sizes[number])

    def _group(self, queues: Sequence[Queue], stream: int) -> None:
        """Queue several operations of a communicator as a group of NCCL's. Raises RefusedError."""
        self.nccl.group_start()
        try:
            super()._group(queues, stream)
        except RefusedError:
            with suppress(*self.refusals):
                self.nccl.group_end()
            raise
        try:
            self.nccl.group_end()
        except self.refusals as error:
            raise refusal("do a group of operations", error) from None

    def _graphs_of(self, keys: Sequence[NcclKey]) -> Graphs:
        return self._graphs(tuple(keys))

    def _hang(self, keys: Sequence[NcclKey], error: HangError) -> HangError:
        self.give_up()
        return error

    def abort_comms(self) -> None:
        """Abort the communicators of all parts, and let graphs go."""
        super().abort_comms()
        for part in self.parts.values():
            part.abort_comms()

    def let_go(self) -> None:
        """Give back what NCCL has for all parts; for those that have a communicator last."""
        super().let_go()
        for part in reversed([*self.parts.values()]):
            part.let_go()


class NcclTogetherSession(GpuTogetherSession[Case, NcclKey, TogetherRank]):
    """Drives the ranks. All its cases have the same forced_by()."""

    def __init__(
        self, group: Group, jobs: Sequence[Together[Case]], *, hot: bool, options: GpuOptions
    ) -> None:
        variables = forced_by(jobs[0].parts[0].job)
        super().__init__(
            group, TogetherRank, jobs[0].n, hot=hot, options=options, variables=variables
        )
        self._is_forced = bool(variables) and group.kind == "local"
        self._refused: dict[Memory, RefusedError] = {}
        parts, arena_bytes, user_bytes = self._regions(jobs)
        with self._opening():
            self._share_memory(arena_bytes, user_bytes)
            self._workers.call(TogetherRank.divide, parts, timeout_s=START_S)
            found = self._workers.call(TogetherRank.unique_ids, timeout_s=START_S)
            unique_ids = {group: one for of_rank in found for group, one in of_rank.items()}
            self._workers.call(TogetherRank.join_groups, unique_ids, timeout_s=START_S)
            for memory, sizes in self._held(jobs).items():
                try:
                    self._workers.call(TogetherRank.hold_parts, memory, sizes, timeout_s=START_S)
                except RefusedError as error:
                    self._refused[memory] = error

    def _held(self, jobs: Sequence[Together[Case]]) -> dict[Memory, list[int]]:
        """Bytes that each part needs of memory that NCCL has."""
        sizes: dict[Memory, list[int]] = {}
        for job in jobs:
            for number, part in enumerate(job.parts):
                if (memory := memory_of(part.job)) != PLAIN:
                    of_parts = sizes.setdefault(memory, [0] * len(job.parts))
                    of_parts[number] = max(of_parts[number], self._user_bytes(part))
        return sizes

    def _bytes_of(self, part: Part[Case]) -> tuple[int, int]:
        return 0, self._user_bytes(part) if memory_of(part.job) == PLAIN else 0

    def _load(self, job: Together[Case]) -> tuple[NcclKey, ...]:
        if job.order == "crossed" and len({part.group for part in job.parts}) < len(job.parts):
            raise ScheduleError(
                "operations of a mix have one communicator, on which NCCL allows one order only",
                "use --groups, for example 0,1/0,1, for communicators of their own",
            )
        memories = [memory_of(part.job) for part in job.parts]
        for memory in memories:
            if memory in self._refused:
                raise self._refused[memory]
        problems = [part.problem for part in job.parts]
        return tuple(
            (problem, self._sets(problem), memory)
            for problem, memory in zip(problems, memories, strict=True)
        )

    def _notes_of(self, job: Together[Case]) -> tuple[str, ...]:
        return notes_of(job.parts[0].job, self.facts[0], is_forced=self._is_forced)

    def run(self, job: Together[Case], batch: Batch) -> Samples:
        """One repeat. Raises HangError, which says how launches in one order can hang, too."""
        try:
            return super().run(job, batch)
        except HangError as error:
            most = max(
                len({job.parts[number].group for number in job.parts_of(rank)})
                for rank in range(job.n)
            )
            if isinstance(error, RankLostError) or job.order != "grouped" or most == 1:
                raise
            raise HangError(
                f"{error.message}; kernels of {most} communicators need not all find room"
                " on a GPU, and then wait for each other",
                "set NCCL_LAUNCH_ORDER_IMPLICIT=1, or use --launch-order same",
            ) from None


class NcclTogether(TogetherOpener[Case]):
    """What opens sessions for launches together."""

    name = "nccl"
    is_gpu = True

    def why_not(self, group: Group) -> str:
        return why_not_one_host(group)

    def open(
        self, group: Group, jobs: Sequence[Together[Case]], options: SessionOptions
    ) -> NcclTogetherSession:
        return NcclTogetherSession(group, jobs, hot=options.hot, options=options.gpu)


TOGETHER = NcclTogether()
