"""Ranks of another backend in processes of their own, started with variables of their own: for a
library that reads its knobs once a process.

A rank's part here holds one child, hands it the calls over a pipe and hands its answers back; which
backend it is, this module does not know. Children are no ranks of the launcher above, and die with
the thread that started them.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from collbench.core.errors import HangError, RankLostError
from collbench.core.group import Group, Rank, RankContext, RankT
from collbench.core.launcher import INTERRUPTIONS, without_launcher
from collbench.core.peers import Variables
from collbench.launch.driver import ServedGroup
from collbench.launch.processes import RUNS, die_with_parent, fate
from collbench.launch.server import Reply, rank_class, rank_name, serve

BEGIN_S = 30.0  # to start a process on a busy machine
MARGIN_S = 5.0  # what a rank may take beyond its child
END_S = 5.0  # how long the driver may take to end a killed process that uses a GPU
_STDERR = 2


class ParentRank(Rank):
    """One rank's part: the child that it started."""

    def __init__(self, context: RankContext) -> None:
        self.context = context
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, rank: str, variables: Variables) -> None:
        """Start the child, a rank of the class of that name."""
        self.close()
        context = self.context
        mine, theirs = Pipe()
        args = (theirs.fileno(), os.getpid(), rank, context.rank, context.n, context.local_rank)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *map(str, args)],
                env={**without_launcher(os.environ), **dict(variables)},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=_STDERR,
                start_new_session=True,
            )  # what libraries print is talk, not rows; Ctrl-C is for the driver alone
        self._pipe = mine

    def forward(self, method: str, args: tuple[object, ...], timeout_s: float) -> object:
        """What the child answers. Raises what it raised, RankLostError if it died, HangError if it
        does not answer in time.
        """
        rank, process = self.context.rank, self._process
        assert process is not None
        try:
            self._pipe.send((method, args))
            if not self._pipe.poll(timeout_s):
                state = fate(process.pid, None)
                self.close()
                raise HangError(
                    f"the process of rank {rank} {state}"
                    + (f" after {timeout_s:.0f} s in {method}" if state == RUNS else "")
                )
            reply: Reply = self._pipe.recv()
        except (EOFError, OSError):
            raise RankLostError(
                f"the process of rank {rank} {_end_of(process)} in {method}"
            ) from None
        if reply.error is not None:
            raise reply.error
        return reply.result

    def close(self) -> None:
        """End the child: nothing of it is worth saving, and one that hangs obeys a kill alone."""
        if self._process is not None:
            self._process.kill()
            # one that hangs in the kernel ends when that lets it
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=END_S)
            self._pipe.close()
            self._process = None


def _end_of(process: "subprocess.Popen[bytes]") -> str:
    """What became of a process whose pipe is closed."""
    try:
        code: int | None = process.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        code = None
    return fate(process.pid, code)


class ChildWorkerGroup(ServedGroup[RankT]):
    """The driver's side: a worker group whose ranks each forward their calls to a child."""

    def __init__(self, group: Group, rank: type[RankT], n: int, variables: Variables) -> None:
        self._workers, self._is_lost = group.gpu_workers(ParentRank, n), False
        self._workers.call(ParentRank.begin, rank_name(rank), variables, timeout_s=BEGIN_S)

    def _call(self, method: str, args: tuple[object, ...], timeout_s: float) -> list[object]:
        try:
            return self._workers.call(
                ParentRank.forward, method, args, timeout_s, timeout_s=timeout_s + MARGIN_S
            )
        except HangError:
            self._is_lost = True
            raise

    def close(self) -> None:
        """End the children; those of ranks that are lost end with them."""
        if not self._is_lost:
            # under a launcher parts outlive their worker group
            self._workers.call(ParentRank.close, timeout_s=END_S + MARGIN_S)
        self._workers.close()


def main(descriptor: str, parent: str, rank: str, number: str, n: str, local_rank: str) -> None:
    """Serve one rank for the process that holds the other end of the pipe."""
    for interruption in INTERRUPTIONS:
        signal.signal(interruption, signal.SIG_IGN)
    die_with_parent(int(parent))
    context = RankContext(rank=int(number), n=int(n), local_rank=int(local_rank), is_process=True)
    serve(Connection(int(descriptor)), rank_class(rank)(context))
    os._exit(0)  # not in order: a library that hangs would keep the process


if __name__ == "__main__":
    main(*sys.argv[1:7])
