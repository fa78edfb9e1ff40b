"""The gloo backend: PyTorch's process group on CPUs, timed by the same harness, as the peer of ours
and of MPI.
"""

import mmap
import os
import tempfile
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from collbench.backends.base import Peer, SessionOptions
from collbench.backends.library import Call, LibraryRank, LibrarySession, private_bytes, why_lacking
from collbench.backends.torch.process_group import (
    INSTALL_HINT,
    REDOPS,
    START_S,
    Calls,
    join,
    load_torch,
)
from collbench.core.case import Case, Problem
from collbench.launch.group import Group, RankContext

if TYPE_CHECKING:
    from collbench.core.dtypes import Array

GLOO_TYPES = (*("int8", "uint8", "int32", "int64"), *("float16", "bfloat16", "float32", "float64"))
GLOO_REDOPS = tuple(name for name in REDOPS if name != "avg")


class GlooRank(LibraryRank):
    """One rank's part."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.torch, self.group = load_torch()
        self.torch.set_num_threads(1)  # ranks share the cores
        self.calls = Calls(
            torch=self.torch, group=self.group, rank=self.rank, keeps_input=False, has_batches=False
        )
        self.is_joined = False

    def join(self, meeting: str) -> None:
        """Make the process group with all others, which find each other by a file."""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        join(self.group, "gloo", meeting, self.rank, self.n)
        self.is_joined = True

    def describe(self) -> str:
        switches = [
            f"{name}={value}" for name, value in sorted(os.environ.items()) if "GLOO_" in name
        ]
        return " ".join([f"torch {self.torch.__version__}", *switches])

    def _meet(self) -> None:
        self.group.barrier()

    def _call(self, problem: Problem, source: "Array", target: "Array") -> Call:
        give, take = (self.torch.from_numpy(one.view(np.uint8)) for one in (source, target))
        return self.calls.of(problem, give, take)

    def close(self) -> None:
        if self.is_joined:
            self.group.destroy_process_group()


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
            begin = partial(workers.call, GlooRank.join, f"{folder}/meeting", timeout_s=START_S)
            super().__init__(workers, hot=hot, start_s=START_S, begin=begin)


class GlooBackend(Peer):
    """The PyTorch of this installation."""

    name = "gloo"

    def why_not(self, group: Group) -> str:
        if find_spec("torch") is None:
            return f"PyTorch is not installed; {INSTALL_HINT}"
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
