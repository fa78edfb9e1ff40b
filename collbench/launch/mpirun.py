"""A worker group whose ranks mpirun starts, for an MPI library's own collectives in a sweep that
has no launcher itself.

Each rank connects back over a Unix socket in the abstract namespace (no file to leave behind) and
then sleeps in the kernel until it is called, so that it does not disturb what is measured in
between.
"""

import os
import secrets
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, Listener

from collbench.launch.driver import Driver
from collbench.launch.group import RankT, WorkerGroup
from collbench.launch.launcher import OPEN_MPI_VARIABLES, find_mpirun
from collbench.launch.server import rank_name
from collbench.util.errors import RankLostError, UnavailableError

KEY_VARIABLE = "COLLBENCH_KEY"
_CONNECT_S = 30.0  # until all ranks have connected back


class MpirunWorkerGroup(WorkerGroup[RankT]):
    """n ranks under an mpirun of ours."""

    def __init__(self, rank: type[RankT], n: int) -> None:
        key = secrets.token_bytes(16)
        self._pids: list[int] = []
        address = f"collbench-{os.getpid()}-{secrets.token_hex(8)}"
        with Listener(f"\0{address}", "AF_UNIX", backlog=n, authkey=key) as listener:
            environment = {**OPEN_MPI_VARIABLES, **os.environ, KEY_VARIABLE: key.hex()}
            environment.pop("PYTHONUNBUFFERED", None)  # MPICH's mpirun then splits lines
            # a file, because a pipe that nobody reads would fill up
            self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
            self._mpirun = subprocess.Popen(
                [
                    find_mpirun(),
                    "-n",
                    str(n),
                    sys.executable,
                    "-m",
                    "collbench.launch.mpi_worker",
                    address,
                    rank_name(rank),
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                start_new_session=True,
            )
            try:
                ends = self._accept(listener, n)
            except BaseException:
                self._kill()
                raise
        self._pids = [pid for _, pid in ends]
        self._driver = Driver(
            [connection for connection, _ in ends], self._pids, lambda rank: None, lambda: None
        )

    def _accept(self, listener: Listener, n: int) -> list[tuple[Connection, int]]:
        """Connections of all ranks in rank order, with their process ids. Raises UnavailableError
        if they do not come.
        """
        connected: dict[int, tuple[Connection, int]] = {}
        problem: list[str] = []

        def accept() -> None:
            try:
                # none says hello before MPI has started on all
                for connection in [listener.accept() for _ in range(n)]:
                    rank, pid, error = connection.recv()
                    if error:
                        problem.append(error)
                        return
                    connected[rank] = connection, pid
            except (OSError, EOFError):
                return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        waited = 0.0
        while thread.is_alive() and waited < _CONNECT_S and self._mpirun.poll() is None:
            thread.join(timeout=0.1)
            waited += 0.1
        if len(connected) < n:
            last = self._stderr_lines()[-1:] or [
                f"{len(connected)} of {n} ranks came up in {_CONNECT_S:.0f} s"
            ]
            why = (problem or last)[0]
            raise UnavailableError(
                f"mpirun could not start {n} ranks: {why}",
                "try: mpirun -n 2 python -m mpi4py.bench helloworld",
            )
        return [connected[rank] for rank in range(n)]

    def _call(self, method: str, args: tuple[object, ...], timeout_s: float) -> list[object]:
        try:
            return self._driver.call(method, args, timeout_s)
        except RankLostError as error:
            reasons = [
                line.removeprefix("Error: ")
                for line in self._stderr_lines()
                if line.startswith("Error: ")
            ]
            # who gave up knows more than who finds them all gone
            error.message = "; ".join(reasons) or error.message
            raise

    def _stderr_lines(self) -> list[str]:
        """What mpirun and the ranks wrote to stderr."""
        self._stderr.seek(0)
        return [line for line in self._stderr.read().splitlines() if line.strip()]

    def close(self) -> None:
        for connection in self._driver.connections:
            with suppress(OSError):
                connection.send(None)
            connection.close()
        self._kill()

    def _kill(self) -> None:
        """End mpirun, which ends its ranks; a rank that is stopped obeys only a kill."""
        try:
            self._mpirun.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._mpirun.terminate()
            for pid in self._pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            try:
                self._mpirun.wait(timeout=2.0)
            except subprocess.TimeoutExpired:
                self._mpirun.kill()
                self._mpirun.wait()
