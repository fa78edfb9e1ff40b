"""Plain copies to the next rank, on one GPU to the rank itself, in the place of a collective: by
the copy engine, by a kernel, to host memory.

They stand for what moves data without reductions and without synchronisation, and are no member of
the backends. device/copies.py measures something else: the rate between two GPUs of one process, by
the host's clock. A copy answers sendrecv; what went to host memory is copied on, untimed, before it
is compared.
"""

from collections.abc import Callable, Sequence
from functools import partial

from collbench.backends.base import GpuOptions, RankTiming
from collbench.backends.gpu import concurrent, timing
from collbench.backends.gpu.concurrent import ConcurrentRepeat
from collbench.backends.gpu.rank import ExportedMemory, Graphs, stride_bytes
from collbench.backends.gpu.session import (
    GpuSession,
    LaunchingRank,
    measured,
    repeat_limit_s,
    share_memory,
    why_no_gpus,
)
from collbench.device.card import Launch
from collbench.device.compile import copy_source, cubin
from collbench.device.layout import ABORT_AT
from collbench.launch.group import Group, RankContext
from collbench.planning.transports import p2p
from collbench.spec.case import Case, Problem
from collbench.spec.pattern import Wrong

# what `algo` says of such a case; channels are the kernel's CTAs
WAYS = ("kernel", "engine", "host")
THREADS = 512  # of a CTA
_ANY_KIND = 4  # cudaMemcpyDefault: addresses determine where memory is
CopyKey = tuple[Case, int]  # what is copied, and how many sets of user buffers there are


def why_not(group: Group) -> str:
    """Why nothing can be copied in that group, or an empty text."""
    return p2p.why_not(group.hosts) or why_no_gpus()


class CopyRank(LaunchingRank[CopyKey]):
    """One rank's part."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.graphs: dict[Case, Graphs] = {}

    def allocate(self, arena_bytes: int, user_bytes: int, host_bytes: int) -> ExportedMemory:
        """Make the memory that the others write to."""
        card = self.gpu.card
        self.kernel = card.function(cubin(copy_source(), card.arch), "collbench_copy")
        return super().allocate(arena_bytes, user_bytes, host_bytes)

    def _ends(self, problem: Problem, number: int) -> tuple[int, int, int]:
        """Where a set's input lies, where the next rank wants it, and how many bytes that are."""
        source, size = self.gpu.buffer(problem, "in", number)
        after = (self.context.rank + 1) % self.context.n
        return (
            source,
            self.gpu.users[after]
            + number * stride_bytes(problem)
            + problem.buffers(after).out_offset,
            size,
        )

    def _queue(self, case: Case, number: int, stream: int) -> None:
        """Queue one copy."""
        card, (source, target, size) = self.gpu.card, self._ends(case.problem(), number)
        if case.algo == "kernel":
            args = [word.to_bytes(8, "little") for word in (target, source, size)]
            Launch(card, self.kernel, (case.channels, 1), THREADS, args)(stream)
        else:
            card.runtime.memcpyAsync(
                self._in_host if case.algo == "host" else target, source, size, _ANY_KIND, stream
            )

    @property
    def _in_host(self) -> int:
        return self.gpu.host_arenas[self.context.rank]

    def _wait(self, key: CopyKey, work_s: float = 0.0) -> None:
        """Until every rank's copies have come."""
        (case, sets), card = key, self.gpu.card
        for number in range(sets if case.algo == "host" else 0):
            _, target, size = self._ends(case.problem(), number)
            card.runtime.memcpyAsync(target, self._in_host, size, _ANY_KIND, card.stream)
        self.gpu.barrier()
        self.gpu.wait(repeat_limit_s(self.gpu.timeout_s) + work_s)

    def reset(self, key: CopyKey) -> None:
        """Write inputs and poison."""
        case, sets = key
        self.gpu.card.clear(self.gpu.control + ABORT_AT, 4)
        self.gpu.prepare(case.problem(), range(sets), stride_bytes(case.problem()))
        self.gpu.card.wait(self.gpu.timeout_s)

    def first(self, key: CopyKey, is_checked: bool) -> RankTiming:
        """Copy every set of buffers once and compare."""
        case, sets = key
        return timing.first(
            self.gpu,
            case.problem(),
            partial(self._queue, case),
            sets,
            partial(self._wait, key),
            is_checked=is_checked,
        )

    def run_concurrently(self, key: CopyKey, work: concurrent.Work) -> concurrent.EventTimes:
        """Copies concurrent with matrix multiplications."""
        case, sets = key
        wait: Callable[[float], None] = partial(self._wait, key)
        return concurrent.run(
            self.gpu,
            case.problem(),
            partial(self._queue, case),
            sets,
            work,
            self.graphs.setdefault(case, {}),
            wait,
        )

    def close(self) -> None:
        """Give memory back."""
        self.graphs.clear()
        super().close()


class CopySession(GpuSession[Case, CopyRank]):
    """Drives the ranks' copies."""

    def __init__(
        self, group: Group, cases: Sequence[Case], *, hot: bool, options: GpuOptions
    ) -> None:
        super().__init__(group, CopyRank, cases[0].ranks, hot=hot, options=options)
        with self._opening():
            user = max(stride_bytes(case.problem()) * self._sets_of(case) for case in cases)
            share_memory(
                self._workers,
                0,
                user,
                options,
                max((case.size_bytes for case in cases if case.algo == "host"), default=0),
            )

    def _sets_of(self, case: Case) -> int:
        """One where host memory is the bottleneck: there is one piece of that."""
        return 1 if case.algo == "host" else self._sets(case.problem())

    def run_concurrently(
        self, case: Case, size: int, repeats: int
    ) -> tuple[list[ConcurrentRepeat], list[Wrong]]:
        """Copies alone, matrix multiplications alone, and both at once."""
        sets = self._sets_of(case)
        return measured(
            self._workers,
            self._watch,
            (case, sets),
            sets * stride_bytes(case.problem()),
            size,
            repeats,
            self.options,
        )
