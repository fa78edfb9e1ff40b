"""A deadline for calls that have none of their own, as MPI's: past it this rank says who keeps it waiting and ends its process.

Nothing else gets a process out of a blocking call of a C library. The launcher sees it end and ends the other ranks.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collbench.errors import StuckError
from collbench.group._driver import RUNS, fate
from collbench.group._lifeline import SILENT_S, Lifeline

_TURN_S = 0.5  # a rank waits so long for a lower one to speak: one message is enough


@contextmanager
def alarmed(deadline_s: float) -> Iterator[None]:
    """Let the kernel end this process, without a word, if the body has not returned by the deadline, or on Ctrl-C.

    For MPI_Init and MPI_Finalize: mpi4py keeps Python's lock over them, so that neither a thread nor a handler of ours could do it.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, deadline_s)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.setitimer(signal.ITIMER_REAL, 0)


def leave(rank: int, story: str) -> None:
    """Say why this rank ends, and end it at once: others may hold locks that an orderly end would wait for."""
    print(f"Error: rank {rank} {story}", file=sys.stderr, flush=True)
    os._exit(StuckError.exit_code)


class Watchdog:
    """Knows the processes of all ranks of a communicator, and watches over this one's blocking calls. Making it is collective."""

    def __init__(self, comm: Any) -> None:
        self.rank: int = comm.Get_rank()
        everyone: list[tuple[str, str, int]] = comm.allgather((_boot_id(), socket.gethostname(), os.getpid()))
        self.hosts = _names([(boot, host) for boot, host, _ in everyone])
        self.pids = [pid for _, _, pid in everyone]
        self._lifeline = Lifeline(comm, self.hosts)

    def fate(self, rank: int) -> str:
        """What became of a rank's process; one on another host seems to run as long as it is heard of."""
        if self.hosts[rank] == self.hosts[self.rank]:
            return fate(self.pids[rank], None)
        silence_s = self._lifeline.silence_s(rank)
        return f"on host {self.hosts[rank]} was not heard of for {silence_s:.0f} s" if silence_s > SILENT_S else RUNS

    def close(self) -> None:
        """Give no more signs of life."""
        self._lifeline.stop()

    @contextmanager
    def limit(self, what: str, deadline_s: float) -> Iterator[None]:
        """End this process if the body, which waits for `what`, has not returned by the deadline."""
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
        blame = "".join(f"; rank {rank} {fate}" for rank, fate in enumerate(fates) if fate != RUNS and rank != self.rank)
        leave(self.rank, f"waited {deadline_s:.1f} s for {what}{blame}")


def _names(hosts: Sequence[tuple[str, str]]) -> list[str]:
    """A name for each host, given as (boot, name): two of one name are told apart by a number.

    >>> _names([("1", "a"), ("2", "b"), ("3", "a"), ("1", "a")])
    ['a', 'b', 'a#2', 'a']
    """
    boots = {name: list(dict.fromkeys(boot for boot, other in hosts if other == name)) for _, name in hosts}
    return [name if boot == boots[name][0] else f"{name}#{boots[name].index(boot) + 1}" for boot, name in hosts]


def _boot_id() -> str:
    """Tells hosts of one name apart."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
