"""What a symbolic execution holds: the connections with the slices on their way, the memory of
ranks, and what is recorded.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from collbench.core.collectives import collective
from collbench.core.errors import ScheduleError
from collbench.schedules.ir import Edge, Message, Operand, Schedule
from collbench.schedules.passes import arrivals, landing
from collbench.schedules.verify.clocks import Clock, History
from collbench.schedules.verify.proof import Key, Place, Value, name_of, where


@dataclass(slots=True)
class Token:
    """One slice of a message: each chunk's value or, if it is pulled, where it lies; the hops
    behind it; the sender's clock.
    """

    chunks: dict[int, Value | tuple[Operand, int]] = field(default_factory=dict)
    depth: int = 0
    clock: Clock = field(default_factory=dict)


@dataclass(slots=True)
class Findings:
    """What an execution records, instead of raising, while it tries out pushed messages: which are
    not safe, and which ranks must signal that they are ready.
    """

    refused: set[Message] = field(default_factory=set)
    ready: set[Message] = field(default_factory=set)


@dataclass(slots=True)
class Fifo:
    """Slots between two tracks; `freed` counts those that were emptied."""

    tokens: deque[Token] = field(default_factory=deque)
    sent: int = 0
    freed: int = 0

    def has_data(self) -> bool:
        return bool(self.tokens)

    def has_room(self, slots: int) -> bool:
        return self.sent - self.freed < slots

    def has_back(self, ordinal: int) -> bool:
        return self.freed >= ordinal


class Placed(NamedTuple):
    """A pushed message: the message as its receiver sees it, and where its chunks go there."""

    message: Message
    targets: tuple[Operand, ...]


def _placed(schedule: Schedule) -> dict[Message, Placed]:
    """Every pushed message of an expanded schedule, by the message as its sender sees it."""
    return {
        sent: Placed(
            taken,
            landing(
                schedule.programs[taken.at.program][taken.at.track].rounds[taken.at.round],
                taken.edge,
            ),
        )
        for sent, taken in arrivals(schedule).items()
        if taken.edge in schedule.pushed.get(taken.at, ())
    }


def has_clocks(schedule: Schedule) -> bool:
    """Whether messages order accesses of several tracks to the same memory."""
    return bool(schedule.pushed) or any(len(program) > 1 for program in schedule.programs)


class State:
    """One execution. Memory is per rank: (cell, piece) -> value, scratch being kept by launch and
    slice only.

    With findings, pushed messages are tried out: their values still travel with the message, so
    that unsafe ones do no harm. formed: what the steps of the first loop formed, for a caller that
    gives a dictionary to fill.
    """

    def __init__(
        self,
        schedule: Schedule,
        slots: int,
        slices: int,
        in_place: bool,
        loops: int,
        launches: int,
        findings: Findings | None = None,
    ) -> None:
        self.schedule, self.what = schedule, collective(schedule.op)
        self.slots, self.slices, self.in_place = slots, slices, in_place
        self.loops, self.launches = loops, launches
        self.fifos: dict[Key, Fifo] = {}
        self.memory: list[dict[tuple[Operand, int], Value]] = [{} for _ in schedule.programs]
        self.complete: set[Place] = set()
        self.chunks: dict[Place, int] = {}
        self.givers: dict[Place, int] = {}
        self.hops = 0
        self.formed: dict[Place, Value] | None = None
        self.findings, self.history = findings, History()
        self.pushed = _placed(schedule) if schedule.pushed else {}
        self.has_clocks = has_clocks(schedule)
        self.on_pull: dict[tuple[int, Operand, int], set[tuple[Key, int]]] = {}
        self.full = (1 << schedule.n) - 1

    def fifo(self, key: Key) -> Fifo:
        return self.fifos.setdefault(key, Fifo())

    def incoming(self, rank: int, edge: Edge) -> Key:
        """The connection that an edge receives from; what it carries is shifted by the peer's
        number where the schedule is symmetric.
        """
        return (
            Key(0, -edge.peer % self.schedule.n, edge.port)
            if self.schedule.is_symmetric
            else Key(edge.peer, rank, edge.port)
        )

    def shift(self, value: Value, by: int) -> Value:
        n = self.schedule.n
        mask = ((value.mask << by) | (value.mask >> (n - by))) & self.full
        return Value(
            value.piece,
            (value.chunk + by) % n if self.schedule.chunks["in"] == n else value.chunk,
            mask,
        )

    def fail(self, place: Place, problem: str) -> ScheduleError:
        return ScheduleError(f"{name_of(self.schedule)}: {where(self.schedule, place)}: {problem}")
