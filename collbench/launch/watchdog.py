"""A deadline for calls that have none of their own, as MPI's: past it this rank says who keeps it
waiting and ends all ranks.

Nothing else gets a process out of a blocking call of a C library.
"""

import fcntl
import os
import signal
import socket
import stat
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from collbench.launch.driver import RUNS, fate
from collbench.launch.heartbeat import SILENT_S, Heartbeat
from collbench.launch.mpi_types import Comm
from collbench.util.errors import HangError

_FORWARD_S = 0.3  # for the launcher to pass on the last message: after an abort it may not
_READ_S = 3.0  # for one that has not even read it
_END_S = 6.0  # for both, and for MPI_Abort
_TURN_S = 1.0  # a rank waits so long for a lower one to report and to end all ranks


def end_all(comm: Comm, exit_code: int, last_message: str = "") -> None:
    """Print the last message and end all ranks; mpirun's exit code is this one, within _END_S. Any
    thread may call it. Does not return.

    Ending this process alone would not do under MPICH: its launcher then kills the others and
    reports our code, or 9 if it happens to wait for one that it killed before it looks away; or it
    waits for us before it sees our connection close, kills nobody and stays (seen with 5.0.2). What
    MPI_Abort asks for goes ahead of any process's end, over the one stream that each launcher's
    part has to mpirun, which exits with that code as soon as it reads it. The last message goes
    over the same stream, ahead if the launcher has taken it from our pipe by then. Open MPI's
    mpirun keeps the first code that is not 0, and only an end of ours can be the first: a stopped
    process does not end by itself.
    """
    # the kernel ends this process if a pipe or the library hangs: alarmed() left SIGALRM its
    # default
    signal.setitimer(signal.ITIMER_REAL, _END_S)
    with suppress(OSError):  # who listened has gone
        if last_message:
            print(last_message, file=sys.stderr, flush=True)
        sys.stdout.flush()
        sys.stderr.flush()
    time.sleep(_FORWARD_S)
    deadline = time.monotonic() + _READ_S
    while (_is_unread(1) or _is_unread(2)) and time.monotonic() < deadline:
        time.sleep(0.01)
    comm.Abort(exit_code)
    os._exit(exit_code)  # Open MPI's returns where another thread has begun it


def _is_unread(file: int) -> bool:
    """Whether this is a pipe whose reader has not taken everything yet."""
    try:
        return stat.S_ISFIFO(os.fstat(file).st_mode) and fcntl.ioctl(
            file, termios.FIONREAD, bytes(4)
        ) != bytes(4)
    except OSError:
        return False


class Watchdog:
    """Knows the processes of all ranks of a communicator, and watches over this one's blocking
    calls. Making it is collective.
    """

    def __init__(self, comm: Comm) -> None:
        self._comm, self.rank = comm, int(comm.Get_rank())
        everyone: list[tuple[str, str, int]] = comm.allgather(
            (_boot_id(), socket.gethostname(), os.getpid())
        )
        self.hosts = _names([(boot, host) for boot, host, _ in everyone])
        self.pids = [pid for _, _, pid in everyone]
        self._heartbeat = Heartbeat(comm, self.hosts)

    def fate(self, rank: int) -> str:
        """What became of a rank's process; a remote one seems to run while its heartbeat comes."""
        if self.hosts[rank] == self.hosts[self.rank]:
            return fate(self.pids[rank], None)
        silence_s = self._heartbeat.silence_s(rank)
        return (
            f"on host {self.hosts[rank]} sent no heartbeat for {silence_s:.0f} s"
            if silence_s > SILENT_S
            else RUNS
        )

    def leave(self, story: str) -> None:
        """Say why this rank gives up, and end all."""
        end_all(self._comm, HangError.exit_code, f"Error: rank {self.rank} {story}")

    def close(self) -> None:
        """End the heartbeat."""
        self._heartbeat.stop()

    @contextmanager
    def limit(self, what: str, deadline_s: float) -> Iterator[None]:
        """End all ranks if the body, which waits for `what`, has not returned by the deadline."""
        timer = threading.Timer(deadline_s, self._give_up, (what, deadline_s))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self, what: str, deadline_s: float) -> None:
        fates = [self.fate(rank) for rank in range(len(self.pids))]
        if RUNS in fates[: self.rank]:
            time.sleep(_TURN_S)
        blame = "".join(
            f"; rank {rank} {fate}"
            for rank, fate in enumerate(fates)
            if fate != RUNS and rank != self.rank
        )
        self.leave(f"waited {deadline_s:.1f} s for {what}{blame}")


def _names(hosts: Sequence[tuple[str, str]]) -> list[str]:
    """A name for each host, given as (boot, name): two of one name are distinguished by a number.

    >>> _names([("1", "a"), ("2", "b"), ("3", "a"), ("1", "a")])
    ['a', 'b', 'a#2', 'a']
    """
    boots = {
        name: list(dict.fromkeys(boot for boot, other in hosts if other == name))
        for _, name in hosts
    }
    return [
        name if boot == boots[name][0] else f"{name}#{boots[name].index(boot) + 1}"
        for boot, name in hosts
    ]


def _boot_id() -> str:
    """Tells hosts of one name apart."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
