"""The mpi group: this process is one rank of several, under mpirun, mpiexec or srun. Rank 0 drives,
all ranks (0 too) serve.

Calls and replies are small MPI messages that are polled for, never waited for blindly: a rank that
is stopped or lost is noticed within a deadline, and then MPI_Abort ends what is left.
"""

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collbench.core.errors import UnavailableError
from collbench.core.group import GroupKind, Rank, RankContext, RankT, WorkerGroup
from collbench.core.launcher import Launcher, described_library, load_mpi
from collbench.core.mpi_types import MpiModule
from collbench.core.units import format_size
from collbench.launch.driver import (
    EXTENSIONS,
    MESSAGE_S,
    ServedGroup,
    collect,
    errors_of,
    rank_lost,
    results_of,
)
from collbench.launch.guardian import SILENT_S
from collbench.launch.heartbeat import BEAT_S
from collbench.launch.processes import LOST_S, RUNS
from collbench.launch.server import Reply, perform, rank_class, rank_name
from collbench.launch.watchdog import TOGETHER_S, end_all, watchdog_of

_CALL_TAG, _ANSWER_TAG = 71, 72
_IDLE_S = 0.0005  # between two looks for a message, after a burst of looks without one
_BURST = 200
_LOOK_S = 1.0
DRIVER_STOPPED_S = 10.0  # how long rank 0 may be stopped before its ranks give up
_SMALLER = (
    "use smaller sizes or a smaller --buffsize, or raise the limit: docker run --shm-size=8g, or"
    " mount -o remount,size=8g /dev/shm"
)


@dataclass(frozen=True, slots=True)
class OpenRank:
    """Ask every rank to make its part of a backend, with so much shared memory on each host."""

    part: str
    rank: str  # the name of its class (see rank_name)
    arena_bytes: int


@dataclass(frozen=True, slots=True)
class RankCall:
    """Ask every rank to run a method of that part."""

    part: str
    method: str
    args: tuple[object, ...]


