"""Threads of a rank that receive large messages: MPI copies in the thread that asks for a message, and one core copies less than a few do.

The rank's proxy looks which messages have come (matched probes keep their order) and hands each to a thread, which starts its receive: where MPI reads the
sender's memory (one copy, as Open MPI does inside a host), that is when the data moves, and Python's lock is free meanwhile. The proxy asks
whether it is done, so that no thread ever waits inside MPI. What is not copied so, the proxy's own turns receive; so they do what other hosts send,
which no processor copies, or none faster for having threads.

Measured on two H200s, 32 cores, Open MPI 4.1.6 with btl_vader_single_copy_mechanism cma, ring allreduce through 4 channels: 64 MiB by 1M 5.6 ms with 2
threads, 5.8 with 4, 15.7 with none; by 512K 8.3, 8.6, 13.7; by 256K 14.2, 16.0, 13.9. 4 MiB by 512K 668 us, 746, 908. Where MPI copies through buffers of
its own, threads gain nothing.
"""

import sys
from collections.abc import Collection
from queue import SimpleQueue
from threading import Thread
from typing import Any

RECEIVED_FROM = 512 << 10  # bytes of a slot: to wake a thread costs as much as to copy 256K
THREADS = 2  # of a rank, where nobody asked for others
# After which a thread gets Python's lock from one that runs on, as a proxy does: with the default of 5 ms a sweep had no row after a minute.
_SWITCH_S = 1e-5


def receivers_for(cores: int, ranks: int) -> int:
    """Threads of each of so many ranks that share so many cores, each of which needs one for its proxy; one thread alone would gain nothing.

    >>> receivers_for(64, 4), receivers_for(12, 4), receivers_for(8, 4)
    (2, 2, 0)
    """
    return THREADS if cores // ranks > THREADS else 0


class Received:
    """A message that a thread receives: what a request is to a proxy."""

    __slots__ = ("error", "into", "message", "request")

    def __init__(self, message: Any, into: Any) -> None:
        self.message, self.into = message, into
        self.request: Any = None
        self.error: Exception | None = None

    def Test(self) -> bool:  # noqa: N802  a name of mpi4py
        """Whether all of it has come. Raises what MPI raised."""
        if self.error is not None:
            raise self.error
        return self.request is not None and bool(self.request.Test())


class Receivers:
    """The threads, which end with close(). fault: what MPI raises; near: the ranks of this host."""

    def __init__(self, count: int, fault: type[Exception], near: Collection[int]) -> None:
        self.fault, self.near, self._switch_s = fault, near, sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._handed: SimpleQueue[Received | None] = SimpleQueue()
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def serve(self, peer: int, slot_bytes: int) -> bool:
        """Whether they are for messages of up to that size from that rank."""
        return peer in self.near and slot_bytes >= RECEIVED_FROM

    def receive(self, message: Any, into: Any) -> Received:
        """Let a thread receive a message that was found."""
        one = Received(message, into)
        self._handed.put(one)
        return one

    def _work(self) -> None:
        while (one := self._handed.get()) is not None:
            try:
                one.request = one.message.Irecv(one.into)
            except self.fault as error:
                one.error = error

    def close(self) -> None:
        """End the threads; what was handed out before is received."""
        for _ in self._threads:
            self._handed.put(None)
        for thread in self._threads:
            thread.join()
        sys.setswitchinterval(self._switch_s)
