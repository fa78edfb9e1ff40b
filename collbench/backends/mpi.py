"""The mpi backend: the MPI library's own collective, timed by the same harness, as the peer of
ours.

Its buffers rotate and are checked like ours. Blocking calls are MPI's, so a watchdog thread ends
the process if one does not return.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from collbench.backends.base import (
    Batch,
    CpuTimedRank,
    Peer,
    RankTiming,
    Samples,
    Session,
    SessionOptions,
    checked_sets,
    compare_output,
    poison_again,
    prepare_buffers,
    repeat_on_cpus,
    rotations,
    sets_in_turn,
    stride_bytes,
    timed_sets,
)
from collbench.launch.group import Group, RankContext
from collbench.launch.launcher import INSTALL_HINT, described_library
from collbench.machine.host import cpu_name
from collbench.spec.case import Case, Problem
from collbench.spec.dtypes import dtype
from collbench.spec.pattern import Wrong

if TYPE_CHECKING:
    from collbench.spec.dtypes import Array

_DESCRIBE_S = 10.0  # until all ranks have named their library
MPI_TYPES = {
    "int8": "INT8_T",
    "uint8": "UINT8_T",
    "int32": "INT32_T",
    "int64": "INT64_T",
    "float32": "FLOAT",
    "float64": "DOUBLE",
}
MPI_COLLECTIVES = (
    *("allreduce", "allgather", "reducescatter", "broadcast", "reduce"),
    *("alltoall", "gather", "scatter", "sendrecv"),
)
MPI_REDOPS = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}

MpiCall = tuple[Callable[..., object], tuple[object, ...]]


@dataclass(slots=True)
class _Prepared:
    """Sets of buffers of one problem, and the MPI call on each."""

    problem: Problem
    inputs: list["Array"]
    outputs: list["Array"]
    calls: list[MpiCall]

    def buffers(self) -> list[tuple["Array", "Array"]]:
        """Input and output of each set."""
        return list(zip(self.inputs, self.outputs, strict=True))


class MpiRank(CpuTimedRank[Problem]):
    """One rank's part: private buffers and prepared calls."""

    def __init__(self, context: RankContext) -> None:
        from mpi4py import MPI

        assert context.watchdog is not None
        self.mpi, self.comm, self.rank = MPI, context.comm, context.rank
        self.watchdog = context.watchdog
        self.prepared: _Prepared | None = None

    def describe(self) -> str:
        """The library, its version and its switches."""
        return described_library(self.mpi.Get_library_version())

    def _prepared(self, problem: Problem, hot: bool) -> _Prepared:
        at, stride = problem.buffers(self.rank), stride_bytes(problem)
        sets = rotations(problem, hot=hot)
        memory, element = np.zeros(sets * stride + 4096, np.uint8), dtype(problem.dtype).numpy()
        memory = memory[-memory.__array_interface__["data"][0] % 4096 :]
        inputs, outputs = (
            [
                memory[base + first : base + first + size].view(element)
                for base in range(0, sets * stride, stride)
            ]
            for first, size in ((at.in_offset, at.in_bytes), (at.out_offset, at.out_bytes))
        )
        calls = [self._call(problem, a, b) for a, b in zip(inputs, outputs, strict=True)]
        return _Prepared(problem, inputs, outputs, calls)

    def _call(self, problem: Problem, source: "Array", target: "Array") -> MpiCall:
        """The library's function for a problem and its arguments."""
        comm, root = self.comm, problem.root
        kind = getattr(self.mpi, MPI_TYPES.get(problem.dtype, "BYTE"))
        width = 1 if problem.dtype in MPI_TYPES else problem.item_bytes
        is_root, block = self.rank == root, problem.block_count * width

        def spec(buffer: "Array") -> list[object]:
            return [buffer.view(np.uint8), len(buffer) * width, kind]

        give, take = spec(source), spec(target)
        give_each, take_each = ([buffer.view(np.uint8), block, kind] for buffer in (source, target))
        own = self.mpi.IN_PLACE if problem.in_place else give
        kept = self.mpi.IN_PLACE if problem.in_place else take
        op = getattr(self.mpi, MPI_REDOPS.get(problem.redop, "SUM"))
        if problem.op == "broadcast":
            if is_root and not problem.in_place:
                return self._broadcast_from, (source, target, give, root)
            return comm.Bcast, (take, root)
        after, before = (self.rank + 1) % problem.n, (self.rank - 1) % problem.n
        to_root = (own, take_each) if is_root else (give, None)
        from_root = (give_each, kept) if is_root else (None, take)
        calls: dict[str, MpiCall] = {
            "allreduce": (comm.Allreduce, (own, take, op)),
            "allgather": (comm.Allgather, (own, take_each)),
            "reducescatter": (comm.Reduce_scatter_block, (give_each, take, op)),
            "reduce": (comm.Reduce, ((own, take, op, root) if is_root else (give, None, op, root))),
            "alltoall": (comm.Alltoall, (give_each, take_each)),
            "gather": (comm.Gather, (*to_root, root)),
            "scatter": (comm.Scatter, (*from_root, root)),
            "sendrecv": (comm.Sendrecv, (give, after, 0, take, before, 0)),
        }
        return calls[problem.op]

    def _broadcast_from(
        self, source: "Array", target: "Array", spec: list[object], root: int
    ) -> None:
        """Out of place, the root's output is a copy that MPI_Bcast does not make."""
        self.comm.Bcast(spec, root)
        target[...] = source

    def prepare(self, problem: Problem, hot: bool, batch: Batch) -> RankTiming:
        """Write inputs and poison, run every set of buffers once, compare, poison, warm up."""
        busy = time.process_time()
        if self.prepared is None or self.prepared.problem != problem:
            self.prepared = None  # the old buffers go before the new ones come
            self.prepared = self._prepared(problem, hot)
        ready, sets, wrong = self.prepared, len(self.prepared.calls), None
        with self.watchdog.limit(f"the library's {problem.op}", batch.deadline_s):
            for number, (source, target) in enumerate(ready.buffers()):
                prepare_buffers(problem, self.rank, source, target, number)
            self.comm.Barrier()
            for function, args in ready.calls:
                function(*args)
            if batch.is_checked:
                wrong = self._compare(ready, range(sets))
                for number, (source, target) in enumerate(ready.buffers()):
                    poison_again(problem, self.rank, source, target, number)
            self.comm.Barrier()
            start = time.perf_counter()
            for number in sets_in_turn(problem, sets, max(batch.warmup, 1)):
                function, args = ready.calls[number]
                function(*args)
            seconds = (time.perf_counter() - start) / max(batch.warmup, 1)
        return RankTiming(wrong=wrong, seconds=seconds, busy_s=time.process_time() - busy)

    def timed(self, problem: Problem, hot: bool, batch: Batch) -> RankTiming:
        """Poison what the warm-up wrote, time calls behind a barrier, compare what they left."""
        assert self.prepared is not None
        busy, ready, launches = (
            time.process_time(),
            self.prepared,
            batch.iterations * batch.aggregate,
        )
        of = problem, len(ready.calls), launches
        calls = [ready.calls[number] for number in timed_sets(*of)]
        checked = checked_sets(*of) if batch.is_checked else range(0)
        with self.watchdog.limit(f"the library's {problem.op}", batch.deadline_s):
            for number in set(checked).intersection(sets_in_turn(*of[:2], max(batch.warmup, 1))):
                source, target = ready.buffers()[number]
                poison_again(problem, self.rank, source, target, number, is_warm=True)
            self.comm.Barrier()
            start = time.perf_counter()
            for number, (function, args) in enumerate(calls, start=1):
                function(*args)
                if batch.blocking and number % batch.aggregate == 0:
                    self.comm.Barrier()
            seconds = (time.perf_counter() - start) / len(calls)
            self.comm.Barrier()
        wrong = self._compare(ready, checked)
        return RankTiming(wrong=wrong, seconds=seconds, busy_s=time.process_time() - busy)

    def _compare(self, ready: _Prepared, sets: range) -> Wrong | None:
        """The wrong elements of the first of some sets of buffers that has any."""
        wrong = (
            compare_output(ready.problem, self.rank, ready.outputs[number], number)
            for number in sets
        )
        return next((one for one in wrong if one is not None), None)