class MpiGroup:
    """All ranks of the launcher's world. Rank 0 makes worker groups; the others call serve()."""

    kind: GroupKind = "mpi"

    def __init__(self, started: Launcher, timeout_s: float = LOST_S) -> None:
        self.watchdog = watchdog_of(started)
        self.watchdog.start(timeout_s)
        self._mpi = load_mpi(started)
        self.library = described_library(self._mpi.Get_library_version())
        self.comm = self._mpi.COMM_WORLD
        self.rank, self.ranks = self.comm.Get_rank(), self.comm.Get_size()
        self.watchdog.join(self.comm)
        self.hosts: Sequence[str] = self.watchdog.hosts
        if len(set(self.hosts)) > 1 and self._mpi.Query_thread() < self._mpi.THREAD_MULTIPLE:
            self.watchdog.leave_mpi(self._mpi)
            raise UnavailableError(
                "on several hosts the heartbeat needs MPI's thread level multiple",
                "unset MPI4PY_RC_THREAD_LEVEL",
            )
        self.open_parts: set[str] = set()  # of worker groups that are not closed
        self._parts: dict[str, Rank] = {}
        self._arenas: dict[str, memoryview] = {}
        self._windows: dict[str, MpiModule] = {}

    def shared_workers(self, rank: type[RankT], n: int, arena_bytes: int) -> WorkerGroup[RankT]:
        """All ranks, those of each host around an MPI shared window."""
        needed, free = arena_bytes, _shm_free()
        if needed > free:
            raise UnavailableError(
                f"the ranks need {format_size(needed >> 20 << 20)} of shared memory, /dev/shm has"
                f" {free >> 20}M left",
                _SMALLER,
            )
        return _MpiWorkerGroup(self, rank, arena_bytes)

    def mpi_workers(self, rank: type[RankT], n: int) -> WorkerGroup[RankT]:
        """All ranks, without shared memory."""
        return _MpiWorkerGroup(self, rank, 0)

    def gpu_workers(self, rank: type[RankT], n: int) -> WorkerGroup[RankT]:
        """All ranks; each takes the GPU of its number on its host."""
        return self.mpi_workers(rank, n)

    def shared_bytes_left(self) -> int:
        """Shared memory that a worker group can still have."""
        return _shm_free()

    def await_fate(self, silent: Sequence[int]) -> None:
        """Wait until one of the ranks that do not answer is known to be lost, if one is of another
        host: that it is cut off is known when several heartbeats did not come.
        """
        is_far = any(self.hosts[rank] != self.hosts[self.rank] for rank in silent)
        deadline = time.monotonic() + SILENT_S + BEAT_S
        while is_far and time.monotonic() < deadline:
            if any(self.watchdog.fate(rank) != RUNS for rank in silent):
                break
            time.sleep(_LOOK_S)

    def close(self, exit_code: int) -> None:
        """Rank 0: let the others leave with that exit code, and leave MPI with them."""
        with self.watchdog.guarded(), self.watchdog.together("the others to leave"):
            for rank in range(1, self.ranks):
                self.comm.isend(exit_code, rank, _CALL_TAG).wait()
            self._leave()
        self.watchdog.end()

    def abort(self, exit_code: int) -> None:
        """End every rank now. Does not return."""
        end_all(self.comm, exit_code)

    def serve(self) -> int:
        """Ranks other than 0: answer calls until rank 0 says it is over; returns the exit code.
        Ends all ranks with 4 if rank 0 is lost.
        """
        with self.watchdog.guarded():
            while not isinstance(message := self._next_call(), int):
                answer = self.perform(message)
                with self.watchdog.limit("rank 0 to take an answer", MESSAGE_S + DRIVER_STOPPED_S):
                    self.comm.isend(answer, 0, _ANSWER_TAG).wait()
            self._leave()
        self.watchdog.end()
        return message

    def _leave(self) -> None:
        with self.watchdog.limit("its own GPU and libraries to let go", TOGETHER_S):
            for part in self._parts.values():
                part.close()
            self._parts.clear()
        self._arenas.clear()
        with self.watchdog.together("all ranks to leave MPI"):
            for name in list(self._windows):
                self._free(name)
        self.watchdog.leave_mpi(self._mpi)

    def _next_call(self) -> OpenRank | RankCall | int:
        looks, looked_at = 0, time.monotonic()
        stopped_since = None
        while not self.comm.iprobe(source=0, tag=_CALL_TAG):
            looks += 1
            if looks < _BURST:
                continue
            time.sleep(_IDLE_S)
            now = time.monotonic()
            if now - looked_at < _LOOK_S:
                continue
            looked_at = now
            fate = self.watchdog.fate(0)
            stopped_since = (stopped_since or now) if fate != RUNS else None
            # where a host is cut off, rank 0 hears others and knows which: it is to speak first
            is_far = self.hosts[self.rank] != self.hosts[0]
            patience_s = DRIVER_STOPPED_S + SILENT_S * is_far
            if stopped_since is not None and now - stopped_since > patience_s:
                self.watchdog.leave(f"waited {patience_s:.0f} s for rank 0, which {fate}")
        with self.watchdog.limit("the rest of a call of rank 0", MESSAGE_S + DRIVER_STOPPED_S):
            message: OpenRank | RankCall | int = self.comm.recv(source=0, tag=_CALL_TAG)
            return message

    def perform(self, message: OpenRank | RankCall) -> Reply:
        """Do what rank 0 asks of this rank."""
        if isinstance(message, RankCall):
            fatal = (self._mpi.Exception,)
            return perform(self._parts[message.part], message.method, message.args, fatal)
        arena_bytes = message.arena_bytes
        if message.part in self._parts:
            self._parts.pop(message.part).close()
        with self.watchdog.together("all ranks to open shared memory"):
            self._free(message.part)  # MPICH 5 waits for ever for the tenth one that is open
            least = min(self.comm.allgather(_shm_free())) if arena_bytes else 0
            if arena_bytes > least:  # each rank comes to the same
                return Reply(
                    error=UnavailableError(
                        f"the ranks need {format_size(arena_bytes)} of shared memory, a host has"
                        f" {least >> 20}M left",
                        _SMALLER,
                    )
                )
            arena = self._allocate(message.part, arena_bytes) if arena_bytes else None
        if arena is not None:
            self._arenas[message.part] = arena
        context = RankContext(
            rank=self.rank,
            n=self.ranks,
            local_rank=self.hosts[: self.rank].count(self.hosts[self.rank]),
            arena=arena,
            comm=self.comm,
            watchdog=self.watchdog,
        )
        with self.watchdog.together("all ranks to open the backend"):
            self._parts[message.part] = rank_class(message.rank)(context)
        return Reply()

    def abort_waits(self) -> None:
        """Tell ranks that wait in shared memory, or for messages, to give up."""
        for arena in self._arenas.values():
            arena[0] = 1
        for part in self._parts.values():
            part.abort()

    def _allocate(self, name: str, arena_bytes: int) -> memoryview:
        """One shared window of each host, in its first rank's memory, for a part."""
        here = self.comm.Split(self.hosts.index(self.hosts[self.rank]), self.rank)
        window = self._mpi.Win.Allocate_shared(
            arena_bytes if here.Get_rank() == 0 else 0, 1, comm=here
        )
        here.Free()
        # nobody locks it otherwise; where MPICH 5 checks that, it may not unlock one of several
        window.Lock_all(self._mpi.MODE_NOCHECK)
        self._windows[name] = window
        return memoryview(window.Shared_query(0)[0]).cast("B")

    def _free(self, name: str) -> None:
        """Give the shared window of a part back, if it has one."""
        self._arenas.pop(name, None)
        if (window := self._windows.pop(name, None)) is not None:
            window.Unlock_all()
            window.Free()


