"""One rank's part in measuring pairs: messages to and from its partner of a round, for a while that
the pair's first rank decides, behind a barrier of all ranks.

This is no schedule and no plan: a schedule has one proof for all its ranks and one number of
launches, whereas here disjoint pairs of different speeds load their links for the same time. A
message carries its number and a word that says whether it is the last; its bytes depend on sender
and place. The first and the last message of each pair are compared byte by byte, and the number of
every one.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from collbench.bench.pair_links import PairLink, link_of
from collbench.core.dtypes import Array
from collbench.core.group import Rank, RankContext
from collbench.core.host import boot_id

HEADER_BYTES = 16
_POISON = 0xA5


@dataclass(frozen=True, slots=True, kw_only=True)
class PairJob:
    """A round: pairs of ranks, from the first to the second unless is_both. Every pair repeats its
    message for window_s.
    """

    pairs: tuple[tuple[int, int], ...]
    size_bytes: int
    window_s: float
    deadline_s: float
    is_both: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTime:
    """What a rank saw: seconds of a message, messages, and wrong bytes (or numbers) of those it
    received.
    """

    seconds: float
    messages: int
    wrong: int


class PairRank(Rank):
    """A rank on processors."""

    def __init__(self, context: RankContext) -> None:
        self.rank = context.rank
        self.link: PairLink = link_of(context)
        self._out = self._into = np.empty(0, np.uint8)

    def load(self) -> tuple[float, int, str]:
        """How many processes wanted a core of this host in the last minute, its cores, and what
        hosts of the same machine have in common ("": not known).
        """
        machine = ""
        with suppress(OSError):
            machine = boot_id()
        return os.getloadavg()[0], os.cpu_count() or 1, machine

    def exchange(self, job: PairJob) -> PairTime | None:
        """Do this rank's share of a round; None if it has none.

        Ranks without a share sleep at the second barrier, so that they are not in the way.
        """
        pair = next((pair for pair in job.pairs if self.rank in pair), None)
        # before each barrier a pair may wait that long for one or two messages
        patience_s = 3 * job.deadline_s + job.window_s
        if pair is None:
            self.link.barrier(patience_s)
            self.link.barrier(patience_s)
            return None
        first, second = pair
        peer = second if self.rank == first else first
        is_first = self.rank == first
        sends, receives = job.is_both or is_first, job.is_both or not is_first
        self._fit(job.size_bytes)
        out, into = self._out if sends else None, self._into if receives else None
        wrong, expected = 0, content(peer, job.size_bytes)
        self._head(0, is_last=True)
        self._exchange(peer, out, into, job.deadline_s)
        if receives:
            wrong += self._wrong(expected, 0)
            self._poison()
        self.link.barrier(patience_s)
        number, is_last = 0, False
        start = time.perf_counter()
        while not is_last:
            number += 1
            if is_first:
                is_last = time.perf_counter() - start >= job.window_s and number > 1
            self._head(number, is_last=is_last)
            self._exchange(peer, out, into, job.deadline_s)
            if receives:
                seen, said = self._into[:HEADER_BYTES].view(np.int64)
                wrong += int(seen != number)
                is_last = bool(said) if not is_first else is_last
        seconds = (time.perf_counter() - start) / number
        self.link.barrier(patience_s)
        if receives:
            wrong += self._wrong(expected, number)
        return PairTime(seconds=seconds, messages=number, wrong=wrong)

    def _exchange(
        self, peer: int, out: "Array | None", into: "Array | None", deadline_s: float
    ) -> None:
        """Send a message, receive one, or both."""
        self.link.exchange(peer, out, into, deadline_s)

    def _fit(self, size_bytes: int) -> None:
        """Make the buffers of a size: a header, and as many bytes."""
        if len(self._out) != HEADER_BYTES + size_bytes:
            self._out = np.empty(HEADER_BYTES + size_bytes, np.uint8)
            self._into = np.empty_like(self._out)
            self._out[HEADER_BYTES:] = content(self.rank, size_bytes)
            self._into[:] = _POISON

    def _poison(self) -> None:
        """Overwrite the message that is there."""
        self._into[:] = _POISON

    def _head(self, number: int, *, is_last: bool) -> None:
        self._out[:HEADER_BYTES].view(np.int64)[:] = number, is_last

    def _wrong(self, expected: "Array", number: int) -> int:
        """Wrong bytes of the message that is there."""
        seen = int(self._into[:HEADER_BYTES].view(np.int64)[0])
        return int((self._into[HEADER_BYTES:] != expected).sum()) + int(seen != number)


def content(rank: int, size_bytes: int) -> "Array":
    """What a rank sends: bytes that differ between ranks and from place to place.

    >>> content(0, 4).tolist(), content(1, 4).tolist()
    ([0, 187, 119, 51], [97, 28, 216, 148])
    """
    places = np.arange(size_bytes, dtype=np.uint32)
    places *= np.uint32(2654435761)
    places >>= np.uint32(13)
    return (places + np.uint32(rank % 256 * 97)).astype(np.uint8)
