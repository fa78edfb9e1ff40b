"""The reaper: a process between the driver and a launcher of its own, which ends everything that
the launcher has started as soon as the driver is gone, wherever the start has got to.

Run as a file, with the driver's process id and the launcher's command line. It ends as the launcher
does. It needs the standard library alone, so that it starts in a moment.
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
_IN_ORDER_S = 1.5
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


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
    libc = ctypes.CDLL(None)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)

    child, code = None, 1
    if os.getppid() == driver:  # which has not gone before anybody watched it
        child = subprocess.Popen(command, preexec_fn=prepare)  # noqa: PLW1509  one thread
    while child is not None and child.poll() is None and os.getppid() == driver:
        seen = signal.sigtimedwait(_SIGNALS, _LOOK_S)
        if seen is not None and seen.si_signo != signal.SIGCHLD:
            code = -seen.si_signo
            break
    else:
        code = child.returncode if child is not None else 1
    if child is not None:
        child.terminate()  # a launcher that ends in order removes what is its own
        with suppress(subprocess.TimeoutExpired):
            child.wait(_IN_ORDER_S)
    _kill_all()
    if code < 0:
        with suppress(OSError):  # a signal that cannot be given its default action
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