class _MpiWorkerGroup(ServedGroup[RankT]):
    """Rank 0's side: send a call to all others, do its own share, collect the answers. Its part of
    each rank has a name that no other open worker group has, even of the same class of ranks.
    """

    def __init__(self, group: MpiGroup, rank: type[RankT], arena_bytes: int) -> None:
        self._group, name = group, rank_name(rank)
        names = (f"{name} {number}" for number in itertools.count())
        self._part = next(part for part in names if part not in group.open_parts)
        group.open_parts.add(self._part)
        self.fate, self.abort = group.watchdog.fate, group.abort_waits
        with group.watchdog.guarded():
            self._exchange(
                OpenRank(self._part, name, arena_bytes),
                "its own part of opening a backend",
                TOGETHER_S,
            )

    def _call(self, method: str, args: tuple[object, ...], timeout_s: float) -> list[object]:
        what = f"its own part of the call {method}"
        with self._group.watchdog.guarded():
            return self._exchange(RankCall(self._part, method, args), what, timeout_s)

    def _exchange(self, message: OpenRank | RankCall, what: str, timeout_s: float) -> list[object]:
        group, comm = self._group, self._group.comm
        requests = [comm.isend(message, rank, _CALL_TAG) for rank in range(1, group.ranks)]
        deadline = time.monotonic() + timeout_s
        # a list: every request is tested each time
        while not all([r.test()[0] for r in requests]) and time.monotonic() < deadline:  # noqa: C419
            os.sched_yield()
        # as long as for others that run
        with group.watchdog.limit(what, (1 + EXTENSIONS) * timeout_s):
            replies: dict[int, Reply] = {0: group.perform(message)}
        if silent := collect(replies, range(1, group.ranks), self, timeout_s):
            group.await_fate(silent)
            fates = [f"rank {rank} {self.fate(rank)}" for rank in silent]
            raise rank_lost(fates, errors_of(replies))
        return results_of(replies)

    def receive(self, ranks: Sequence[int], _: float) -> Iterator[tuple[int, Reply]]:
        """What has come from these ranks."""
        time.sleep(_IDLE_S / 10)  # a core that rank 0 keeps busy is one that the others lack
        for rank in ranks:
            if self._group.comm.iprobe(source=rank, tag=_ANSWER_TAG):
                what = f"the rest of the answer of rank {rank}"
                with self._group.watchdog.limit(what, MESSAGE_S + DRIVER_STOPPED_S):
                    reply: Reply = self._group.comm.recv(source=rank, tag=_ANSWER_TAG)
                yield rank, reply

    def close(self) -> None:
        """The part lives on until another is opened in its place, or to the end of the group:
        windows are freed together.
        """
        self._group.open_parts.discard(self._part)


def _shm_free() -> int:
    status = os.statvfs("/dev/shm")
    return status.f_bavail * status.f_frsize
