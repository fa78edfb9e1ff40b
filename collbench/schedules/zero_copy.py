"""Push zero-copy: which messages their sender can write straight into the receiver's output, and
which receivers must signal that they are ready.

The shape of a message does not always show that it is safe: the second half of an in-place ring is
safe only because what is written depends on what was read. So all are tried out on the symbolic
execution, which keeps the order of all accesses (clocks.py), and those that it refuses are dropped.
The result has to pass collbench.schedules.verify.check like any schedule.
"""

from dataclasses import replace

from collbench.core.errors import ScheduleError
from collbench.schedules.ir import At, Edge, Message, Schedule, expanded
from collbench.schedules.passes import landing, message_chunks, rounds_of
from collbench.schedules.verify.proof import name_of
from collbench.schedules.verify.state import Findings
from collbench.schedules.verify.symbolic import Execution

_NO_LIMIT = 1 << 30  # slots: credits order nothing, so the least bounded FIFOs show as much as any


def push_zero_copy(schedule: Schedule, *, in_place: bool) -> Schedule:
    """The schedule with every message pushed that can be: the sender writes it into the receiver's
    output, and the receiver waits.

    A message can be pushed if every step that takes a chunk of it only copies the chunk to the
    output (and passes it on), and if the receiver does not touch that memory, in the same launch,
    in no order with the write. `ready` gets the edges whose sender has no other way to know that
    the receiver has begun the launch: an epoch from counters of loops would not do, because a
    channel may have no loop in a launch. Raises ScheduleError for a schedule with pulled messages,
    or one that is wrong by itself. Cost: every step of every rank, once and again as often as
    something is refused; each with a clock of all ranks.

    >>> from collbench.schedules.algorithms import direct, ring
    >>> from collbench.schedules.ir import build
    >>> from collbench.core.world import World
    >>> found = push_zero_copy(
    ...     build("allreduce", "ring", ring.allreduce, World(n=4)), in_place=True
    ... )
    >>> [at.round for at in found.pushed], found.ready
    ([4, 5, 6], {})
    >>> push_zero_copy(
    ...     build("broadcast", "direct", direct.broadcast, World(n=2)), in_place=False
    ... ).ready
    {1: frozenset({Edge(peer=0, port='direct')})}
    """
    if schedule.pulled:
        raise ScheduleError(
            f"{name_of(schedule)}: messages that are read in place cannot be written in place, too",
            "push the messages of a schedule that pulls none",
        )
    whole = expanded(schedule)
    wanted = {
        Message(at, edge)
        for at, steps in rounds_of(whole)
        for edge in message_chunks(steps)[1]
        if landing(steps, edge)
    }
    while True:
        findings = Findings()
        trial = replace(whole, pushed=_by_round(wanted), ready={})
        Execution(
            trial, _NO_LIMIT, slices=1, in_place=in_place, loops=1, launches=1, findings=findings
        ).prove()
        if not findings.refused:
            break
        refused = {_relative(message, schedule) for message in findings.refused}
        wanted = {message for message in wanted if _relative(message, schedule) not in refused}
    ready: dict[int, frozenset[Edge]] = {}
    for at, edge in sorted(_relative(message, schedule) for message in findings.ready):
        ready[at.program] = ready.get(at.program, frozenset()) | {edge}
    return replace(
        schedule,
        pushed=_by_round({_relative(message, schedule) for message in wanted}),
        ready=ready,
    )


def _relative(message: Message, schedule: Schedule) -> Message:
    """The message of rank 0 that stands for it in a symmetric schedule, else itself."""
    at, edge = message
    if not schedule.is_symmetric:
        return message
    return Message(
        At(0, at.track, at.round), Edge((edge.peer - at.program) % schedule.n, edge.port)
    )


def _by_round(messages: set[Message]) -> dict[At, frozenset[Edge]]:
    by_round: dict[At, frozenset[Edge]] = {}
    for at, edge in sorted(messages):
        by_round[at] = by_round.get(at, frozenset()) | {edge}
    return by_round
