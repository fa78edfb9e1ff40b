"""One rank on CPU cores: its memory, its plans, and how it times, compares and proves launches."""

import mmap
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import numpy as np

from collbench.backends.base import Batch
from collbench.backends.cpu.flags import FlagBarrier, flag_words, freed
from collbench.backends.cpu.interpreter import BoundStep, Runner, bind
from collbench.backends.cpu.layout import CpuLayout, aligned, has_lines, is_all_net, layout
from collbench.backends.cpu.lines import Binder
from collbench.backends.net.proxy import Proxy, data_comm_of
from collbench.backends.proof import ProvedPart, prove
from collbench.backends.repeat import (
    CpuTimedRank,
    RankTiming,
    checked_sets,
    clocked,
    compare_output,
    poison_again,
    prepare_buffers,
    proved_launches,
    sets_in_turn,
    timed_sets,
)
from collbench.core.dtypes import Array, dtype
from collbench.core.errors import CollbenchError, HangError
from collbench.core.group import RankContext
from collbench.core.host import own_pages
from collbench.core.launcher import described_library
from collbench.core.pattern import Wrong
from collbench.launch.local import MAP_NORESERVE
from collbench.planning.lowering import Region, actors
from collbench.planning.plan import Plan
from collbench.planning.transports.net import seats

# to bind the actions of one slice: many times what it takes
SLOWEST_LOAD_S = 1e-3
# Plans by their hash that ranks are about to be forked with: none of them travels to any rank.
INHERITED: dict[str, Plan] = {}


@dataclass(slots=True)
class LoadedCpuPlan:
    """A plan bound to memory: a runner, the rank's programs for each set of user buffers, and what
    moves its messages. launches: that were asked for since the FIFOs were emptied.
    """

    plan: Plan
    layout: CpuLayout
    memory: "Array"
    seats: list[int]
    runner: Runner
    programs: list[list[list[BoundStep]]]
    proxy: Proxy | None
    launches: int = 0

    def expect(self, launches: int) -> None:
        """So many launches follow."""
        self.launches += launches
        if self.proxy is not None:
            self.proxy.expect(launches)

    def missing_launches(self, rank: int) -> Wrong | None:
        """What the connections count, if this rank did not read every slice of every launch that it
        was to do.
        """
        for edge, one in enumerate(self.plan.connections):
            word, slices = freed(self.plan, edge, at_src=False), one.slices * self.launches
            if one.dst == rank and (read := self.runner.flags[word]) != slices:
                got, wanted = (f"{count} slices of rank {one.src}" for count in (read, slices))
                return Wrong(rank=rank, count=1, got=got, wanted=wanted)
        return None


