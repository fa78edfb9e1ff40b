"""`trace` on real ranks: what it writes, that a planted late rank is named, and what it refuses."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from collbench.backends.cpu.trace import TracedSession, TraceOrder
from collbench.bench.trace.critical_path import critical_path, late_rank
from collbench.bench.trace.graph import launch_graph
from collbench.core.case import Case
from collbench.launch.local import LocalGroup
from collbench.planning.lowering import actors
from collbench.planning.planner import resolve
from tests.support.commands import Says, result_of


def test_files_and_the_screen(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    places = ["--out", str(file), "--launches", "30"]  # in some of which a rank waits for the other
    places += ["--json", "-"]
    case = ("--size", "4K", "-n", "2", "--algo", "ring", "--proto", "ll")
    out, err = says(0, "trace", *case, *places)
    document = result_of(out)
    assert len(document["launches_us"]) == 30
    assert document["slowdown"]["low"] <= document["slowdown"]["high"]
    assert "allreduce 4K by ring ll shm, 2 ranks" in err
    assert "by cause" in err
    assert "result compared; a traced launch takes" in err
    names = {event["name"] for event in json.loads(file.read_text())["traceEvents"]}
    assert {"reduce", "move", "launch"} <= names
    assert any(name.startswith("wait: data of rank ") for name in names)


@pytest.mark.parametrize(
    ("proto", "late"), [("simple", 1), pytest.param("ll128", 0, marks=pytest.mark.exhaustive)]
)
def test_a_rank_that_comes_late_is_named(proto: str, late: int) -> None:
    case = Case(op="allreduce", backend="cpu", algo="ring", proto=proto, ranks=2, size_bytes=8192)
    plan = resolve(case).plan
    delays = [0.0, 0.0]
    delays[late] = 0.1
    with closing(TracedSession(LocalGroup(20.0), [plan], hot=True)) as session:
        traced = session.trace(plan, TraceOrder(tuple(delays), 2), 20.0)
    assert (traced.wrong, len(traced.launches), len(traced.plain_s)) == (0, 2, 2)
    by_rank = [actors(plan, rank) for rank in range(plan.n)]
    for ranks in traced.launches:
        launch = launch_graph(plan, by_rank, ranks)
        assert len(launch.actions) == sum(
            len(actor.actions) + 1 for tracks in by_rank for actor in tracks
        )
        path = critical_path(launch)
        assert sum(one.seconds for one in path) == pytest.approx(launch.total_s)
        found = late_rank(launch, path)
        assert found is not None
        assert found[0] == late
