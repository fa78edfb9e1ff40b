"""Sweeps whose data copy engines move: right in both process models, in graphs and on streams.
Faults: test_transports.py.

On a machine of 2 to 8 GPUs with CuPy, run these commands first and in this order. Each of them
localises an error better than the next one:

    python -m tests.gpu.batch ce          # bit for bit, one process; also under mpirun -n 4
    python -m tests.gpu.batch measured    # graphs, streams, isolated; the last four are copies
    python -m pytest tests/gpu/test_ce.py tests/gpu/test_transports.py -x -s
    python -m collbench sweep --backend cuda --transport ce \\
        --op allgather,alltoall --algo direct --sizes 256M,512M,1G --csv ce.csv
    python -m collbench sweep --backend cuda --transport ce \\
        --op allreduce --algo twoshot --sizes 256M,512M,1G --slices 1,2,4 --max-memory 2G
    python -m collbench sweep --backend nccl --op allgather,alltoall,allreduce --sizes 256M,512M,1G

Allgather and alltoall from 256M to 1G, and allreduce of 1G, should be faster than NCCL in the same
call. Allreduce of 1G needs FIFOs of 768M: with the default --max-memory it is cut into loops, which
do not overlap. If a graph hangs and --launch stream does not, check whether CUDA serialised two of
the four streams of engine.py.
"""

import csv
from pathlib import Path
from shlex import split

import pytest

from tests.gpu._running import MODELS, run, started

LIMIT_S = 90.0
SWEEP = split("-m collbench sweep --backend cuda --transport ce --repeats 1 --iters 3")


@pytest.mark.parametrize("launch", ["graph", "stream"])
@pytest.mark.parametrize("model", MODELS)
def test_every_collective_is_right(gpus: int, model: str, launch: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    more = split(f"--op all --proto all --sizes 100,64K,5000000 --launch {launch} --csv")
    ended = run(started(model, gpus, [*SWEEP, *more, str(file)]), LIMIT_S)
    print(
        f"\n{model} {launch}: exit code {ended.code} after {ended.seconds:.1f}"
        f" s\n{ended.stderr[-1000:]}"
    )
    assert ended.code == 0
    rows = list(csv.DictReader(file.read_text().splitlines()))
    ran = [row for row in rows if row["status"] == "ok"]
    assert {(row["transport"], row["proto"]) for row in ran} == {("ce", "simple")}
    waived = {row["reason"] for row in rows if row["status"] != "ok"}
    assert [
        reason
        for reason in waived
        if "flags between the data" not in reason and "several hosts" not in reason
    ] == []


@pytest.mark.parametrize("model", MODELS)
def test_large_pieces_are_right(gpus: int, model: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    ops = "allreduce,allgather,alltoall,reducescatter"
    more = split(f"--op {ops} --algo auto --sizes 256M --placement out --csv")
    ended = run(started(model, gpus, [*SWEEP, *more, str(file)]), LIMIT_S)
    print(f"\n{model}:\n{ended.stdout}{ended.stderr[-1000:]}")
    assert ended.code == 0
    assert [
        row["reason"]
        for row in csv.DictReader(file.read_text().splitlines())
        if row["status"] != "ok"
    ] == []


@pytest.mark.parametrize("model", MODELS)
def test_sizes_at_random_without_a_pause(gpus: int, model: str) -> None:
    more = split("--op allgather,allreduce --sizes 1M --soak 5")
    ended = run(started(model, gpus, [*SWEEP[:-4], *more]), LIMIT_S)
    print(f"\n{model}:\n{ended.stdout[-2000:]}{ended.stderr[-1000:]}")
    assert ended.code == 0


def test_a_rank_that_dies_ends_all(gpus: int) -> None:
    more = split("--op allreduce --sizes 1M --timeout 1 --inject die:1")
    ended = run(started("mpi", gpus, [*SWEEP, *more]), LIMIT_S)
    assert ended.code not in (0, -1)
