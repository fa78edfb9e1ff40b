"""The torch and mpi backends on GPUs: every collective, type and reduction that the libraries have
is right by the checks that ours must pass, a sweep has a row for each, and what hangs is ended.
"""

from pathlib import Path

import pytest

from collbench.core.record import read
from tests.gpu._running import MODELS, failures_of, run, started

LIMIT_S = 60.0
WAYS = {"library": ("out", "in"), "oneshot": ("out",), "twoshot": ("out", "in")}
SWEEP = ("-m", "collbench", "sweep", "--op", "allreduce", "--algo", "auto", "--repeats", "2")


@pytest.mark.parametrize("model", MODELS)
def test_every_collective_type_and_reduction_of_pytorch(gpus: int, model: str) -> None:
    assert failures_of(model, gpus, "torch") == []


@pytest.mark.parametrize("model", MODELS)
def test_every_collective_of_mpi_with_buffers_for_gpus(gpus: int, model: str) -> None:
    assert failures_of(model, gpus, "mpi") == []


def test_a_sweep_has_a_row_for_each_way(tmp_path: Path, gpus: int) -> None:
    csv = tmp_path / "rows.csv"
    more = ("--backend", "cuda,nccl,torch,mpi", "--placement", "out,in", "--sizes", "8,64K,4M")
    ended = run(started("local", gpus, [*SWEEP, *more, "--csv", str(csv)]), LIMIT_S)
    print(
        f"\nexit code {ended.code}, {ended.seconds:.0f} s\n{ended.stdout}\n{ended.stderr[-3000:]}"
    )
    assert ended.code == 0
    found = read(csv)
    assert {row.status for row in found} <= {"ok", "waived"}
    theirs = [row for row in found if row.backend == "torch"]
    if all(row.status == "waived" for row in theirs):
        pytest.skip(theirs[0].reason)
    for algo, places in WAYS.items():
        right = [row for row in theirs if row.algo == algo and row.status == "ok"]
        assert [row.placement for row in right].count("out") == 3
        assert [row.placement for row in right].count("in") == 3 * ("in" in places)
        for row in right:
            is_copied = row.placement == "out" and algo != "oneshot"
            assert ("copied" in row.notes.split()) == is_copied
            assert "TORCH_SYMM_MEM_DISABLE_MULTICAST=1" in row.versions
    assert [row.notes for row in found if "other-processes" in row.notes] == []
    for row in (row for row in found if row.backend == "mpi"):
        assert row.buffers == "gpu"
        assert "host-clock" in row.notes.split() if row.status == "ok" else "GPU" in row.reason


def test_a_rank_that_keeps_silent_ends_all(gpus: int) -> None:
    """Kernels of libraries wait without a deadline; the end of their processes ends them."""
    fault = ("--backend", "torch", "--sizes", "64K", "--inject", "drop", "--timeout", "1")
    ended = run(started("local", gpus, [*SWEEP, *fault]), LIMIT_S)
    print(f"exit code {ended.code} after {ended.seconds:.1f} s\n{ended.stderr[-2000:]}")
    assert ended.code == 4
    assert "Traceback" not in ended.stderr
