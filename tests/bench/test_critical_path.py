"""The longest chain of a launch, on constructed launches whose causes are known exactly, and on
launches of plans that are played action by action.
"""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from collbench.bench.trace.chain_model import ChainCosts, chain_model
from collbench.bench.trace.critical_path import critical_path, late_rank, sums
from collbench.bench.trace.graph import launch_graph
from collbench.bench.trace.summary import summary
from collbench.bench.trace.table import trace_lines, verdict, waterfall
from collbench.core.trace import Trace, TracedAction, TracedLaunch, Wait, Work, spans
from collbench.planning.price.constants import KindCosts
from tests.support.played import LINK_S, Played, plan_of

COSTS = KindCosts(step_us=1, take_us=2, post_us=3, read_gbs=1, write_gbs=2, send_gbs=4)
CHAIN_COSTS = ChainCosts(kind=COSTS, launch_s=1e-6, hop_s=2e-6, price_s=1e-5, machine="m")


def action(
    rank: int,
    work: Work,
    times_us: tuple[float, float, float],
    wait: Wait | None = None,
    before: int = -1,
) -> TracedAction:
    """An action of 1000 bytes that began, had worked and was done at these microseconds."""
    ready_s, worked_s, done_s = (time_us * 1e-6 for time_us in times_us)
    return TracedAction(
        rank=rank,
        channel=0,
        track="main",
        round=0,
        step=0,
        slice=0,
        work=work,
        size_bytes=1000,
        reads=2,
        writes=1,
        sends=1,
        takes=1,
        posts=1,
        ready_s=ready_s,
        worked_s=worked_s,
        done_s=done_s,
        wait=wait,
        before=before,
        track_before=before,
    )


def two_ranks(late_us: float, away_us: float = math.inf) -> TracedLaunch:
    """Rank 0 sends after its late arrival, rank 1 reduces what it got and waits for a slot."""
    at = late_us
    return TracedLaunch(
        (at * 1e-6, 0.0, 0.0),
        ((at + 2) * 1e-6, 1e-6, 1e-6),
        (
            action(0, "move", (at + 5, at + 15, at + 16)),
            action(
                1, "reduce", (at + 23, at + 43, at + 44), Wait("data", 0, (0, 1), 0, away_us * 1e-6)
            ),
            action(0, "end", (at + 50, at + 50, at + 50), Wait("slot", 1, (0, 1), 1), 0),
            action(2, "move", (3, 4, 4)),
        ),
    )


def in_us(launch: TracedLaunch) -> dict[str, float]:
    found = sums(critical_path(launch))
    return {cause: round(seconds * 1e6, 6) for cause, seconds in found.items()}


def test_every_microsecond_has_one_cause() -> None:
    assert in_us(two_ranks(0.0)) == {
        "launch": 2, "hop": 7, "slot": 6, "move": 10, "reduce": 20, "step": 3 + 1 + 1,
    }  # fmt: skip
    assert in_us(two_ranks(0.0, away_us=18.0)) == {
        "launch": 2, "hop": 2, "slot": 6, "core": 5, "move": 10, "reduce": 20, "step": 5,
    }  # fmt: skip


def test_a_flag_seen_before_its_time_was_noted() -> None:
    launch = two_ranks(0.0)
    early = launch.actions[1]._replace(ready_s=15.5e-6)
    launch = launch._replace(actions=(launch.actions[0], early, *launch.actions[2:]))
    assert in_us(launch)["step"] == 3 + 0.5 + 1
    assert "hop" not in in_us(launch)
    assert sum(in_us(launch).values()) == pytest.approx(50.0)


def test_a_wait_until_a_peer_has_begun_leads_to_its_arrival() -> None:
    """As on GPUs, where a rank writes to a peer's buffers once the peer has begun."""
    waiting = action(0, "move", (54, 64, 65), Wait("begun", 1, (0, 1), -1))
    launch = TracedLaunch((0.0, 50e-6), (2e-6, 51e-6), (waiting,))
    assert in_us(launch) == {"late": 50, "launch": 1, "slot": 3, "move": 10, "step": 1}
    assert late_rank(launch, critical_path(launch)) == (1, 50e-6)
    rows = waterfall(launch, critical_path(launch), is_wide=False)
    assert "slot: rank 1 has begun, to rank 0" in [row.text for row in rows]


