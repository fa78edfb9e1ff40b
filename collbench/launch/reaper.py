"""The reaper: a process between the driver and a launcher of its own, which ends everything that
the launcher has started as soon as the driver is gone, wherever the start has got to.

Run as a file, with the driver's process id and the launcher's command line. It ends as the launcher
does. It needs the standard library alone, so that it starts in a moment.

A library names the memory that its ranks share, until all have attached it (MPICH) or to the end
(Open MPI). A rank that is killed before leaves the name behind, so the reaper removes it; under a
launcher of the user's, which has no reaper, a cleaner does (see guardian.py).
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LOOK_S = 1.0
_IN_ORDER_S, _AGAIN_S = 1.5, 0.05
CLOCK_S = 0.1  # by which a file system's clock may be behind
_SHARED = Path("/dev/shm")
_TOPOLOGIES, _START_S = Path("/tmp/hydra_hwloc_xmlfile_*"), 2.0  # written so soon
_OF_MPI = ("mpich_shm_", "mpich_vci_", "ucx_shm_posix_", "sm_segment.", "vader_segment.")
_AWAKE = (signal.SIGCHLD, signal.SIGCONT)
_SIGNALS = (*_AWAKE, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def descendants(pid: int) -> Iterator[int]:
    """Processes below this one, nearest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    level = children.get(pid, [])
    while level:
        yield from level
        level = [child for parent in level for child in children.get(parent, ())]


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
        time.sleep(_AGAIN_S)


def topology_of_mpi(since: float, until: float) -> list[Path]:
    """The file by which MPICH's launcher tells its ranks what a host has, and which it leaves where
    it ends in an abort: that of this user that was made between two times (as time.time() has
    them), if there is only one.
    """
    found = []
    for file in _TOPOLOGIES.parent.glob(_TOPOLOGIES.name):
        with suppress(OSError):
            facts = file.stat()
            if facts.st_uid == os.getuid() and since <= facts.st_ctime <= until:
                found.append(file)
    return found if len(found) == 1 else []


def memory_of_mpi(since: float) -> set[Path]:
    """Shared memory of this user that has a name which MPI libraries give, made since then."""
    found = set()
    for file in _SHARED.iterdir() if _SHARED.is_dir() else ():
        with suppress(OSError):
            facts = file.stat()
            if file.name.startswith(_OF_MPI) and facts.st_uid == os.getuid():
                found |= {file} if facts.st_ctime >= since else set()
    return found


def used_files() -> set[Path]:
    """Files that any process has open, and those of /dev/shm that it has mapped. Whoever makes one
    has it open until it is mapped: it is looked for in this order.
    """
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            found.add(link.readlink())
    return found | mapped_files()


def mapped_files(pid: str = "[0-9]*") -> set[Path]:
    """Files of /dev/shm that a process has mapped, or any process, and that still have a name."""
    found = set()
    for maps in Path("/proc").glob(f"{pid}/maps"):
        with suppress(OSError):
            for line in maps.read_text().splitlines():
                path = line.split(maxsplit=5)[5:]
                # one that has no name any more ends in " (deleted)"
                if (
                    path
                    and path[0].startswith(f"{_SHARED}/")
                    and not path[0].endswith(" (deleted)")
                ):
                    found.add(Path(path[0]))
    return found


def _kill_all() -> None:
    """Kill and reap until there is no descendant: orphans of killed ones become children here."""
    while True:
        for pid in list(descendants(os.getpid())):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def main(driver: int, command: list[str]) -> None:
    """Run the command; never returns."""
    since = time.time() - CLOCK_S
    libc = ctypes.CDLL(None)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)  # it may be stopped

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)

    child, code = None, 1
    if os.getppid() == driver:  # which has not gone before anybody watched it
        child = subprocess.Popen(command, preexec_fn=prepare)  # noqa: PLW1509  one thread
    while child is not None and child.poll() is None and os.getppid() == driver:
        seen = signal.sigtimedwait(_SIGNALS, _LOOK_S)
        if seen is not None and seen.si_signo not in _AWAKE:
            code = -seen.si_signo
            break
    else:
        code = 1 if child is None or child.returncode is None else child.returncode
    if child is not None:
        child.terminate()  # a launcher that ends in order removes what is its own
        with suppress(subprocess.TimeoutExpired):
            child.wait(_IN_ORDER_S)
    _kill_all()
    if code:
        remove_memory_of_mpi(since, 0)
        for file in topology_of_mpi(since, since + _START_S):
            file.unlink(missing_ok=True)
    if code < 0:
        with suppress(OSError):  # a signal that cannot be given its default action
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
