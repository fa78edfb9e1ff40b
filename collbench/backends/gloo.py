"""The gloo backend: PyTorch's process group on CPUs, timed by the same harness, as the peer of ours
and of MPI.

PyTorch reduces and broadcasts in place. Out of place these calls are preceded by a copy, which
`--placement in` has not.
"""

import mmap
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from collbench.backends.base import Peer, SessionOptions
from collbench.backends.library import Call, LibraryRank, LibrarySession, private_bytes, why_lacking
from collbench.launch.group import Group, RankContext
from collbench.spec.case import Case, Problem
from collbench.spec.collectives import collective

if TYPE_CHECKING:
    from collbench.spec.dtypes import Array

START_S = 120.0  # for all ranks to load PyTorch and to meet
GLOO_TYPES = (*("int8", "uint8", "int32", "int64"), *("float16", "bfloat16", "float32", "float64"))
GLOO_REDOPS = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX"}
_INSTALL_HINT = "install it with: pip install 'collbench[torch]'"


class GlooRank(LibraryRank):
    """One rank's part."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        # loading is long, and looks for devices that are not meant
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch
            from torch import distributed

        torch.set_num_threads(1)  # ranks share the cores
        self.torch: Any = torch
        self.dist: Any = distributed
        self.is_joined = False

    def join(self, meeting: str) -> None:
        """Make the process group with all others, which find each other by a file."""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self.dist.init_process_group(
            "gloo",
            store=self.dist.FileStore(meeting, self.n),
            rank=self.rank,
            world_size=self.n,
            timeout=timedelta(seconds=START_S),
        )
        self.is_joined = True

    def describe(self) -> str:
        switches = [
            f"{name}={value}" for name, value in sorted(os.environ.items()) if "GLOO_" in name
        ]
        return " ".join([f"torch {self.torch.__version__}", *switches])

    def _meet(self) -> None:
        self.dist.barrier()

    def _call(self, problem: Problem, source: "Array", target: "Array") -> Call:
        dist, n, root = self.dist, problem.n, problem.root
        is_root, kind = self.rank == root, problem.dtype
        reduces = collective(problem.op).is_reduction

        def tensor(buffer: "Array") -> Any:
            raw = self.torch.from_numpy(buffer.view(np.uint8))
            return raw.view(getattr(self.torch, kind)) if reduces else raw

        give, take = tensor(source), tensor(target)
        op = getattr(dist.ReduceOp, GLOO_REDOPS.get(problem.redop, "SUM"))

        def with_copy(call: Callable[..., object], *args: object) -> Call:
            """A call that works on the output, which has the input first."""
            if problem.in_place or not len(source):
                return call, (take, *args)

            def run() -> None:
                take.copy_(give)
                call(take, *args)

            return run, ()

        gives, takes = (list(one.chunk(n)) if len(one) else None for one in (give, take))
        after, before = (self.rank + 1) % n, (self.rank - 1) % n

        def exchange() -> None:
            sending = dist.isend(give, after)
            dist.recv(take, before)
            sending.wait()

        def reduce() -> Call:
            # PyTorch writes its partial sums over what the others give
            if is_root:
                return with_copy(dist.reduce, root, op)
            scratch = self.torch.empty_like(give)

            def run() -> None:
                scratch.copy_(give)
                dist.reduce(scratch, root, op)

            return run, ()

        calls: dict[str, Callable[[], Call]] = {
            "allreduce": lambda: with_copy(dist.all_reduce, op),
            "broadcast": lambda: with_copy(dist.broadcast, root),
            "reduce": reduce,
            "allgather": lambda: (self._single("all_gather"), (take, give)),
            "reducescatter": lambda: (self._single("reduce_scatter"), (take, give, op)),
            "alltoall": lambda: (dist.all_to_all_single, (take, give)),
            "gather": lambda: (dist.gather, (give, takes if is_root else None, root)),
            "scatter": lambda: (dist.scatter, (take, gives if is_root else None, root)),
            "sendrecv": lambda: (exchange, ()),
        }
        return calls[problem.op]()

    def _single(self, name: str) -> Callable[..., object]:
        """A function on whole tensors, by its new name or the one that it had."""
        old = {"all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor"}
        found: Callable[..., object] = getattr(
            self.dist, f"{name}_single" if hasattr(self.dist, f"{name}_single") else old[name]
        )
        return found

    def close(self) -> None:
        if self.is_joined:
            self.dist.destroy_process_group()


class GlooSession(LibrarySession):
    """Drives the ranks of PyTorch's collectives."""

    def __init__(self, group: Group, cases: Sequence[Case], *, hot: bool) -> None:
        n = cases[0].ranks
        with tempfile.TemporaryDirectory(prefix="collbench-gloo-") as folder:
            workers = (
                group.shared_workers(GlooRank, n, mmap.PAGESIZE)
                if group.kind == "local"
                else group.mpi_workers(GlooRank, n)
            )
            try:
                workers.call(GlooRank.join, f"{folder}/meeting", timeout_s=START_S)
            except BaseException:
                workers.close()
                raise
        super().__init__(workers, hot=hot, start_s=START_S)


class GlooBackend(Peer):
    """The PyTorch of this installation."""

    name = "gloo"

    def why_not(self, group: Group) -> str:
        if find_spec("torch") is None:
            return f"PyTorch is not installed; {_INSTALL_HINT}"
        if len(set(group.hosts)) > 1:
            return "Gloo is measured on one host"
        return ""

    def why_waived(self, case: Case, is_reduction: bool) -> str:
        return why_lacking("Gloo", case, GLOO_REDOPS, GLOO_TYPES, is_reduction=is_reduction)

    def private_bytes(self, case: Case, *, hot: bool) -> int:
        return private_bytes(case, hot=hot)

    def open(self, group: Group, cases: Sequence[Case], options: SessionOptions) -> GlooSession:
        return GlooSession(group, cases, hot=options.hot)


BACKEND = GlooBackend()
