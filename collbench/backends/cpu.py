"""The cpu backend: one process a rank, memory that all of them share, real concurrency. NumPy does the arithmetic.

Without a launcher the memory is an anonymous mapping inherited by fork; under MPI it is a shared window of the host. A rank interprets
the checked schedule's actions (see _interpreter); there is no other path for any algorithm, size or type. Slots hold data as it is (simple) or
lines of data and flags (ll, ll128: see _lines).
"""

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from collbench.actions import Region, actors
from collbench.backends._interpreter import LINE_WORDS, YIELDS_A_LOOK, Bound, Runner, bind, flag_words, patience
from collbench.backends._lines import Binder, fifo_wire_bytes, refuse_repeats
from collbench.backends._session import ANSWER_S, MAX_ITERATIONS, Answer, Batch, Samples, compare_output, prepare_buffers, repeat, rotations, stride_bytes
from collbench.dtypes import dtype
from collbench.errors import CollbenchError, StuckError
from collbench.group import Group, RankContext
from collbench.host import processor_name
from collbench.plan import Plan
from collbench.transports import shm

if TYPE_CHECKING:
    from collbench.dtypes import Array

LINE_BYTES = 64
MAX_BOUND = 50_000  # actions bound for all sets of buffers of a plan together: 2.3 s of work (see actions.MAX_ACTIONS)
SLOWEST_LOAD_S = 1e-3  # to bind what handles one slice: twenty times what it takes on an EPYC core (see actions.MAX_ACTIONS)
_ORDERED = ("x86_64", "amd64")


