"""A crew whose ranks are threads of this process: one process drives all GPUs of the host.

A thread keeps its GPU as its current one. Calls of the CUDA driver release Python's lock, so ranks
queue and wait side by side.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from collbench.launch.driver import ABORT_GRACE_S, hang_error
from collbench.launch.group import RankContext
from collbench.launch.server import make_part, perform
from collbench.util.errors import CollbenchError, HangError, RankLostError


class ThreadWorkerGroup:
    """n threads, each with the rank's part of a backend."""

    def __init__(self, backend: str, n: int) -> None:
        self._calls: list[SimpleQueue[Any]] = [SimpleQueue() for _ in range(n)]
        self._answers: SimpleQueue[tuple[int, tuple[str, Any]]] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, args=(backend, rank, n), daemon=True)
            for rank in range(n)
        ]
        self._is_lost = False
        for thread in self._threads:
            thread.start()

    def _serve(self, backend: str, rank: int, n: int) -> None:
        part: Any = None
        while (message := self._calls[rank].get()) is not None:
            method, args = message
            if part is None:
                part = make_part(backend, RankContext(rank=rank, n=n, local_rank=rank))
            self._answers.put((rank, perform(part, method, args)))
        if part is not None:
            part.close()
        self._answers.put((rank, ("ok", None)))

    def call(self, method: str, *args: object, timeout_s: float) -> list[Any]:
        return self._collect(lambda rank: self._calls[rank].put((method, args)), timeout_s)

    def _collect(self, ask: Callable[[int], None], timeout_s: float) -> list[Any]:
        n = len(self._threads)
        for rank in range(n):
            ask(rank)
        answers: dict[int, tuple[str, Any]] = {}
        deadline = time.monotonic() + timeout_s + ABORT_GRACE_S
        while len(answers) < n and time.monotonic() < deadline:
            try:
                rank, answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                break
            answers[rank] = answer
        silent = [rank for rank in range(n) if rank not in answers]
        if silent:
            self._is_lost = True
            raise RankLostError(
                f"rank {', '.join(map(str, silent))} does not answer",
                "rows finished before are kept; run again with --resume to go on",
            )
        errors: list[CollbenchError] = [
            answers[rank][1] for rank in range(n) if answers[rank][0] == "error"
        ]
        if errors:
            raise next(
                (error for error in errors if not isinstance(error, HangError)), None
            ) or hang_error(errors)
        return [answers[rank][1] for rank in range(n)]

    def close(self) -> None:
        """Let every rank give its memory back; one that is lost keeps its thread, which ends with
        the process.
        """
        if not self._is_lost:
            # what ended the sweep says more than that a GPU does not give its memory back
            with suppress(RankLostError):
                self._collect(lambda rank: self._calls[rank].put(None), 10.0)
