"""A worker group whose ranks mpirun starts, for an MPI library's own collectives in a sweep that
has no launcher itself.

Each rank connects back over a Unix socket in the abstract namespace (no file to leave behind), says
who it is before MPI starts and again once it has started, and then sleeps in the kernel until it is
called, so that it does not disturb what is measured in between. The kernel tells mpirun to end when
this process ends; ranks end by what guardians see (see guardian.py).
"""

import hmac
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait

from collbench.core.errors import CollbenchError, HangError, RankLostError, UnavailableError
from collbench.core.group import RankT
from collbench.core.host import shortage
from collbench.core.launcher import OPEN_MPI_VARIABLES, find_local_mpirun
from collbench.launch.driver import Driver, ServedGroup, rank_lost
from collbench.launch.processes import die_with_parent, fate, forking
from collbench.launch.server import rank_name

KEY_VARIABLE = "COLLBENCH_KEY"
KEY_BYTES = 16
HELLO = struct.Struct("<ii")  # rank, process id; the key goes before
_CONNECT_S = 30.0  # until all ranks have started MPI
_HELLO_S = 5.0  # for one that has connected to say who it is
_LOOK_S = 0.1
_END_S = 4.0  # for mpirun to end with its ranks
_CREDENTIALS = struct.Struct("3i")  # process id, user, group
# Ranks of one host need no network: no socket of theirs listens on one.
# Shared memory is "vader" in Open MPI before 5, which ends at the name "sm"; 5 knows both names.
LOCAL_VARIABLES = {"OMPI_MCA_btl": "self,vader", "UCX_NET_DEVICES": "lo"}
_ABOUT_HELP = ("base_help_aggregate", "sent help message")  # in lines that say nothing


