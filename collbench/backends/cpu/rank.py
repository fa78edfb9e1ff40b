"""One rank on CPU cores: its memory, its plans, and how it times, compares and proves launches."""

import mmap
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from collbench.backends.base import Batch
from collbench.backends.blocking import BlockingRank, HostBuffers
from collbench.backends.cpu.flags import FlagBarrier, freed
from collbench.backends.cpu.interpreter import BoundStep, Runner, bind
from collbench.backends.cpu.layout import (
    CpuLayout,
    aligned,
    flag_words,
    has_lines,
    is_all_net,
    layout,
)
from collbench.backends.cpu.lines import Binder
from collbench.backends.net.proxy import Proxy, data_comm_of
from collbench.backends.repeat import prepare_buffers
from collbench.core.dtypes import Array, dtype
from collbench.core.errors import CollbenchError, HangError
from collbench.core.group import RankContext
from collbench.core.host import own_pages
from collbench.core.launcher import described_library
from collbench.core.pattern import Wrong
from collbench.launch.local import MAP_NORESERVE
from collbench.planning.lowering import Region, actors
from collbench.planning.plan import Plan, seats

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
    buffers: HostBuffers
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


class CpuRank(BlockingRank[str, LoadedCpuPlan]):
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
        places = seats(plan.domains, plan.n)
        users = [
            memory[base : base + where.stride]
            for base in (
                _user(where, places, rotation, self.rank) for rotation in range(where.rotations)
            )
        ]
        buffers = HostBuffers(plan.problem, self.rank, users)
        loaded = LoadedCpuPlan(plan, where, memory, places, runner, [], proxy, buffers)
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
                base = _user(where, loaded.seats, rotation, region.owner) + (
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

    def _ready(self, digest: str, hot: bool) -> LoadedCpuPlan:
        return self.loaded[digest, hot]

    def _launch(self, loaded: LoadedCpuPlan, rotation: int, limit_s: float) -> Callable[[], object]:
        return partial(loaded.runner.launch, loaded.programs[rotation], limit_s)

    def _expect(self, loaded: LoadedCpuPlan, launches: int) -> None:
        loaded.expect(launches)

    def _missing(self, loaded: LoadedCpuPlan) -> Wrong | None:
        return loaded.missing_launches(self.rank)

    def _time(self, loaded: LoadedCpuPlan, order: Sequence[int], batch: Batch) -> float:
        programs_of_launch = [loaded.programs[rotation] for rotation in order]
        launch, deadline_s = loaded.runner.launch, batch.deadline_s
        self._barrier(loaded, deadline_s)
        start = time.perf_counter()
        for number, programs in enumerate(programs_of_launch, start=1):
            launch(programs, deadline_s)
            if batch.blocking and number % batch.aggregate == 0:
                self._barrier(loaded, deadline_s)
        seconds = (time.perf_counter() - start) / len(order)
        self._barrier(loaded, deadline_s)
        return seconds

    def _prove(
        self,
        loaded: LoadedCpuPlan,
        launches: int,
        batch: Batch,
        meet_each: int,
        work_s: float = 0.0,
    ) -> tuple[Wrong | None, float]:
        """As of other ranks; its time proves nothing more, because these launches are counted."""
        wrong, _ = super()._prove(loaded, launches, batch, meet_each, work_s)
        self._barrier(loaded, batch.deadline_s)
        return wrong or self._missing(loaded), 0.0

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
            buffers = loaded.buffers.arrays(rotation)
            prepare_buffers(loaded.plan.problem, self.rank, *buffers, rotation)
            time.sleep(chance.uniform(0, pause_s))
            loaded.runner.launch(loaded.programs[rotation], deadline_s)
            wrong = wrong or loaded.buffers.compare(range(rotation, rotation + 1))
        self._barrier(loaded, deadline_s)
        return wrong

    def once(self, digest: str, inputs: Sequence["Array"], deadline_s: float) -> "Array":
        """One launch on given inputs; returns this rank's output."""
        loaded = self.loaded[digest, True]
        self._clear(loaded, 1, deadline_s)
        source, target = loaded.buffers.arrays(0)
        source[...] = inputs[self.rank]
        self._barrier(loaded, deadline_s)
        loaded.runner.launch(loaded.programs[0], deadline_s)
        self._barrier(loaded, deadline_s)
        problem = loaded.plan.problem
        outputs = problem.buffers(self.rank).out_bytes // problem.item_bytes
        return target[:outputs].copy()


def _user(where: CpuLayout, places: Sequence[int], rotation: int, rank: int) -> int:
    """Where a rank's user memory of a set begins. places: of ranks among those of their domain."""
    return where.user + (rotation * (max(places) + 1) + places[rank]) * where.stride
