"""The words by which ranks on CPUs synchronise: where each flag is, and how a rank polls.

Flags are whole numbers that only grow: of connection e, `filled` counts slices sent and `freed`
slices read, over all launches. Each has a cache line of its own.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from collbench.backends.repeat import shortest_flag_s
from collbench.core.dtypes import Array
from collbench.core.errors import HangError
from collbench.core.host import usable_cores
from collbench.planning.plan import Plan

LINE_WORDS = 8  # 64-bit words of a cache line
# of a flag before the core is offered to others, where every rank has a core of its
# own
POLLS = 50
CROWDED_POLLS = 1  # and where ranks share cores: whoever waits is in the way
YIELDS_A_LOOK = 64  # offers between two looks at the clock and the abort word
# A rank that has waited for so long sleeps at a look, for a part of what it has waited that no time
# of a launch shows: those whose partner is lost would keep every core busy until the deadline.
_AWAKE_S, _SLEEP_PART, _LONGEST_SLEEP_S = 0.01, 1 / 200, 0.01


def filled(plan: Plan, edge: int, *, at_src: bool) -> int:
    """The word that counts slices sent. Between memory domains each end has one of its own."""
    connection = plan.connections[edge]
    shift = (
        0 if at_src or not plan.is_remote(connection.src, connection.dst) else len(plan.connections)
    )
    return 2 * (edge + shift) * LINE_WORDS


def freed(plan: Plan, edge: int, *, at_src: bool) -> int:
    """The word that counts slices read or, at the source of a connection between domains, slices
    that have left it.
    """
    return filled(plan, edge, at_src=at_src) + LINE_WORDS


def patience(n: int) -> int:
    """How often n ranks poll a flag before they offer their core."""
    return POLLS if n <= usable_cores() else CROWDED_POLLS


def gives_up(since: float, limit_s: float, is_aborted: Callable[[], bool]) -> bool:
    """A look of a rank that has waited since then: whether for too long, or somebody gave up.

    >>> [gives_up(time.monotonic() - 5, limit_s, lambda: False) for limit_s in (60, 1)]
    [False, True]
    """
    waited_s = time.monotonic() - since
    if waited_s > limit_s or is_aborted():
        return True
    if waited_s > _AWAKE_S:
        time.sleep(min(waited_s * _SLEEP_PART, _LONGEST_SLEEP_S))
    return False


class FlagBarrier:
    """Where ranks that share memory meet. Rank r's epoch is the word of line r + 1."""

    def __init__(
        self, words: memoryview, rank: int, n: int, is_aborted: Callable[[], bool]
    ) -> None:
        self._words, self._rank, self._n, self._is_aborted = words, rank, n, is_aborted
        self._epoch = 0

    def meet(
        self, ranks: Sequence[int], limit_s: float, offer_core: Callable[[], None] = os.sched_yield
    ) -> None:
        """Set this rank's flag, and wait for those of some ranks. Raises HangError."""
        start = time.monotonic()
        self._epoch += 1
        words, mine = self._words, (self._rank + 1) * LINE_WORDS
        words[mine] = self._epoch
        polls = 0
        for rank in ranks:
            while words[(rank + 1) * LINE_WORDS] < self._epoch:
                polls += 1
                if polls > patience(self._n):
                    offer_core()
                    if polls % YIELDS_A_LOOK == 0 and gives_up(start, limit_s, self._is_aborted):
                        raise HangError(f"rank {self._rank} waited at a barrier for rank {rank}")

    def flag_s(self, limit_s: float) -> float:
        """Seconds of an exchange of a flag with one other rank: the last of an odd number has
        none.
        """
        other = [rank for rank in (self._rank ^ 1,) if rank < self._n]
        self.meet(range(self._n), limit_s)
        seconds = shortest_flag_s(partial(self.meet, other, limit_s))
        self.meet(range(self._n), limit_s)
        return seconds


class SliceFlags(NamedTuple):
    """Flags that lie with the data of a slice (see lines.py), of each of its chunks: per_launch x
    launch + offset says that it is there. last: the last line's.
    """

    edge: int
    per_launch: int
    offset: int
    chunks: tuple[Array, ...]
    last: memoryview


class LineFlags(NamedTuple):
    """What an action waits for, and what it sets when its data is written."""

    awaited: tuple[SliceFlags, ...]
    filled: tuple[SliceFlags, ...]

    def have_arrived(self, launches: int) -> bool:
        """Whether every line of every awaited slice is there. The last one is looked at first:
        mostly it says no for the price of one load.
        """
        for flags_of_slice in self.awaited:
            wanted = flags_of_slice.per_launch * launches + flags_of_slice.offset
            if flags_of_slice.last[-1] != wanted:
                return False
            for flags in flags_of_slice.chunks:
                if flags.tobytes() != wanted.to_bytes(flags.itemsize, "little") * len(flags):
                    return False
        return True

    def set(self, launches: int) -> None:
        """The second pass: every line of what was filled is there."""
        for flags_of_slice in self.filled:
            for flags in flags_of_slice.chunks:
                flags[...] = flags_of_slice.per_launch * launches + flags_of_slice.offset

    def missing_edge(self, launches: int) -> int:
        """The connection of the first awaited slice whose last line is not there; of the last one
        if all of these are.
        """
        edge = -1
        for flags_of_slice in self.awaited:
            edge = flags_of_slice.edge
            wanted = flags_of_slice.per_launch * launches + flags_of_slice.offset
            if flags_of_slice.last[-1] != wanted:
                break
        return edge

    def missing(self, launches: int) -> tuple[int, str] | None:
        """The first awaited slice that is not there: its connection, and what was wanted and seen
        of it.
        """
        for flags_of_slice in self.awaited:
            wanted = flags_of_slice.per_launch * launches + flags_of_slice.offset
            chunks = flags_of_slice.chunks
            seen = sum(int(np.count_nonzero(flags == wanted)) for flags in chunks)
            lines = sum(map(len, chunks))
            if seen < lines:
                text = f"wanted flag {wanted} on {lines} lines, saw it on {seen}"
                return flags_of_slice.edge, text
        return None
