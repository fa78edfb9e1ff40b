"""Who the ranks are: `local` (this host, no launcher) or `mpi` (one rank a process, under mpirun,
mpiexec or srun).

A group makes crews. A crew is one server a rank, each holding the rank's part of one backend; the
driver (the process without a launcher, or rank 0 under one) calls a method on all of them and gets
the results in rank order, or an error that says which rank failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

GroupKind = Literal["local", "mpi"]


@dataclass(frozen=True, kw_only=True)
class RankContext:
    """What a rank's part of a backend is made from.

    local_rank: its number among the ranks of its host. `arena` is memory that all ranks share, or
    None; `comm` an MPI communicator, or None, and `watchdog` what watches over calls on it.
    is_process: every rank is a process of its own, though there is no communicator.
    """

    rank: int
    n: int
    local_rank: int = 0
    arena: memoryview | None = None
    comm: Any = None
    watchdog: Any = None
    is_process: bool = False


class WorkerGroup(Protocol):
    """One server a rank. call() runs a method on every rank and returns the results in rank order;
    it never waits past timeout_s.

    Raises what a rank raised, HangError if ranks wait for each other, RankLostError if one died or
    does not answer.
    """

    def call(self, method: str, *args: object, timeout_s: float) -> list[Any]: ...

    def close(self) -> None: ...


class Group(Protocol):
    """Who the ranks are. ranks is 0 where the group can be of any size; hosts names the host of
    every rank known now.
    """

    kind: GroupKind
    ranks: int
    hosts: Sequence[str]

    def shared_workers(self, backend: str, n: int, arena_bytes: int) -> WorkerGroup: ...

    def mpi_workers(self, backend: str, n: int) -> WorkerGroup: ...

    def gpu_workers(self, backend: str, n: int) -> WorkerGroup: ...

    def shared_bytes_left(self) -> int: ...

    def close(self, exit_code: int) -> None: ...
