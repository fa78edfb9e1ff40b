"""The driver's side of ranks in other processes: calls, replies, and who is missing."""

import math
import os
import signal
import socket
import struct
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Protocol, cast

from collbench.core.errors import CollbenchError, HangError, RankLostError
from collbench.core.group import Args, RankT, Result, WorkerGroup
from collbench.launch.processes import RUNS, fate, hint_of
from collbench.launch.server import Reply

ABORT_GRACE_S = 2.0  # how long ranks that are asked to stop may take to answer
# how often a deadline is put off while every silent rank runs: ranks notice by themselves when they
# wait in vain
EXTENSIONS = 20
# how long a message may hang on its way to or from a rank that stopped in the middle of it
MESSAGE_S = 5.0
_SAID = 6  # ranks whose words an error has


class ServedGroup(WorkerGroup[RankT]):
    """Ranks that are told the name of a method, and serve it (see server.py)."""

    def call(
        self, method: Callable[[RankT, *Args], Result], *args: *Args, timeout_s: float
    ) -> list[Result]:
        # the name is all that travels; server.perform() finds the method of the rank's own class
        return cast("list[Result]", self._call(method.__name__, args, timeout_s))

    @abstractmethod
    def _call(self, method: str, args: tuple[object, ...], timeout_s: float) -> list[object]:
        """As call(), by the method's name."""


class Source(Protocol):
    """Where replies come from. receive: what has come from ranks, within so many seconds; None from
    one that is lost.
    """

    def fate(self, rank: int, /) -> str: ...
    def abort(self) -> None: ...
    def receive(self, ranks: Sequence[int], _: float) -> Iterable[tuple[int, Reply | None]]: ...


class Driver:
    """Connections to n ranks. `pids[rank]` and `exit_code(rank)` show what became of a process that
    does not answer.
    """

    def __init__(
        self,
        connections: Sequence[Connection],
        pids: Sequence[int],
        exit_code: Callable[[int], int | None],
        abort: Callable[[], None],
    ) -> None:
        self.connections, self.pids = list(connections), pids
        self.exit_code, self.abort = exit_code, abort
        self.fate = lambda rank: fate(pids[rank], None)
        for connection in self.connections:
            _limit_messages(connection)

    def call(self, method: str, args: tuple[object, ...], timeout_s: float) -> list[object]:
        """The results of all ranks in rank order. Raises what the first failing rank raised,
        HangError or RankLostError.
        """
        for rank, connection in enumerate(self.connections):
            try:
                connection.send((method, args))
            except OSError:
                raise self._lost([rank], []) from None
        replies: dict[int, Reply] = {}
        if missing := collect(replies, range(len(self.connections)), self, timeout_s):
            raise self._lost(missing, errors_of(replies))
        return results_of(replies)

    def receive(self, ranks: Sequence[int], left_s: float) -> Iterator[tuple[int, Reply | None]]:
        """What has come from these ranks; it waits so long for a first."""
        ready = wait([self.connections[rank] for rank in ranks], timeout=left_s)
        for rank in ranks:
            if self.connections[rank] in ready:
                try:
                    yield rank, self.connections[rank].recv()
                except (EOFError, OSError):
                    yield rank, None

    def _lost(self, ranks: list[int], errors: list[CollbenchError]) -> RankLostError:
        """What became of the ranks that did not answer, and who waited for them."""
        time.sleep(0.05)  # a killed process is reaped a moment after its connection closes
        fates = [f"rank {rank} {fate(self.pids[rank], self.exit_code(rank))}" for rank in ranks]
        return rank_lost(fates, errors)


def collect(
    replies: dict[int, Reply], ranks: Iterable[int], source: Source, timeout_s: float
) -> list[int]:
    """Add replies until these ranks have answered; returns those that did not, the first that was
    lost first: it is the cause.

    The deadline is put off while every silent rank runs. After it, an error or a loss, ranks are
    asked to give up, and have a moment to say why.
    """
    lost: list[int] = []
    deadline, is_aborted, extensions = time.monotonic() + timeout_s, False, EXTENSIONS
    while silent := [rank for rank in ranks if rank not in replies and rank not in lost]:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            if is_aborted:
                break
            if extensions and all(source.fate(rank) == RUNS for rank in silent):
                extensions, deadline = extensions - 1, time.monotonic() + timeout_s
                continue
        for rank, reply in source.receive(silent, left_s) if left_s > 0 else ():
            if reply is None:
                lost.append(rank)
            else:
                replies[rank] = reply
        is_over = left_s <= 0 or lost or any(reply.error for reply in replies.values())
        if is_over and not is_aborted:
            is_aborted, deadline = True, time.monotonic() + ABORT_GRACE_S
            source.abort()
    return lost + silent


def rank_lost(fates: Sequence[str], errors: Sequence[CollbenchError] = ()) -> RankLostError:
    """The error for ranks that did not answer, with the errors of those that did."""
    message = "; ".join([*_few(fates), *_few([error.message for error in errors])])
    return RankLostError(message, hint_of(message) or "run it again")


def errors_of(replies: Mapping[int, Reply]) -> list[CollbenchError]:
    """What ranks raised, in rank order."""
    in_order = (replies[rank].error for rank in sorted(replies))
    return [error for error in in_order if error is not None]


def results_of(replies: Mapping[int, Reply]) -> list[object]:
    """The results in rank order. Raises the first error that is no hang, or all hangs as one."""
    errors = errors_of(replies)
    if errors:
        raise next(
            (error for error in errors if not isinstance(error, HangError)), None
        ) or hang_error(errors)
    return [replies[rank].result for rank in sorted(replies)]


def hang_error(errors: Sequence[CollbenchError]) -> HangError:
    """One error of several ranks' waits, which begins with the rank at the root if known."""
    suspects = [
        error.suspect
        for error in errors
        if isinstance(error, HangError) and error.suspect is not None
    ]
    root = f"rank {min(suspects)[1]} keeps the others waiting: " if suspects else ""
    return HangError(
        root + "; ".join(_few([error.message for error in errors])),
        "raise --timeout if the machine is merely slow",
    )


def _few(texts: Sequence[str]) -> list[str]:
    """What ranks have to say, of many ranks the first and how many more there are.

    >>> _few(["a", "b"]), _few([str(rank) for rank in range(9)])
    (['a', 'b'], ['0', '1', '2', '3', '4', '5', 'and 3 more'])
    """
    more = len(texts) - _SAID
    return [*texts] if more <= 1 else [*texts[:_SAID], f"and {more} more"]


def _limit_messages(connection: Connection) -> None:
    """Let the kernel end reads and writes that make no progress: a rank stopped in the middle of a
    long message reads or writes no more.
    """
    interval = struct.pack("@ll", int(MESSAGE_S), 0)
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, interval)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, interval)


class OutOfTime(Exception):  # noqa: N818 - no fault: the time that was given is over
    """The time is over."""


@contextmanager
def ended_at(end_s: float) -> Iterator[None]:
    """Raise OutOfTime in the body at that time of the monotonic clock, by SIGALRM, also while it
    waits. Only the main thread can; elsewhere, and for math.inf, nothing happens.
    """
    if end_s == math.inf or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(1e-3, end_s - time.monotonic()))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
