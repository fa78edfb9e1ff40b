"""Runs one rank's actions over memory that all ranks share: regions become NumPy views once, then each launch is waits, calls and posts.

Flags are whole numbers that only grow: of connection e, `filled` counts slices sent and `freed` slices read, over all launches. Each
stands alone on a cache line. The order "data, then flag" relies on x86's total store order (see cpu.why_not).
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from collbench.actions import Action, Actor, Region, room_wanted
from collbench.check import Place
from collbench.dtypes import divide, dtype, saturate, ufunc
from collbench.errors import StuckError
from collbench.host import usable_cores
from collbench.plan import Plan

if TYPE_CHECKING:
    from collbench.dtypes import Array

LINE_WORDS = 8  # 64-bit words of a cache line
BLOCK_BYTES = 1 << 17  # of a reduction at a time: its operands stay in the second-level cache
POLLS = 50  # of a flag, some 15 us, before the core is offered to others, where every rank has a core of its own
CROWDED_POLLS = 1  # and where ranks share cores: whoever waits is in the way
YIELDS_A_LOOK = 64  # offers between two looks at the clock and the abort word

Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Wait(NamedTuple):
    """Flag `word` must reach per_launch x launch + offset."""

    word: int
    per_launch: int
    offset: int


class Bound(NamedTuple):
    """An action ready to run: waits, calls of NumPy functions, flags to set."""

    waits: tuple[Wait, ...]
    calls: tuple[Call, ...]
    posts: tuple[Wait, ...]


def flag_words(plan: Plan) -> int:
    """64-bit words of all flags."""
    return 2 * len(plan.connections) * LINE_WORDS


def bind(plan: Plan, actors: Sequence[Actor], view: Callable[[Region], "Array"]) -> list[list[Bound]]:
    """The actions of each actor with their regions resolved by `view`."""
    return [[*(_bind_action(plan, action, view) for action in actor.actions), _last(plan, actor)] for actor in actors]


def _filled(edge: int) -> int:
    return 2 * edge * LINE_WORDS


def _freed(edge: int) -> int:
    return (2 * edge + 1) * LINE_WORDS


def _last(plan: Plan, actor: Actor) -> Bound:
    """The end of a launch: what was lent is back."""
    waits = tuple(Wait(_freed(edge), plan.connections[edge].slices, number + 1) for edge, number in actor.back)
    return Bound(waits, (), ())


def _bind_action(plan: Plan, action: Action, view: Callable[[Region], "Array"]) -> Bound:
    connections = plan.connections
    waits = [Wait(_filled(edge), connections[edge].slices, number + 1) for edge, number in action.take]
    waits += [
        Wait(_freed(turn.edge), connections[turn.edge].slices, room_wanted(turn, connections[turn.edge].slices, plan.slots))
        for turn in action.room if connections[turn.edge].fifo_offset >= 0  # without a FIFO there is no slot to wait for
    ]
    waits += [Wait(_freed(edge), connections[edge].slices, number + 1) for edge, number in action.back]
    posts = [Wait(_filled(edge), connections[edge].slices, number + 1) for edge, number in action.post]
    posts += [Wait(_freed(edge), connections[edge].slices, number + 1) for edge, number in action.free]
    return Bound(tuple(waits), tuple(_calls(plan, action, view)), tuple(posts))


def _calls(plan: Plan, action: Action, view: Callable[[Region], "Array"]) -> list[Call]:
    """NumPy calls that do what reference.reduce_step says, without intermediate arrays where the element type is its own accumulator."""
    if not action.targets or not action.operands[0].size:
        return []
    operands = [view(region) for region in action.operands]
    targets = [view(region) for region in action.targets]
    if len(operands) == 1:
        return [_copy(target, operands[0]) for target in targets if _address(target) != _address(operands[0])]
    kind, function = dtype(plan.problem.dtype), ufunc(plan.problem.redop)
    divides = action.divide and plan.problem.redop == "avg"
    block = BLOCK_BYTES // kind.item_bytes
    in_itself = kind.accumulator() == kind.numpy() and all(_address(targets[0]) != _address(operand) for operand in operands[2:])
    calls: list[Call] = []
    for start in range(0, len(operands[0]), block):
        parts = [operand[start : start + block] for operand in operands]
        if in_itself:
            total = targets[0][start : start + block]
            calls += [(function, (parts[0], parts[1], total)), *[(function, (total, part, total)) for part in parts[2:]]]
        else:
            total, widened = (np.empty(len(parts[0]), kind.accumulator()) for _ in range(2))
            calls.append(_copy(total, parts[0]))
            for part in parts[1:]:
                calls += [_copy(widened, part), (function, (total, widened, total))]
        if divides:
            calls.append((divide, (total, plan.n)))
        if kind.largest < float("inf"):
            calls.append((saturate, (total, kind)))
        rest = targets[1:] if in_itself else targets
        calls += [_copy(target[start : start + block], total) for target in rest]
    return calls


def _copy(target: "Array", source: "Array") -> Call:
    return target.__setitem__, (..., source)


def _address(array: "Array") -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def patience(n: int) -> int:
    """How often n ranks poll a flag before they offer their core."""
    return POLLS if n <= usable_cores() else CROWDED_POLLS


class Runner:
    """Steps the bound actions of a rank's actors in turn, launch after launch.

    flags: the shared words; is_aborted: whether somebody gave up.
    """

    def __init__(self, plan: Plan, actors: Sequence[Actor], flags: "memoryview[int]", is_aborted: Callable[[], bool]) -> None:
        self.plan, self.actors, self.flags, self.is_aborted = plan, actors, flags, is_aborted
        self.polls = patience(plan.n)
        self.launches = 0

    def launch(self, programs: Sequence[Sequence[Bound]], limit_s: float) -> None:
        """One launch. Raises StuckError when no track of this rank got on for limit_s, or somebody aborted."""
        flags, launches = self.flags, self.launches
        blocked_since = 0.0
        positions = [0] * len(programs)
        running = list(range(len(programs)))
        polls = 0
        while running:
            for index in running:
                program, position = programs[index], positions[index]
                size = len(program)
                while position < size:
                    waits, calls, posts = program[position]
                    for word, per_launch, offset in waits:
                        if flags[word] < per_launch * launches + offset:
                            break
                    else:
                        for function, args in calls:
                            function(*args)
                        for word, per_launch, offset in posts:
                            flags[word] = per_launch * launches + offset
                        position += 1
                        continue
                    break
                if position != positions[index]:
                    positions[index], polls = position, 0
            running = [index for index in running if positions[index] < len(programs[index])]
            polls += 1
            if polls > self.polls and running:
                os.sched_yield()
                if polls == self.polls + 1:
                    blocked_since = time.monotonic()
                if polls % YIELDS_A_LOOK == 0 and (time.monotonic() > blocked_since + limit_s or self.is_aborted()):
                    raise StuckError(self._story([(programs[index], positions[index], index) for index in running]))
        self.launches += 1

    def _story(self, running: Sequence[tuple[Sequence[Bound], int, int]]) -> str:
        """Which rank, channel, track and round waits for whom, and for what."""
        stories = []
        for program, position, index in running:
            actor, bound = self.actors[index], program[position]
            missing = next((wait for wait in bound.waits if self.flags[wait.word] < wait.per_launch * self.launches + wait.offset), None)
            if missing is None:
                continue
            connection = self.plan.connections[missing.word // (2 * LINE_WORDS)]
            wants_data = missing.word % (2 * LINE_WORDS) == 0
            me, peer = (connection.dst, connection.src) if wants_data else (connection.src, connection.dst)
            place = actor.actions[position].place if position < len(actor.actions) else Place(me, 0, -1, 0)
            where = f"round {place.round}" if place.round >= 0 else "the end of the launch"
            what = f"data from rank {peer}" if wants_data else f"rank {peer} to read what it was sent"
            stories.append(
                f"rank {me} (channel {actor.channel}, track {actor.track}, {where}) waited for {what}: "
                f"wanted {missing.per_launch * self.launches + missing.offset}, saw {self.flags[missing.word]}"
            )
        return "; ".join(stories[:2]) or "a rank gave up waiting"
