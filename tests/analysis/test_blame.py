"""Who is to blame, from traces made by hand and from ranks that were really delayed."""

import pytest

from collbench.analysis.blame import Blame, Cause, blame
from collbench.backends.cpu.backend import BACKEND
from collbench.bench.runner import plan_points, session_options
from collbench.launch.local import LocalGroup
from collbench.results.stamps import Hand, RankTrace, Stamp
from collbench.spec.case import Case
from collbench.spec.options import Settings

WORK_S, HOP_S = 0.1, 0.2


def ring(n: int, late: dict[int, float], slow: dict[int, float]) -> list[RankTrace]:
    """One hand-over around a ring, from rank 0 back to rank 0; slow: of the edge into a rank."""
    done = [late.get(rank, 0.0) + WORK_S for rank in range(n)]
    stamps: list[list[Stamp]] = [
        [
            Stamp(
                track=0,
                began_s=late.get(rank, 0.0),
                ready_s=late.get(rank, 0.0),
                done_s=done[rank],
                given=(Hand(edge=rank, is_data=True, number=1),),
            )
        ]
        for rank in range(n)
    ]
    for rank in range(n):
        source = (rank - 1) % n
        ready = max(done[rank], done[source] + slow.get(rank, HOP_S))
        stamps[rank].append(
            Stamp(
                track=0,
                began_s=done[rank],
                ready_s=ready,
                done_s=ready + WORK_S,
                awaited=Hand(edge=source, is_data=True, number=1),
            )
        )
    return [
        RankTrace(entered_s=late.get(rank, 0.0), stamps=tuple(stamps[rank])) for rank in range(n)
    ]


def ends(n: int) -> list[tuple[int, int]]:
    return [(rank, (rank + 1) % n) for rank in range(n)]


@pytest.mark.parametrize(
    ("late", "slow", "root"),
    [
        ({}, {}, None),
        ({2: 3.0}, {}, Cause("late", 2)),
        ({}, {3: 2.0}, Cause("link", 2, 3)),
        ({1: 0.01}, {}, None),
        ({2: 3.0}, {1: 1.0}, Cause("late", 2)),
    ],
)
def test_the_root_of_a_ring(late: dict[int, float], slow: dict[int, float], root: Cause) -> None:
    assert blame([ring(4, late, slow)] * 3, ends(4)).root == root


def test_the_path_has_every_second_of_a_launch() -> None:
    found = blame([ring(5, {1: 2.0}, {3: 1.0})], ends(5))
    assert sum(found.path_s.values()) == pytest.approx(found.seconds)
    assert found.waits_s[2, 1] == pytest.approx(2.0 + HOP_S)


def traced(delay_s: float, n: int = 2) -> Blame:
    group = LocalGroup()
    case = Case(
        op="allreduce", backend="cpu", ranks=n, size_bytes=4096, proto="simple", algo="ring"
    )
    (point,) = plan_points([case], group)
    assert point.plan is not None
    session = BACKEND.open(group, [point.plan], session_options(Settings(hot=True), group))
    try:
        launches = session.traced(point.plan, 10, [0.0] * (n - 1) + [delay_s])
    finally:
        session.close()
    return blame(launches, [(one.src, one.dst) for one in point.plan.connections])


def test_a_delayed_rank_is_named_with_its_delay() -> None:
    found = traced(0.05)
    assert found.root == Cause("late", 1)
    assert found.path_s[Cause("late", 1)] >= 0.05
    assert found.waits_s[0, 1] >= 0.05
