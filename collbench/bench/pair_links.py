"""How two ranks on processors exchange messages: by MPI, or through memory that both have mapped.

Every wait polls, has a deadline, and names the rank that keeps this one waiting.
"""

import os
import time
from abc import abstractmethod
from typing import Protocol

import numpy as np

from collbench.core.dtypes import Array
from collbench.core.errors import HangError
from collbench.core.group import RankContext

SLOT_BYTES = 256 << 10
_SLOTS = 2  # one is filled while the other is read
_LINE_BYTES = 64  # so that no two counters share a cache line
_TAG = 77
_LOOKS = 64  # at what is awaited, between two looks at the clock
_AWAKE_S, _NAP_S = 0.002, 0.0002  # at a barrier: others may still use this core
# A rank that has waited longer for a message sleeps for this share of the wait, up to the most.
_NAP_SHARE, _LONGEST_NAP_S = 0.02, 0.0005


class PairLink(Protocol):
    """What one rank exchanges messages with."""

    @abstractmethod
    def barrier(self, deadline_s: float) -> None:
        """Wait for all ranks of the world. Raises HangError."""

    @abstractmethod
    def exchange(
        self, peer: int, out: "Array | None", into: "Array | None", deadline_s: float
    ) -> None:
        """Send a message to a peer, receive one, or both at once. Raises HangError."""


def link_of(context: RankContext) -> PairLink:
    """The link of a rank: through the memory that all share, or else MPI."""
    return MpiLink(context) if context.arena is None else ArenaLink(context)


def arena_bytes(n: int) -> int:
    """Shared memory that the links of n ranks need."""
    return _LINE_BYTES * (1 + 3 * n) + n * _SLOTS * SLOT_BYTES


class MpiLink(PairLink):
    """Messages of MPI. The watchdog ends what does not return from a call that should not block."""

    def __init__(self, context: RankContext) -> None:
        from mpi4py import MPI

        assert context.watchdog is not None
        self._mpi, self._comm, self._watchdog = MPI, context.comm, context.watchdog
        self._rank = context.rank

    def barrier(self, deadline_s: float) -> None:
        with self._watchdog.together("all ranks to begin a round", deadline_s):
            start = time.monotonic()
            request = self._comm.Ibarrier()
            while not request.Test():
                if time.monotonic() - start < _AWAKE_S:
                    os.sched_yield()
                else:
                    time.sleep(_NAP_S)

    def exchange(
        self, peer: int, out: "Array | None", into: "Array | None", deadline_s: float
    ) -> None:
        requests = []
        if into is not None:
            requests.append(self._comm.Irecv([into, self._mpi.BYTE], peer, _TAG))
        if out is not None:
            requests.append(self._comm.Isend([out, self._mpi.BYTE], peer, _TAG))
        start = time.monotonic()
        while not self._mpi.Request.Testall(requests):
            waits_s = time.monotonic() - start
            if waits_s < _AWAKE_S:
                os.sched_yield()
            else:
                time.sleep(min(_NAP_SHARE * waits_s, _LONGEST_NAP_S))
            if waits_s > deadline_s:
                raise waited(self._rank, peer, deadline_s)


class ArenaLink(PairLink):
    """Messages in slices through slots of shared memory: two of each rank, which it fills and its
    peer empties, with counters of both that only grow.
    """

    def __init__(self, context: RankContext) -> None:
        assert context.arena is not None
        n, self._rank = context.n, context.rank
        memory = np.frombuffer(context.arena, np.uint8)
        lines = memory[: _LINE_BYTES * (1 + 3 * n)].view(np.int64)[:: _LINE_BYTES // 8]
        self._arena = context.arena
        self._filled, self._emptied, self._arrived = (
            lines[1 + kind * n : 1 + (kind + 1) * n] for kind in range(3)
        )
        base = _LINE_BYTES * (1 + 3 * n)
        self._slots = memory[base : base + n * _SLOTS * SLOT_BYTES].reshape(n, _SLOTS, SLOT_BYTES)

    def barrier(self, deadline_s: float) -> None:
        self._arrived[self._rank] += 1
        wanted, start = self._arrived[self._rank], time.monotonic()
        while (late := np.flatnonzero(self._arrived < wanted)).size:
            now = time.monotonic()
            if now > start + deadline_s or self._arena[0]:
                raise waited(self._rank, int(late[0]), deadline_s, now > start + deadline_s)
            if now - start < _AWAKE_S:
                os.sched_yield()
            else:
                time.sleep(_NAP_S)

    def exchange(
        self, peer: int, out: "Array | None", into: "Array | None", deadline_s: float
    ) -> None:
        me, filled, emptied = self._rank, self._filled, self._emptied
        sent, received = 0, 0
        to_send = len(out) if out is not None else 0
        to_receive = len(into) if into is not None else 0
        looks, until = 0, 0.0
        while sent < to_send or received < to_receive:
            before = sent, received
            if out is not None and sent < to_send and filled[me] - emptied[me] < _SLOTS:
                piece = out[sent : sent + SLOT_BYTES]
                self._slots[me, filled[me] % _SLOTS, : len(piece)] = piece
                filled[me] += 1
                sent += len(piece)
            if into is not None and received < to_receive and emptied[peer] < filled[peer]:
                piece = into[received : received + SLOT_BYTES]
                piece[:] = self._slots[peer, emptied[peer] % _SLOTS, : len(piece)]
                emptied[peer] += 1
                received += len(piece)
            if (sent, received) != before:
                until = 0.0
                continue
            os.sched_yield()
            looks += 1
            if looks % _LOOKS == 0:
                until = until or time.monotonic() + deadline_s
                now = time.monotonic()
                if now > until or self._arena[0]:
                    raise waited(me, peer, deadline_s, now > until)


def waited(rank: int, peer: int, deadline_s: float, is_over: bool = True) -> HangError:
    """The error of a rank that gives up: its time is over, or the others were told to end."""
    what = f"waited {deadline_s:.3g} s" if is_over else "was waiting"
    return HangError(f"rank {rank} {what} for rank {peer}", suspect=((0,), peer))
