"""A communicator that needs no MPI: threads are the ranks, and messages are lists. What
backends/_proxy.py asks of mpi4py, and no more.

Of a synchronous message the request is done once a receive took it; of others at once, as of small
messages of a real MPI.
"""

import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Message:
    data: bytes
    is_taken: bool = False


@dataclass
class World:
    """The mail of all ranks, by source, destination and tag; `most` is how many messages ever
    waited for one receiver; what `broken` sends fails.
    """

    n: int
    lock: Any = field(default_factory=threading.Lock)
    mail: dict[tuple[int, int, int], deque[Message]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    most: int = 0
    broken: int = -1


class Sent:
    def __init__(self, message: Message, is_synchronous: bool) -> None:
        self.message, self.is_synchronous = message, is_synchronous

    def Test(self) -> bool:
        return self.message.is_taken or not self.is_synchronous


class Received:
    """A receive: it takes the next message of its connection once all receives posted before it
    have theirs.
    """

    def __init__(self, comm: "FakeComm", key: tuple[int, int, int], into: Any) -> None:
        self.comm, self.key, self.into, self.is_done = comm, key, into, False

    def Test(self) -> bool:
        if not self.is_done:
            with self.comm.world.lock:
                mail = self.comm.world.mail[self.key]
                if mail:
                    message = mail.popleft()
                    memoryview(self.into).cast("B")[: len(message.data)] = message.data
                    message.is_taken = self.is_done = True
        return self.is_done


class FakeComm:
    """One rank's end."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank = world, rank

    def Dup(self) -> "FakeComm":
        return self

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.world.n

    def _send(self, data: Any, peer: int, tag: int, is_synchronous: bool) -> Sent:
        if self.rank == self.world.broken:
            raise OSError("connection reset")
        message = Message(memoryview(data).cast("B").tobytes())
        with self.world.lock:
            mail = self.world.mail[self.rank, peer, tag]
            mail.append(message)
            self.world.most = max(self.world.most, len(mail))
        return Sent(message, is_synchronous)

    def Isend(self, data: Any, peer: int, tag: int) -> Sent:
        return self._send(data, peer, tag, False)

    def Issend(self, data: Any, peer: int, tag: int) -> Sent:
        return self._send(data, peer, tag, True)

    def Irecv(self, into: Any, peer: int, tag: int) -> Received:
        return Received(self, (peer, self.rank, tag), into)

    def Recv(self, into: bytearray, tag: int) -> None:
        with self.world.lock:
            into[:] = (
                next(
                    mail
                    for peer in range(self.world.n)
                    if (mail := self.world.mail[peer, self.rank, tag])
                )
                .popleft()
                .data
            )

    def Iprobe(self, tag: int) -> bool:
        with self.world.lock:
            return any(self.world.mail[peer, self.rank, tag] for peer in range(self.world.n))
