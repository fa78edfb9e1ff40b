"""One rank of the MPI library's own collectives, on user buffers in the memory of its host."""

from typing import Any, Literal

from collbench.backends.library import Call, LibraryRank
from collbench.backends.repeat import shortest_flag_s
from collbench.core.case import Problem
from collbench.core.group import RankContext
from collbench.core.launcher import described_library

DESCRIBE_S = 10.0  # until all ranks have named their library
MPI_TYPES = {
    "int8": "INT8_T",
    "uint8": "UINT8_T",
    "int32": "INT32_T",
    "int64": "INT64_T",
    "float32": "FLOAT",
    "float64": "DOUBLE",
}
MPI_REDOPS = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}


class MpiRank(LibraryRank):
    """One rank's part: private buffers and prepared calls."""

    def __init__(self, context: RankContext) -> None:
        from mpi4py import MPI

        super().__init__(context)
        assert self.watchdog is not None
        self.mpi, self.comm = MPI, context.comm

    def describe(self) -> str:
        """The library, its version and its switches."""
        return described_library(self.mpi.Get_library_version())

    def _meet(self) -> None:
        self.comm.Barrier()

    def flag(self, limit_s: float) -> float:
        """Seconds of the barrier of two ranks; the last of an odd number is alone."""
        with self._limit("barrier", limit_s):
            pair = self.comm.Split(self.rank // 2)
            seconds = shortest_flag_s(pair.Barrier)
            pair.Free()
        return seconds

    def _call(self, problem: Problem, source: Any, target: Any) -> Call:
        """The library's function for a problem and its arguments: the bytes of input and output."""
        comm, root = self.comm, problem.root
        kind = getattr(self.mpi, MPI_TYPES.get(problem.dtype, "BYTE"))
        width = 1 if problem.dtype in MPI_TYPES else problem.item_bytes
        is_root, block = self.rank == root, problem.block_count * width

        def spec(buffer: Any) -> list[object]:
            return [buffer, len(buffer) // problem.item_bytes * width, kind]

        give, take = spec(source), spec(target)
        give_each, take_each = ([buffer, block, kind] for buffer in (source, target))
        own = self.mpi.IN_PLACE if problem.in_place else give
        kept = self.mpi.IN_PLACE if problem.in_place else take
        op = getattr(self.mpi, MPI_REDOPS.get(problem.redop, "SUM"))
        if problem.op == "broadcast":
            if is_root and not problem.in_place:
                return self._broadcast_from, (source, target, give, root)
            return comm.Bcast, (take, root)
        if problem.counts:
            return self._uneven_call(problem, source, target, kind, width)
        after, before = (self.rank + 1) % problem.n, (self.rank - 1) % problem.n
        to_root = (own, take_each) if is_root else (give, None)
        from_root = (give_each, kept) if is_root else (None, take)
        calls: dict[str, Call] = {
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

    def _uneven_call(
        self, problem: Problem, source: Any, target: Any, kind: Any, width: int
    ) -> Call:
        """As _call(), of blocks that may be unequal."""

        def spec(buffer: Any, which: Literal["in", "out"]) -> list[object]:
            *firsts, _ = (first * width for first in problem.block_firsts(which, self.rank))
            sizes = [size * width for size in problem.block_counts(which, self.rank)]
            return [buffer, (sizes, firsts), kind]

        comm, give, take = self.comm, spec(source, "in"), spec(target, "out")
        mine = [source, len(source) // problem.item_bytes * width, kind]
        own = self.mpi.IN_PLACE if problem.in_place else mine
        op = getattr(self.mpi, MPI_REDOPS.get(problem.redop, "SUM"))
        calls: dict[str, Call] = {
            "allgatherv": (comm.Allgatherv, (own, take)),
            "reducescatterv": (
                comm.Reduce_scatter,
                ([source, kind], [target, kind], list(problem.counts), op),
            ),
            "alltoallv": (comm.Alltoallv, (give, take)),
        }
        return calls[problem.op]

    def _broadcast_from(self, source: Any, target: Any, spec: list[object], root: int) -> None:
        """Out of place, the root's output is a copy that MPI_Bcast does not make."""
        self.comm.Bcast(spec, root)
        self._copy(source, target)

    def _copy(self, source: Any, target: Any) -> None:
        target[...] = source
