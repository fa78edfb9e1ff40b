"""Launches of GPUs from the stamps of their CTAs (see device/trace.cuh): what each CTA did, on one
clock. Pure.

Clocks of GPUs are aligned by launches of a small allreduce in which every pair exchanges messages
both ways, before and after those that are traced; between the two the difference changes evenly.
Nothing is seen before it was sent: so from every message follows how much later than another at
most, or at least, a clock can be. The middle of what remains is right if messages take as long one
way as the other. Its error is by how much the middles of every second launch differ from those of
the others, and a tick of the timer; without that assumption it is half of what remains.
"""

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collbench.backends.cpu.trace import ANY_FLAG, RankTrace, TraceEvent, shifted
from collbench.core.case import Case
from collbench.core.world import World
from collbench.device.layout import STAMPS, peer_of
from collbench.device.program import READY, ROOM, Flag, Program, lower
from collbench.planning.layout import lay_out, registered
from collbench.planning.limits import needs_no_credits
from collbench.planning.lowering import Action, TrackActions, actors
from collbench.planning.plan import Kernel, Plan
from collbench.schedules.passes import shape_of

_SIDES = 2  # records beside those of stages: the start and the end of a launch
_S_PER_NS = 1e-9
_CLOCK_BYTES = 64  # of each chunk of the launches that align clocks
_CLOCK_THREADS = 64
_Slice = tuple[int, int]
Numbers = npt.NDArray[np.float64]


def stage_actors(plan: Plan, rank: int) -> list[TrackActions]:
    """As lowering.actors, of CTAs: what one does for a slice of a stage is one action, which waits
    only for what the kernel waits for.
    """
    program = lower(plan, rank)
    shapes = [[shape_of(steps) for steps in track.rounds] for track in plan.schedule.program(rank)]
    found = []
    for number, actor in enumerate(actors(plan, rank)):
        own = iter(actor.actions)
        track = number % len(shapes)
        first_round = program.tracks[track][0]
        stages = [
            _awaiting(
                plan,
                rank,
                _together([action for step in stage for action in _of_step(own, step)]),
                _waits(program, first_round + r, s),
            )
            for loop in plan.loops(actor.channel)
            for r, shape in enumerate(shapes[track])
            for _ in range(loop.slices)
            for s, stage in enumerate(shape.stages)
        ]
        found.append(actor._replace(actions=stages))
    return found


def _waits(program: Program, round_: int, stage: int) -> tuple[Flag, ...]:
    """What the kernel waits for at a stage of a round."""
    first_stage, _ = program.rounds[round_]
    _, _, first, count, _, _ = program.stages[first_stage + stage]
    return program.waits[first : first + count]


def _awaiting(plan: Plan, rank: int, action: Action, waits: Sequence[Flag]) -> Action:
    """The action with the slots, and the launches of peers, that its stage waits for."""
    sending = lower(plan, rank).sending
    peers: dict[int, set[tuple[int, str]]] = {ROOM: set(), READY: set()}
    for flag in waits:
        if flag.signal in peers:
            end = sending[flag.end]
            peers[flag.signal].add((peer_of(plan, rank, end), end.port))
    if plan.proto != "simple" and needs_no_credits(plan):
        peers[ROOM].clear()
    room = []
    for one in action.room:
        connection = plan.connections[one.edge]
        if (connection.dst, connection.port) in peers[ROOM]:
            room.append(one)
    return action._replace(
        room=tuple(room), begun=tuple(sorted({peer for peer, _ in peers[READY]}))
    )


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


def first_stamp_ns(stamps: bytes) -> int:
    """The earliest stamp. Raises ValueError if there is none."""
    found = np.frombuffer(stamps, "<u8")
    return int(found[found > 0].min())


def rank_trace(stages: Sequence[TrackActions], stamps: bytes, zero_ns: int) -> RankTrace:
    """A launch of a rank from the stamps of all of its CTAs, by its own clock, in seconds since
    zero_ns: whole nanoseconds since 1970 have more digits than a float.
    """
    raw = np.frombuffer(stamps, "<i8").reshape(len(stages), -1, STAMPS)
    records = (raw - zero_ns) * _S_PER_NS
    events: list[tuple[float, TraceEvent]] = []
    for cta, actor in enumerate(stages):
        behind_s = -math.inf  # the last flags of a track may be set while it ends
        for position in range(len(actor.actions) + 1):
            _, ready, worked, posted = map(float, records[cta, position + 1])
            # a stamp that no thread had to write is 0, long before the others
            event = TraceEvent(cta, position, ready, worked, max(worked, posted), ANY_FLAG)
            behind_s = max(behind_s, event.done)
            events.append((behind_s, event))
    events.sort(key=lambda one: (one[0], one[1].actor, one[1].position))
    arrived, _, begun, _ = (float(at) for at in records[:, 0].min(axis=0))
    return RankTrace(arrived, begun, [event for _, event in events], [])