class CpuRank(CpuTimedRank[str]):
    """One rank's part: it binds plans to its memory, the domain's and its own, and runs them with
    its peers.
    """

    def __init__(self, context: RankContext) -> None:
        self.rank, self.n = context.rank, context.n
        self.arena: Array = np.frombuffer(context.arena or bytearray(mmap.PAGESIZE), np.uint8)
        self.words = self.arena[: len(self.arena) // 8 * 8].data.cast("q")
        self.own: Array = np.empty(0, np.uint8)
        self.data_comm = data_comm_of(context.comm) if context.comm is not None else None
        self.loaded: dict[tuple[str, bool], LoadedCpuPlan] = {}
        self.barrier = FlagBarrier(self.words, self.rank, self.n, self.is_aborted)

    def is_aborted(self) -> bool:
        return bool(self.arena[0]) or (self.data_comm is not None and self.data_comm.is_aborted())

    def abort(self) -> None:
        """Tell ranks that wait for messages to give up."""
        if self.data_comm is not None:
            self.data_comm.abort()

    def close(self) -> None:
        """Give the communicator back."""
        self.loaded.clear()
        if self.data_comm is not None:
            self.data_comm.close()

    def describe(self) -> str:
        """The MPI library, its version and its switches."""
        from mpi4py import MPI

        return described_library(MPI.Get_library_version())

    def reserve(self, own_bytes: int) -> None:
        """Have so much memory of the rank's own; what is not touched takes none."""
        self.loaded.clear()
        self.own = np.frombuffer(own_pages(max(own_bytes, mmap.PAGESIZE), MAP_NORESERVE), np.uint8)

    def load(self, asked: Plan | str, hot: bool, sets: int, is_full: bool) -> str:
        """Bind a plan, or the inherited one of that hash, in the place of all others if it is full;
        returns its hash, which must be the same on every rank.
        """
        plan = INHERITED[asked] if isinstance(asked, str) else asked
        if is_full:
            self.loaded.clear()
        where = layout(plan, sets)
        is_own = is_all_net(plan)
        memory = self.own if is_own else self.arena
        if where.total > len(memory):
            raise CollbenchError(f"a plan needs {where.total} bytes, the session has {len(memory)}")
        mine = actors(plan, self.rank)
        flags = memory[where.flags : where.flags + flag_words(plan) * 8].data.cast("q")
        fifo_bytes = plan.slots * plan.slot_bytes
        first = aligned(where.total, 4096) if is_own else 0
        fifos = {
            edge: self.own[first + k * fifo_bytes : first + (k + 1) * fifo_bytes]
            for k, edge in enumerate(plan.ends(self.rank))
        }
        proxy = None
        if plan.domains:
            assert self.data_comm is not None
            proxy = Proxy(
                self.data_comm,
                plan,
                self.rank,
                flags,
                lambda edge, slot: fifos[edge][
                    slot * plan.slot_bytes : (slot + 1) * plan.slot_bytes
                ],
            )
        runner = Runner(
            plan, mine, flags, self.is_aborted, proxy.turn if proxy is not None else None
        )
        loaded = LoadedCpuPlan(plan, where, memory, seats(plan.domains, plan.n), runner, [], proxy)
        bound = (
            Binder(plan, memory[where.fifos : where.tmp]).bind
            if has_lines(plan)
            else partial(bind, plan, proxy=proxy)
        )
        loaded.programs = [
            bound(mine, self._viewer(loaded, fifos, rotation))
            for rotation in range(where.rotations)
        ]
        self.loaded[plan.digest, hot] = loaded
        return plan.digest

    def _viewer(
        self, loaded: LoadedCpuPlan, fifos: dict[int, "Array"], rotation: int
    ) -> Callable[[Region], "Array"]:
        plan, where = loaded.plan, loaded.layout
        element = dtype(plan.problem.dtype).numpy()

        def view(region: Region) -> "Array":
            memory = loaded.memory
            if region.space in ("in", "out"):
                at = plan.problem.buffers(region.owner)
                base = self._user(loaded, rotation, region.owner) + (
                    at.in_offset if region.space == "in" else at.out_offset
                )
            elif region.space == "tmp":
                base = where.tmp + loaded.seats[region.owner] * aligned(plan.tmp_bytes)
            elif region.owner in fifos:
                memory, base = fifos[region.owner], 0
            else:
                base = where.fifos + plan.connections[region.owner].fifo_offset
            first = base + region.offset
            return memory[first : first + region.size].view(element)

        return view

    def _user(self, loaded: LoadedCpuPlan, rotation: int, rank: int) -> int:
        """Where a rank's user memory begins."""
        where = loaded.layout
        ranks = max(loaded.seats) + 1
        return where.user + (rotation * ranks + loaded.seats[rank]) * where.stride

    def _buffer(self, loaded: LoadedCpuPlan, rotation: int, which: str) -> "Array":
        at = loaded.plan.problem.buffers(self.rank)
        offset, size = (
            (at.in_offset, at.in_bytes)
            if which == "in"
            else (at.out_offset, at.out_bytes + at.guard_bytes)
        )
        base = self._user(loaded, rotation, self.rank) + offset
        return loaded.memory[base : base + size].view(dtype(loaded.plan.problem.dtype).numpy())

    def _buffers(self, loaded: LoadedCpuPlan, rotation: int) -> tuple["Array", "Array"]:
        """The rank's input, and its output with the guard behind it, in a set."""
        return self._buffer(loaded, rotation, "in"), self._buffer(loaded, rotation, "out")

    def _barrier(self, loaded: LoadedCpuPlan, limit_s: float) -> None:
        """All ranks are here. Raises HangError if one is not after limit_s."""
        if loaded.proxy is not None and self.data_comm is not None:
            if missing := self.data_comm.barrier(limit_s, loaded.proxy, self.is_aborted):
                if missing == [self.rank]:
                    raise HangError(f"the messages of rank {self.rank} do not leave")
                raise HangError(
                    f"rank {self.rank} waited at a barrier for rank {', '.join(map(str, missing))}"
                )
            return
        self.barrier.meet(range(self.n), limit_s, loaded.runner.offer_core)

    def flag(self, limit_s: float) -> float:
        """Seconds of an exchange of a flag with one other rank."""
        return self.barrier.flag_s(limit_s)

    def _clear(self, loaded: LoadedCpuPlan, launches: int, deadline_s: float) -> None:
        """Empty the FIFOs of a plan of which so many launches follow. What is written between this
        and a barrier, no peer sees before.
        """
        self._barrier(loaded, deadline_s)
        if loaded.seats[self.rank] == 0:
            where = loaded.layout
            loaded.memory[where.flags : where.tmp if has_lines(loaded.plan) else where.fifos] = 0
        loaded.runner.launches = loaded.launches = 0
        if loaded.proxy is not None:
            loaded.proxy.clear()
        loaded.expect(launches)

    def prepare(self, digest: str, hot: bool, batch: Batch) -> RankTiming:
        """Clear the FIFOs, write inputs and poison, run every set of buffers once, compare, poison
        again, warm up.
        """
        busy = time.process_time()
        loaded, deadline_s = self.loaded[digest, hot], batch.deadline_s
        plan, sets, warmup = loaded.plan, loaded.layout.rotations, max(batch.warmup, 1)
        self._clear(loaded, sets + warmup, deadline_s)
        for rotation in range(sets):
            prepare_buffers(plan.problem, self.rank, *self._buffers(loaded, rotation), rotation)
        self._barrier(loaded, deadline_s)
        for programs in loaded.programs:
            loaded.runner.launch(programs, deadline_s)
        wrong = None
        if batch.is_checked:
            wrong = self._compare(loaded, range(sets))
            for rotation in range(sets):
                poison_again(plan.problem, self.rank, *self._buffers(loaded, rotation), rotation)
        self._barrier(loaded, deadline_s)
        start = time.perf_counter()
        for rotation in sets_in_turn(plan.problem, sets, warmup):
            loaded.runner.launch(loaded.programs[rotation], deadline_s)
        seconds = (time.perf_counter() - start) / warmup
        return RankTiming(wrong=wrong, seconds=seconds, busy_s=time.process_time() - busy)

    def _compare(self, loaded: LoadedCpuPlan, sets: range) -> Wrong | None:
        """The wrong elements of the first of some sets of user buffers that has any."""
        problem = loaded.plan.problem
        wrong = (
            compare_output(problem, self.rank, self._buffer(loaded, rotation, "out"), rotation)
            for rotation in sets
        )
        return next((one for one in wrong if one is not None), None)

    def timed(self, digest: str, hot: bool, batch: Batch) -> RankTiming:
        """Poison what the warm-up wrote, time launches behind a barrier, compare what they left,
        and prove them.
        """
        busy = time.process_time()
        loaded, deadline_s = self.loaded[digest, hot], batch.deadline_s
        problem, launch = loaded.plan.problem, loaded.runner.launch
        of, launches = (problem, loaded.layout.rotations), batch.iterations * batch.aggregate
        order = [loaded.programs[rotation] for rotation in timed_sets(*of, launches)]
        checked = checked_sets(*of, launches) if batch.is_checked else range(0)
        for rotation in set(checked).intersection(sets_in_turn(*of, max(batch.warmup, 1))):
            buffers = self._buffers(loaded, rotation)
            poison_again(problem, self.rank, *buffers, rotation, is_warm=True)
        loaded.expect(launches)
        self._barrier(loaded, deadline_s)
        start = time.perf_counter()
        for number, programs in enumerate(order, start=1):
            launch(programs, deadline_s)
            if batch.blocking and number % batch.aggregate == 0:
                self._barrier(loaded, deadline_s)
        seconds = (time.perf_counter() - start) / len(order)
        self._barrier(loaded, deadline_s)
        wrong = loaded.missing_launches(self.rank) or self._compare(loaded, checked)
        if batch.is_checked:
            meet_each = batch.aggregate if batch.blocking else 0
            wrong = self._prove(loaded, launches, deadline_s, meet_each) or wrong
        return RankTiming(wrong=wrong, seconds=seconds, busy_s=time.process_time() - busy)

    def _prove(
        self, loaded: LoadedCpuPlan, launches: int, deadline_s: float, meet_each: int
    ) -> Wrong | None:
        """What is wrong in launches that prove so many. meet_each: all ranks meet after so many of
        them, 0: never.
        """
        problem, proved = loaded.plan.problem, proved_launches(launches)
        order = timed_sets(problem, loaded.layout.rotations, proved)

        def launch(number: int) -> None:
            loaded.runner.launch(loaded.programs[order[number]], deadline_s)
            if meet_each and (number + 1) % meet_each == 0:
                self._barrier(loaded, deadline_s)

        loaded.expect(proved)
        self._barrier(loaded, deadline_s)
        part = ProvedPart(problem, self.rank, order, partial(self._buffers, loaded))
        wrong, _ = prove([part], launch)
        self._barrier(loaded, deadline_s)
        return wrong or loaded.missing_launches(self.rank)

    def timed_singly(self, digest: str, hot: bool, batch: Batch) -> RankTiming:
        """Clear the FIFOs, poison what was launched, time each launch behind a barrier of its own,
        behind one that does not count, compare what they left, and prove them.
        """
        busy = time.process_time()
        loaded, deadline_s = self.loaded[digest, hot], batch.deadline_s
        launches = 1 + batch.single_launches
        of = loaded.plan.problem, loaded.layout.rotations, launches
        checked = checked_sets(*of) if batch.is_checked else range(0)
        self._clear(loaded, launches, deadline_s)
        for rotation in checked:
            buffers = self._buffers(loaded, rotation)
            poison_again(loaded.plan.problem, self.rank, *buffers, rotation, is_warm=True)
        order = (
            partial(loaded.runner.launch, loaded.programs[rotation], deadline_s)
            for rotation in timed_sets(*of)
        )
        times_s = clocked(order, partial(self._barrier, loaded, deadline_s))
        self._barrier(loaded, deadline_s)
        wrong = loaded.missing_launches(self.rank) or self._compare(loaded, checked)
        if batch.is_checked:
            wrong = self._prove(loaded, launches, deadline_s, meet_each=1) or wrong
        return RankTiming(
            wrong=wrong,
            seconds=fmean(times_s),
            busy_s=time.process_time() - busy,
            launch_times_s=times_s,
        )

    def stress(
        self, digest: str, hot: bool, launches: int, pause_s: float, seed: int, deadline_s: float
    ) -> Wrong | None:
        """Launches back to back, each after a random pause on every rank, and compared; the first
        that was wrong.
        """
        loaded, chance = self.loaded[digest, hot], random.Random(f"{seed} {self.rank}")
        self._clear(loaded, launches, deadline_s)
        self._barrier(loaded, deadline_s)
        wrong = None
        for number in range(launches):
            rotation = number % loaded.layout.rotations
            problem, buffers = loaded.plan.problem, self._buffers(loaded, rotation)
            prepare_buffers(problem, self.rank, *buffers, rotation)
            time.sleep(chance.uniform(0, pause_s))
            loaded.runner.launch(loaded.programs[rotation], deadline_s)
            wrong = wrong or self._compare(loaded, range(rotation, rotation + 1))
        self._barrier(loaded, deadline_s)
        return wrong

    def once(self, digest: str, inputs: Sequence["Array"], deadline_s: float) -> "Array":
        """One launch on given inputs; returns this rank's output."""
        loaded = self.loaded[digest, True]
        self._clear(loaded, 1, deadline_s)
        self._buffer(loaded, 0, "in")[...] = inputs[self.rank]
        self._barrier(loaded, deadline_s)
        loaded.runner.launch(loaded.programs[0], deadline_s)
        self._barrier(loaded, deadline_s)
        problem = loaded.plan.problem
        outputs = problem.buffers(self.rank).out_bytes // problem.item_bytes
        return self._buffer(loaded, 0, "out")[:outputs].copy()
