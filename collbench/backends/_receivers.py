"""Threads of a rank that receive large messages: MPI copies in the thread that asks for a message, and one core copies less than a few do.

The rank's proxy looks which messages have come (matched probes keep their order) and hands each to a thread, which starts its receive: where MPI reads the
sender's memory (one copy, as Open MPI does inside a host), that is when the data moves, and Python's lock is free meanwhile. The proxy asks
whether it is done, so that no thread ever waits inside MPI. What is not copied so, the proxy's own turns receive.

Measured on two H200s' host of 32 cores, Open MPI 4.1.6 with btl_vader_single_copy_mechanism cma, messages of 1 MiB around a ring of 2 ranks: 4.6 GB/s
into a rank by one thread, 8.8 by 2, 15.5 by 4; by 256 KiB 4.2, 7.4, 7.8. Where MPI copies through its own buffers, 3.3 with any number.
"""

from queue import SimpleQueue
from threading import Thread
from typing import Any

RECEIVED_FROM = 128 << 10  # bytes of a slot: smaller messages cost a thread more than their copy
MOST = 4  # threads of a rank that nobody asked for


def receivers_for(cores: int, ranks: int) -> int:
    """Threads of each of so many ranks that share so many cores, each of which needs one for its proxy.

    >>> receivers_for(64, 4), receivers_for(8, 4), receivers_for(2, 2)
    (4, 1, 0)
    """
    return max(0, min(MOST, cores // ranks - 1))


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
    """The threads, which end with close(). fault: what MPI raises."""

    def __init__(self, count: int, fault: type[Exception]) -> None:
        self.fault = fault
        self._handed: SimpleQueue[Received | None] = SimpleQueue()
        self._threads = [Thread(target=self._serve, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def receive(self, message: Any, into: Any) -> Received:
        """Let a thread receive a message that was found."""
        one = Received(message, into)
        self._handed.put(one)
        return one

    def _serve(self) -> None:
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
