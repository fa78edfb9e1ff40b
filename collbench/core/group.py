"""Who the ranks are: `local` (this host, no launcher) or `mpi` (one rank a process, under mpirun,
mpiexec or srun).

A group makes worker groups. A worker group is one server a rank, each holding the rank's part of
one backend; the driver (the process without a launcher, or rank 0 under one) calls a method on all
of them and gets the results in rank order, or an error that says which rank failed.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, TypeVarTuple

from collbench.core.errors import CollbenchError
from collbench.core.mpi_types import Comm

GroupKind = Literal["local", "mpi"]


class CallLimit(Protocol):
    """What gives blocking calls a deadline (see launch/watchdog.py)."""

    def limit(self, what: str, deadline_s: float) -> AbstractContextManager[None]: ...
    def together(self, what: str, deadline_s: float) -> AbstractContextManager[None]: ...


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
    comm: Comm = None
    watchdog: CallLimit | None = None
    is_process: bool = False


class Rank(Protocol):
    """One rank's part of a backend, made where the rank runs. Its public methods are what the
    driver may call.

    faults: what its libraries raise when the device fails.
    """

    faults: tuple[type[Exception], ...] = ()

    def __init__(self, context: RankContext) -> None: ...

    def abort(self) -> None:
        """Make ranks that wait for messages of this one give up."""
        return

    def named(self, error: BaseException) -> CollbenchError | None:
        """What was raised in a call as an error that names its cause; None: that is unknown."""
        return None

    def close(self) -> None:
        """Give back what is held."""
        return


RankT = TypeVar("RankT", bound=Rank)
RankT_co = TypeVar("RankT_co", bound=Rank, covariant=True)
Result = TypeVar("Result")
Args = TypeVarTuple("Args")


class WorkerGroup(Protocol[RankT_co]):
    """One server a rank."""

    @abstractmethod
    def call(
        self, method: Callable[[RankT_co, *Args], Result], *args: *Args, timeout_s: float
    ) -> list[Result]:
        """Run a method of the rank's class on every rank; returns the results in rank order. It
        never waits past timeout_s.

        Raises what a rank raised, HangError if ranks wait for each other, RankLostError if one died
        or does not answer.
        """
        ...

    @abstractmethod
    def close(self) -> None:
        """End the ranks."""


class Group(Protocol):
    """Who the ranks are. ranks is 0 where the group can be of any size; rank is this process's;
    hosts names the host of every rank known now; library the MPI library that joins them, or none.
    """

    kind: GroupKind
    library: str
    ranks: int
    rank: int
    hosts: Sequence[str]

    def shared_workers(self, rank: type[RankT], n: int, arena_bytes: int) -> WorkerGroup[RankT]: ...

    def mpi_workers(self, rank: type[RankT], n: int) -> WorkerGroup[RankT]: ...

    def gpu_workers(self, rank: type[RankT], n: int) -> WorkerGroup[RankT]: ...

    def shared_bytes_left(self) -> int: ...

    def serve(self) -> int:
        """What a rank other than 0 does until the group is closed; returns the exit code."""
        ...

    def abort(self, exit_code: int) -> None:
        """End ranks that may never answer again, where they are not this process's own."""
        ...

    def close(self, exit_code: int) -> None: ...
