"""The cleaner: a process that outlives a rank and its guardian. It lets a guardian that is stopped
go on once the rank has ended, because the launcher waits for it, and puts right what a launcher has
left.
"""

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
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

CLEANER = "cb-cleaner"
PROXY = "hydra_pmi_proxy"  # the process of MPICH's launcher that has started a host's ranks
_CLEAN_S = 5.0  # for ranks that have been killed to end
_HUNG_S, _GIVEN_UP_S = 3.0, 30.0  # for a launcher without ranks to end, and for ranks to go
_LOOK_S = 0.1
CLOCK_S = 0.1  # by which a file system's clock may be behind
_SHARED = Path("/dev/shm")
_TEMPORARY = Path("/tmp")
_OF_MPI = ("mpich_shm_", "mpich_vci_", "ucx_shm_posix_", "sm_segment.", "vader_segment.")
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
        made = _outlive(guardian_pid, launcher_pid, end, rank_end)
        if made is None:
            # one that is killed with its guardian may be about to make a file
            select.select([rank_end], [], [], _CLEAN_S)
            remove_memory_of_mpi(since, _CLEAN_S)
            if started.vendor == "Open MPI":
                _end_without_ranks(launcher_pid)
        deadline = time.monotonic() + _CLEAN_S
        while command_of(launcher_pid) == PROXY and time.monotonic() < deadline:
            send(launcher_pid, signal.SIGCONT)  # a stopped one would keep mpirun
            time.sleep(_LOOK_S)
        for file in made or () if command_of(launcher_pid) != PROXY else ():
            file.unlink(missing_ok=True)
    finally:
        os._exit(0)


def _made_by(launcher_pid: int) -> list[Path]:
    """The files that a process of MPICH's launcher has made by now."""
    if command_of(launcher_pid) != PROXY:
        return []
    started_s = int(stat_of(launcher_pid)[19]) / os.sysconf("SC_CLK_TCK")
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    return topology_of_mpi(time.time() - age_s - CLOCK_S)


def _outlive(guardian_pid: int, launcher_pid: int, end: int, rank_end: int) -> list[Path] | None:
    """Wait until the guardian has ended. Returns what MPICH's launcher had made when the guardian
    wrote a byte, which it does once MPI has started; None if it has not.
    """
    made, wait_ms = None, None
    files = select.poll()
    for file in (end, rank_end):
        files.register(file, select.POLLIN)
    while True:
        for file, _ in files.poll(wait_ms):
            if file == rank_end:
                files.unregister(file)
                wait_ms = _LOOK_S * 1000
            elif os.read(end, 1):
                made = _made_by(launcher_pid)
            else:
                return made
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


def remove_memory_of_mpi(since: float, wait_s: float) -> None:
    """Remove the names of shared memory that an MPI library of this user has made since then (as
    time.time() has it) and that no process has any more; wait so long for processes that end.
    """
    deadline = time.monotonic() + wait_s
    while files := memory_of_mpi(since):
        for file in files - used_files():
            with suppress(OSError):
                file.unlink()
        if time.monotonic() > deadline:
            return
        time.sleep(_LOOK_S)


def topology_of_mpi(since: float) -> list[Path]:
    """The file by which MPICH's launcher tells its ranks what a host has, and which it leaves where
    it ends in an abort: that of this user that was made since then, if there is only one.
    """
    found = list(_made_since(_TEMPORARY.glob("hydra_hwloc_xmlfile_*"), since))
    return found if len(found) == 1 else []


def memory_of_mpi(since: float) -> set[Path]:
    """Shared memory of this user that has a name which MPI libraries give, made since then."""
    files = _made_since(_SHARED.glob("*"), since)
    return {file for file in files if file.name.startswith(_OF_MPI)}


def _made_since(files: Iterable[Path], since: float) -> Iterator[Path]:
    """Those that this user has made since then, as time.time() has it."""
    for file in files:
        with suppress(OSError):
            facts = file.stat()
            if facts.st_uid == os.getuid() and facts.st_ctime >= since:
                yield file


def used_files() -> set[Path]:
    """Files that any process has open, and those of /dev/shm that it has mapped. Whoever makes one
    has it open until it is mapped: it is looked for in this order.
    """
    found = set[Path]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            for link in (process / "fd").iterdir():
                with suppress(OSError):
                    found.add(link.readlink())
    return found | mapped_files()


def mapped_files(pid: str = "[0-9]*") -> set[Path]:
    """Files of /dev/shm that a process has mapped, or any process, and that still have a name."""
    found = set[Path]()
    for process in Path("/proc").glob(pid):
        with suppress(OSError):
            for line in (process / "maps").read_text().splitlines():
                path = line.split(maxsplit=5)[5:]
                # one that has no name any more ends in " (deleted)"
                if (
                    path
                    and path[0].startswith(f"{_SHARED}/")
                    and not path[0].endswith(" (deleted)")
                ):
                    found.add(Path(path[0]))
    return found
