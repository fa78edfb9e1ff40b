"""What traced launches give: when each action began, was ready and was done, on one clock."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """A slice that is handed over: the edge (a connection's number), whether its data is or its
    slot, and how many of them of a launch.
    """

    edge: int
    is_data: bool
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """An action of a track: seconds of the clock when it could begin, when all that it waited for
    was there, and when it was done. awaited: the last thing that was missing, if anything was.
    given: what it hands over.
    """

    track: int
    began_s: float
    ready_s: float
    done_s: float
    awaited: Hand | None = None
    given: tuple[Hand, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """One launch of a rank: when it entered, and its actions in the order in which they were
    done.
    """

    entered_s: float
    stamps: tuple[Stamp, ...]