@pytest.mark.parametrize("late_us", [100.0, 5000.0])
def test_a_late_rank_is_named_with_its_delay(late_us: float) -> None:
    launch = two_ranks(late_us)
    rank, delay_s = late_rank(launch, critical_path(launch)) or (-1, 0.0)
    assert rank == 0
    assert delay_s == pytest.approx(late_us * 1e-6)
    trace = Trace(title="t", names=("a", "b", "c"), launches=(launch,))
    found = summary(trace, CHAIN_COSTS)
    assert verdict(trace, found).startswith("a came ")
    assert late_rank(two_ranks(0.0), critical_path(two_ranks(0.0))) is None


def test_the_model_of_the_chain() -> None:
    launch = two_ranks(9.0)
    found = chain_model(launch, critical_path(launch), CHAIN_COSTS)
    bytes_s = 1000 * (2 / 1 + 1 / 2 + 1 / 4) * 1e-9
    expected = {"launch": 1e-6, "hop": 2e-6, "move": bytes_s, "reduce": bytes_s, "step": 12e-6}
    assert {cause: value for cause, value in found.items() if value} == pytest.approx(expected)


def test_data_with_flags_are_on_the_wire_until_they_were_taken() -> None:
    """What follows the end of the sender's action is the wire's; causes still add up."""
    launch = two_ranks(0.0)
    wait = Wait("data", 0, (0, 1), 0, is_in_lines=True)
    taken = launch.actions[1]._replace(ready_s=16e-6, wait=wait)
    launch = launch._replace(actions=(launch.actions[0], taken, *launch.actions[2:]))
    assert in_us(launch) == {"launch": 2, "wire": 27, "slot": 6, "move": 10, "step": 5}
    path = critical_path(launch)
    assert "rank 1 takes 1000 of rank 0 off the wire" in [
        row.text for row in waterfall(launch, path, is_wide=False)
    ]
    bytes_s = 1000 * (2 / 1 + 1 / 2 + 1 / 4) * 1e-9
    for channels, expected_s in ((1, bytes_s), (32, 32 * 1000e-9 / 2)):
        costs = replace(CHAIN_COSTS, launch_s=None, wire_gbs=2.0, channels=channels)
        found = chain_model(launch, path, costs)
        assert "launch" not in found
        assert found["wire"] == pytest.approx(2e-6 + expected_s)


def test_the_timeline_has_no_overlap_in_a_track() -> None:
    launch = two_ranks(9.0)
    drawn = [span for span in spans(launch) if span.action >= 0]
    for track in (0, 1, 2):
        mine = sorted(span[4:6] for span in drawn if span.rank == track)
        assert all(end <= start + 1e-12 for (_, end), (start, _) in pairwise(mine))
    waits = [(span.rank, round(span.start_s * 1e6), round(span.end_s * 1e6)) for span in drawn
             if span.what == "wait"]  # fmt: skip
    assert waits == [(0, 11, 14), (1, 1, 32), (0, 25, 59), (2, 1, 3)]


@pytest.mark.parametrize(("algo", "n"), [("ring", 4), ("tree", 5), ("twoshot", 3)])
def test_chains_of_played_launches(algo: str, n: int) -> None:
    played = Played(plan_of(algo, n), {("late", (1,)): 40.0})
    launch = launch_graph(played.plan, played.actors, played.launch())
    path = critical_path(launch)
    assert sum(segment.seconds for segment in path) == pytest.approx(launch.total_s)
    assert all(a.end_s == pytest.approx(b.start_s) for a, b in pairwise(path))
    rank, delay_s = late_rank(launch, path) or (-1, 0.0)
    assert rank == 1
    assert delay_s == pytest.approx(40 * LINK_S, rel=0.1)
    rows = waterfall(launch, path, is_wide=True)
    assert len(rows) <= 24
    assert sum(row.seconds for row in rows) == pytest.approx(launch.total_s)
    trace = Trace(title="a title", names=("r",) * n, launches=(launch,), slowdowns=(1.01,) * 6)
    for columns in (80, 160):
        shown = trace_lines(trace, summary(trace, CHAIN_COSTS), CHAIN_COSTS, columns)
        assert max(map(len, shown)) <= columns
