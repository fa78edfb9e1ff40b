"""collbench overlap on the machine itself: every row is right and timed, alone and concurrent with
matrix multiplications, in both process models, on one GPU and on all.

It needs cuBLAS, which CuPy's wheel does not contain (see `collbench overlap` without it). Run it by
hand first, on one GPU, then on all:

    python3 -m collbench overlap --gpus 0 --csv one.csv
    python3 -m collbench overlap --csv all.csv
    mpirun -n 4 python3 -m collbench overlap --csv mpi.csv

Further options show what the defaults hide: `--priority normal` (launches may wait for whole matrix
multiplications), `--cluster 1` (CTAs that need no free neighbours), `--gemm 4096` and `--gemm
16384` (multiplications whose last wave fills another part of the GPU), `--sizes 16M,256M`. Check
first that the time of the multiplications alone agrees with the matrix rate of the GPU, that the
noise is below 2 %, that the launches alone are as fast as in a sweep of the same channels, and that
no copy on one GPU is faster than half of its memory bandwidth.
"""

import csv
import sys
from pathlib import Path
from shlex import split

import pytest

from tests.gpu._running import MODELS, Ended, run, started

LIMIT_S = 280.0
SMALL = split("-m collbench overlap --repeats 2 --channels 4,32 --sizes 16M --gemm 4096")
COPIES = [
    ("copies", "kernel", "4"),
    ("copies", "kernel", "32"),
    ("copies", "engine", "0"),
    ("copies", "host", "0"),
]
# the third by copy engines
COLLECTIVES = [("cuda", "4"), ("cuda", "32"), ("cuda", "1"), ("nccl", "0")]


@pytest.fixture(autouse=True)
def cublas() -> None:
    """Skips where there is no cuBLAS."""
    from collbench.core.errors import UnavailableError
    from collbench.device.loads import load_cublas

    try:
        load_cublas()
    except UnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")


def rows_of(ended: Ended, file: Path) -> list[dict[str, str]]:
    """The rows, of which every one is right and has all its times."""
    print(ended.stdout)
    assert ended.code == 0, ended.stderr
    with file.open() as text:
        rows = list(csv.DictReader(text))
    assert [row for row in rows if (row["status"], row["wrong"]) != ("ok", "0")] == []
    for row in rows:
        for name in (
            "time_us",
            "gemm_us",
            "gemm_concurrent_us",
            "concurrent_us",
            "concurrent_busbw_gbs",
        ):
            assert float(row[name]) > 0, name
        # Beside each other neither is much faster than alone, and neither starves.
        assert 0.8 < float(row["gemm_slower"]) < 20
        assert 0.8 < float(row["memory_slower"]) < 20
        assert 0.8 < float(row["slower"]) < 200
    return rows


@pytest.mark.parametrize("model", MODELS)
def test_all_gpus(gpus: int, model: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    rows = rows_of(run(started(model, gpus, [*SMALL, "--csv", str(file)]), LIMIT_S), file)
    assert [(row["backend"], row["channels"]) for row in rows[:4]] == COLLECTIVES
    assert [(row["backend"], row["algo"], row["channels"]) for row in rows[4:]] == COPIES
    assert {row["ranks"] for row in rows} == {str(gpus)}


def test_one_gpu(gpus: int, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    rows = rows_of(run([sys.executable, *SMALL, "--gpus", "0", "--csv", str(file)], LIMIT_S), file)
    assert [(row["backend"], row["algo"], row["channels"]) for row in rows] == COPIES


def test_launches_that_are_not_preferred_end_too(gpus: int, tmp_path: Path) -> None:
    """They wait for whole products, but products end."""
    file = tmp_path / "rows.csv"
    more = split("--priority normal --backend cuda,nccl --csv")
    rows = rows_of(run([sys.executable, *SMALL, *more, str(file)], LIMIT_S), file)
    assert {row["priority"] for row in rows} == {"normal"}
