"""A trace: what every track of every rank did in a launch, when, and for what it waited. Pure data.

Times are seconds of one clock. An action names what came before it: the action that its own
processor did last (`before`), and the one of a peer that ended its wait (`Wait.origin`), both by
their number in the launch.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

# of a peer: data, that it has read what a slot or buffer holds, or that it has begun the launch
Awaited = Literal["data", "slot", "begun"]
Work = Literal["move", "reduce", "hand over", "end"]
What = Literal["launch", "wait", "move", "reduce", "hand over", "end", "post"]


class Wait(NamedTuple):
    """For what an action waited last: a slice of a connection, whose ends are `link`. peer: the end
    that is not the waiting rank. origin: the action that ended the wait, -1 if none is known, or if
    it was the beginning of the peer's launch. is_in_lines: the data carry their flags, so that they
    are taken while they come.
    """

    what: Awaited
    peer: int
    link: tuple[int, int]
    origin: int
    away_s: float = math.inf
    is_in_lines: bool = False


class TracedAction(NamedTuple):
    """One slice of one step of a round. size_bytes: of each operand, of which it reads so many of
    its own memory or of slots, writes so many to its own memory and sends so many; takes, posts:
    slices that it awaits and fills. ready_s: when it could begin, worked_s: when its bytes were
    moved or reduced, done_s: when its flags were set. before: the action that the same processor
    did before, -1 if none; track_before: the same of its track.
    """

    rank: int
    channel: int
    track: str
    round: int
    step: int
    slice: int
    work: Work
    size_bytes: int
    reads: int
    writes: int
    sends: int
    takes: int
    posts: int
    ready_s: float
    worked_s: float
    done_s: float
    wait: Wait | None
    before: int
    track_before: int


class Transfer(NamedTuple):
    """A message of the network that a rank's proxy moved: posted, and done. peer: the other end."""

    rank: int
    peer: int
    channel: int
    is_sending: bool
    slice: int
    posted_s: float
    done_s: float


class TracedLaunch(NamedTuple):
    """One launch. arrived_s: when each rank came to it; begun_s: when its tracks began."""

    arrived_s: tuple[float, ...]
    begun_s: tuple[float, ...]
    actions: tuple[TracedAction, ...]
    transfers: tuple[Transfer, ...] = ()

    @property
    def first_s(self) -> float:
        """When the first rank came."""
        return min(self.arrived_s)

    @property
    def total_s(self) -> float:
        """From the first arrival to the end of the last action."""
        return max(action.done_s for action in self.actions) - self.first_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Some launches of one case. title: the case in words. names: of the ranks. clock_error_s: of
    times of different ranks against each other. clock_limit_s: the error that the clocks of GPUs
    have at most, if messages do not take as long one way as the other; 0 where nothing of the kind
    is assumed. slowdowns: of each pair of launches the time of the traced one over that of the
    other.
    """

    title: str
    names: tuple[str, ...]
    launches: tuple[TracedLaunch, ...]
    clock_error_s: float = 0.0
    clock_limit_s: float = 0.0
    slowdowns: tuple[float, ...] = ()


class TraceSpan(NamedTuple):
    """What a track of a rank did from start_s to end_s. action: its number, -1 of a launch."""

    rank: int
    channel: int
    track: str
    what: What
    start_s: float
    end_s: float
    action: int


def spans(launch: TracedLaunch) -> Iterator[TraceSpan]:
    """The timeline: of each rank its launch, and of each action its wait, its work and its post.

    A track also waits while its processor runs other tracks of the rank; that is a span without a
    `Wait`.
    """
    for rank, (arrived_s, begun_s) in enumerate(zip(launch.arrived_s, launch.begun_s, strict=True)):
        yield TraceSpan(rank, -1, "", "launch", arrived_s, begun_s, -1)
    # on GPUs the flags of an action are set while its track goes on
    behind_s = {one.track_before: one.ready_s for one in launch.actions}
    for number, one in enumerate(launch.actions):
        before = one.track_before
        since_s = launch.actions[before].done_s if before >= 0 else launch.begun_s[one.rank]
        at = one.rank, one.channel, one.track
        if one.ready_s > since_s:
            yield TraceSpan(*at, "wait", since_s, one.ready_s, number)
        yield TraceSpan(*at, one.work, one.ready_s, one.worked_s, number)
        done_s = min(one.done_s, behind_s.get(number, one.done_s))
        yield TraceSpan(*at, "post", one.worked_s, done_s, number)
