"""A worker group whose ranks are threads of this process: one process drives all GPUs of the host.

A thread keeps its GPU as its current one. Calls of the CUDA driver release Python's lock, so ranks
queue and wait at the same time.
"""

import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue

from collbench.core.errors import RankLostError
from collbench.core.group import RankContext, RankT
from collbench.launch.driver import ABORT_GRACE_S, ServedGroup, rank_lost, results_of
from collbench.launch.processes import RUNS
from collbench.launch.server import MethodCall, Reply, perform

_CLOSE_S = 10.0  # how long ranks may take to give their memory back


class ThreadWorkerGroup(ServedGroup[RankT]):
    """n threads, each with the rank's part of a backend."""

    def __init__(self, rank: type[RankT], n: int) -> None:
        self._calls: list[SimpleQueue[MethodCall | None]] = [SimpleQueue() for _ in range(n)]
        self._replies: SimpleQueue[tuple[int, Reply]] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, args=(rank, number, n), daemon=True)
            for number in range(n)
        ]
        self._is_lost = False
        for thread in self._threads:
            thread.start()

    def _serve(self, rank: type[RankT], number: int, n: int) -> None:
        part: RankT | None = None
        while (message := self._calls[number].get()) is not None:
            if part is None:
                part = rank(RankContext(rank=number, n=n, local_rank=number))
            self._replies.put((number, perform(part, *message)))
        if part is not None:
            part.close()
        self._replies.put((number, Reply()))

    def _call(self, method: str, args: tuple[object, ...], timeout_s: float) -> list[object]:
        return self._exchange((method, args), timeout_s)

    def _exchange(self, message: MethodCall | None, timeout_s: float) -> list[object]:
        n = len(self._threads)
        for calls in self._calls:
            calls.put(message)
        replies: dict[int, Reply] = {}
        deadline = time.monotonic() + timeout_s + ABORT_GRACE_S
        while len(replies) < n and time.monotonic() < deadline:
            try:
                rank, reply = self._replies.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                break
            replies[rank] = reply
        silent = [rank for rank in range(n) if rank not in replies]
        if silent:
            self._is_lost = True
            raise rank_lost([f"rank {', '.join(map(str, silent))} {RUNS}"])
        return results_of(replies)

    def close(self) -> None:
        """Let every rank free its memory; a lost one keeps its thread until the process ends."""
        if not self._is_lost:
            # what ended the sweep says more than that a GPU does not give its memory back
            with suppress(RankLostError):
                self._exchange(None, _CLOSE_S)
