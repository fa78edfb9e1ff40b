"""One rank's part of the cuda backend: plans on its GPU, launched and timed, and messages."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from collbench.backends.base import Batch, GpuOptions
from collbench.backends.cuda.copy_engine import CopyEngine
from collbench.backends.gpu.concurrent import ConcurrentWork, EventTimes
from collbench.backends.gpu.hang import diagnosis
from collbench.backends.gpu.rank import Graphs, Launches, stride_bytes
from collbench.backends.gpu.session import START_S, GpuFacts, GpuRank
from collbench.backends.net.gpu_proxy import GpuProxy, Outside, slots_offset, why_not_cuda_aware
from collbench.backends.net.proxy import data_comm_of
from collbench.backends.net.receivers import Receivers
from collbench.backends.repeat import REPLAYS, RankTiming
from collbench.core.case import Problem
from collbench.core.dtypes import Array, dtype
from collbench.core.errors import HangError, ScheduleError
from collbench.core.group import RankContext
from collbench.core.host import own_cores
from collbench.core.launcher import described_library
from collbench.core.pattern import Wrong
from collbench.core.world import ranks_per_gpu
from collbench.device.card import Launch
from collbench.device.engine import slices_of
from collbench.device.layout import (
    ABORT_AT,
    MAX_CTAS,
    STAMP_BYTES,
    STATES_AT,
    TRACE_ARGS,
    Memory,
    is_in_host,
    layout,
    pack_args,
    pack_constants,
)
from collbench.device.program import ctas, launches_counted
from collbench.planning.plan import Plan
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.protocols import sentinel

# launches of a soak, each with kernels that write and compare, that are queued before a host that
# must move messages waits
SOAKED = 16
_LATE_TIMEOUTS = 3  # how late a rank is, where a test makes it late, in deadlines of the others
DROP_AFTER = 2  # slices, where a test makes a rank keep silent


@dataclass(slots=True)
class LoadedGpuPlan:
    """A plan on a GPU: its launches by set, its graphs. resident: CTAs of its kernel that can be
    resident at once.
    """

    plan: Plan
    sets: int
    cubin: bytes
    function: int
    memory: Memory
    proxy: GpuProxy | None = None
    resident: int = 0
    launches: dict[int, Callable[[int], None]] = field(default_factory=dict)
    graphs: Graphs = field(default_factory=dict)


class StampingKernel(NamedTuple):
    """A kernel that stamps: its stamps are at `table`, `records` of them for each CTA."""

    function: int
    table: int
    size: int
    records: int


class StampOrder(NamedTuple):
    """Pairs of launches without and with stamps. kept: pairs, the last ones, whose stamps are
    wanted. delays_s: how late the host of each rank queues a launch with stamps; none: it does not
    wait.
    """

    launches: int
    kept: int
    delays_s: tuple[float, ...] = ()


class StampedLaunches(NamedTuple):
    """What a rank has to say of an order: the stamps of every launch that is kept, by its own
    clock; the seconds of each pair; and wrong elements of the last result.
    """

    stamps: list[bytes]
    seconds: list[tuple[float, float]]
    wrong: int


class CudaRank(GpuRank[str]):
    """One rank's part."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.loaded: dict[str, LoadedGpuPlan] = {}
        self.outside: Outside | None = None
        self.stamping = StampingKernel(0, 0, 0, 0)

    def device(self, options: GpuOptions) -> GpuFacts:
        """Take this rank's GPU; what the driver wants to know of it."""
        facts = super().device(options)
        self.engine = CopyEngine(self.gpu)
        return facts

    def reserve(self, words_bytes: int, slots_bytes: int, gpu_slots_bytes: int) -> None:
        """Have memory for messages (see net_bytes). Raises UnavailableError, and so comes before
        join(), in which each rank waits for all others.
        """
        card = self.gpu.card
        self.net_memory = card.own_host(slots_offset(words_bytes) + slots_bytes)
        gpu_slots = card.allocate(gpu_slots_bytes) if gpu_slots_bytes else 0
        self.reserved = (
            self.net_memory.address,
            words_bytes,
            slots_bytes,
            gpu_slots,
            gpu_slots_bytes,
        )

    def join(self, threads: int, hosts: Sequence[str]) -> None:
        """Have a communicator for messages, and so many threads that receive; hosts: of the ranks.
        A rank that does not come ends this process.
        """
        near = [rank for rank, host in enumerate(hosts) if host == hosts[self.context.rank]]
        assert self.context.watchdog is not None
        with self.context.watchdog.limit("all ranks to open the network", START_S):
            data_comm = data_comm_of(self.context.comm)
            self.outside = Outside(
                data_comm,
                *self.reserved,
                near=near,
                receivers=Receivers(threads, data_comm.fault) if threads else None,
            )

    def mpi(self) -> tuple[str, str, frozenset[int]]:
        """The MPI library, why messages cannot lie in a GPU's memory, and the cores that this
        rank's process may use for threads in MPI.
        """
        from mpi4py import MPI

        library = described_library(MPI.Get_library_version())
        has_threads = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        return library, why_not_cuda_aware(), own_cores() if has_threads else frozenset()

    def abort(self) -> None:
        """Tell ranks that wait for messages to give up."""
        if self.outside is not None:
            self.outside.abort()

    def load(self, plan: Plan, sets: int, cubins: Sequence[bytes], is_full: bool) -> str:
        """Load a plan's kernel and program, in the place of all others if it is full; returns its
        hash, which must be the same on every rank.
        """
        gpu, rank = self.gpu, self.context.rank
        if is_full:
            self.loaded.clear()
        function = gpu.card.function(
            cubins[rank], "collbench_move" if plan.transport == "ce" else "collbench_run"
        )
        assert plan.kernel is not None
        resident = gpu.card.resident_ctas(function, plan.kernel.threads, plan.kernel.cluster)
        wanted, resident = ctas(plan), resident // ranks_per_gpu(self.options.gpus)
        if wanted > min(resident, MAX_CTAS):
            raise ScheduleError(
                f"{wanted} CTAs wait for each other, {resident} can be resident on {gpu.card.name}",
                "use fewer --channels or --threads",
            )
        memory = self._memory(
            plan, plan.problem, gpu.keep(("program", plan.digest, rank), pack_constants(plan, rank))
        )
        proxy = self.outside.proxy_of(plan) if plan.domains and self.outside is not None else None
        loaded = self.loaded[plan.digest] = LoadedGpuPlan(
            plan, sets, cubins[rank], function, memory, proxy, resident
        )
        if plan.transport == "ce":  # written now: it takes longer than ranks stay at a barrier
            for number in range(sets):
                loaded.launches[number] = self.engine.queue(
                    plan,
                    loaded.cubin,
                    memory,
                    set_offset=number * stride_bytes(plan.problem),
                    silent_after=DROP_AFTER if self.options.inject == "drop" else None,
                )
        return plan.digest

    def _memory(self, plan: Plan, problem: Problem, program: int) -> Memory:
        """Where everything lies that kernels of a problem touch."""
        gpu, outside = self.gpu, self.outside if plan.domains else None
        buffers = [problem.buffers(peer) for peer in range(problem.n)]
        users = [
            gpu.user if rank == self.context.rank else user
            for rank, user in enumerate(gpu.users if gpu.is_peered else [0] * problem.n)
        ]
        memory = Memory(
            arenas=tuple(gpu.host_arenas if is_in_host(plan) else gpu.arenas),
            own=gpu.arena,
            abort=gpu.control + ABORT_AT,
            aborts=gpu.aborts,
            inputs=tuple(user + at.in_offset for user, at in zip(users, buffers, strict=True)),
            outputs=tuple(user + at.out_offset for user, at in zip(users, buffers, strict=True)),
            program=program,
        )
        if outside is None:
            return memory
        return replace(
            memory,
            net=outside.address,
            net_slots=outside.slots_of(plan),
            abort=outside.abort_word,
            aborts=gpu.aborts_outside(outside),
        )

    def launch(
        self,
        loaded: LoadedGpuPlan,
        function: int,
        memory: Memory,
        number: int,
        *,
        delay_ns: int = 0,
        block_bytes: int | None = None,
        more_args: Sequence[bytes] = (),
        is_alone: bool = False,
    ) -> Launch:
        """A launch of a plan's kernel on a set of user buffers. delay_ns, block_bytes: see
        pack_args; more_args: behind the arguments of every kernel; is_alone: it does not take its
        place on the GPU before what is in front of it has ended.
        """
        plan, rank = loaded.plan, self.context.rank
        assert plan.kernel is not None
        args = pack_args(
            plan,
            rank,
            memory,
            set_offset=number * stride_bytes(plan.problem),
            timeout_ns=int(self.gpu.timeout_s * 1e9),
            delay_ns=delay_ns,
            block_bytes=block_bytes,
        )
        tracks = len(plan.schedule.programs[0 if plan.schedule.is_symmetric else rank])
        return Launch(
            self.gpu.card,
            function,
            (plan.channels * tracks, 1),
            plan.kernel.threads,
            [args, *more_args],
            cluster=plan.kernel.cluster,
            is_dependent=plan.kernel.pdl != "off" and not is_alone,
        )

    def _queue(self, loaded: LoadedGpuPlan, number: int, stream: int) -> None:
        """Queue one launch on a set of user buffers."""
        if number not in loaded.launches:
            loaded.launches[number] = self.launch(loaded, loaded.function, loaded.memory, number)
        loaded.launches[number](stream)

    def _launches(self, digest: str) -> Launches:
        """The launches of a plan."""
        loaded = self._activated(digest)
        return Launches(
            gpu=self.gpu,
            problem=loaded.plan.problem,
            queue=partial(self._queue, loaded),
            sets=loaded.sets,
            wait=partial(self._wait_for, loaded),
            graphs=loaded.graphs,
        )

    def _activated(self, digest: str) -> LoadedGpuPlan:
        """A plan that is to run now."""
        loaded = self.loaded[digest]
        self.gpu.outside = self.outside if loaded.proxy is not None else None
        if self.outside is not None:
            self.outside.proxy = loaded.proxy
        return loaded

    def clear(self, digest: str) -> None:
        """As reset(), but user buffers stay as they are."""
        self._queue_clear(digest)
        self.gpu.card.wait(self.gpu.timeout_s)

    def _queue_clear(self, digest: str) -> None:
        """Queue the clearing of counters, flags and FIFOs."""
        super()._queue_clear(digest)
        gpu, loaded = self.gpu, self._activated(digest)
        where = layout(loaded.plan, self.context.rank)
        gpu.card.clear(
            gpu.arena + STATES_AT,
            (where.fifos if loaded.plan.transport == "ce" else where.total) - STATES_AT,
        )
        if PROTOCOLS.load(loaded.plan.proto).CLEARS:
            size = where.fifos_end - where.fifos
            gpu.card.clear(gpu.arena + where.fifos, size, sentinel.MARKER_BYTE)
        if loaded.proxy is not None and self.outside is not None:
            self.outside.clear(loaded.proxy)
        if is_in_host(loaded.plan):
            gpu.card.clear(
                gpu.host_arenas[self.context.rank] + where.tails, where.fifos_end - where.tails
            )

    def first(self, digest: str, is_checked: bool) -> RankTiming:
        """Run every set of buffers once and compare."""
        self._misbehave()
        return super().first(digest, is_checked)

    def timed(self, digest: str, batch: Batch, work_s: float) -> RankTiming:
        """Time launches and compare. Raises ScheduleError if there are more than kernels can
        count.
        """
        self._refuse_uncounted(digest, (REPLAYS + 1) * batch.iterations * batch.aggregate)
        return super().timed(digest, batch, work_s)

    def timed_singly(self, digest: str, batch: Batch, work_s: float) -> RankTiming:
        """Time launches one by one and compare. Raises ScheduleError if there are more than kernels
        can count.
        """
        # each may be the only one of its part, behind one that does not count
        self._refuse_uncounted(digest, 2 * batch.single_launches, "--distribution")
        return super().timed_singly(digest, batch, work_s)

    def run_concurrently(self, digest: str, work: ConcurrentWork) -> EventTimes:
        """Launches concurrent with matrix multiplications. Raises ScheduleError if there are more
        than kernels can count.
        """
        self._refuse_uncounted(digest, 2 * work.replays * work.launches)  # alone, and together
        return super().run_concurrently(digest, work)

    def _refuse_uncounted(self, digest: str, launches: int, option: str = "--iters") -> None:
        """Raise ScheduleError for more launches, with those of first(), than kernels can count
        between two resets.
        """
        loaded = self.loaded[digest]
        launches, most = loaded.sets + launches, launches_counted(loaded.plan)
        if launches > most:
            raise ScheduleError(
                f"{launches} launches in a repeat: kernels count the slices of {most}",
                f"use fewer {option} or a larger --chunk",
            )

    def stress(
        self, digest: str, cubins: Sequence[bytes], counts: Sequence[int], delay_ns: int
    ) -> Wrong | None:
        """Launches of those block counts back to back, each after a pause of its own on every rank,
        each compared; the host waits at the end only.

        Without cubins the counts must be the plan's own, and its own kernel runs.
        """
        gpu, loaded, rank = self.gpu, self._activated(digest), self.context.rank
        plan = loaded.plan
        is_copied, done = plan.transport == "ce", [0] * plan.channels
        function = (
            gpu.card.function(cubins[rank], "collbench_run")
            if cubins and not is_copied
            else loaded.function
        )
        launch_of = partial(self.launch, loaded, function, delay_ns=delay_ns)
        stride = stride_bytes(plan.problem)
        gpu.clear_mismatches()
        # launches live until they have run
        before, queued = gpu.kept(), list[Callable[[int], None]]()
        for launch, count in enumerate(counts):
            if loaded.proxy is not None and launch % SOAKED == 0:
                if launch:
                    self._wait_for(loaded)
                loaded.proxy.expect_each(counts[launch : launch + SOAKED])
            problem, number = replace(plan.problem, block_count=count), launch % loaded.sets
            gpu.prepare(problem, range(number, number + 1), stride)
            memory = self._memory(plan, problem, loaded.memory.program)
            if is_copied:
                one = replace(plan, problem=problem)
                queued.append(
                    self.engine.queue(
                        one,
                        loaded.cubin,
                        memory,
                        set_offset=number * stride,
                        delay_ns=delay_ns,
                        done_before=done,
                    )
                )
                done = [before + slices_of(one, channel) for channel, before in enumerate(done)]
            else:
                queued.append(launch_of(memory, number, block_bytes=problem.block_bytes))
            queued[-1](gpu.card.stream)
            gpu.queue_compare(problem, range(number, number + 1), stride)
        self._wait_for(loaded)
        gpu.forget(before)  # tables of copy engines, some for each launch
        total, index = gpu.mismatches()
        return Wrong(rank=rank, count=total, index=index, got="?", wanted="?") if total else None

    def prepare_trace(self, digest: str, cubins: Sequence[bytes], records: int) -> None:
        """Load the kernel that stamps, and have memory for its stamps, before any rank waits for
        another. cubins: of the kernels of all ranks; records: of each CTA. Raises ScheduleError if
        its CTAs cannot all be resident.
        """
        gpu, loaded = self.gpu, self.loaded[digest]
        kernel = loaded.plan.kernel
        assert kernel is not None
        function = gpu.card.function(cubins[self.context.rank], "collbench_run")
        resident = gpu.card.resident_ctas(function, kernel.threads, kernel.cluster)
        resident //= ranks_per_gpu(self.options.gpus)
        if ctas(loaded.plan) > resident:
            raise ScheduleError(
                f"{ctas(loaded.plan)} CTAs that stamp wait for each other, {resident} can be"
                f" resident on {gpu.card.name}",
                "use fewer --channels",
            )
        tracks = len(loaded.plan.schedule.program(self.context.rank))
        size = loaded.plan.channels * tracks * records * STAMP_BYTES
        table = gpu.card.allocate(size)
        self.stamping = StampingKernel(function, table, size, records)

    def trace(self, digest: str, order: StampOrder) -> StampedLaunches:
        """Launches in turn with and without stamps, behind barriers; after prepare_trace()."""
        gpu, loaded, stamping = self.gpu, self._activated(digest), self.stamping
        card, plan = gpu.card, loaded.plan
        stamps = TRACE_ARGS.pack(stamping.table, stamping.records)
        launches = (
            self.launch(loaded, loaded.function, loaded.memory, 0, is_alone=True),
            self.launch(
                loaded, stamping.function, loaded.memory, 0, more_args=[stamps], is_alone=True
            ),
        )
        events = [card.event() for _ in range(4)]
        found: list[bytes] = []
        seconds: list[tuple[float, float]] = []
        delay_s = order.delays_s[self.context.rank] if order.delays_s else 0.0
        try:
            for number in range(order.launches):
                for which, launch in enumerate(launches):
                    gpu.prepare(plan.problem, range(1), stride_bytes(plan.problem))
                    card.clear(stamping.table, stamping.size)
                    gpu.barrier()
                    gpu.expect(1)
                    if which and delay_s:
                        time.sleep(delay_s)
                    card.record(events[2 * which])
                    launch(card.stream)
                    card.record(events[2 * which + 1])
                    self._wait_for(loaded)
                seconds.append((card.elapsed_s(*events[:2]), card.elapsed_s(*events[2:])))
                if number >= order.launches - order.kept:
                    found.append(card.download(stamping.table, stamping.size))
            wrong = gpu.compare(plan.problem, range(1))
        finally:
            card.free(stamping.table)
        return StampedLaunches(found, seconds, wrong.count if wrong is not None else 0)

    def give(self, digest: str, inputs: Sequence["Array"]) -> None:
        """Fill the output with a pattern, and write the given inputs."""
        gpu, problem = self.gpu, self.loaded[digest].plan.problem
        address, _ = gpu.buffer(problem, "in", 0)
        out, size = gpu.buffer(problem, "out", 0)
        if size:
            gpu.card.upload(out, b"\xa5" * size)
        if len(inputs[self.context.rank]):
            gpu.card.upload(address, inputs[self.context.rank].tobytes())

    def once(self, digest: str) -> "Array":
        """One launch on what was given; this rank's output."""
        gpu, loaded = self.gpu, self._activated(digest)
        problem = loaded.plan.problem
        out, size = gpu.buffer(problem, "out", 0)
        gpu.barrier()
        gpu.expect(1)
        self._queue(loaded, 0, gpu.card.stream)
        self._wait_for(loaded)
        return np.frombuffer(
            gpu.card.download(out, size) if size else b"", dtype(problem.dtype).numpy()
        ).copy()

    def _misbehave(self) -> None:
        """Be late or die, for tests of the deadlines."""
        what, _, who = self.options.inject.partition(":")
        if what in ("late", "die") and int(who or 0) == self.context.rank:
            if what == "die":
                os.kill(os.getpid(), 9)
            time.sleep(_LATE_TIMEOUTS * self.gpu.timeout_s)

    def _wait_for(self, loaded: LoadedGpuPlan, work_s: float = 0.0) -> None:
        """Until the GPU is done, which may take so long. Raises HangError with what its CTAs were
        waiting for.
        """
        try:
            self._wait(work_s)
        except HangError as error:
            raise (
                error if error.suspect is not None else self.diagnosis(loaded.plan) or error
            ) from None

    def diagnosis(self, plan: Plan) -> HangError | None:
        """What the CTAs of the plan were waiting for, if any was."""
        return diagnosis(self.gpu, plan)

    def close(self) -> None:
        """Give memory back, but what MPI may still write to."""
        if self.outside is not None and self.outside.close():
            self.net_memory.close()
        super().close()
