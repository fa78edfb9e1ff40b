"""The mpi backend: the MPI library's own collective, timed by the same harness, as the peer of
ours. User buffers are in host memory, or in GPU memory beside backends of GPUs.
"""

from collections.abc import Sequence
from importlib.util import find_spec

from collbench.backends.base import Peer, SessionOptions
from collbench.backends.library import LibrarySession, private_bytes, why_lacking
from collbench.backends.mpi.gpu import MpiGpuSession
from collbench.backends.mpi.rank import DESCRIBE_S, MPI_REDOPS, MPI_TYPES, MpiRank
from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.group import Group
from collbench.core.launcher import INSTALL_HINT


class MpiBackend(Peer):
    """The MPI library that mpi4py finds."""

    name = "mpi"

    def why_not(self, group: Group) -> str:
        return "" if find_spec("mpi4py") is not None else f"mpi4py is not installed; {INSTALL_HINT}"

    def why_waived(self, case: Case, is_reduction: bool) -> str:
        if why := why_lacking(
            "MPI", case, MPI_REDOPS, MPI_TYPES, is_reduction=is_reduction, has_uneven=True
        ):
            return why
        if collective(case.op).even == "reducescatter" and case.in_place:
            return "MPI's in-place reduce-scatter leaves the result elsewhere"
        return ""

    def private_bytes(self, case: Case, *, hot: bool) -> int:
        return 0 if _is_on_gpus(case) else private_bytes(case, hot=hot)

    def open(self, group: Group, cases: Sequence[Case], options: SessionOptions) -> LibrarySession:
        if _is_on_gpus(cases[0]):
            return MpiGpuSession(group, cases, hot=options.hot, options=options.gpu)
        workers = group.mpi_workers(MpiRank, cases[0].ranks)
        return LibrarySession(workers, hot=options.hot, start_s=DESCRIBE_S)


def _is_on_gpus(case: Case) -> bool:
    return case.buffers == "gpu"


BACKEND = MpiBackend()
