"""A deadline for calls that have none of their own, as MPI's: past it this rank says who keeps it
waiting and ends all ranks.

Nothing else gets a process out of a blocking call of a C library. Who looks at the clock is another
process (see guardian.py).
"""

import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import lru_cache

from collbench.core.errors import HangError
from collbench.core.host import host_name
from collbench.core.launcher import Launcher, leave_mpi, memory_id
from collbench.core.mpi_types import Comm, MpiModule
from collbench.launch import guardian
from collbench.launch.cleaner import mapped_files
from collbench.launch.guardian import GuardedWait, GuardedWorld, Page
from collbench.launch.heartbeat import Heartbeat
from collbench.launch.processes import LOST_S

TOGETHER_S = 30.0  # for what all ranks do together, while all seem to run
START_S = 120.0  # until all ranks, which may load Python from a slow disk, have initialised MPI
_END_S = 6.0  # for a last message, and for MPI_Abort


def end_all(comm: Comm, exit_code: int, last_message: str = "") -> None:
    """Print the last message and end all ranks; mpirun's exit code is this one, within _END_S. Does
    not return.

    Ending this process alone would not do under MPICH: its launcher then kills the others and
    reports our code, or 9 if it happens to wait for one that it killed before it looks away; or it
    waits for us before it sees our connection close, kills nobody and stays (seen with 5.0.2). What
    MPI_Abort asks for goes ahead of any process's end, over the one stream that each launcher's
    part has to mpirun, which exits with that code as soon as it reads it. The last message goes
    over the same stream, ahead if the launcher has taken it from our pipe by then. Open MPI's
    mpirun keeps the first code that is not 0, and only an end of ours can be the first: a stopped
    process does not end by itself.
    """
    # the kernel ends this process if a pipe or the library hangs
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _END_S)
    with suppress(OSError):  # who listened has gone
        sys.stdout.flush()
        sys.stderr.flush()
    guardian.say(f"{last_message}\n" if last_message else "")
    comm.Abort(exit_code)
    os._exit(exit_code)  # Open MPI's returns where another thread has begun it


@lru_cache(maxsize=1)
def watchdog_of(started: Launcher, driver: int = 0) -> "Watchdog":
    """The watchdog of this process, which is a child of the one that first asked for it (see
    guardian.start): ask before MPI or CUDA starts.
    """
    return Watchdog(started, driver)


class Watchdog:
    """Knows the processes of all ranks, and watches over this one's waits.

    lost_s: how long a rank that is seen stopped or gone may keep the others where they have no
    other deadline.
    """

    def __init__(self, started: Launcher, driver: int) -> None:
        self.rank, self.lost_s = started.rank, LOST_S
        self._page = Page(started.size)
        self._world: GuardedWorld | None = None
        now = time.monotonic()
        self._write(GuardedWait("all ranks to start MPI", now, now + START_S, self.lost_s))
        guardian.start(self._page, started, driver)

    def start(self, lost_s: float) -> None:
        """MPI starts now. lost_s: from now on."""
        self.lost_s = lost_s
        self._write(replace(self._wait, lost_s=lost_s))

    def join(self, comm: Comm) -> None:
        """Learn who the others are, once MPI runs. It is collective."""
        everyone: list[tuple[str, str, int]] = comm.allgather(
            (memory_id(), host_name(), os.getpid())
        )
        unlink_segments()
        self.hosts = _names([(memory, host) for memory, host, _ in everyone])
        self._comm = comm
        self._world = GuardedWorld(self.hosts, [pid for _, _, pid in everyone])
        self._heartbeat = Heartbeat(comm, self.hosts, self._page)
        self._write(GuardedWait())

    def fate(self, rank: int) -> str:
        """What became of a rank's process; a remote one seems to run while its heartbeat comes."""
        assert self._world is not None
        return guardian.fate_in(self._world, self._page, rank, self.rank)

    def leave(self, story: str) -> None:
        """Say why this rank gives up, and end all."""
        text = f"Error: rank {self.rank} {story}\nHint: {HangError.general_hint}"
        end_all(self._comm, HangError.exit_code, text)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Leave if MPI fails in the body, as it does where another rank is gone: which, its
        guardian says first.
        """
        from mpi4py import MPI

        try:
            yield
        except MPI.Exception as error:
            time.sleep(guardian.TURN_S + guardian.FORWARD_S)
            self.leave(f"cannot go on: {' '.join(str(error).split())}")

    def leave_mpi(self, mpi: MpiModule) -> None:
        """Leave MPI with all others, and before it stop the heartbeat."""
        self._heartbeat.stop()
        with self.together("all ranks to leave MPI"):
            self._comm.Barrier()
            self._heartbeat.drain()  # once all have stopped it
            leave_mpi(mpi)

    def end(self) -> None:
        """Only its end is left to this rank, which has left MPI."""
        now = time.monotonic()
        self._write(GuardedWait("its own end", now, now + TOGETHER_S, self.lost_s, is_last=True))

    def limit(self, what: str, deadline_s: float) -> AbstractContextManager[None]:
        """End all ranks if the body, which waits for `what`, has not returned by the deadline."""
        return self._waiting(what, deadline_s, math.inf)

    def together(self, what: str, deadline_s: float = TOGETHER_S) -> AbstractContextManager[None]:
        """A limit for what all ranks do at the same time: a long one, and a short one once a rank
        is seen stopped or gone.
        """
        return self._waiting(what, max(deadline_s, self.lost_s), self.lost_s)

    @contextmanager
    def _waiting(self, what: str, deadline_s: float, lost_s: float) -> Iterator[None]:
        now, outer = time.monotonic(), self._wait
        self._write(GuardedWait(what, now, min(now + deadline_s, outer.until), lost_s))
        try:
            yield
        finally:
            self._write(outer)

    def _write(self, wait: GuardedWait) -> None:
        """From now on the rank waits for that, as its guardian reads."""
        self._wait = wait
        self._page.write(wait, self._world)


def unlink_segments() -> None:
    """Take the names off MPICH's own shared memory, which it does in MPI_Finalize only: every
    killed rank would leave some megabytes in /dev/shm. Attached memory needs no name, and
    MPI_Finalize does not mind. Call it once all ranks of the host have initialised.
    """
    for file in mapped_files("self"):
        if file.name.startswith("mpich_"):
            file.unlink(missing_ok=True)


def _names(hosts: Sequence[tuple[str, str]]) -> list[str]:
    """A name for each host, given as (memory, name): two of one name are distinguished by a number.

    >>> _names([("1", "a"), ("2", "b"), ("3", "a"), ("1", "a")])
    ['a', 'b', 'a#2', 'a']
    """
    memories = {
        name: list(dict.fromkeys(memory for memory, other in hosts if other == name))
        for _, name in hosts
    }
    return [
        name if memory == memories[name][0] else f"{name}#{memories[name].index(memory) + 1}"
        for memory, name in hosts
    ]
