"""The local group: this host, no launcher. Ranks that share memory are forked around one anonymous
mapping; ranks of MPI are started by mpirun.
"""

import gc
import mmap
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from collbench.core.errors import UnavailableError
from collbench.core.group import GroupKind, Rank, RankContext, RankT, WorkerGroup
from collbench.core.host import host_name, memory_left_bytes, shortage
from collbench.core.launcher import INTERRUPTIONS, launcher
from collbench.core.units import format_size
from collbench.launch.driver import Driver, ServedGroup
from collbench.launch.guardian import launcher_above
from collbench.launch.processes import LOST_S, descendants, die_with_parent, parent_of
from collbench.launch.server import serve

MAP_NORESERVE = 0x4000  # Linux: pages count when they are touched, not when they are mapped


def own_processes() -> frozenset[int]:
    """The processes of this run on this host: this one, those above and below it, and all that its
    launcher has here.
    """
    own = {os.getpid(), *descendants(os.getpid())}
    above = os.getpid()
    while (above := parent_of(above)) > 0:
        own.add(above)
    started = launcher()
    if started is not None:
        own.update(descendants(launcher_above(os.getpid(), started.vendor)))
    return frozenset(own)


class LocalGroup:
    """Ranks on this host, as many as a worker group needs."""

    kind: GroupKind = "local"
    library = ""
    ranks = rank = 0

    def __init__(self, timeout_s: float = LOST_S) -> None:
        self._timeout_s = timeout_s
        self.hosts: Sequence[str] = (host_name(),)

    def shared_workers(self, rank: type[RankT], n: int, arena_bytes: int) -> WorkerGroup[RankT]:
        """N forked ranks around one anonymous shared mapping, which ends with the last of them."""
        return _ForkedWorkerGroup(rank, n, arena_bytes)

    def mpi_workers(self, rank: type[RankT], n: int) -> WorkerGroup[RankT]:
        """N ranks started by mpirun."""
        from collbench.launch.mpirun import MpirunWorkerGroup

        return MpirunWorkerGroup(rank, n, self._timeout_s)

    def gpu_workers(self, rank: type[RankT], n: int) -> WorkerGroup[RankT]:
        """N threads of this process, each with a GPU of its own."""
        from collbench.launch.threads import ThreadWorkerGroup

        return ThreadWorkerGroup(rank, n)

    def serve(self) -> int:
        """Nothing: this process is the only one that drives."""
        return 0

    def abort(self, exit_code: int) -> None:
        """Nothing: the ranks end with their worker groups."""

    def shared_bytes_left(self) -> int:
        """Shared memory that a worker group can still have."""
        return memory_left_bytes()

    def close(self, exit_code: int) -> None:
        """Nothing is held: worker groups close themselves."""


class _ForkedWorkerGroup(ServedGroup[RankT]):
    """Forked processes. Start it before any thread: a child has the calling thread alone."""

    def __init__(self, rank: type[RankT], n: int, arena_bytes: int) -> None:
        left = memory_left_bytes()
        if arena_bytes > left:
            raise UnavailableError(
                f"the ranks need {format_size(arena_bytes >> 20 << 20)} of shared memory,"
                f" {left >> 20}M are left",
                "use smaller sizes, fewer ranks or a smaller --buffsize",
            )
        try:
            self._arena = mmap.mmap(
                -1,
                max(arena_bytes, mmap.PAGESIZE),
                flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | MAP_NORESERVE,
            )
        except OSError as error:
            raise UnavailableError(
                f"cannot map {arena_bytes >> 20}M of shared memory: {error.strerror}",
                "use smaller sizes or fewer ranks",
            ) from None
        sys.stdout.flush()
        sys.stderr.flush()
        fork = multiprocessing.get_context("fork")
        self._processes: list[BaseProcess] = []
        ends: list[Connection] = []
        gc.freeze()  # a rank's collector leaves alone, and so shares, what it inherits
        try:
            for number in range(n):
                mine, theirs = fork.Pipe()
                ends.append(mine)
                with theirs, _no_interrupt():
                    process = fork.Process(
                        target=_rank_main,
                        args=(rank, number, n, self._arena, theirs, ends, os.getpid()),
                        daemon=True,
                    )
                    process.start()
                self._processes.append(process)
        except BaseException as error:
            self._end(ends)
            if not isinstance(error, OSError):
                raise
            raise UnavailableError(
                f"cannot start rank {len(self._processes)} of {n}: {shortage(error)}",
                "use fewer --ranks, or raise the limit",
            ) from None
        finally:
            gc.unfreeze()
        pids = [process.pid or 0 for process in self._processes]
        self._driver = Driver(ends, pids, self._exit_code, self._abort)

    def _exit_code(self, rank: int) -> int | None:
        self._processes[rank].join(timeout=0.2)
        return self._processes[rank].exitcode

    def _abort(self) -> None:
        self._arena[0] = 1

    def _call(self, method: str, args: tuple[object, ...], timeout_s: float) -> list[object]:
        return self._driver.call(method, args, timeout_s)

    def close(self) -> None:
        self._end(self._driver.connections)

    def _end(self, connections: Sequence[Connection]) -> None:
        """End the ranks that were started."""
        self._abort()
        for connection in connections:
            connection.close()
        for process in self._processes:
            # nothing of theirs is worth saving, and a stopped process obeys nothing else
            process.kill()
        while self._processes:
            process = self._processes.pop()
            process.join()
            process.close()  # its pipes, which a cycle of references would keep


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Hold Ctrl-C and its like back here, and for good in what is forked meanwhile: the driver
    decides what becomes of its ranks.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTIONS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _rank_main(
    rank: type[Rank],
    number: int,
    n: int,
    arena: mmap.mmap,
    mine: Connection,
    others: Sequence[Connection],
    parent: int,
) -> None:
    die_with_parent(parent)
    for connection in others:
        connection.close()
    serve(mine, rank(RankContext(rank=number, n=n, arena=memoryview(arena))))
    os._exit(0)
