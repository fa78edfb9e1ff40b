"""Plain copies to the next rank, on one GPU to the rank itself, in the place of a collective: by
the copy engine, by a kernel, to host memory (see device/copies.py for how each is queued).

They stand for what moves data without reductions and without synchronisation, and are no member of
the backends. A copy is compared as a sendrecv; what went to host memory is copied on, untimed,
before that.
"""

from collections.abc import Sequence
from functools import partial

from collbench.backends.base import GpuOptions
from collbench.backends.gpu.concurrent import ConcurrentWork, EventTimes
from collbench.backends.gpu.rank import ExportedMemory, Graphs, Launches, stride_bytes
from collbench.backends.gpu.session import GpuRank, GpuSession, why_no_gpus
from collbench.core.case import Case, Problem
from collbench.core.group import Group, RankContext
from collbench.device.copies import CopyKernel, queue_copy
from collbench.planning.transports import p2p

# what `algo` says of such a case; channels are the kernel's CTAs
COPY_ALGOS = ("kernel", "engine", "host")
CopyKey = tuple[Case, int]  # what is copied, and how many sets of user buffers there are


def why_not(group: Group) -> str:
    """Why nothing can be copied in that group, or an empty text."""
    return p2p.why_not(group.hosts) or why_no_gpus()


class CopyRank(GpuRank[CopyKey]):
    """One rank's part."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.graphs: dict[Case, Graphs] = {}

    def allocate(self, arena_bytes: int, user_bytes: int, host_bytes: int) -> ExportedMemory:
        """Make the memory that the others write to."""
        self.kernel = CopyKernel(self.gpu.card)
        return super().allocate(arena_bytes, user_bytes, host_bytes)

    def _ends(self, problem: Problem, number: int) -> tuple[int, int, int]:
        """The address of a set's input, that of the next rank's output, and their bytes."""
        source, size = self.gpu.buffer(problem, "in", number)
        after = (self.context.rank + 1) % self.context.n
        first = number * stride_bytes(problem) + problem.buffers(after).out_offset
        return source, self.gpu.users[after] + first, size

    def _queue(self, case: Case, number: int, stream: int) -> None:
        """Queue one copy."""
        card, (source, target, size) = self.gpu.card, self._ends(case.problem(), number)
        if case.algo == "kernel":
            self.kernel.queue(target, source, size, case.channels, stream)
        else:
            target = self._host_memory if case.algo == "host" else target
            queue_copy(card.runtime, target, source, size, stream)

    @property
    def _host_memory(self) -> int:
        return self.gpu.host_arenas[self.context.rank]

    def _wait_for_copies(self, key: CopyKey, work_s: float) -> None:
        """Until every rank's copies have come."""
        (case, sets), card = key, self.gpu.card
        for number in range(sets if case.algo == "host" else 0):
            _, target, size = self._ends(case.problem(), number)
            queue_copy(card.runtime, target, self._host_memory, size, card.stream)
        self.gpu.barrier()
        self._wait(work_s)

    def _launches(self, key: CopyKey) -> Launches:
        """The copies of a case."""
        case, sets = key
        return Launches(
            gpu=self.gpu,
            problem=case.problem(),
            queue=partial(self._queue, case),
            sets=sets,
            wait=partial(self._wait_for_copies, key),
            graphs=self.graphs.setdefault(case, {}),
        )

    def run_concurrently(self, key: CopyKey, work: ConcurrentWork) -> EventTimes:
        """Copies concurrent with matrix multiplications. What earlier ones left in host memory
        goes, so that it is not copied on in the place of what these should.
        """
        case, _ = key
        if case.algo == "host":
            self.gpu.card.clear(self._host_memory, case.size_bytes)
        return super().run_concurrently(key, work)

    def close(self) -> None:
        """Give memory back."""
        self.graphs.clear()
        super().close()


class CopySession(GpuSession[Case, CopyKey, CopyRank]):
    """Drives the ranks' copies."""

    def __init__(
        self, group: Group, cases: Sequence[Case], *, hot: bool, options: GpuOptions
    ) -> None:
        super().__init__(group, CopyRank, cases[0].ranks, hot=hot, options=options)
        with self._opening():
            self._share_memory(
                0,
                max(stride_bytes(case.problem()) * self._sets_of(case) for case in cases),
                max((case.size_bytes for case in cases if case.algo == "host"), default=0),
            )

    def _sets_of(self, case: Case) -> int:
        """One where host memory is the bottleneck: there is one piece of that."""
        return 1 if case.algo == "host" else self._sets(case.problem())

    def _loaded(self, case: Case) -> tuple[CopyKey, Problem, int]:
        sets = self._sets_of(case)
        return (case, sets), case.problem(), sets
