"""The cpu backend: one process a rank, memory that all of them share, real concurrency. NumPy does
the arithmetic.

Without a launcher the memory is an anonymous mapping inherited by fork; under MPI it is a shared
window of each host. Between hosts, or where that is forced, slots travel as messages of MPI (see
net/proxy.py). A rank interprets the checked schedule's actions (see interpreter.py); there is no
other path for any algorithm, size or type. Slots hold data as it is (simple) or lines of data and
flags (ll, ll128: see lines.py).
"""

import platform
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

import numpy as np

from collbench.backends.base import Backend, Batch, Samples, Session, SessionOptions
from collbench.backends.blocking import repeat_on_cpus
from collbench.backends.cpu.layout import has_lines, own_bytes, sets_of, shared_bytes
from collbench.backends.cpu.lines import refuse_repeats
from collbench.backends.cpu.rank import INHERITED, SLOWEST_LOAD_S, CpuRank
from collbench.backends.repeat import (
    ANSWER_S,
    CPU_BATCH,
    MAX_LOADED_PLANS,
    SLOWEST_FILL_BYTES_S,
    host_data,
    proved_launches,
    refuse_other_plans,
    stride_bytes,
)
from collbench.core.dtypes import Array
from collbench.core.errors import UnavailableError
from collbench.core.group import Group, WorkerGroup
from collbench.core.host import cpu_name
from collbench.core.launcher import INSTALL_HINT, find_mpirun
from collbench.core.pattern import Wrong, compute
from collbench.planning.limits import Limits
from collbench.planning.plan import Plan

# of Python and the kernel, which a rank does not share: to begin with, for each operand bound, and
# for each connection whose entry in the tables of all ranks it looks at
_RANK_BYTES, _OPERAND_BYTES, _CONNECTION_BYTES = 8 << 20, 6000, 18_000
_ONCE_S, _ONCE_LOAD_S = 10.0, 60.0  # for a single launch on given inputs, and to load its plan
_TRANSPORTS = {
    "shm": "shared memory",
    "net": "messages of MPI",
    "shm+net": "shared memory inside a host, messages of MPI between hosts",
}
_ORDERED = ("x86_64", "amd64")


