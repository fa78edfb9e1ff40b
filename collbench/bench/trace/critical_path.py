"""The chain of events that made a launch as long as it was. Pure.

A launch is a graph: an action follows the one that its processor did before, and the action of a
peer that sent its data or freed its slot. The action that ends last is walked back to the arrival
of a rank. What lies between is cut into segments, each with one cause, without a gap.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

from collbench.core.trace import TracedLaunch

Cause = Literal["late", "launch", "hop", "wire", "slot", "core", "move", "reduce", "step"]
CAUSES: tuple[Cause, ...] = get_args(Cause)


class Segment(NamedTuple):
    """A part of the chain. rank: who took the time, or of a wait who waited. link: of a wait, the
    ends of the connection. action: the one that worked, or whose wait it was; -1 of an arrival.

    late: until the rank came, from the first arrival on. launch: until its tracks began. hop:
    data on their way. wire: the same of data that carry their flags, which are taken, and
    reduced, as they come: from the end of the sender's action to that of the bytes in the
    receiver's. slot: the word on its way that a slot is free, or that a peer has begun, whose
    buffers may then be written. core: it was there, but the waiting rank had no core. move,
    reduce: of bytes. step: all else, as finding what is next and setting flags.
    """

    cause: Cause
    rank: int
    start_s: float
    end_s: float
    action: int
    link: tuple[int, int] | None = None

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def critical_path(launch: TracedLaunch) -> list[Segment]:
    """The chain in the order of time. Its segments last as long as the launch, all together.

    A peer may see a flag before the time was noted that followed it: the chain leaves an action no
    later than it goes on elsewhere.
    """
    actions = launch.actions
    at = max(range(len(actions)), key=lambda number: actions[number].done_s)
    path: list[Segment] = []
    left_s = actions[at].done_s
    for _ in actions:
        one = actions[at]
        rank, work = one.rank, one.work
        path.append(Segment("step", rank, one.worked_s, left_s, at))
        kind: Cause = work if work == "move" or work == "reduce" else "step"
        if one.wait is not None and one.wait.is_in_lines:
            kind = "wire"
        path.append(Segment(kind, rank, one.ready_s, one.worked_s, at))
        if one.wait is not None and one.wait.origin >= 0:
            origin = actions[one.wait.origin]
            cause: Cause = "hop" if one.wait.what == "data" else "slot"
            left_s = min(origin.done_s, one.ready_s)
            there_s = min(max(left_s, one.wait.away_s), one.ready_s)
            path.append(Segment("core", rank, there_s, one.ready_s, at, one.wait.link))
            path.append(Segment(cause, rank, left_s, there_s, at, one.wait.link))
            at = one.wait.origin
            continue
        if one.wait is not None and one.wait.what == "begun":
            peer = one.wait.peer
            left_s = min(launch.begun_s[peer], one.ready_s)
            path.append(Segment("slot", rank, left_s, one.ready_s, at, one.wait.link))
            path += _beginning(launch, peer, left_s)
            break
        before_s = actions[one.before].done_s if one.before >= 0 else launch.begun_s[rank]
        left_s = min(before_s, one.ready_s)  # others may still set the flags
        path.append(Segment("step", rank, left_s, one.ready_s, at))
        if one.before < 0:
            path += _beginning(launch, rank, left_s)
            break
        at = one.before
    return [segment for segment in reversed(path) if segment.seconds > 0]


def _beginning(launch: TracedLaunch, rank: int, begun_s: float) -> list[Segment]:
    """The first two segments of a chain, the later one first: the launch of a rank whose tracks
    began then, and its arrival.
    """
    arrived_s = min(launch.arrived_s[rank], begun_s)
    return [
        Segment("launch", rank, arrived_s, begun_s, -1),
        Segment("late", rank, launch.first_s, arrived_s, -1),
    ]


def sums(path: Iterable[Segment]) -> dict[Cause, float]:
    """Seconds by cause, in a fixed order, of those that the chain has."""
    found = dict.fromkeys(CAUSES, 0.0)
    for segment in path:
        found[segment.cause] += segment.seconds
    return {cause: seconds for cause, seconds in found.items() if seconds}


def late_rank(launch: TracedLaunch, path: Iterable[Segment]) -> tuple[int, float] | None:
    """The rank whose arrival the chain begins with, if it was not the first, and by how much it
    came behind the middle one of the others.
    """
    for segment in path:
        if segment.cause == "late":
            others = sorted(
                arrived_s for rank, arrived_s in enumerate(launch.arrived_s) if rank != segment.rank
            )
            middle = others[len(others) // 2]
            delay_s = launch.arrived_s[segment.rank] - middle
            return (segment.rank, delay_s) if delay_s > 0 else None
    return None
