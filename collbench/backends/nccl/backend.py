"""The nccl backend: NCCL's own collectives by CuPy's binding, in the same harness as ours: same
buffers, graph, clock and checks.

NCCL's own choice runs in the ranks that the group gives, like our kernels; what it is forced to
runs in new processes (gpu/child.py), one session for each set of variables.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from collbench.backends.base import GpuOptions, Peer, RankTiming, SessionOptions
from collbench.backends.gpu.rank import ExportedMemory, Graphs, Launches, stride_bytes
from collbench.backends.gpu.session import (
    START_S,
    GpuFacts,
    GpuRank,
    GpuSession,
    repeat_limit_s,
    why_no_gpus,
)
from collbench.backends.nccl.knobs import registration, why_waived
from collbench.device.card import load_cupy
from collbench.device.cupy_types import Nccl
from collbench.launch.group import Group, RankContext
from collbench.spec.case import Case, Problem
from collbench.spec.peers import forced_by
from collbench.util.errors import HangError, RefusedError, UnavailableError

NcclKey = tuple[Problem, int]  # what is launched, and how many sets of user buffers there are
_INTEGERS = {"int8": 0, "uint8": 1, "int32": 2, "int64": 4}
_FLOATS = {"float16": 6, "float32": 7, "float64": 8, "bfloat16": 9}
NCCL_TYPES = _INTEGERS | _FLOATS | {"float8_e4m3fn": 10, "float8_e5m2": 11}  # ncclDataType_t
NCCL_REDOPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}  # ncclRedOp_t


def load_nccl() -> Nccl:
    """CuPy's binding of NCCL. Raises UnavailableError."""
    load_cupy()
    try:
        from cupy.cuda import nccl

        is_available = getattr(nccl, "available", True)
    except ImportError:
        is_available = False
    if not is_available:
        raise UnavailableError(
            "CuPy finds no NCCL", "install it with: pip install 'collbench[cuda13]' (or [cuda12])"
        )
    return nccl


