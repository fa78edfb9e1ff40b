"""Launches of GPUs from the stamps of their CTAs (see device/trace.cuh): what each CTA did, on one
clock. Pure.

Clocks of GPUs are aligned by the launches themselves: nothing is seen before it was sent. From
every slice and every free slot follows how much later than another at most, or at least, a clock
can be; the middle of what remains is taken, and half of its width is the error.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from collbench.backends.cpu.trace import ANY_FLAG, Event, RankTrace
from collbench.planning.lowering import Action, TrackActions, actors
from collbench.planning.plan import Plan
from collbench.schedules.passes import shape_of

STAMPS = 4  # of a record
_SIDES = 2  # records beside those of stages: the start and the end of a launch
_Slice = tuple[int, int]


def stage_actors(plan: Plan, rank: int) -> list[TrackActions]:
    """As lowering.actors, of CTAs: what one does for a slice of a stage is one action."""
    shapes = [[shape_of(steps) for steps in track.rounds] for track in plan.schedule.program(rank)]
    found = []
    for number, actor in enumerate(actors(plan, rank)):
        own = iter(actor.actions)
        stages = [
            _together([action for step in stage for action in _of_step(own, step)])
            for loop in plan.loops(actor.channel)
            for shape in shapes[number % len(shapes)]
            for _ in range(loop.slices)
            for stage in shape.stages
        ]
        found.append(actor._replace(actions=stages))
    return found


def _of_step(actions: Iterator[Action], step: int) -> list[Action]:
    """The action of the next step, or two: the first of these only hands over."""
    found = [next(actions)]
    if not found[0].operands:
        found.append(next(actions))
    assert all(action.place.step == step for action in found)
    return found


def _together(actions: Sequence[Action]) -> Action:
    """One action that does what several do. Its operands are those of the largest reduction."""
    widest = max(actions, key=lambda action: len(action.operands))
    return widest._replace(
        take=tuple(one for action in actions for one in action.take),
        room=tuple(one for action in actions for one in action.room),
        back=tuple(one for action in actions for one in action.back),
        targets=tuple(one for action in actions for one in action.targets),
        post=tuple(one for action in actions for one in action.post),
        free=tuple(one for action in actions for one in action.free),
    )


def record_count(stages: Sequence[TrackActions]) -> int:
    """Records that each CTA of a rank needs."""
    return _SIDES + max(len(actor.actions) for actor in stages)


def rank_trace(stages: Sequence[TrackActions], stamps: bytes) -> RankTrace:
    """A launch of a rank from the stamps of all of its CTAs, by its own clock."""
    records = np.frombuffer(stamps, "<u8").reshape(len(stages), -1, STAMPS) * 1e-9
    events = []
    for cta, actor in enumerate(stages):
        for position in range(len(actor.actions) + 1):
            _, ready, worked, posted = map(float, records[cta, position + 1])
            # a stamp that no thread had to write is 0
            events.append(Event(cta, position, ready, worked, max(worked, posted), ANY_FLAG))
    events.sort(key=lambda event: (event.done, event.actor, event.position))
    arrived, _, begun, _ = (float(at) for at in records[:, 0].min(axis=0))
    return RankTrace(arrived, begun, events, [])


class Clocks(NamedTuple):
    """What to add to each rank's clock to have rank 0's, and the error of any of them."""

    offsets_s: tuple[float, ...]
    error_s: float


def clocks(
    plan: Plan, stages: Sequence[Sequence[TrackActions]], launches: Sequence[Sequence[RankTrace]]
) -> Clocks:
    """The clocks of all ranks. stages: of every rank. The error is infinite for ranks that never
    answer each other.
    """
    n = plan.n
    least = np.full((n, n), np.inf)  # of what a sent to b, the time by their own clocks
    np.fill_diagonal(least, 0.0)
    for traces in launches:
        sent: dict[tuple[str, _Slice], tuple[int, float]] = {}
        seen: list[tuple[str, _Slice, int, float]] = []
        for rank, trace in enumerate(traces):
            for event in trace.events:
                actions = stages[rank][event.actor].actions
                if event.position == len(actions):
                    continue
                action = actions[event.position]
                sent |= {("data", one): (rank, event.done) for one in action.post}
                sent |= {("slot", one): (rank, event.done) for one in action.free}
                # data with flags are awaited while they are moved
                there = event.ready if plan.proto == "simple" else event.worked
                seen += [("data", one, rank, there) for one in action.take]
                seen += [
                    ("slot", (one.edge, one.number - plan.slots), rank, event.ready)
                    for one in action.room
                ]
        for what, slice_, rank, at in seen:
            if (what, slice_) in sent:
                sender, posted = sent[what, slice_]
                # posted + offset(sender) <= at + offset(rank)
                least[sender, rank] = min(least[sender, rank], at - posted)
    for through in range(n):
        least = np.minimum(least, least[:, through, None] + least[None, through, :])
    # offset(r) - offset(0) is at most least[r, 0], and at least -least[0, r]
    high, low = least[:, 0], -least[0, :]
    if not np.isfinite(high - low).all():
        return Clocks((0.0,) * n, math.inf)
    return Clocks(tuple(map(float, (high + low) / 2)), float(max((high - low) / 2)))


def on_one_clock(trace: RankTrace, offset_s: float) -> RankTrace:
    """A trace with all of its times moved."""
    return RankTrace(
        trace.arrived + offset_s,
        trace.begun + offset_s,
        [
            one._replace(
                ready=one.ready + offset_s, worked=one.worked + offset_s, done=one.done + offset_s
            )
            for one in trace.events
        ],
        trace.messages,
    )