class MpiSession(Session[Case]):
    """Drives the ranks of the library's collectives."""

    def __init__(self, group: Group, cases: Sequence[Case], *, hot: bool) -> None:
        self._workers = group.mpi_workers(MpiRank, cases[0].ranks)
        self.device, self.hot = cpu_name(), hot
        self.version = self._workers.call(MpiRank.describe, timeout_s=_DESCRIBE_S)[0]

    def run(self, case: Case, batch: Batch) -> Samples:
        """One repeat: prepare, check, time."""
        problem = case.problem()
        return repeat_on_cpus(
            self._workers,
            problem,
            problem,
            batch,
            hot=self.hot,
            sets=rotations(problem, hot=self.hot),
        )

    def close(self) -> None:
        self._workers.close()


class MpiBackend(Peer):
    """The MPI library that mpi4py finds."""

    name = "mpi"

    def why_not(self, group: Group) -> str:
        return "" if find_spec("mpi4py") is not None else f"mpi4py is not installed; {INSTALL_HINT}"

    def why_waived(self, case: Case, is_reduction: bool) -> str:
        if case.op not in MPI_COLLECTIVES:
            return f"MPI has no {case.op}"
        if is_reduction and case.redop not in MPI_REDOPS:
            return f"MPI has no reduction {case.redop}"
        if is_reduction and case.dtype not in MPI_TYPES:
            return f"MPI cannot reduce {case.dtype}"
        if case.op == "reducescatter" and case.in_place:
            return "MPI's in-place reduce-scatter leaves the result elsewhere"
        return ""

    def private_bytes(self, case: Case, *, hot: bool) -> int:
        problem = case.problem()
        return rotations(problem, hot=hot) * stride_bytes(problem)

    def open(self, group: Group, cases: Sequence[Case], options: SessionOptions) -> MpiSession:
        return MpiSession(group, cases, hot=options.hot)


BACKEND = MpiBackend()
