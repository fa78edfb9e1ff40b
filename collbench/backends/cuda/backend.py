"""The cuda backend: the schedules on GPUs, by one kernel a protocol (collbench/device) that runs
any of them, or by copy engines.

One process drives all GPUs of the host (a thread each), or one process a GPU under a launcher.
Memory is shared by peer access, by CUDA IPC or in the host; between hosts go messages. The driver
compiles and sends machine code, so that ranks never compile the same thing twice.
"""

from collections.abc import Sequence

from collbench.backends.base import Backend, GpuOptions, SessionOptions
from collbench.backends.cuda.compilation import Compilation
from collbench.backends.cuda.net_memory import reserve_net
from collbench.backends.cuda.rank import DROP_AFTER, CudaRank, StampedLaunches, StampOrder
from collbench.backends.gpu.concurrent import ConcurrentRepeat
from collbench.backends.gpu.rank import stride_bytes
from collbench.backends.gpu.session import START_S, GpuSession, soak_limit_s, why_no_gpus
from collbench.backends.repeat import MAX_LOADED_PLANS, refuse_other_plans
from collbench.core.case import Problem
from collbench.core.dtypes import Array
from collbench.core.errors import ScheduleError
from collbench.core.group import Group
from collbench.core.pattern import Wrong
from collbench.device.card import (
    all_have_clusters,
    all_reach_each_other,
    archs,
    least_multiprocessors,
    model_of_all,
)
from collbench.device.compile import kernel_source
from collbench.device.layout import is_in_host, layouts
from collbench.planning.limits import Limits, keeps_lines
from collbench.planning.plan import Plan