def why_not(group: Group) -> str:
    """Why this backend cannot run on that group, or an empty text."""
    if platform.machine().lower() not in _ORDERED:
        return f"the cpu backend relies on the store order of x86-64, this is {platform.machine()}"
    return shm.why_not(group.hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a plan's parts lie in the shared arena, in bytes; `rotations` sets of user buffers, each n ranks of `stride`."""

    flags: int
    fifos: int
    tmp: int
    user: int
    stride: int
    rotations: int
    total: int


@lru_cache(maxsize=256)
def layout(plan: Plan, hot: bool) -> Layout:
    """Control words, flags, FIFOs, scratch memory, user buffers, each from a cache line of its own."""
    stride, sets = stride_bytes(plan.problem), min(rotations(plan.problem, hot=hot), max(1, MAX_BOUND // plan.action_count()))
    flags = (plan.n + 1) * LINE_BYTES
    fifos = _aligned(flags + flag_words(plan) * 8)
    tmp = _aligned(fifos + (fifo_wire_bytes(plan) if has_lines(plan) else plan.fifo_bytes))
    user = _aligned(tmp + plan.n * _aligned(plan.tmp_bytes), 4096)
    return Layout(
        flags=flags, fifos=fifos, tmp=tmp, user=user, stride=stride, rotations=sets, total=user + sets * plan.n * stride
    )


def has_lines(plan: Plan) -> bool:
    """Whether the plan's data carries its own flags."""
    return plan.proto != "simple"


def _aligned(offset: int, to: int = LINE_BYTES) -> int:
    return -(-offset // to) * to


@dataclass(slots=True)
class _Loaded:
    """A plan bound to the arena: a runner, and the rank's programs for each set of user buffers."""

    plan: Plan
    layout: Layout
    runner: Runner
    programs: list[list[list[Bound]]]


class Rank:
    """One rank's part: it binds plans to the shared arena and runs them with its peers."""

    def __init__(self, context: RankContext) -> None:
        assert context.arena is not None
        self.rank, self.n = context.rank, context.n
        self.arena: Array = np.frombuffer(context.arena, np.uint8)
        self.words = memoryview(context.arena)[: len(context.arena) // 8 * 8].cast("q")
        self.loaded: dict[tuple[str, bool], _Loaded] = {}
        self.epoch = 0

    def is_aborted(self) -> bool:
        return bool(self.arena[0])

    def load(self, plan: Plan, hot: bool) -> str:
        """Bind a plan; returns its hash, which must be the same on every rank."""
        if len(self.loaded) >= 64:
            self.loaded.clear()
        where = layout(plan, hot)
        if where.total > len(self.arena):
            raise CollbenchError(f"a plan needs {where.total} bytes of shared memory, the session has {len(self.arena)}")
        mine = actors(plan, self.rank)
        flags = self.words[where.flags // 8 : where.flags // 8 + flag_words(plan)]
        runner = Runner(plan, mine, flags, self.is_aborted)
        bound = Binder(plan, self.arena[where.fifos : where.tmp]).bind if has_lines(plan) else partial(bind, plan)
        programs = [bound(mine, self._viewer(plan, where, rotation)) for rotation in range(where.rotations)]
        self.loaded[plan.digest, hot] = _Loaded(plan, where, runner, programs)
        return plan.digest

    def _viewer(self, plan: Plan, where: Layout, rotation: int) -> Any:
        element = dtype(plan.problem.dtype).numpy()
        fifo = {number: where.fifos + connection.fifo_offset for number, connection in enumerate(plan.connections)}

        def view(region: Region) -> "Array":
            if region.space == "slot":
                base = fifo[region.owner]
            elif region.space == "tmp":
                base = where.tmp + region.owner * _aligned(plan.tmp_bytes)
            else:
                at = plan.problem.buffers(region.owner)
                offset = at.in_offset if region.space == "in" else at.out_offset
                base = where.user + (rotation * plan.n + region.owner) * where.stride + offset
            return self.arena[base + region.offset : base + region.offset + region.size].view(element)

        return view

    def _buffer(self, loaded: _Loaded, rotation: int, which: str) -> "Array":
        at, where = loaded.plan.problem.buffers(self.rank), loaded.layout
        offset, size = (at.in_offset, at.in_bytes) if which == "in" else (at.out_offset, at.out_bytes)
        base = where.user + (rotation * self.n + self.rank) * where.stride + offset
        return self.arena[base : base + size].view(dtype(loaded.plan.problem.dtype).numpy())

    def _clear(self, loaded: _Loaded) -> None:
        """Between two barriers: flags as before the first launch."""
        if self.rank == 0:
            where = loaded.layout
            self.arena[where.flags : where.tmp if has_lines(loaded.plan) else where.fifos] = 0
        loaded.runner.launches = 0

    def _barrier(self, limit_s: float) -> None:
        """All ranks are here. Rank r's epoch is the word of line r + 1. Raises StuckError if one is not after limit_s."""
        deadline = time.monotonic() + limit_s
        self.epoch += 1
        words, mine = self.words, (self.rank + 1) * LINE_WORDS
        words[mine] = self.epoch
        polls = 0
        for rank in range(self.n):
            while words[(rank + 1) * LINE_WORDS] < self.epoch:
                polls += 1
                if polls > patience(self.n):
                    os.sched_yield()
                    if polls % YIELDS_A_LOOK == 0 and (time.monotonic() > deadline or self.is_aborted()):
                        raise StuckError(f"rank {self.rank} waited at a barrier for rank {rank}")

    def prepare(self, digest: str, hot: bool, warmup: int, is_checked: bool, deadline_s: float) -> Answer:
        """Clear the FIFOs, write inputs and poison, run every set of buffers once, compare, warm up."""
        busy = time.process_time()
        loaded = self.loaded[digest, hot]
        plan, sets = loaded.plan, loaded.layout.rotations
        self._barrier(deadline_s)
        self._clear(loaded)
        for rotation in range(sets):
            prepare_buffers(plan.problem, self.rank, self._buffer(loaded, rotation, "in"), self._buffer(loaded, rotation, "out"))
        self._barrier(deadline_s)
        for programs in loaded.programs:
            loaded.runner.launch(programs, deadline_s)
        wrong = None
        for rotation in range(sets if is_checked else 0):
            wrong = wrong or compare_output(plan.problem, self.rank, self._buffer(loaded, rotation, "out"))
        self._barrier(deadline_s)
        start = time.perf_counter()
        for launch in range(max(warmup, 1)):
            loaded.runner.launch(loaded.programs[launch % sets], deadline_s)
        seconds = (time.perf_counter() - start) / max(warmup, 1)
        return Answer(wrong=wrong, seconds=seconds, busy_s=time.process_time() - busy)

    def timed(self, digest: str, hot: bool, how: tuple[int, int, bool], is_checked: bool, deadline_s: float) -> Answer:
        """Time launches behind a barrier; out of place, compare what the last of them left. `how` is iterations, aggregate, blocking."""
        busy = time.process_time()
        loaded = self.loaded[digest, hot]
        iterations, aggregate, blocking = how
        sets, launch = loaded.layout.rotations, loaded.runner.launch
        order = [loaded.programs[number % sets] for number in range(iterations * aggregate)]
        self._barrier(deadline_s)
        start = time.perf_counter()
        for number, programs in enumerate(order, start=1):
            launch(programs, deadline_s)
            if blocking and number % aggregate == 0:
                self._barrier(deadline_s)
        seconds = (time.perf_counter() - start) / len(order)
        self._barrier(deadline_s)
        wrong = None
        for rotation in range(sets if is_checked and not loaded.plan.problem.in_place else 0):
            wrong = wrong or compare_output(loaded.plan.problem, self.rank, self._buffer(loaded, rotation, "out"))
        return Answer(wrong=wrong, seconds=seconds, busy_s=time.process_time() - busy)

    def once(self, digest: str, inputs: Sequence["Array"], deadline_s: float) -> "Array":
        """One launch on given inputs; returns this rank's output."""
        loaded = self.loaded[digest, True]
        self._barrier(deadline_s)
        self._clear(loaded)
        self._buffer(loaded, 0, "in")[...] = inputs[self.rank]
        self._barrier(deadline_s)
        loaded.runner.launch(loaded.programs[0], deadline_s)
        self._barrier(deadline_s)
        return self._buffer(loaded, 0, "out").copy()


def shared_bytes(plan: Plan, *, hot: bool) -> int:
    """Shared memory that a plan needs."""
    return layout(plan, hot).total


class Session:
    """Drives the ranks: a plan is sent to all of them once, then each repeat is two calls."""

    def __init__(self, group: Group, plans: Sequence[Plan], *, hot: bool) -> None:
        self.device, self.version = processor_name(), f"numpy {np.__version__}"
        self.hot = hot
        self._known: set[str] = set()
        self._crew = group.shared_crew("cpu", plans[0].n, max(layout(plan, hot).total for plan in plans))

    def _load(self, plan: Plan, hot: bool, timeout_s: float) -> None:
        if len(self._known) >= 64:
            self._known.clear()
        if plan.digest in self._known:
            return
        slices = sum(connection.slices for connection in plan.connections)
        digests = self._crew.call("load", plan, hot, timeout_s=timeout_s + layout(plan, hot).rotations * slices * SLOWEST_LOAD_S)
        if len(set(digests)) > 1:
            raise CollbenchError(f"the ranks disagree about the plan: {digests}", "start all ranks from the same installation")
        self._known.add(plan.digest)

    def run(self, plan: Plan, batch: Batch) -> Samples:
        """One repeat: prepare, check, time. Raises ScheduleError if there are more launches than flags can count."""
        sets = layout(plan, self.hot).rotations
        if has_lines(plan):
            refuse_repeats(plan, sets + max(batch.warmup, 1) + (batch.iterations or MAX_ITERATIONS) * batch.aggregate)
        self._load(plan, self.hot, batch.deadline_s)
        return repeat(self._crew, plan.digest, plan.problem, batch, hot=self.hot, sets=sets)

    def once(self, plan: Plan, inputs: Sequence["Array"]) -> list["Array"]:
        """One launch on given inputs, one array a rank; returns every rank's output."""
        digests = self._crew.call("load", plan, True, timeout_s=60 + ANSWER_S)
        return self._crew.call("once", digests[0], list(inputs), 10.0, timeout_s=10 + ANSWER_S)

    def close(self) -> None:
        self._crew.close()
