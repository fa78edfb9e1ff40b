"""Several of NCCL's collectives at once: see gpu/together.py. Each part has a communicator of its
own among its ranks, and, besides plain buffers, memory that NCCL has for it.

NCCL's guide asks that all ranks call in one order, whatever communicators they call, and that
kernels of several communicators keep it on every GPU, by a stream or NCCL_LAUNCH_ORDER_IMPLICIT:
each waits for other ranks, and not all need find room. Here all ranks call in the order of the
parts. One after the other, launches are in one stream. Grouped, each is in a stream of its own, and
what keeps kernels in order is left to the environment, because NCCL is measured as jobs use it. No
group of NCCL's is around them: it needs the same order of calls, and kernels of several
communicators stay several.
"""

from collections.abc import Mapping, Sequence

from collbench.backends.base import Batch, GpuOptions, Samples, SessionOptions, TogetherOpener
from collbench.backends.gpu import together
from collbench.backends.gpu.rank import Graphs
from collbench.backends.gpu.session import START_S
from collbench.backends.gpu.together import (
    GpuTogetherSession,
    PartOfRanks,
    PartRank,
    why_not_one_host,
)
from collbench.backends.nccl.backend import PLAIN, Memory, NcclKey, NcclRank, memory_of, notes_of
from collbench.launch.group import Group
from collbench.planning.together import Part, Together
from collbench.spec.case import Case
from collbench.spec.peers import forced_by
from collbench.util.errors import HangError, RankLostError, RefusedError


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

    def _part(self, part: PartOfRanks) -> _PartRank:
        return _PartRank(self, part)

    def unique_ids(self) -> dict[int, bytes]:
        """What ranks find each other by, of the parts that this rank is the first of."""
        return {
            number: part.unique_id()
            for number, part in self.parts.items()
            if part.context.rank == 0
        }

    def join_parts(self, unique_ids: Mapping[int, bytes]) -> None:
        """Make the communicators, one after the other in the order of the parts, so that no two
        ranks wait for each other in different ones. Raises RefusedError.
        """
        for number, part in self.parts.items():
            part.join(unique_ids[number])

    def hold_parts(self, memory: Memory, sizes: Sequence[int]) -> None:
        """Have memory for the user buffers of parts; 0: of this one none. Raises RefusedError."""
        for number, part in self.parts.items():
            if sizes[number]:
                part.hold(memory, sizes[number])

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
        """Give back what NCCL has for all parts."""
        super().let_go()
        for part in self.parts.values():
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
            unique_ids = {number: one for of_rank in found for number, one in of_rank.items()}
            self._workers.call(TogetherRank.join_parts, unique_ids, timeout_s=START_S)
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
            is_lost = isinstance(error, RankLostError)
            if is_lost or job.order != "grouped" or job.most_parts == 1:
                raise
            raise HangError(
                f"{error.message}; kernels of {job.most_parts} communicators need not all find room"
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
