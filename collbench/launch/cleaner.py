"""The cleaner: a process that outlives a rank and its guardian, and puts right what a launcher has
left.
"""

import ctypes
import os
import signal
import time
import warnings
from contextlib import suppress
from pathlib import Path

from collbench.core.launcher import INTERRUPTIONS, Launcher
from collbench.launch.reaper import CLOCK_S, descendants, remove_memory_of_mpi

CLEANER = "cb-cleaner"
PR_SET_NAME = 15
_CLEAN_S = 5.0  # for ranks that have been killed to end
_HUNG_S, _GIVEN_UP_S = 3.0, 30.0  # for a launcher without ranks to end, and for ranks to go
_LOOK_S = 0.1
_LAUNCHERS_OF_OPEN_MPI = ("prterun", "mpirun", "mpiexec", "orterun")


def start_cleaner(libc: ctypes.CDLL, started: Launcher) -> int:
    """Start a process that outlives this one, and removes what MPI has left in /dev/shm if this one
    ends before a byte was written to the file that is returned: a launcher that ends its ranks
    kills their guardians, too. It also ends a launcher of Open MPI that hangs then.
    """
    since, launcher_pid = time.time() - CLOCK_S, os.getppid()
    end, start = os.pipe()
    if fork():
        os.close(end)
        return start
    try:
        libc.prctl(PR_SET_NAME, CLEANER.encode(), 0, 0, 0)
        os.setsid()  # signals to the launcher's ranks go to their process group
        for number in INTERRUPTIONS:
            signal.signal(number, signal.SIG_IGN)
        for entry in list(Path("/proc/self/fd").iterdir()):
            if int(entry.name) != end:
                with suppress(OSError):  # the list's own
                    os.close(int(entry.name))
        if not os.read(end, 1):
            remove_memory_of_mpi(since, _CLEAN_S)
            if started.vendor == "Open MPI":
                _end_without_ranks(launcher_pid)
    finally:
        os._exit(0)


def _end_without_ranks(launcher_pid: int) -> None:
    """End Open MPI's mpirun if it still runs some seconds after its last process has ended: it
    hangs if a rank has made itself known while the job ended.
    """
    signals = iter((signal.SIGTERM, signal.SIGKILL))
    start = alone_since = time.monotonic()
    while command_of(launcher_pid) in _LAUNCHERS_OF_OPEN_MPI:
        now = time.monotonic()
        if any(descendants(launcher_pid)):
            alone_since = now
        if now > start + _GIVEN_UP_S:  # it has others to look after
            return
        if now > alone_since + _HUNG_S:
            with suppress(ProcessLookupError):
                os.kill(launcher_pid, next(signals, signal.SIGKILL))
            alone_since = now
        time.sleep(_LOOK_S)


def fork() -> int:
    """os.fork(), in a process where a library may have threads."""
    with warnings.catch_warnings():  # those threads do nothing yet
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def command_of(pid: int) -> str:
    """The name of a process, empty if there is none."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
