"""Sweeps over other transports than stores to peers: through host memory everything is right, and
faults are reported on every transport as over NVLink.
"""

import csv
from pathlib import Path
from shlex import split

import pytest

from tests.gpu._running import MODELS, run, started

LIMIT_S = 60.0
SWEEP = ("-m", "collbench", "sweep", "--backend", "cuda", "--repeats", "1", "--iters", "5")


@pytest.mark.parametrize("model", MODELS)
def test_every_collective_is_right_through_host_memory(
    gpus: int, model: str, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    more = split("--transport shm --op all --proto all --sizes 100,64K,1M --csv")
    ended = run(started(model, gpus, [*SWEEP, *more, str(file)]), LIMIT_S)
    print(f"\n{model}: exit code {ended.code} after {ended.seconds:.1f} s\n{ended.stderr[-1000:]}")
    assert ended.code == 0
    rows = list(csv.DictReader(file.read_text().splitlines()))
    waived = {
        "ll128": "ll128 needs lines of 128 bytes that arrive whole, which PCIe does not promise;"
        " use --transport p2p",
        "sentinel": "sentinel has its slots in the memory of the GPU that clears them; use"
        " --transport p2p, or --proto simple or ll",
    }
    for row in rows:
        reason = waived.get(row["proto"], "")
        assert (row["status"], row["reason"]) == ("waived" if reason else "ok", reason)
    assert {row["transport"] for row in rows if row["status"] == "ok"} == {"shm"}


@pytest.mark.parametrize(
    ("fault", "message"), [("late:1", "rank 1 keeps"), ("drop", "rank 0 keeps")]
)
@pytest.mark.parametrize("transport", ["shm", "ce"])
@pytest.mark.parametrize("model", MODELS)
def test_faults_are_named(gpus: int, model: str, transport: str, fault: str, message: str) -> None:
    more = split(f"--transport {transport} --op allreduce --algo ring --sizes 1M --timeout 1")
    ended = run(started(model, gpus, [*SWEEP, *more, "--inject", fault]), LIMIT_S)
    assert ended.code == 4
    assert message in ended.errors or (fault.startswith("late") and "rank 1" in ended.errors)
