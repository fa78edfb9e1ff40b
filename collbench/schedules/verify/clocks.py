"""Which track has accessed which memory, and which others know of it: vector clocks over the tracks
of all ranks.

A track knows what it did itself and what the tracks that it had data from knew when they sent it.
Credits that come back order nothing here: how far a rank runs ahead must not decide what is right.
The tracks of a rank start a launch together, after all of them have ended the one before, as the
launches of a kernel do. Source: Lamport 1978; Flanagan and Freund's FastTrack, 2009, for what is
kept of each cell.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from collbench.schedules.ir import Message, Operand
from collbench.schedules.verify.proof import Place

# number of a track among those of all ranks -> the last of its steps that is known
Clock = dict[int, int]


class Cell(NamedTuple):
    """A chunk of a rank's memory; `piece` tells launches, loops and slices apart."""

    rank: int
    operand: Operand
    piece: int


class Access(NamedTuple):
    """A track's step `time` read or wrote a cell; `message` is what it wrote in another rank's
    memory.
    """

    actor: int
    time: int
    place: Place
    message: Message | None = None


def learn(clock: Clock, other: Clock) -> None:
    """Merge the knowledge of the other clock into this one."""
    for actor, time in other.items():
        if time > clock.get(actor, 0):
            clock[actor] = time


@dataclass(slots=True)
class History:
    """The last accesses to every cell, and how every launch began and ended on every rank."""

    writes: dict[Cell, Access] = field(default_factory=dict)
    reads: dict[Cell, dict[int, Access]] = field(default_factory=dict)
    starts: dict[tuple[int, int], dict[int, tuple[int, Clock]]] = field(default_factory=dict)
    ends: dict[tuple[int, int], list[Clock]] = field(default_factory=dict)

    def read(self, cell: Cell, access: Access, clock: Clock) -> list[Access]:
        """Record the access; returns the accesses without an order to it."""
        write = self.writes.get(cell)
        self.reads.setdefault(cell, {})[access.actor] = access
        return [write] if write is not None and clock.get(write.actor, 0) < write.time else []

    def write(self, cell: Cell, access: Access, clock: Clock) -> list[Access]:
        """Record the access; returns the accesses without an order to it."""
        write = self.writes.get(cell)
        before = [*self.reads.pop(cell, {}).values(), *(() if write is None else (write,))]
        self.writes[cell] = access
        return [other for other in before if clock.get(other.actor, 0) < other.time]

    def start(self, rank: int, launch: int, track: int, actor: int, clock: Clock) -> None:
        """The rank's track, which is `actor` in clocks, begins a launch."""
        self.starts.setdefault((rank, launch), {})[track] = (actor, dict(clock))

    def has_started(self, rank: int, launch: int, track: int) -> bool:
        return track in self.starts.get((rank, launch), {})

    def knows_start(self, clock: Clock, rank: int, launch: int) -> bool:
        """Whether the rank must have begun that launch for what the clock knows to have
        happened.
        """
        return any(
            clock.get(actor, 0) >= then[actor]
            for actor, then in self.starts.get((rank, launch), {}).values()
        )

    def has_ended(self, rank: int, launch: int, tracks: int) -> bool:
        """Whether all of the rank's tracks are through that launch."""
        return len(self.ends.get((rank, launch), ())) == tracks
