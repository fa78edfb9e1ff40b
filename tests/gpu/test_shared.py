"""Ranks that share one GPU: what they compute is right, however slow."""

import csv
import io

import pytest

from tests.gpu._running import MODELS, failures_of, run, started

RANKS = 4
SWEEP = ("-m", "collbench", "sweep", "--backend", "cuda,nccl", "--algo", "auto")
SHARED = ("--gpus", "0,0,0,0", "--sizes", "64,64K,1M")


@pytest.fixture(scope="session", autouse=True)
def gpus(found_gpus: int) -> int:
    """The number of GPUs to use: one, whatever there is."""
    if found_gpus < 1:
        pytest.skip("needs an NVIDIA GPU and CuPy")
    return 1


@pytest.mark.parametrize(
    "name", ["simple", "ll", "ll128", "random", "relay", "uneven", "measured", "together"]
)
def test_batches_are_right_on_one_gpu(found_gpus: int, name: str) -> None:
    if found_gpus > 1:
        pytest.skip("the batches of other files have a GPU a rank")
    assert failures_of("local", RANKS, name) == []


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("op", ["allreduce", "alltoall", "broadcast"])
def test_a_sweep_says_what_shares_a_gpu(model: str, op: str) -> None:
    ended = run(started(model, RANKS, [*SWEEP, *SHARED, "--op", op, "--csv", "-"]), 120.0)
    assert ended.code == 0, ended.stderr
    rows = list(csv.DictReader(io.StringIO(ended.stdout)))
    measured = [row for row in rows if row["backend"] == "cuda" and row["status"] == "ok"]
    assert {row["size_bytes"] for row in measured} == {"64", "65536", "1048576"}
    assert all("shared-gpu" in row["notes"] and not row["ceiling_gbs"] for row in measured)
    assert all(row["status"] == "waived" for row in rows if row["backend"] == "nccl")


def test_ranks_share_a_gpu_only_when_that_was_asked_for() -> None:
    ended = run(started("mpi", RANKS, [*SWEEP, "--gpus", "0"]), 60.0)
    assert (ended.code, "share a GPU" in ended.stderr) == (3, True)
