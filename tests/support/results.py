"""Files of results for tests of what reads them: our own samples, shared real ones, and the form
that every table has.
"""

from pathlib import Path

import pandas as pd
import pytest

from collbench.core.record import COLUMNS, FLOATS, INTEGERS, named
from tests.support.runs import SHARED

DATA = Path(__file__).parent.parent / "data" / "results"
SWEEP = Path(__file__).parent.parent.parent / "profiles" / "results" / "h200x4.csv"
RUNS = SHARED / "nccl-tests"
REAL = sorted(RUNS.glob("*.txt")) + sorted(RUNS.glob("*.json"))
needs_shared = pytest.mark.skipif(not REAL, reason="needs the shared nccl-tests outputs")
SAMPLES = [file for file in sorted(DATA.iterdir()) if file.suffix in (".txt", ".json")]


def written(tmp_path: Path, text: str | bytes, name: str = "results.txt") -> Path:
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def check_form(frame: pd.DataFrame) -> None:
    assert tuple(frame.columns) == COLUMNS
    assert all(str(frame[name].dtype) == "int64" for name in INTEGERS)
    assert all(str(frame[name].dtype) == "float64" for name in FLOATS)
    text = named("text", "status")
    assert all(all(isinstance(cell, str) for cell in frame[name]) for name in text)
    assert frame["status"].isin(["ok", "wrong", "waived", "error"]).all()
    ok = frame[frame["status"] == "ok"]
    assert (ok["time_us"] > 0).all()
    assert frame[frame["status"] != "ok"]["time_us"].isna().all()
    assert (frame[frame["status"] != "ok"]["reason"] != "").all()


def sample_json() -> dict[str, object]:
    part = {"time": 100.0, "alg_bw": 41.94304, "bus_bw": 73.40032, "nwrong": 0.0}
    return {
        "version": 2,
        "start_time": "2026-01-02 03:04:05",
        "args": ["./build/all_reduce_perf"],
        "env": ["SECRET=1", "NCCL_ALGO=Ring"],
        "nccl_version": 22304,
        "config": {
            "nthreads": 1,
            "ngpus": 8,
            "iterations": 20,
            "devices": [{"rank": 0, "hostname": "node1", "device_info": "NVIDIA A100"}],
        },
        "results": [
            {
                "size": 4194304,
                "count": 1048576,
                "type": "float",
                "redop": "sum",
                "root": "    -1",
                "out_of_place": part,
                "in_place": None,
            }
        ],
    }
