"""Files of results for tests of what reads them: our own samples, shared real ones, and the form
that every table has.
"""

from pathlib import Path

import pandas as pd
import pytest

from collbench.core.record import COLUMNS, FLOATS, INTEGERS, named
from tests.support.runs import SHARED

DATA = Path(__file__).parent.parent / "data" / "results"
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
