"""The cleaner: a process that outlives a rank and its guardian. It lets a guardian that is stopped
go on once the rank has ended, because the launcher waits for it, and puts right what a launcher has
left.
"""

import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path

from collbench.core.launcher import INTERRUPTIONS, Launcher
from collbench.launch.processes import (
    PR_SET_NAME,
    PR_SET_PDEATHSIG,
    command_of,
    descendants,
    fork,
    libc,
    send,
    stat_of,
)
from collbench.launch.reaper import CLOCK_S, remove_memory_of_mpi, topology_of_mpi

CLEANER = "cb-cleaner"
PROXY = "hydra_pmi_proxy"  # the process of MPICH's launcher that has started a host's ranks
_CLEAN_S = 5.0  # for ranks that have been killed to end
_HUNG_S, _GIVEN_UP_S = 3.0, 30.0  # for a launcher without ranks to end, and for ranks to go
_LOOK_S = 0.1
_LAUNCHERS_OF_OPEN_MPI = ("prterun", "mpirun", "mpiexec", "orterun")


def start_cleaner(started: Launcher) -> tuple[int, int]:
    """Start a process that outlives this one, and removes what MPI has left in /dev/shm if this one
    ends before a byte was written to the first file that is returned: a launcher that ends its
    ranks kills their guardians, too. It also ends a launcher of Open MPI that hangs then. The
    second file is for the rank alone, and says by its end that the rank has ended.
    """
    since, guardian_pid, launcher_pid = time.time() - CLOCK_S, os.getpid(), os.getppid()
    end, start = os.pipe()
    rank_end, rank_start = os.pipe()
    if fork():
        os.close(end)
        os.close(rank_end)
        return start, rank_start
    try:
        libc.prctl(PR_SET_NAME, CLEANER.encode(), 0, 0, 0)
        # so that nobody has to know of one that is stopped
        libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)
        os.setsid()  # signals to the launcher's ranks go to their process group
        for number in INTERRUPTIONS:
            signal.signal(number, signal.SIG_IGN)
        for entry in list(Path("/proc/self/fd").iterdir()):
            if int(entry.name) not in (end, rank_end):
                with suppress(OSError):  # the list's own
                    os.close(int(entry.name))
        made = _made_by(launcher_pid)
        if not _outlive(guardian_pid, end, rank_end):
            remove_memory_of_mpi(since, _CLEAN_S)
            if started.vendor == "Open MPI":
                _end_without_ranks(launcher_pid)
        deadline = time.monotonic() + _CLEAN_S
        while made and command_of(launcher_pid) == PROXY and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        for file in made if command_of(launcher_pid) != PROXY else ():
            file.unlink(missing_ok=True)
    finally:
        os._exit(0)


def _made_by(launcher_pid: int) -> list[Path]:
    """The files that a process of MPICH's launcher has made by now."""
    if command_of(launcher_pid) != PROXY:
        return []
    started_s = int(stat_of(launcher_pid)[19]) / os.sysconf("SC_CLK_TCK")
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    return topology_of_mpi(time.time() - age_s - CLOCK_S, time.time())


def _outlive(guardian_pid: int, end: int, rank_end: int) -> bool:
    """Wait until the guardian has ended; whether it has written a byte."""
    is_dismissed, wait_ms = False, None
    files = select.poll()
    for file in (end, rank_end):
        files.register(file, select.POLLIN)
    while True:
        for file, _ in files.poll(wait_ms):
            if file == rank_end:
                files.unregister(file)
                wait_ms = _LOOK_S * 1000
            elif os.read(end, 1):
                is_dismissed = True
            else:
                return is_dismissed
        if wait_ms is not None:
            send(guardian_pid, signal.SIGCONT)


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
            send(launcher_pid, next(signals, signal.SIGKILL))
            alone_since = now
        time.sleep(_LOOK_S)
