"""`hunt` and `check` over NCCL, a rank a GPU under mpirun: every message is right, every pair or
row is judged, and the file says what ran.
"""

import json
from itertools import permutations
from pathlib import Path
from typing import Any

from tests.gpu._running import run, started

LIMIT_S = 120.0


def answer_of(gpus: int, file: Path, *args: str) -> dict[str, Any]:
    command = ["-m", "collbench", *args, "--backend", "nccl", "--json", str(file)]
    ended = run(started("mpi", gpus, command), LIMIT_S)
    assert "Traceback" not in ended.stderr
    assert ended.code in (0, 1, 5), ended.stderr
    answer: dict[str, Any] = json.loads(file.read_text())["data"]
    return answer


def test_every_pair_is_measured(gpus: int, tmp_path: Path) -> None:
    # of two GPUs nothing but a known rate tells whether they are slow
    asked = "hunt", "--size", "4M", "--budget", "40", "--rate", "1"
    answer = answer_of(gpus, tmp_path / "hunt.json", *asked)
    samples = answer["samples"]
    assert {(one["a"], one["b"]) for one in samples} == set(permutations(range(gpus), 2))
    assert all(one["gbs"] > 0 and not one["reason"] for one in samples)
    assert answer["failed"] == []


def test_every_row_is_measured(gpus: int, tmp_path: Path) -> None:
    answer = answer_of(gpus, tmp_path / "check.json", "check")
    assert answer["counts"]["SKIP"] == 0
    rows = [line for line in answer["checks"] if line["unit"]]
    assert len(rows) >= 9
    assert all(line["value"] > 0 for line in rows)
