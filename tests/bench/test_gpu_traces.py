"""Stamps of CTAs, made from launches that are played, become launches on one clock."""

import math
import struct
from dataclasses import replace
from typing import Any

import pytest

from collbench.backends.cpu.trace import ANY_FLAG, RankTrace, TraceEvent
from collbench.bench.trace.critical_path import critical_path, late_rank
from collbench.bench.trace.gpus import (
    clock_plan,
    clocks,
    first_stamp_ns,
    offset_s,
    on_one_clock,
    rank_trace,
    record_count,
    stage_actors,
    tick_s,
)
from collbench.bench.trace.graph import launch_graph
from collbench.core.case import Case
from collbench.core.trace import Wait
from collbench.device.program import lower
from collbench.planning.limits import Limits, needs_no_credits
from collbench.planning.planner import resolve
from tests.support.played import LINK_S, Played

ZERO_NS = 1_764_041_658_123_456_789  # timers of GPUs count from 1970
CLOCKS_S = (0.0, 3e-3, -2e-3, 5e-3)  # what rank 0's clock is ahead of the others'


def played(algo: str, n: int) -> Played:
    """Launches in which rank 1 is late, of stages of CTAs."""
    case = Case(op="allreduce", backend="cuda", algo=algo, ranks=n, size_bytes=1 << 20)
    kernel: dict[str, Any] = {"transport": "p2p", "proto": "simple", "direct": "off", "channels": 1}
    found = Played(resolve(replace(case, **kernel)).plan, {("late", (1,)): 40.0})
    found.actors = [stage_actors(found.plan, rank) for rank in range(n)]
    return found


def stamp_ns(at_s: float, rank: int) -> int:
    """What the timer of a rank's GPU shows then."""
    return ZERO_NS + round((at_s - CLOCKS_S[rank]) * 1e9)


def stamps_of(launches: Played, rank: int, trace: RankTrace, records: int = 0) -> bytes:
    """What the CTAs of a rank would have stamped, by its own clock. records: of each, if there are
    more than it needs.
    """
    tracks = launches.actors[rank]
    records = records or record_count(tracks)
    table = [[0] * 4 for _ in range(len(tracks) * records)]
    for cta in range(len(tracks)):
        table[cta * records] = [stamp_ns(trace.arrived, rank)] * 4
    for event in trace.events:
        times = (event.ready, event.ready, event.worked, event.done)
        table[event.actor * records + event.position + 1] = [stamp_ns(at, rank) for at in times]
    return b"".join(struct.pack("<4Q", *record) for record in table)


@pytest.mark.parametrize(("algo", "n"), [("ring", 4), ("tree", 4), ("twoshot", 3)])
def test_stamps_become_launches_on_one_clock(algo: str, n: int) -> None:
    launches = played(algo, n)
    plan, stages = launches.plan, launches.actors
    for rank in range(n):  # a record for each slice of each stage, as the kernel counts them
        program = lower(plan, rank)
        loops = [loop.slices for loop in plan.loops(0)]
        for track, actor in zip(program.tracks, stages[rank], strict=True):
            rounds = program.rounds[track[0] : track[0] + track[1]]
            assert len(actor.actions) == sum(loops) * sum(count for _, count in rounds)
    traces = [launches.launch() for _ in range(3)]
    seen = [
        [
            rank_trace(stages[rank], stamps_of(launches, rank, one), ZERO_NS)
            for rank, one in enumerate(ranks)
        ]
        for ranks in traces
    ]
    found = clocks(plan, stages, seen)
    assert found.limit_s < n * LINK_S
    for rank in range(n):
        assert found.offsets_s[rank] == pytest.approx(CLOCKS_S[rank], abs=found.limit_s)
    for ranks in seen:
        moved = [on_one_clock(*one) for one in zip(ranks, found.offsets_s, strict=True)]
        launch = launch_graph(plan, stages, moved, is_serial=False)
        path = critical_path(launch)
        assert sum(one.seconds for one in path) == pytest.approx(launch.total_s)
        late = late_rank(launch, path)
        assert late is not None
        assert late[0] == 1
        assert late[1] == pytest.approx(40 * LINK_S, rel=0.1)


def test_clocks_of_ranks_that_never_answer_are_unknown() -> None:
    launches = played("ring", 4)
    nothing = [[RankTrace(0.0, 0.0, [], [])] * 4]
    found = clocks(launches.plan, launches.actors, nothing)
    assert (found.offsets_s, found.error_s, found.limit_s) == ((0.0,) * 4, math.inf, math.inf)


def test_stamps_have_the_resolution_of_the_timer() -> None:
    stamps = struct.pack("<4Q", 0, ZERO_NS + 64, ZERO_NS + 96, ZERO_NS + 1024)
    assert first_stamp_ns(stamps) == ZERO_NS + 64
    assert tick_s([stamps, stamps]) == pytest.approx(32e-9)
    launches = played("ring", 4)
    trace = launches.launch()[0]
    read = rank_trace(launches.actors[0], stamps_of(launches, 0, trace), ZERO_NS)
    for one, other in zip(read.events, trace.events, strict=True):
        assert one.done == pytest.approx(other.done, abs=2e-9)