class NcclRank(GpuRank[NcclKey]):
    """One rank's part."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.comm: Nccl = None
        self.graphs: Graphs = {}
        self.graphs_of: Problem | None = None
        self._word: int | None = None

    def device(self, options: GpuOptions) -> GpuFacts:
        """Take this rank's GPU; what the driver wants to know of it."""
        facts = super().device(options)
        self.nccl = load_nccl()
        version, launch = self.nccl.get_version(), "stream" if options.isolated else options.launch
        variables = [
            f"{name}={value}"
            for name, value in sorted(os.environ.items())
            if name.startswith("NCCL_")
        ]
        text = f"{facts.version}; nccl {_version(version)}"
        return replace(
            facts,
            version=f"{text} with {' '.join(variables)}" if variables else text,
            buffers=registration(version, launch, os.environ),
        )

    def unique_id(self) -> Nccl:
        """What ranks find each other by; rank 0's counts."""
        return self.nccl.get_unique_id()

    def connect(
        self,
        exported: Sequence[ExportedMemory],
        timeout_s: float,
        is_peered: bool,
        hosts: Sequence[str],
    ) -> None:
        """Reach the others' memory, or leave it to NCCL where ranks are on several hosts."""
        self.gpu.connect(
            exported,
            timeout_s,
            self._assemble if self.options.is_spread else None,
            is_peered=is_peered,
        )

    def _assemble(self, stream: int) -> None:
        """Queue a collective that none can leave before all have come."""
        if self._word is None:
            self._word = self.gpu.keep("assembled", bytes(8))
        self.comm.allReduce(
            self._word, self._word, 1, NCCL_TYPES["int32"], NCCL_REDOPS["min"], stream
        )

    def join(self, unique_id: Nccl) -> None:
        """Make the communicator, with all others. Raises RefusedError."""
        try:
            self.comm = self.nccl.NcclCommunicator(self.context.n, unique_id, self.context.rank)
        except self.nccl.NcclError as error:
            raise _refusal("make a communicator", error) from None

    def _call(self, problem: Problem) -> Callable[[int, int, int], None]:
        """The library's function: (input, output, stream)."""
        comm, rank = self.comm, self.context.rank
        n, root, count, block = problem.n, problem.root, problem.block_count, problem.block_bytes
        kind, op = NCCL_TYPES[problem.dtype], NCCL_REDOPS[problem.redop]
        start, end = self.nccl.groupStart, self.nccl.groupEnd

        def exchange(
            sends: Sequence[tuple[int, int]], receives: Sequence[tuple[int, int]]
        ) -> Callable[[int, int, int], None]:
            def run(source: int, target: int, stream: int) -> None:
                start()
                for peer, offset in sends:
                    comm.send(source + offset, count, kind, peer, stream)
                for peer, offset in receives:
                    comm.recv(target + offset, count, kind, peer, stream)
                end()

            return run

        everyone = [(peer, peer * block) for peer in range(n)]
        calls: dict[str, Callable[[int, int, int], None]] = {
            "allreduce": lambda a, b, stream: comm.allReduce(a, b, count, kind, op, stream),
            "allgather": lambda a, b, stream: comm.allGather(a, b, count, kind, stream),
            "reducescatter": lambda a, b, stream: comm.reduceScatter(a, b, count, kind, op, stream),
            "broadcast": lambda a, b, stream: comm.broadcast(a, b, count, kind, root, stream),
            "reduce": lambda a, b, stream: comm.reduce(a, b, count, kind, op, root, stream),
            "alltoall": exchange(everyone, everyone),
            "gather": exchange([(root, 0)], everyone if rank == root else []),
            "scatter": exchange(everyone if rank == root else [], [(root, 0)]),
            "sendrecv": exchange([((rank + 1) % n, 0)], [((rank - 1) % n, 0)]),
        }
        return calls[problem.op]

    def _queue(
        self, problem: Problem, call: Callable[[int, int, int], None], number: int, stream: int
    ) -> None:
        """Queue one collective. Raises RefusedError."""
        source, _ = self.gpu.buffer(problem, "in", number)
        target, _ = self.gpu.buffer(problem, "out", number)
        if self.options.inject == "drop" and self.context.rank == 0:
            return
        try:
            call(source, target, stream)
        except self.nccl.NcclError as error:
            raise _refusal(f"do {problem.op}", error) from None

    def first(self, key: NcclKey, is_checked: bool) -> RankTiming:
        """Run every set of buffers once and compare."""
        if self.options.inject == f"die:{self.context.rank}":
            os.kill(os.getpid(), 9)
        return super().first(key, is_checked)

    def _launches(self, key: NcclKey) -> Launches:
        """The library's collective."""
        problem, sets = key
        return Launches(
            gpu=self.gpu,
            problem=problem,
            queue=partial(self._queue, problem, self._call(problem)),
            sets=sets,
            wait=self._wait,
            graphs=self._graphs(problem),
        )

    def _graphs(self, problem: Problem) -> Graphs:
        """The graphs of that problem; those of others are forgotten."""
        if self.graphs_of != problem:
            self.graphs, self.graphs_of = {}, problem
        return self.graphs

    def _wait(self, work_s: float) -> None:
        try:
            self.gpu.wait(repeat_limit_s(self.gpu.timeout_s) + work_s)
        except HangError:
            # NCCL's kernels have no deadline: without this the GPU could not even give memory back
            with suppress(self.nccl.NcclError):
                self.comm.abort()
            raise

    def close(self) -> None:
        """Give memory back; graphs before the communicator, which waits for those that hold its
        launches.
        """
        self.graphs.clear()
        if self.comm is not None:
            with suppress(self.nccl.NcclError):
                self.comm.destroy()
        super().close()


def _refusal(what: str, error: Exception) -> RefusedError:
    """An error of NCCL as ours."""
    return RefusedError(
        f"NCCL does not {what}: {error}", "with NCCL_DEBUG=WARN in the environment it says why"
    )


def _version(number: int) -> str:
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


class NcclSession(GpuSession[Case, NcclKey, NcclRank]):
    """Drives the ranks of the library's collectives. All its cases have the same forced_by()."""

    def __init__(
        self, group: Group, cases: Sequence[Case], *, hot: bool, options: GpuOptions
    ) -> None:
        variables = forced_by(cases[0])
        super().__init__(
            group, NcclRank, cases[0].ranks, hot=hot, options=options, variables=variables
        )
        self._notes = (
            self.facts[0].buffers,
            *(("processes",) if variables and group.kind == "local" else ()),
        )
        with self._opening():
            problems = [case.problem() for case in cases]
            self._share_memory(
                0, max(stride_bytes(problem) * self._sets(problem) for problem in problems)
            )
            unique_id = self._workers.call(NcclRank.unique_id, timeout_s=START_S)[0]
            self._workers.call(NcclRank.join, unique_id, timeout_s=START_S)

    def _loaded(self, case: Case) -> tuple[NcclKey, Problem, int]:
        problem = case.problem()
        sets = self._sets(problem)
        return (problem, sets), problem, sets


class NcclBackend(Peer):
    """The NCCL that CuPy finds."""

    name = "nccl"
    is_gpu = True

    def why_not(self, group: Group) -> str:
        if why := why_no_gpus():
            return why
        try:
            load_nccl()
        except UnavailableError as error:
            return error.message
        return ""

    def why_waived(self, case: Case, is_reduction: bool) -> str:
        return why_waived(case)

    def open(self, group: Group, cases: Sequence[Case], options: SessionOptions) -> NcclSession:
        return NcclSession(group, cases, hot=options.hot, options=options.gpu)


BACKEND = NcclBackend()