def tick_s(stamps: Sequence[bytes]) -> float:
    """What all stamps of a timer are multiples of, apart from the first."""
    ticks = 0
    for one in stamps:
        found = np.frombuffer(one, "<i8")
        found = found[found > 0]
        ticks = math.gcd(ticks, int(np.gcd.reduce(found - found[0])))
    return ticks * _S_PER_NS


def clock_plan(plan: Plan, *, has_peers: bool) -> Plan:
    """A small allreduce of the same ranks, whose launches align clocks: all pairs exchange messages
    in both of its rounds, so that nobody comes so late to the second that a message is not waited
    for. has_peers: GPUs reach each other's memory, which takes less than that of their host.
    """
    case = Case(
        op="allreduce", backend="cuda", ranks=plan.n, size_bytes=plan.n * _CLOCK_BYTES
    ).rounded()
    return lay_out(
        case.problem(),
        registered("allreduce", "twoshot", World(n=plan.n)),
        p2p="push",
        chunk_bytes=_CLOCK_BYTES,
        kernel=Kernel(proto="simple", threads=_CLOCK_THREADS),
        transport="p2p" if has_peers and plan.transport == "shm" else plan.transport,
        domains=plan.domains,
    )


class Clocks(NamedTuple):
    """What to add to each rank's clock to have rank 0's, when each clock showed at_s. error_s: of
    any of them, if messages take as long one way as the other; limit_s: the error if not.
    """

    at_s: tuple[float, ...]
    offsets_s: tuple[float, ...]
    error_s: float
    limit_s: float


def clocks(
    plan: Plan,
    stages: Sequence[Sequence[TrackActions]],
    launches: Sequence[Sequence[RankTrace]],
    tick_s: float = 0.0,
) -> Clocks:
    """The clocks of all ranks by some launches. stages: of every rank. The errors are infinite for
    ranks that never answer each other.
    """
    at_s = tuple(
        sum(ranks[rank].arrived for ranks in launches) / len(launches) for rank in range(plan.n)
    )
    least = [_least(plan, stages, ranks) for ranks in launches]
    offsets, limit_s = _middles(reduce(np.minimum, least))
    halves = [_middles(reduce(np.minimum, least[k::2] or least))[0] for k in range(2)]
    apart_s = float(np.abs(halves[0] - halves[1]).max()) if math.isfinite(limit_s) else math.inf
    return Clocks(at_s, tuple(map(float, offsets)), apart_s + tick_s, limit_s + tick_s)


def _middles(least: Numbers) -> tuple[Numbers, float]:
    """By the least times from rank to rank: the middle of what each offset can be, and half of the
    widest range.
    """
    least = least.copy()
    for through in range(len(least)):
        least = np.minimum(least, least[:, through, None] + least[None, through, :])
    # offset(r) - offset(0) is at most least[r, 0], and at least -least[0, r]
    high, low = least[:, 0], -least[0, :]
    if not np.isfinite(high - low).all():
        return np.zeros(len(least)), math.inf
    # clocks that drift while they are compared may leave less than nothing
    return (high + low) / 2, float(np.abs(high - low).max() / 2)


def _least(
    plan: Plan, stages: Sequence[Sequence[TrackActions]], traces: Sequence[RankTrace]
) -> Numbers:
    """In one launch, the least time from rank to rank by their own clocks."""
    n, is_simple = plan.n, plan.proto == "simple"
    least = np.full((n, n), np.inf)
    np.fill_diagonal(least, 0.0)
    sent: dict[tuple[str, _Slice], tuple[int, float]] = {}
    seen: list[tuple[str, _Slice, int, float]] = []
    for rank, trace in enumerate(traces):
        for event in trace.events:
            actions = stages[rank][event.actor].actions
            if event.position == len(actions):
                continue
            action = actions[event.position]
            # data with flags are sent, and awaited, while they are moved
            posted = event.done if is_simple else event.worked
            there = event.ready if is_simple else event.worked
            sent |= {("data", one): (rank, posted) for one in action.post}
            sent |= {("slot", one): (rank, event.done) for one in action.free}
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
    return least


def offset_s(before: Clocks, after: Clocks, rank: int, at_s: float) -> float:
    """What to add to a rank's clock when it shows at_s, between two readings or a little beyond."""
    since_s = after.at_s[rank] - before.at_s[rank]
    share = (at_s - before.at_s[rank]) / since_s if since_s > 0 else 0.0
    return before.offsets_s[rank] + share * (after.offsets_s[rank] - before.offsets_s[rank])


def on_one_clock(trace: RankTrace, offset_s: float) -> RankTrace:
    """A trace with all of its times moved."""
    return shifted(trace, lambda at_s: at_s + offset_s)
