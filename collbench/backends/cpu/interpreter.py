"""Runs one rank's actions over memory that all ranks share: regions become NumPy views once, then
each launch is waits, calls and posts.

The order "data, then flag"
relies on x86's total store order (see cpu.why_not). Where data carries flags of its own nobody uses
`filled` (see lines.py).
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from collbench.backends.cpu.flags import (
    LINE_WORDS,
    YIELDS_A_LOOK,
    LineFlags,
    filled,
    freed,
    gives_up,
    patience,
)
from collbench.backends.cpu.layout import crowd
from collbench.backends.net.proxy import BoundCall, Proxy
from collbench.core.dtypes import Array, divide, dtype, saturate, ufunc
from collbench.core.errors import HangError
from collbench.planning.lowering import Action, Region, TrackActions, room_wanted
from collbench.planning.plan import Plan

BLOCK_BYTES = 1 << 17  # of a reduction at a time: its operands stay in the second-level cache


class FlagTarget(NamedTuple):
    """Flag `word` must reach per_launch x launch + offset."""

    word: int
    per_launch: int
    offset: int


class BoundStep(NamedTuple):
    """An action ready to run: waits, calls of NumPy functions, flags to set; and flags with the
    data, where the protocol has them.
    """

    waits: tuple[FlagTarget, ...]
    calls: tuple[BoundCall, ...]
    posts: tuple[FlagTarget, ...]
    lines: LineFlags | None = None


def bind(
    plan: Plan,
    actors: Sequence[TrackActions],
    view: Callable[[Region], "Array"],
    proxy: Proxy | None = None,
) -> list[list[BoundStep]]:
    """The actions of each actor with their regions resolved by `view`, and their messages to other
    shared-memory domains handed to the proxy.
    """
    return [
        [
            *(_bind_action(plan, action, view, proxy) for action in actor.actions),
            # at the end of a launch memory that peers pull may be written again
            BoundStep(tuple(_targets(plan, freed, actor.back, at_src=True)), (), ()),
        ]
        for actor in actors
    ]


def _targets(
    plan: Plan, flag: Callable[..., int], slices: Iterable[tuple[int, int]], *, at_src: bool
) -> list[FlagTarget]:
    """What flags of connections must reach for these slices. flag: filled or freed."""
    return [
        FlagTarget(flag(plan, edge, at_src=at_src), plan.connections[edge].slices, number + 1)
        for edge, number in slices
    ]


def _bind_action(
    plan: Plan, action: Action, view: Callable[[Region], "Array"], proxy: Proxy | None
) -> BoundStep:
    connections = plan.connections
    waits = _targets(plan, filled, action.take, at_src=False)
    waits += [
        FlagTarget(
            freed(plan, turn.edge, at_src=True),
            connections[turn.edge].slices,
            room_wanted(turn, connections[turn.edge].slices, plan.slots),
        )
        # without a FIFO there is no slot to wait for
        for turn in action.room
        if connections[turn.edge].fifo_offset >= 0
    ]
    waits += _targets(plan, freed, action.back, at_src=True)
    posts = _targets(plan, filled, action.post, at_src=True)
    posts += _targets(plan, freed, action.free, at_src=False)
    calls = arithmetic(plan, action, view)
    if proxy is not None:
        calls += [proxy.post(turn.edge, view(region)) for turn, region in action.sent]
        calls += [proxy.free(turn.edge) for turn in action.free if proxy.receives(turn.edge)]
    return BoundStep(tuple(waits), tuple(calls), tuple(posts))


def arithmetic(plan: Plan, action: Action, view: Callable[[Region], "Array"]) -> list[BoundCall]:
    """NumPy calls that do what reference.reduce_step says, without intermediate arrays where the
    element type is its own accumulator.
    """
    if not action.targets or not action.operands[0].size:
        return []
    operands = [view(region) for region in action.operands]
    targets = [view(region) for region in action.targets]
    if len(operands) == 1:
        return [
            copy(target, operands[0])
            for target in targets
            if address(target) != address(operands[0])
        ]
    kind, function = dtype(plan.problem.dtype), ufunc(plan.problem.redop)
    divides = action.divide and plan.problem.redop == "avg"
    block = BLOCK_BYTES // kind.item_bytes
    in_itself = kind.accumulator() == kind.numpy() and all(
        address(targets[0]) != address(operand) for operand in operands[2:]
    )
    calls: list[BoundCall] = []
    for start in range(0, len(operands[0]), block):
        parts = [operand[start : start + block] for operand in operands]
        if in_itself:
            total = targets[0][start : start + block]
            calls += [
                (function, (parts[0], parts[1], total)),
                *[(function, (total, part, total)) for part in parts[2:]],
            ]
        else:
            total, widened = (np.empty(len(parts[0]), kind.accumulator()) for _ in range(2))
            calls.append(copy(total, parts[0]))
            for part in parts[1:]:
                calls += [copy(widened, part), (function, (total, widened, total))]
        if divides:
            calls.append((divide, (total, plan.n)))
        if kind.largest < float("inf"):
            calls.append((saturate, (total, kind)))
        rest = targets[1:] if in_itself else targets
        calls += [copy(target[start : start + block], total) for target in rest]
    return calls


def copy(target: "Array", source: "Array") -> BoundCall:
    """The call that copies elements as they are."""
    return target.__setitem__, (..., source)


def address(array: "Array") -> int:
    """Where an array begins in memory."""
    address: int = array.__array_interface__["data"][0]
    return address


# Ranks of a core that may all wait awake. More would take turns only to see that nothing came, so
# they sleep for a short turn of each.
AWAKE, TURN_S = 8, 1e-5


class Runner:
    """Steps the bound actions of a rank's actors in turn, launch after launch.

    flags: the shared words; is_aborted: whether somebody gave up; turn: what moves messages, if
    there are any.
    """

    def __init__(
        self,
        plan: Plan,
        actors: Sequence[TrackActions],
        flags: "memoryview[int]",
        is_aborted: Callable[[], bool],
        turn: Callable[[], object] | None = None,
    ) -> None:
        self.plan, self.actors, self.flags = plan, actors, flags
        self.is_aborted, self.turn = is_aborted, turn
        ranks, self.polls = crowd(plan), patience(plan.n)
        # to offer its core to others, while a rank waits
        self.offer_core: Callable[[], None] = (
            os.sched_yield if ranks <= AWAKE else partial(time.sleep, ranks * TURN_S)
        )
        self.launches = 0

    def launch(self, programs: Sequence[Sequence[BoundStep]], limit_s: float) -> None:
        """One launch. Raises HangError when no track of this rank got on for limit_s, or somebody
        aborted.
        """
        flags, launches, turn = self.flags, self.launches, self.turn
        blocked_since = 0.0
        positions = [0] * len(programs)
        running = list(range(len(programs)))
        polls = 0
        while running:
            for index in running:
                program, position = programs[index], positions[index]
                size = len(program)
                while position < size:
                    waits, calls, posts, lines = program[position]
                    for word, per_launch, offset in waits:
                        if flags[word] < per_launch * launches + offset:
                            break
                    else:
                        if lines is None or lines.have_arrived(launches):
                            for function, args in calls:
                                function(*args)
                            if lines is not None:
                                lines.set(launches)
                            for word, per_launch, offset in posts:
                                flags[word] = per_launch * launches + offset
                            position += 1
                            continue
                    break
                if position != positions[index]:
                    positions[index], polls = position, 0
            running = [index for index in running if positions[index] < len(programs[index])]
            polls += 1
            if turn is not None:
                turn()
            if polls > self.polls and running:
                self.offer_core()
                if polls == self.polls + 1:
                    blocked_since = time.monotonic()
                if polls % YIELDS_A_LOOK == 0:
                    at = [(programs[index], positions[index], index) for index in running]
                    self.refuse_to_hang(at, blocked_since, limit_s)
        self.launches += 1

    def refuse_to_hang(
        self, running: Sequence[tuple[Sequence[BoundStep], int, int]], since: float, limit_s: float
    ) -> None:
        """Raise HangError after limit_s without progress, or once somebody aborted. running: of
        each track that waits its program, the position there, and its number.
        """
        if gives_up(since, limit_s, self.is_aborted):
            raise HangError(self.story(running))

    def story(self, running: Sequence[tuple[Sequence[BoundStep], int, int]]) -> str:
        """Which rank, channel, track and round waits for whom, and for what."""
        stories = []
        for program, position, index in running:
            actor, bound = self.actors[index], program[position]
            wanted = {
                wait.word: wait.per_launch * self.launches + wait.offset for wait in bound.waits
            }
            missing = next((word for word in wanted if self.flags[word] < wanted[word]), None)
            if missing is not None:
                edge, kind = divmod(missing, 2 * LINE_WORDS)
                wants_data = kind == 0
                saw = f"wanted {wanted[missing]}, saw {self.flags[missing]}"
            elif bound.lines and (lines := bound.lines.missing(self.launches)) is not None:
                (edge, saw), wants_data = lines, True
            else:
                continue
            connection = self.plan.connections[edge % len(self.plan.connections)]
            ends = connection.src, connection.dst
            peer, me = ends if wants_data else reversed(ends)
            is_last = position == len(actor.actions)
            where = (
                "the end of the launch"
                if is_last
                else f"round {actor.actions[position].place.round}"
            )
            what = (
                f"data from rank {peer}" if wants_data else f"rank {peer} to read what it was sent"
            )
            stories.append(
                f"rank {me} (channel {actor.channel}, track {actor.track}, {where}) waited for"
                f" {what}: {saw}"
            )
        return "; ".join(stories[:2]) or "a rank gave up waiting"