class CudaSession(GpuSession[Plan, str, CudaRank]):
    """Drives the ranks: compiles while others are measured, loads, measures."""

    def __init__(
        self, group: Group, plans: Sequence[Plan], *, hot: bool, options: GpuOptions
    ) -> None:
        super().__init__(group, CudaRank, plans[0].n, hot=hot, options=options)
        self._known: set[str] = set()
        self._archs = [fact.arch for fact in self.facts]
        self._compilation = Compilation(DROP_AFTER if options.inject == "drop" else None)
        for plan in plans:
            self._compilation.begin(plan, self._archs)
        arena_bytes = max(where.total for plan in plans for where in layouts(plan))
        user = max(stride_bytes(plan.problem) * self._sets(plan.problem) for plan in plans)
        host_bytes = max(
            (where.fifos_end for plan in plans if is_in_host(plan) for where in layouts(plan)),
            default=0,
        )
        is_peered = not all(is_in_host(plan) or plan.transport == "net" for plan in plans)
        hosts = tuple(group.hosts) if len(set(group.hosts)) > 1 else ()
        with self._opening():
            self._share_memory(arena_bytes, user, host_bytes, is_peered=is_peered, hosts=hosts)
            messages, net_bytes, self._refuse = reserve_net(
                self._workers, [plan for plan in plans if plan.domains], options, group.hosts
            )
        self.version += messages
        self.headline = (
            f"{self.device}: {-(-(arena_bytes + host_bytes + net_bytes) >> 20)}M of FIFOs, flags"
            f" and scratch memory a GPU{messages}"
        )

    def _load(self, plan: Plan) -> None:
        """Have the plan on all GPUs. Raises RefusedError for messages that cannot be moved as they
        were asked to, ScheduleError for what a GPU cannot run.
        """
        if plan.domains:
            self._refuse(plan)
        if plan.digest in self._known:
            return
        cubins = self._compilation.cubins(plan, self._archs)
        if is_full := len(self._known) >= MAX_LOADED_PLANS:
            self._known.clear()
        digests = self._workers.call(
            CudaRank.load, plan, self._sets(plan.problem), cubins, is_full, timeout_s=START_S
        )
        refuse_other_plans(plan.digest, digests)
        self._known.add(plan.digest)

    def _loaded(self, plan: Plan) -> tuple[str, Problem, int]:
        self._load(plan)
        return plan.digest, plan.problem, self._sets(plan.problem)

    def run_concurrently(
        self, plan: Plan, size: int | None, repeats: int
    ) -> tuple[list[ConcurrentRepeat], list[Wrong]]:
        """Launches alone, a load alone, and both at once. Raises ScheduleError for
        messages, whose proxy needs the host at the same time.
        """
        if plan.domains:
            raise ScheduleError(
                "the host that queues GEMMs would have to move messages, too",
                "use --transport p2p, shm or ce",
            )
        return super().run_concurrently(plan, size, repeats)

    def stress(self, plan: Plan, counts: Sequence[int], delay_ns: int) -> tuple[Wrong, ...]:
        """Launches of those block counts back to back, each delayed at random on every rank and
        compared; what was wrong.
        """
        self._load(plan)
        cubins: list[bytes] = []
        if set(counts) != {plan.problem.block_count}:
            sources = [
                kernel_source(plan, 0 if plan.schedule.is_symmetric else rank, any_size=True)
                for rank in range(self.n)
            ]
            cubins = self._compilation.at_once(sources, self._archs)
        limit_s = soak_limit_s(self.options)
        self._workers.call(CudaRank.reset, plan.digest, timeout_s=limit_s)
        by_rank = self._workers.call(
            CudaRank.stress, plan.digest, cubins, list(counts), delay_ns, timeout_s=limit_s
        )
        return tuple(wrong for wrong in by_rank if wrong is not None)

    def trace(self, plan: Plan, order: StampOrder, records: Sequence[int]) -> list[StampedLaunches]:
        """Launches in turn with and without stamps, and what each rank has to say of them. records:
        of a CTA of each rank. Raises ScheduleError for copy engines, which stamp nothing.
        """
        if plan.transport == "ce":
            raise ScheduleError(
                "copy engines stamp nothing", "use --transport p2p, shm, net or auto"
            )
        self._load(plan)
        sources = [
            kernel_source(plan, 0 if plan.schedule.is_symmetric else rank, is_traced=True)
            for rank in range(self.n)
        ]
        cubins = self._compilation.at_once(sources, self._archs)
        limit_s = soak_limit_s(self.options) + order.launches * sum(order.delays_s)
        self._workers.call(
            CudaRank.prepare_trace, plan.digest, cubins, max(records), timeout_s=START_S
        )
        self._workers.call(CudaRank.reset, plan.digest, timeout_s=limit_s)
        return self._workers.call(CudaRank.trace, plan.digest, order, timeout_s=limit_s)

    def once(self, plan: Plan, inputs: Sequence["Array"]) -> list["Array"]:
        """One launch on given inputs, one array a rank; returns every rank's output."""
        self._load(plan)
        self._workers.call(CudaRank.clear, plan.digest, timeout_s=START_S)
        # apart: no rank may wait for another while messages are on their way
        self._workers.call(CudaRank.give, plan.digest, list(inputs), timeout_s=START_S)
        return self._workers.call(CudaRank.once, plan.digest, timeout_s=START_S)

    def close(self) -> None:
        """End the ranks, and what is being compiled."""
        self._compilation.close()
        super().close()


class CudaBackend(Backend):
    """Our schedules on the GPUs of this host, or of all hosts of a launcher."""

    name = "cuda"
    is_gpu = True

    def why_not(self, group: Group) -> str:
        return why_no_gpus()

    def why_waived(self, plan: Plan, group: Group) -> str:
        if plan.domains and group.kind != "mpi":
            return (
                "messages of MPI need a process a GPU; start with mpirun -n and the number of GPUs"
            )
        return ""

    def limits(self, memory_bytes: int) -> Limits:
        """A CTA a multiprocessor can always be resident."""
        most = least_multiprocessors()
        if not most:
            return Limits(memory_bytes=memory_bytes)
        return Limits(
            ctas=most,
            memory_bytes=memory_bytes,
            has_clusters=all_have_clusters(),
            has_peers=all_reach_each_other(),
            model=model_of_all(),
            has_lines=keeps_lines(archs()),
        )

    def open(self, group: Group, plans: Sequence[Plan], options: SessionOptions) -> CudaSession:
        return CudaSession(group, plans, hot=options.hot, options=options.gpu)


BACKEND = CudaBackend()
