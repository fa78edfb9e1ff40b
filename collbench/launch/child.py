"""A child: a process with variables of its own that serves one rank's part for who started it. It
is no rank of the launcher above, and dies with the thread that started it.
"""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from collbench.core.errors import HangError, RankLostError
from collbench.core.group import RankContext
from collbench.core.launcher import INTERRUPTIONS
from collbench.launch.processes import RUNS, die_with_parent, fate, is_stopped
from collbench.launch.server import Reply, rank_class, serve

END_S = 5.0  # how long the driver may take to end a killed process that uses a GPU
_LOOK_S = 1.0  # between two looks at a child that does not answer
STDERR = 2


class Child:
    """A process that serves a rank of the class of that name. name: what it is in messages. talk:
    the file of what it and its libraries print, none of which is a row.
    """

    def __init__(
        self,
        name: str,
        rank: str,
        context: RankContext,
        environment: Mapping[str, str],
        talk: int = STDERR,
    ) -> None:
        self._name = name
        self._pipe, theirs = Pipe()
        numbers = theirs.fileno(), os.getpid(), context.rank, context.n, context.local_rank
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, rank, *map(str, numbers)],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=talk,
                stderr=talk,
                start_new_session=True,  # Ctrl-C is for the driver alone
            )

    def ask(self, method: str, *args: object) -> None:
        """Send a call; answer() is what comes of it."""
        with suppress(OSError):  # it has gone, as the answer will say
            self._pipe.send((method, args))

    def answer(self, timeout_s: float, where: str = "", stopped_s: float = math.inf) -> object:
        """What the call returns. Raises what it raised, RankLostError if the child died, HangError
        if it does not answer in time, or is stopped for so long; where: the end of what both say.
        """
        start = last_run = time.monotonic()
        try:
            while not self._pipe.poll(min(_LOOK_S, timeout_s)):
                state, now = fate(self._process.pid, None), time.monotonic()
                last_run = last_run if is_stopped(state) else now
                if now < start + timeout_s and now < last_run + stopped_s:
                    continue
                self.end()
                more = f" after {timeout_s:.0f} s{where}" if state == RUNS else ""
                raise HangError(f"{self._name} {state}{more}")
            reply: Reply = self._pipe.recv()
        except (EOFError, OSError):
            code: int | None = None
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=1.0)
            what = fate(self._process.pid, code)
            raise RankLostError(f"{self._name} {what}{where}") from None
        if reply.error is not None:
            raise reply.error
        return reply.result

    def end(self, in_order_s: float = 0.0) -> None:
        """End the child: in order if it does that in time, or else by a kill, which alone ends one
        that hangs.
        """
        if in_order_s > 0:
            self._pipe.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(in_order_s)
        self._process.kill()
        # one that hangs in the kernel ends when that lets it
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self._pipe.close()


def main(rank: str, descriptor: int, parent: int, number: int, n: int, local_rank: int) -> None:
    """Serve one rank for the process that holds the other end of the pipe."""
    for interruption in INTERRUPTIONS:
        signal.signal(interruption, signal.SIG_IGN)
    die_with_parent(parent)
    part = rank_class(rank)(RankContext(rank=number, n=n, local_rank=local_rank, is_process=True))
    serve(Connection(descriptor), part)
    part.close()
    os._exit(0)  # not in order: a library that hangs would keep the process


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