class CpuSession(Session[Plan]):
    """Drives the ranks: a plan is sent to all of them once, then each repeat is two calls.

    Under a launcher its ranks run all plans. Without one, those that need shared memory run in
    forks, and those that need MPI under an mpirun. rank: the class of the ranks.
    """

    rank: type[CpuRank] = CpuRank

    def __init__(self, group: Group, plans: Sequence[Plan], *, hot: bool) -> None:
        self.device, self.version = cpu_name(), f"numpy {np.__version__}"
        self.hot, n = hot, plans[0].n
        self._is_near = len(set(group.hosts)) == 1
        # one worker group may serve both transports
        self._known: dict[WorkerGroup[CpuRank], set[tuple[str, bool]]] = {}
        self._worker_groups: dict[bool, WorkerGroup[CpuRank]] = {}
        self._inherited: frozenset[str] = frozenset()
        arena_bytes = max(shared_bytes(plan, hot=hot) for plan in plans)
        if arena_bytes:
            is_forked = group.kind == "local"
            if is_forked:
                for plan in plans:
                    # made and imported once, before the ranks are forked
                    INHERITED[plan.digest] = plan
                    plan.port_table  # noqa: B018
                    problem = plan.problem
                    compute(problem.dtype, problem.op, problem.redop, problem.n)
            self._inherited = frozenset(INHERITED)
            try:
                self._worker_groups[False] = group.shared_workers(self.rank, n, arena_bytes)
            finally:
                INHERITED.clear()
        own = [own_bytes(plan, hot=hot) for plan in plans if plan.domains]
        if own:
            self._worker_groups[True] = (
                self._worker_groups[False]
                if group.kind == "mpi" and arena_bytes
                else group.mpi_workers(self.rank, n)
            )
            self._worker_groups[True].call(CpuRank.reserve, max(own), timeout_s=ANSWER_S)
            library = self._worker_groups[True].call(CpuRank.describe, timeout_s=ANSWER_S)[0]
            self.version += f"; {library}"
            transports = "; ".join(
                f"{name}: {what}"
                for name, what in _TRANSPORTS.items()
                if any(plan.transport == name for plan in plans)
            )
            self.headline = (
                f"cpu, {n} ranks on {len(set(group.hosts))}"
                f" host{'s' * (len(set(group.hosts)) > 1)}. {transports.replace('MPI', library)}"
            )

    def _workers(self, plan: Plan) -> WorkerGroup[CpuRank]:
        return self._worker_groups[bool(plan.domains)]

    def _load(self, plan: Plan, hot: bool, timeout_s: float, sets: int = 0) -> None:
        """Have a plan on all ranks, with so many sets of user buffers, 0: as it needs."""
        workers = self._workers(plan)
        known = self._known.setdefault(workers, set())
        if (plan.digest, hot) in known:
            return
        if is_full := len(known) >= MAX_LOADED_PLANS:
            known.clear()
        sets = sets or sets_of(plan, hot=hot)
        slices = sum(plan.slices_of_channel) * sum(map(len, plan.messages_of_port.values()))
        is_inherited = not plan.domains and plan.digest in self._inherited
        digests = workers.call(
            CpuRank.load,
            plan.digest if is_inherited else plan,
            hot,
            sets,
            is_full,
            timeout_s=timeout_s + sets * slices * SLOWEST_LOAD_S,
        )
        refuse_other_plans(plan.digest, digests)
        known.add((plan.digest, hot))

    def run(self, plan: Plan, batch: Batch) -> Samples:
        """One repeat: prepare, check, time. Raises ScheduleError if there are more launches than
        flags can count.
        """
        sets = sets_of(plan, hot=self.hot)
        if has_lines(plan):
            batched = (batch.iterations or CPU_BATCH.most) * batch.aggregate
            before, singly = sets + max(batch.warmup, 1), 1 + batch.single_launches
            before += batched + proved_launches(batched)
            refuse_repeats(plan, max(before, singly + proved_launches(singly)))
        self._load(plan, self.hot, batch.deadline_s)
        data_bytes, notes = host_data(plan.problem, sets, hot=self.hot)
        return repeat_on_cpus(
            self._workers(plan),
            plan.digest,
            batch,
            hot=self.hot,
            data_bytes=data_bytes,
            notes=notes,
        )

    def flag_s(self, limit_s: float, ways: int) -> float:
        workers = self._worker_groups.get(False)
        if workers is None or ways < 2 or not self._is_near:
            return 0.0
        return max(workers.call(CpuRank.flag, limit_s, timeout_s=limit_s + ANSWER_S))

    def stress(self, plan: Plan, counts: Sequence[int], delay_ns: int) -> tuple[Wrong, ...]:
        """Launches of the first of those block counts back to back, each delayed at random on every
        rank and compared; what was wrong.
        """
        sets, launches = sets_of(plan, hot=self.hot), len(counts)
        plan = replace(plan, problem=replace(plan.problem, block_count=counts[0]))
        if has_lines(plan):
            refuse_repeats(plan, launches)
        data_bytes = launches * stride_bytes(plan.problem) * plan.n
        deadline_s = _ONCE_S + data_bytes / SLOWEST_FILL_BYTES_S + launches * delay_ns * 1e-9
        self._load(plan, self.hot, _ONCE_LOAD_S + ANSWER_S, sets)
        found = self._workers(plan).call(
            CpuRank.stress,
            plan.digest,
            self.hot,
            launches,
            delay_ns * 1e-9,
            counts[-1],
            deadline_s,
            timeout_s=deadline_s + ANSWER_S,
        )
        return tuple(wrong for wrong in found if wrong is not None)

    def once(self, plan: Plan, inputs: Sequence["Array"]) -> list["Array"]:
        """One launch on given inputs, one array a rank; returns every rank's output."""
        self._load(plan, True, _ONCE_LOAD_S + ANSWER_S)
        return self._workers(plan).call(
            CpuRank.once, plan.digest, list(inputs), _ONCE_S, timeout_s=_ONCE_S + ANSWER_S
        )

    def close(self) -> None:
        for workers in dict.fromkeys(self._worker_groups.values()):
            workers.close()


def private_bytes(plan: Plan, *, hot: bool) -> int:
    """Memory of its own that a rank needs for a plan."""
    bound = sets_of(plan, hot=hot) * plan.operand_count()
    looked_at = -(-len(plan.connections) // plan.n)
    unshared_bytes = _RANK_BYTES + bound * _OPERAND_BYTES + looked_at * _CONNECTION_BYTES
    return own_bytes(plan, hot=hot) + unshared_bytes


class CpuBackend(Backend):
    """Our schedules on the CPU cores of this host, or of all hosts of a launcher."""

    name = "cpu"

    def why_not(self, group: Group) -> str:
        machine = platform.machine()
        if machine.lower() not in _ORDERED:
            return f"the cpu backend relies on the store order of x86-64, this is {machine}"
        return ""

    def limits(self, memory_bytes: int) -> Limits:
        return Limits(memory_bytes=memory_bytes, model=cpu_name())

    def why_waived(self, plan: Plan, group: Group) -> str:
        if not plan.domains or group.kind != "local":
            return ""
        if find_spec("mpi4py") is None:
            return f"the network is MPI's, and mpi4py is not installed; {INSTALL_HINT}"
        try:
            find_mpirun()
        except UnavailableError as error:
            return f"the network is MPI's, and {error.text}"
        return ""

    def shared_bytes(self, plan: Plan, *, hot: bool) -> int:
        return shared_bytes(plan, hot=hot)

    def private_bytes(self, plan: Plan, *, hot: bool) -> int:
        return private_bytes(plan, hot=hot)

    def open(self, group: Group, plans: Sequence[Plan], options: SessionOptions) -> CpuSession:
        return CpuSession(group, plans, hot=options.hot)


BACKEND = CpuBackend()
