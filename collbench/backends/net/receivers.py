"""Threads that receive the messages which this process copies: for ranks of the same host, MPI
(such as Open MPI) reads the sender's memory in the thread that asks for the message.

A receive that is posted ahead is copied whenever MPI next progresses, together with all others that
have come, and the first is not seen before the last. So the proxy probes which messages have come
(matched probes keep their order) and takes them one by one: kernels read one while the next is
copied.

Several cores copy more than one: large messages are handed to threads, because Python's lock is
free while they copy. The proxy asks whether they are done, so that no thread ever waits inside MPI.
Where MPI copies through buffers of its own, threads gain nothing. Messages of other hosts are
posted ahead. Measured: docs/results/mpi-messages.md.
"""

import sys
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread

from collbench.core.mpi_types import Buffer, MatchedMessage, Request
from collbench.planning.limits import slot_wire_bytes
from collbench.planning.plan import Plan

TAKEN_FROM = 64 << 10  # bytes of a slot whose copy takes longer than a probe
RECEIVED_FROM = 1 << 20  # by a thread, which must be woken and get Python's lock first
# of a rank, where no option says otherwise: the most for which there are cores
RECEIVING_THREADS = (4, 2)
# Python hands its lock from a running thread (the proxy) to a waiting one after this time; its
# default would let receivers starve.
_SWITCH_S = 1e-5


def is_worth_threads(plan: Plan) -> bool:
    """Whether messages of the plan that come from the same host are worth a thread."""
    return slot_wire_bytes(plan) >= RECEIVED_FROM


def may_take_threads(plan: Plan, hosts: Sequence[str]) -> bool:
    """Whether some messages are; hosts: of the ranks, one alone for all."""
    places = hosts if len(hosts) >= plan.n else [""] * plan.n
    return is_worth_threads(plan) and any(
        plan.is_remote(c.src, c.dst) and places[c.src] == places[c.dst] for c in plan.connections
    )


def receivers_for(cores: int) -> int:
    """Threads of a rank that has so many cores, one of which its proxy needs; one thread alone
    would gain nothing.

    >>> receivers_for(16), receivers_for(3), receivers_for(2)
    (4, 2, 0)
    """
    return next((threads for threads in RECEIVING_THREADS if cores > threads), 0)


class Received:
    """A message that a thread receives: what a request is to a proxy."""

    __slots__ = ("error", "into", "message", "request")

    def __init__(self, message: MatchedMessage, into: Buffer) -> None:
        self.message, self.into = message, into
        self.request: Request = None
        self.error: Exception | None = None

    def Test(self) -> bool:  # noqa: N802  a name of mpi4py
        """Whether all of it has come. Raises what MPI raised."""
        if self.error is not None:
            raise self.error
        return self.request is not None and bool(self.request.Test())


class Receivers:
    """The threads, which end with close(). fault: what MPI raises."""

    def __init__(self, count: int, fault: type[Exception]) -> None:
        self.fault, self._switch_s = fault, sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._queue: SimpleQueue[Received | None] = SimpleQueue()
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def receive(self, message: MatchedMessage, into: Buffer) -> Received:
        """Let a thread receive a message that was found."""
        one = Received(message, into)
        self._queue.put(one)
        return one

    def _work(self) -> None:
        while (one := self._queue.get()) is not None:
            try:
                one.request = one.message.Irecv(one.into)
            except self.fault as error:
                one.error = error

    def close(self) -> None:
        """End the threads; what was handed out before is received."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        sys.setswitchinterval(self._switch_s)