class MpirunWorkerGroup(ServedGroup[RankT]):
    """n ranks under an mpirun of ours. One that is seen stopped or gone while they start may keep
    the others for lost_s.
    """

    def __init__(self, rank: type[RankT], n: int, lost_s: float) -> None:
        key = secrets.token_bytes(KEY_BYTES)
        address = f"collbench-{os.getpid()}-{secrets.token_hex(8)}"
        environment = {**OPEN_MPI_VARIABLES, **LOCAL_VARIABLES, **os.environ}
        environment[KEY_VARIABLE] = key.hex()
        environment.pop("PYTHONUNBUFFERED", None)  # MPICH's mpirun then splits lines
        worker = [sys.executable, "-m", "collbench.launch.mpi_worker"]
        words = [str(os.getpid()), address, rank_name(rank), str(lost_s)]
        command = [find_local_mpirun(), "-n", str(n), *worker, *words]
        # a file, because a pipe that nobody reads would fill up
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0{address}")
            listener.listen(n)
            try:
                with forking():
                    self._mpirun = subprocess.Popen(
                        command,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=self._stderr,
                        # Ctrl-C is for the driver alone; and the kernel lets a group that was
                        # stopped go on when the driver ends
                        process_group=0,
                        preexec_fn=partial(_end_with, os.getpid()),  # noqa: PLW1509  it takes no lock
                    )
            except OSError as error:
                raise _not_started(n, shortage(error)) from None
            try:
                connections, pids = self._receive(listener, key, n)
            except BaseException:
                self._end()
                raise
        self._driver = Driver(connections, pids, lambda rank: None, lambda: None)

    def _receive(
        self, listener: socket.socket, key: bytes, n: int
    ) -> tuple[list[Connection], list[int]]:
        """The connections and processes of all ranks, once they have started MPI. Raises
        UnavailableError if they cannot, and RankLostError if one stops or is killed meanwhile, as
        guardians see it.
        """
        pids: dict[int, int] = {}
        starting: dict[Connection, int] = {}
        ready: dict[int, Connection] = {}
        lost: list[int] = []
        deadline = time.monotonic() + _CONNECT_S
        while len(ready) < n:
            said = wait([listener, *starting], timeout=_LOOK_S)
            for end in said:
                if not isinstance(end, Connection):
                    if (greeted := _greet(listener, key)) is not None:
                        rank, pids[rank], connection = greeted
                        starting[connection] = rank
                    continue
                rank = starting.pop(end)
                try:
                    problem: str = end.recv()
                except (EOFError, OSError):
                    lost.append(rank)
                    continue
                if problem:
                    raise _not_started(n, problem)
                ready[rank] = end
            # a problem that was said may still be on its way
            if not said and (lost or self._mpirun.poll() is not None):
                raise self._lost(lost, n)
            if time.monotonic() > deadline:
                raise _not_started(n, f"{len(ready)} of {n} came up in {_CONNECT_S:.0f} s")
        return [ready[rank] for rank in range(n)], [pids[rank] for rank in range(n)]

    def _lost(self, ranks: Sequence[int], n: int) -> CollbenchError:
        """Why a rank, or mpirun, has ended before all ranks were there."""
        with suppress(subprocess.TimeoutExpired):  # what it says comes at its end
            self._mpirun.wait(timeout=_END_S)
        lines, code = self._stderr_lines(), self._mpirun.poll()
        ours = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
        if code is not None and code < 0:
            return rank_lost([f"mpirun {fate(0, code)} while it started {n} ranks"])
        if code == HangError.exit_code or any("signal" in line.lower() for line in lines):
            return rank_lost(ours or [f"a rank was killed while mpirun started {n} ranks"])
        if not lines:  # Open MPI's ends by itself after a signal
            gone = [f"rank {rank} is gone" for rank in sorted(ranks)]
            return rank_lost(gone or [f"mpirun ended while it started {n} ranks, without a word"])
        return _not_started(n, ours[0] if ours else _reason(lines))

    def _call(self, method: str, args: tuple[object, ...], timeout_s: float) -> list[object]:
        try:
            return self._driver.call(method, args, timeout_s)
        except RankLostError as error:
            reasons = self._reasons()
            # its ranks end with it, and who gave up knows more than who finds them all gone
            if reasons:
                error.message = "; ".join(reasons)
            elif (code := self._mpirun.poll()) is not None and code < 0:
                error.message = f"mpirun {fate(0, code)}, and its ranks with it"
            raise

    def _reasons(self) -> list[str]:
        """Why ranks or their guardians gave up, as they say it, which may take a moment to come."""
        deadline = time.monotonic() + _END_S
        while True:
            is_over = self._mpirun.poll() is not None or time.monotonic() > deadline
            lines = self._stderr_lines()
            reasons = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
            if reasons or is_over:
                return reasons
            time.sleep(_LOOK_S)

    def _stderr_lines(self) -> list[str]:
        """What mpirun and the ranks wrote to stderr."""
        self._stderr.seek(0)
        return [line for line in self._stderr.read().splitlines() if line.strip()]

    def close(self) -> None:
        for connection in self._driver.connections:
            with suppress(OSError):
                connection.send(None)
            connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._mpirun.wait(timeout=_END_S)
        self._end()

    def _end(self) -> None:
        """End mpirun and its ranks, if they have not ended."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._mpirun.poll() is None:
                self._mpirun.send_signal(number)
                self._mpirun.send_signal(signal.SIGCONT)  # it may be stopped
                with suppress(subprocess.TimeoutExpired):
                    self._mpirun.wait(timeout=_END_S)
        self._stderr.close()


def _end_with(driver: int) -> None:
    """Let the process that becomes mpirun end in order when the driver ends."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which a driver that is a child ignores
    die_with_parent(driver, signal.SIGTERM)


def _reason(lines: Sequence[str]) -> str:
    """Why MPI has not started: the innermost line of its stack that says something, or one that
    names a variable.

    >>> _reason(["Invalid character a in MPIR_CVAR_ENABLE_GPU", "(unknown)(): Other MPI error"])
    'Invalid character a in MPIR_CVAR_ENABLE_GPU'
    """
    telling = [
        line.strip()
        for line in lines
        if "Other MPI error" not in line and not any(word in line for word in _ABOUT_HELP)
    ]
    named = [line for line in telling if "MPIR_CVAR_" in line]
    return (named or telling[::-1] or lines)[0]


def _not_started(n: int, why: str) -> UnavailableError:
    return UnavailableError(
        f"{find_local_mpirun()} could not start {n} ranks: {why}",
        "try: mpirun -n 2 python -m mpi4py.bench helloworld",
    )


def _greet(listener: socket.socket, key: bytes) -> tuple[int, int, Connection] | None:
    """The rank, process and connection of one of this user that knows the key and says who it is in
    time; others are closed.
    """
    end, _ = listener.accept()
    with end, suppress(OSError):
        credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(credentials)[1] == os.getuid():
            end.settimeout(_HELLO_S)
            hello = end.recv(KEY_BYTES + HELLO.size, socket.MSG_WAITALL)
            is_known = hmac.compare_digest(hello[:KEY_BYTES], key)
            if is_known and len(hello) == KEY_BYTES + HELLO.size:
                end.settimeout(None)
                rank, pid = HELLO.unpack(hello[KEY_BYTES:])
                return rank, pid, Connection(end.detach())
    return None
