"""Timed launches that do nothing on GPUs: every row is wrong, although the first check has found
every set of buffers right. By hand, with any options of a sweep; all rows must be wrong or waived:

    python3 -m tests.support.corrupt idle sweep --backend cuda,nccl --op all --placement out,in
"""

from pathlib import Path

import pytest

from collbench.core.collectives import OPS
from collbench.core.record import Record, read
from tests.gpu._running import MODELS, run, started
from tests.support.plants import PLANTS, PlantKind

LIMIT_S = 280.0
SWEEP = (
    *("sweep", "--backend", "cuda,nccl", "--op", "all", "--algo", "auto", "--repeats", "1"),
    *("--placement", "out,in", "--sizes", "4K,4M"),
)
FORMS = ((), ("--hot", "--agg-iters", "2"), ("--launch", "stream"), ("--isolate",))


def rows(folder: Path, model: str, gpus: int, module: tuple[str, ...], *more: str) -> list[Record]:
    """The rows of a sweep that are not waived."""
    csv = folder / "rows.csv"
    ended = run(started(model, gpus, ["-m", *module, *SWEEP, "--csv", str(csv), *more]), LIMIT_S)
    print(f"\n{model} {module[0]} {' '.join(more)}: exit code {ended.code}, {ended.seconds:.0f} s")
    assert ended.code == (0 if module == ("collbench",) else 1), ended.stderr[-2000:]
    found = [row for row in read(csv) if row.status != "waived"]
    assert {(row.op, row.backend) for row in found} == {
        (op, b) for op in OPS for b in ("cuda", "nccl")
    }
    return found


@pytest.mark.parametrize("more", FORMS, ids=" ".join)
@pytest.mark.parametrize("model", MODELS)
def test_idle_launches_are_noticed(
    tmp_path: Path, gpus: int, model: str, more: tuple[str, ...]
) -> None:
    idle = rows(tmp_path, model, gpus, ("tests.support.corrupt", "idle"), *more)
    assert [row for row in idle if row.status != "wrong"] == []


@pytest.mark.parametrize("kind", PLANTS)
@pytest.mark.parametrize("more", FORMS, ids=" ".join)
def test_what_timed_launches_leave_out_is_noticed(
    tmp_path: Path, gpus: int, more: tuple[str, ...], kind: PlantKind
) -> None:
    # NCCL's three forms of buffers differ in nothing that is timed or compared
    corrupt = ("tests.support.corrupt", kind)
    left_out = rows(tmp_path, "local", gpus, corrupt, "--nccl", "plain", *more)
    fine = {(row.op, row.placement) for row in left_out if row.status != "wrong"}
    # gather's root has its first element before, in place
    assert fine <= ({("gather", "in")} if kind == "head" else set())


@pytest.mark.parametrize("more", FORMS, ids=" ".join)
def test_launches_that_are_right_stay_right(
    tmp_path: Path, gpus: int, more: tuple[str, ...]
) -> None:
    """In place too, where they are compared after they were timed."""
    right = rows(tmp_path, "local", gpus, ("collbench",), "--redop", "sum,max,avg", *more)
    assert [row for row in right if row.status != "ok"] == []
