"""Stamps of CTAs, made from launches that are played, become launches on one clock."""

import struct

import pytest

from collbench.analysis.critical_path import critical_path, late_rank
from collbench.analysis.gpu_traces import (
    Clocks,
    clocks,
    on_one_clock,
    rank_trace,
    record_count,
    stage_actors,
)
from collbench.analysis.launch_graph import launch_graph
from collbench.backends.cpu.trace import RankTrace
from collbench.device.program import lower
from collbench.planning.planner import resolve
from collbench.spec.case import Case
from tests.analysis.test_blame import LINK_S, Played

CLOCKS_S = (0.0, 3e-3, -2e-3, 5e-3)  # what rank 0's clock is ahead of the others'


def played(algo: str, n: int) -> Played:
    """Launches in which rank 1 is late, of stages of CTAs."""
    case = Case(
        op="allreduce",
        backend="cuda",
        transport="p2p",
        algo=algo,
        proto="simple",
        direct="off",
        channels=1,
        ranks=n,
        size_bytes=1 << 20,
    )
    found = Played(resolve(case).plan, {("late", (1,)): 40.0})
    found.actors = [stage_actors(found.plan, rank) for rank in range(n)]
    return found


def stamps_of(launches: Played, rank: int, trace: RankTrace) -> bytes:
    """What the CTAs of a rank would have stamped, by its own clock."""
    tracks = launches.actors[rank]
    records = record_count(tracks)
    table = [[0] * 4 for _ in range(len(tracks) * records)]
    for cta in range(len(tracks)):
        table[cta * records] = [round((trace.arrived - CLOCKS_S[rank]) * 1e9)] * 4
    for event in trace.events:
        times = (event.ready, event.ready, event.worked, event.done)
        table[event.actor * records + event.position + 1] = [
            round((at - CLOCKS_S[rank]) * 1e9) for at in times
        ]
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
        [rank_trace(stages[rank], stamps_of(launches, rank, one)) for rank, one in enumerate(ranks)]
        for ranks in traces
    ]
    found = clocks(plan, stages, seen)
    assert found.error_s < n * LINK_S
    for rank in range(n):
        assert found.offsets_s[rank] == pytest.approx(CLOCKS_S[rank], abs=found.error_s)
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
    assert clocks(launches.plan, launches.actors, nothing) == Clocks((0.0,) * 4, float("inf"))
