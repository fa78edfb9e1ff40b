"""`trace` on real ranks and on GPUs that are data only: what it writes and shows, that a late rank
is named, and what cannot be had.
"""

import json
from contextlib import closing
from pathlib import Path

import pytest

from collbench.backends.cpu.trace import TracedSession, TraceOrder
from collbench.bench.trace.critical_path import critical_path, late_rank
from collbench.bench.trace.graph import launch_graph
from collbench.core.case import Case
from collbench.core.errors import UnavailableError
from collbench.device import card
from collbench.launch.local import LocalGroup
from collbench.planning.lowering import actors
from collbench.planning.planner import resolve
from tests.support import traced_gpus
from tests.support.commands import Says, result_of
from tests.support.played import LINK_S
from tests.support.traced_gpus import plant


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


SMALL = ("--op", "allreduce", "--size", "64K")


def test_the_choice_and_the_fullest_link_come_first(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    out = says(0, "trace", "--backend", "cuda", *SMALL).words
    assert out.startswith("Chosen: ")
    assert ", pdl " in out
    assert "us, and its bytes over the fullest link (GPU0 -> GPU1, NVLink 4 x18) " in out
    assert "The chain of events that made it so long" in out
    assert [launches for _, launches in traced_gpus.TracedSession.traced] == [43, 53, 43]
    assert (
        traced_gpus.TracedSession.traced[0][0]
        == traced_gpus.TracedSession.traced[2][0]
        == "twoshot"
    )


def test_gpus_without_cupy_name_what_to_install(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise UnavailableError("this host has GPUs, but CuPy is not installed", "pip install it")

    monkeypatch.setattr("collbench.backends.gpu.session.has_nvidia_gpus", lambda: True)
    monkeypatch.setattr(card, "load_cupy", missing)
    assert "pip install it" in says(3, "trace", "--backend", "cuda", *SMALL).err


def test_a_late_gpu_is_named(says: Says, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(traced_gpus.TracedSession, "late", {1: 40.0})
    file = tmp_path / "chain.json"
    case = ("--backend", "cuda", *SMALL, "--algo", "ring", "--proto", "simple")
    out, err = says(0, "trace", *case, "--json", file)
    assert "rank 1 came " in out
    assert "if messages take as long one way as the other, and else to " in err
    found = result_of(file.read_text())
    assert found["late"]["rank"] == 1
    assert found["late"]["delay_us"] == pytest.approx(40 * LINK_S * 1e6, rel=0.1)
    assert 0 < found["clock_error_us"] < found["clock_limit_us"]
    assert sum(one["us"] for one in found["path"]) == pytest.approx(found["total_us"])
