"""A rank that tests run in a child process: it tells what it is, hangs, dies or refuses."""

import os
import signal
import time

from collbench.core.errors import RefusedError
from collbench.core.group import Rank, RankContext


class ChildRank(Rank):
    def __init__(self, context: RankContext) -> None:
        self.context = context

    def tell(self, *names: str) -> tuple[int, int, bool, int, list[str | None]]:
        """Who it is, its process, and these variables."""
        values = [os.environ.get(name) for name in names]
        return self.context.rank, self.context.n, self.context.is_process, os.getpid(), values

    def sleep(self, seconds: float, rank: int) -> None:
        """Hang, on that rank."""
        if self.context.rank == rank:
            time.sleep(seconds)

    def die(self, rank: int) -> None:
        """Die, on that rank."""
        if self.context.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)

    def refuse(self) -> None:
        raise RefusedError("no such thing", "ask for another")

    def say(self) -> None:
        """Print to stdout."""
        print("talk", flush=True)
