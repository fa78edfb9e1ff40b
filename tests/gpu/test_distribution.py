"""sweep --distribution on the machine itself: launches of our kernels and of NCCL, timed one by one
by CUDA events, are right and as many as asked for, and idle ones are noticed. By hand:

    python3 -m collbench sweep --backend cuda,nccl --algo ring,tree --sizes 8,64K,4M,256M
        --distribution --csv distribution.csv

Check that p50 of small sizes lies a few microseconds above `time us` (the launch of the kernel is
in it, and no launch overlaps another), that both agree within a few percent from 64M on, and that
`--launch stream` and `--isolate` show about the same p50.
"""

from pathlib import Path

import pytest

from collbench.core.record import Record, read
from tests.gpu._running import MODELS, run, started

LIMIT_S = 280.0
LAUNCHES = 200  # on a stream a thousand of every row take a minute
SWEEP = (
    *("sweep", "--backend", "cuda,nccl", "--op", "allreduce,alltoall,broadcast", "--algo", "auto"),
    *("--placement", "out,in", "--sizes", "8,64K,4M", "--distribution", str(LAUNCHES)),
)
FORMS = ((), ("--hot",), ("--launch", "stream"), ("--isolate",))


def rows(folder: Path, model: str, gpus: int, module: tuple[str, ...], *more: str) -> list[Record]:
    """The rows of a sweep that are not waived."""
    csv = folder / "rows.csv"
    ended = run(started(model, gpus, ["-m", *module, *SWEEP, "--csv", str(csv), *more]), LIMIT_S)
    print(f"\n{model} {module[0]} {' '.join(more)}: exit code {ended.code}, {ended.seconds:.0f} s")
    print(ended.stdout)
    assert ended.code == (0 if module == ("collbench",) else 1), ended.stderr[-2000:]
    found = [row for row in read(csv) if row.status != "waived"]
    assert {row.backend for row in found} == {"cuda", "nccl"}
    return found


@pytest.mark.parametrize("more", FORMS, ids=" ".join)
@pytest.mark.parametrize("model", MODELS)
def test_every_launch_has_a_time_and_is_right(
    tmp_path: Path, gpus: int, model: str, more: tuple[str, ...]
) -> None:
    for row in rows(tmp_path, model, gpus, ("collbench",), *more):
        assert (row.status, row.wrong, sum(dict(row.histogram).values())) == ("ok", 0, LAUNCHES)
        assert row.p999_us is None  # which takes a thousand launches
        known = row.p50_us, row.p99_us, row.max_us
        assert None not in known
        assert list(known) == sorted(time for time in known if time is not None)


@pytest.mark.parametrize("more", FORMS, ids=" ".join)
def test_idle_launches_are_noticed(tmp_path: Path, gpus: int, more: tuple[str, ...]) -> None:
    module = ("tests.support.corrupt", "idle-singly")
    idle = rows(tmp_path, "local", gpus, module, "--repeats", "1", *more)
    assert [row for row in idle if row.status != "wrong"] == []
