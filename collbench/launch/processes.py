"""Processes of this host: who is whose child and what became of one, as /proc says, and how a
process is made to end with its parent.
"""

import ctypes
import os
import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from collbench.core.host import host_name

LOST_S = 10.0  # that one which is seen stopped or gone may keep others, by default
RUNS = "does not answer"  # the fate of a process that seems to be running
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
libc = ctypes.CDLL(None)


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def parent_of(pid: int) -> int:
    """The process above one, 0 if there is none."""
    fields = stat_of(pid)
    return int(fields[1]) if fields else 0


def command_of(pid: int) -> str:
    """The name of a process, empty if there is none."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def descendants(pid: int) -> Iterator[int]:
    """Processes below this one, nearest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            children.setdefault(parent_of(int(entry.name)), []).append(int(entry.name))
    level = children.get(pid, [])
    while level:
        yield from level
        level = [child for parent in level for child in children.get(parent, ())]


def fate(pid: int, exit_code: int | None) -> str:
    """What became of a process, as a text that follows its name; RUNS if it seems to be running."""
    if exit_code is not None and exit_code < 0:
        return f"was killed by {_signal_name(-exit_code)}"
    if exit_code is not None:
        return f"ended with code {exit_code}"
    states = {
        "": "is gone",
        "T": "is stopped (SIGSTOP)",
        "t": "is stopped by a debugger",
        "Z": "is dead",
        "D": "hangs in the kernel",
    }
    return states.get(next(iter(stat_of(pid)), ""), RUNS)


def fate_of_all(pids: Sequence[int]) -> str:
    """What became of a rank with these processes, a wrapper's perhaps among them: stopped if any
    is, gone if all are.
    """
    fates = [fate(pid, None) for pid in pids]
    stopped = list(filter(is_stopped, fates))
    alive = [what for what in fates if what not in ("is gone", "is dead")]
    return stopped[0] if stopped else RUNS if alive else "is gone"


def is_stopped(what: str) -> bool:
    """Whether that is the fate of a process that goes on at SIGCONT."""
    return what.startswith("is stopped")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def hint_of(what: str) -> str:
    """What to do where SIGBUS ended who wrote to shared memory that is not there, or nothing."""
    is_full = "SIGBUS" in what
    return f"see whether /dev/shm of {host_name()} is full: df -h /dev/shm" if is_full else ""


def send(pid: int, number: signal.Signals) -> None:
    """A signal to a process that may have gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when its parent dies."""
    libc.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(4)


@contextmanager
def forking() -> Iterator[None]:
    """Without a warning of Python 3.12 of threads of a library, which do nothing yet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def fork() -> int:
    """os.fork(), in a process where a library may have threads."""
    with forking():
        return os.fork()
