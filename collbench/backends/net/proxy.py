"""The proxy of a rank on CPUs: it owns the communicator for data, and moves the slots of all
connections that leave the rank's shared-memory domain.

For each connection it counts what was posted and what is done. The sending rank posts a slot, or
memory that its peer pulls, as soon as it is filled; the receiving one posts a receive into every
free slot. The counts go into the flags that the interpreter polls, so that a slot that came as a
message looks like one in shared memory.

It has no thread: the rank's own loop calls it while the rank waits, and every message is posted at
once. A thread of its own would need Python's lock, which the waiting interpreter holds (measured:
docs/results/cpu.md).

MPI may take small messages before there is a receive. So that they stay bounded, every `slots`-th
message is synchronous: it is done once its receive is posted, and messages keep their order, so no
more than 2 x slots messages of a connection wait at their receiver.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from collbench.backends.cpu.flags import YIELDS_A_LOOK, filled, freed, gives_up, patience
from collbench.core.dtypes import Array
from collbench.core.errors import RankLostError
from collbench.core.mpi_types import Buffer, Comm, Request
from collbench.planning.lowering import SlotSequence, room_wanted
from collbench.planning.plan import Plan

_BARRIER_TAG, _ABORT_TAG, FIRST_TAG = 1, 2, 3
_WORD = 8
BoundCall = tuple[Callable[..., object], tuple[object, ...]]


class DataComm:
    """The rank's communicator for data, a duplicate that nobody else uses. Making it is collective,
    and so is close(). fault: what MPI raises.
    """

    def __init__(self, comm: Comm, fault: type[Exception]) -> None:
        self.comm, self.fault = comm.Dup(), fault
        self.rank, self.n = comm.Get_rank(), comm.Get_size()
        self._turn, self._given_up = 0, -1
        self._notices: list[Request] = []  # requests, which keep what they send

    def is_aborted(self) -> bool:
        """Whether another rank gave up what goes on now."""
        while self.comm.Iprobe(tag=_ABORT_TAG):
            word = bytearray(_WORD)
            self.comm.Recv(word, tag=_ABORT_TAG)
            self._given_up = max(self._given_up, int.from_bytes(word, "little"))
        return self._given_up >= self._turn

    def calm(self) -> None:
        """On to something else, all ranks together: who gave up before goes on."""
        self._turn += 1

    def abort(self) -> None:
        """Tell the other ranks to give up."""
        for rank in range(self.n):
            if rank != self.rank:
                self._notices.append(
                    self.comm.Isend(self._turn.to_bytes(_WORD, "little"), rank, _ABORT_TAG)
                )

    def barrier(
        self, limit_s: float, proxy: "SlotProxy[Any]", is_aborted: Callable[[], bool]
    ) -> list[int]:
        """All ranks are here, and the messages that the proxy moves have left. Raises RankLostError
        if MPI lost one.

        Returns the ranks that have not come after limit_s, or until others gave up; this one if its
        messages do not leave.
        """
        others = [rank for rank in range(self.n) if rank != self.rank]
        try:
            tokens = [self.comm.Isend(bytearray(), rank, _BARRIER_TAG) for rank in others]
            missing = {rank: self.comm.Irecv(bytearray(), rank, _BARRIER_TAG) for rank in others}
            start, polls = time.monotonic(), 0
            while True:
                proxy.turn()
                missing = {rank: request for rank, request in missing.items() if not request.Test()}
                tokens = [request for request in tokens if not request.Test()]
                if not missing and proxy.is_sent() and not tokens:
                    return []
                polls += 1
                if polls > patience(self.n):
                    os.sched_yield()
                    if polls % YIELDS_A_LOOK == 0 and gives_up(start, limit_s, is_aborted):
                        return [*missing] or [self.rank]
        except self.fault as error:
            raise RankLostError(
                f"rank {self.rank} lost a connection of MPI at a barrier: {error}"
            ) from None

    def close(self) -> None:
        """Free the communicator."""
        self.comm.Free()


def data_comm_of(comm: Comm) -> DataComm:
    """The communicator for data, duplicated from one of mpi4py."""
    from mpi4py import MPI

    return DataComm(comm, MPI.Exception)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireEnd:
    """One end of a connection: what its messages are sent with, the flag that counts those that are
    done, and how many slots it has.
    """

    comm: Comm
    peer: int
    tag: int
    word: int
    slots: int


class Connector:
    """What both ends of a connection have. pending: requests, oldest first; done: how many of those
    before are; posted: both together; limit: messages after all launches that were expected.
    """

    def __init__(self, end: WireEnd) -> None:
        self.comm, self.peer, self.tag, self.word = end.comm, end.peer, end.tag, end.word
        self.slots = end.slots
        self.posted = self.done = self.limit = 0
        self.pending: deque[Request] = deque()

    def settle(self, flags: "memoryview[int]") -> None:
        """Count what came or went since the last time."""
        pending = self.pending
        while pending and pending[0].Test():
            pending.popleft()
            self.done += 1
            flags[self.word] = self.done

    turn = settle  # what a proxy does for an end again and again

    def clear(self) -> None:
        """Forget the counts of earlier launches."""
        self.posted = self.done = self.limit = 0


class SendConnector(Connector):
    """The sending end. done: the first so many of the posted messages have left the rank's memory;
    sent: those of them that MPI got.
    """

    def __init__(self, end: WireEnd) -> None:
        super().__init__(end)
        self.sent = 0

    def post(self, message: Buffer) -> None:
        """Send what was filled."""
        self.posted += 1
        self.sent += 1
        send = self.comm.Isend if self.sent % self.slots else self.comm.Issend
        self.pending.append(send(message, self.peer, self.tag))

    def clear(self) -> None:
        """Forget the counts of earlier launches."""
        super().clear()
        self.sent = 0


class _RecvConnector(Connector):
    """The receiving end. posted: receives; done: messages that have come; freed: slots that the
    interpreter has read.
    """

    def __init__(self, end: WireEnd, memory: Sequence["Array"], slices: int) -> None:
        super().__init__(end)
        self.memory = memory
        self.wanted = [
            room_wanted(SlotSequence(0, number), slices, end.slots) for number in range(slices)
        ]
        self.freed = 0

    def free(self) -> None:
        """The interpreter has read the oldest slot."""
        self.freed += 1
        self.post()

    def expect(self, launches: int) -> None:
        """So many launches will follow."""
        self.limit += launches * len(self.wanted)
        self.post()

    def post(self) -> None:
        """Post a receive for every slot that is free, as far as messages are expected."""
        slices = len(self.wanted)
        while self.posted < self.limit:
            number = self.posted % slices
            if self.freed < self.posted - number + self.wanted[number]:
                return
            slot = self.memory[number % self.slots]
            self.pending.append(self.comm.Irecv(slot, self.peer, self.tag))
            self.posted += 1

    def clear(self) -> None:
        """Forget the counts of earlier launches."""
        super().clear()
        self.freed = 0


ConnectorT = TypeVar("ConnectorT", bound=Connector)


class SlotProxy(Generic[ConnectorT]):
    """Moves the slots of a rank's ends. words: that the ends' own are among."""

    def __init__(self, data_comm: DataComm, rank: int, words: "memoryview[int]") -> None:
        self.fault, self.rank, self.words = data_comm.fault, rank, words
        self.ends: list[ConnectorT] = []

    def turn(self) -> None:
        """Move what can be moved, and count it. Raises RankLostError if MPI lost a peer."""
        words = self.words
        try:
            for end in self.ends:
                end.turn(words)
        except self.fault as error:
            raise RankLostError(
                f"rank {self.rank} lost its connection to rank {end.peer}: {error}"
            ) from None

    def is_sent(self) -> bool:
        """Whether every message has left."""
        return not any(end.pending for end in self.ends if isinstance(end, SendConnector))

    def clear(self) -> None:
        """Forget the counts of earlier launches, between two barriers of all ranks."""
        for end in self.ends:
            end.clear()


class Proxy(SlotProxy[Connector]):
    """Moves the slots of one plan for one rank.

    flags: the words that the interpreter polls. slot: the memory of a connection's slot at this
    rank, by the connection's number and the slot's.
    """

    def __init__(
        self,
        data_comm: DataComm,
        plan: Plan,
        rank: int,
        flags: "memoryview[int]",
        slot: Callable[[int, int], "Array"],
    ) -> None:
        super().__init__(data_comm, rank, flags)
        self.sending: dict[int, SendConnector] = {}
        self.receiving: dict[int, _RecvConnector] = {}
        for edge in plan.ends(rank):
            connection = plan.connections[edge]
            is_sending = rank == connection.src
            word = (
                freed(plan, edge, at_src=True) if is_sending else filled(plan, edge, at_src=False)
            )
            end = WireEnd(
                comm=data_comm.comm,
                peer=connection.dst if is_sending else connection.src,
                tag=FIRST_TAG + edge,
                word=word,
                slots=plan.slots,
            )
            if is_sending:
                self.sending[edge] = SendConnector(end)
            else:
                memory = [slot(edge, number) for number in range(plan.slots)]
                self.receiving[edge] = _RecvConnector(end, memory, connection.slices)
        self.ends = [*self.sending.values(), *self.receiving.values()]

    def post(self, edge: int, message: "Array") -> BoundCall:
        """What the interpreter calls when a message is filled."""
        return self.sending[edge].post, (message.view("u1"),)

    def free(self, edge: int) -> BoundCall:
        """What the interpreter calls when a slot is read."""
        return self.receiving[edge].free, ()

    def receives(self, edge: int) -> bool:
        """Whether this rank receives the messages of a connection."""
        return edge in self.receiving

    def expect(self, launches: int) -> None:
        """So many launches will follow."""
        for connector in self.receiving.values():
            connector.expect(launches)