def test_small_launches_align_clocks_that_drift() -> None:
    plan = clock_plan(played("ring", 4).plan, has_peers=True)
    launches = Played(plan, {})
    launches.actors = [stage_actors(plan, rank) for rank in range(4)]
    readings = []
    for _ in range(2):
        traces = [launches.launch() for _ in range(40)]
        seen = [
            [on_one_clock(one, -CLOCKS_S[rank]) for rank, one in enumerate(ranks)]
            for ranks in traces
        ]
        readings.append(clocks(plan, launches.actors, seen, 1e-9))
    for one in readings:
        assert one.error_s < 0.1 * LINK_S < 0.5 * LINK_S < one.limit_s < 2 * LINK_S
        assert one.offsets_s == pytest.approx(CLOCKS_S, abs=one.error_s + 0.05 * LINK_S)
    first = readings[0]
    later = first._replace(
        at_s=tuple(at + 1.0 for at in first.at_s),
        offsets_s=tuple(offset + 2e-6 for offset in first.offsets_s),
    )
    middle = offset_s(first, later, 1, first.at_s[1] + 0.5)
    assert middle == pytest.approx(first.offsets_s[1] + 1e-6)
    assert offset_s(first, first, 1, 7.0) == first.offsets_s[1]


def test_flags_of_the_last_stage_may_be_set_while_the_track_ends() -> None:
    launches = played("ring", 4)
    tracks, records = launches.actors[0], record_count(launches.actors[0])
    last = len(tracks[0].actions)
    stamps = bytearray(stamps_of(launches, 0, launches.launch()[0]))
    at = 32 * last  # the record of the last stage of CTA 0
    ready, _, worked, _ = struct.unpack_from("<4Q", stamps, at)
    struct.pack_into("<4Q", stamps, at, ready, ready, worked, worked + 900)
    struct.pack_into("<4Q", stamps, at + 32, *(worked + k for k in (1, 2, 3, 4)))
    assert records == last + 2
    read = rank_trace(tracks, bytes(stamps), ZERO_NS)
    of_track = [event.position for event in read.events if event.actor == 0]
    assert of_track == list(range(last + 1))


def test_actions_wait_for_what_their_kernel_waits_for() -> None:
    """Pushed zero-copy: for the launch of the peer, not a slot. Without credits: for no slot."""
    case = Case(op="broadcast", backend="cuda", transport="p2p", ranks=2, size_bytes=1 << 16)
    pushed = resolve(
        replace(case, algo="chain", proto="simple", direct="on", channels=1),
        Limits(ctas=132, has_peers=True),
    ).plan
    stages = [stage_actors(pushed, rank) for rank in range(2)]
    first = stages[0][0].actions[0]
    assert (first.begun, first.room) == ((1,), ())
    assert {one.begun for one in stages[1][0].actions} == {()}
    flagged = resolve(replace(case, op="allreduce", algo="oneshot", proto="ll", size_bytes=4096))
    assert needs_no_credits(flagged.plan)
    assert not any(one.room for one in stage_actors(flagged.plan, 0)[0].actions)
    # rank 1 begins late, and rank 0 moves at once then
    ends_s = {0: 1.2e-3, 1: 1.3e-3}
    traces = [
        RankTrace(
            begun_s,
            begun_s,
            [
                TraceEvent(0, place, 1.1e-3 if not place else end_s, end_s, end_s, ANY_FLAG)
                for place in range(len(stages[rank][0].actions) + 1)
            ],
            [],
        )
        for (rank, end_s), begun_s in zip(ends_s.items(), (0.0, 1e-3), strict=True)
    ]
    launch = launch_graph(pushed, stages, traces, is_serial=False)
    assert launch.actions[0].wait == Wait("begun", 1, (0, 1), -1)
    assert late_rank(launch, critical_path(launch)) == (1, 1e-3)


def test_data_that_may_be_on_the_wire_are_not_called_reduced() -> None:
    """Rank 0 stored before rank 1 began to take, which is no proof that its data had come."""
    case = Case(op="allreduce", backend="cuda", transport="p2p", ranks=2, size_bytes=64)
    kernel: dict[str, Any] = {"algo": "oneshot", "proto": "ll", "channels": 1}
    plan = resolve(replace(case, **kernel), Limits(ctas=132, has_peers=True)).plan
    stages = [stage_actors(plan, rank) for rank in range(2)]

    def cause(late_s: float) -> str:
        """Of the last action, where rank 1 begins so much later."""
        traces = []
        for begun_s, took_s in ((0.0, late_s + 1.1e-6), (late_s, late_s + 1.3e-6)):
            stored_s = begun_s + 0.2e-6
            times = ((begun_s, stored_s), (stored_s, took_s))
            events = [
                TraceEvent(0, place, ready_s, worked_s, worked_s, ANY_FLAG)
                for place, (ready_s, worked_s) in enumerate(times)
            ]
            traces.append(RankTrace(begun_s, begun_s, events, []))
        return critical_path(launch_graph(plan, stages, traces, is_serial=False))[-1].cause

    assert len(stages[0][0].actions) == 2
    assert cause(0.1e-6) == "wire"
    assert cause(5e-6) == "reduce"
