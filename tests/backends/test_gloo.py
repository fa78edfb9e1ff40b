"""PyTorch's process group on CPUs: every collective, type and reduction right, and what it lacks
waived. The environment of the tests need not have PyTorch: what needs it is skipped then.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from collbench.backends import gloo
from collbench.core.collectives import OPS
from collbench.core.dtypes import DTYPES
from collbench.core.record import read
from tests.support.runs import Run, needs_mpi, sweep, under_mpirun

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")
SHORT = ("--backend", "gloo", "--sizes", "2999,64K", "--repeats", "1", "--iters", "2")


@needs_torch
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_collective_is_right(tmp_path: Path, ranks: int) -> None:
    more = ("--op", "all", "--placement", "out,in", "--root", str(ranks - 1))
    with Run(tmp_path, sweep(*SHORT, *more, "--ranks", str(ranks), "--csv", "rows.csv")) as run:
        assert run.finish(120) == 0
        rows = read(run.csv)
    assert {(row.status, row.op) for row in rows if row.status != "waived"} == {
        ("ok", op) for op in OPS
    }
    assert {row.reason for row in rows if row.status == "waived"} == {
        "alltoall in place has no meaning: every rank sends what it would overwrite",
        "sendrecv in place has no meaning: every rank sends what it would overwrite",
    }
    assert "torch " in rows[-1].versions and "GLOO_SOCKET_IFNAME=lo" in rows[-1].versions


@needs_torch
def test_every_type_and_reduction_is_right_or_waived(tmp_path: Path) -> None:
    more = ("--op", "allreduce,allgather", "--dtype", "all", "--redop", "all", "--ranks", "2")
    with Run(tmp_path, sweep(*SHORT, *more, "--csv", "rows.csv")) as run:
        assert run.finish(120) == 0
        rows = read(run.csv)
    right = {(row.op, row.dtype) for row in rows if row.status == "ok"}
    assert right == {
        *(("allgather", name) for name in DTYPES),
        *(("allreduce", name) for name in gloo.GLOO_TYPES),
    }
    assert {row.status for row in rows} == {"ok", "waived"}


@needs_torch
@needs_mpi
def test_ranks_of_a_launcher(tmp_path: Path) -> None:
    with Run(tmp_path, under_mpirun(2, sweep(*SHORT, "--csv", "rows.csv"))) as run:
        assert run.finish(120) == 0
        assert [row.status for row in read(run.csv)] == ["ok", "ok"]


@needs_torch
def test_a_killed_rank_is_named(tmp_path: Path) -> None:
    long = ("--backend", "gloo", "-b", "1K", "-e", "1M", "-i", "1K", "--ranks", "2")
    with Run(tmp_path, sweep(*long, "--repeats", "1", "--csv", "rows.csv")) as run:
        run.wait_for_rows()
        os.kill(run.ranks(2)[1], 9)
        assert run.finish(120) == 4
        assert "rank 1 was killed by SIGKILL" in run.stderr


def test_without_pytorch_and_on_two_hosts_every_point_is_waived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gloo, "find_spec", lambda name: None)
    why = gloo.BACKEND.why_not(SimpleNamespace(hosts=("a",)))
    assert why == "PyTorch is not installed; install it with: pip install 'collbench[torch]'"
    monkeypatch.setattr(gloo, "find_spec", lambda name: name)
    assert gloo.BACKEND.why_not(SimpleNamespace(hosts=("a", "b"))) == "Gloo is measured on one host"
