"""Frames for tests of compare: rows with what a test does not name filled in."""

from pathlib import Path
from typing import Any

import pandas as pd

from collbench.core import record
from collbench.core.collectives import collective
from collbench.core.distribution import histogram_text
from collbench.core.knobs import KNOBS

H200 = Path(__file__).parent.parent.parent / "profiles/results/h200x4.csv"
_TEXT = {
    "op": "allreduce",
    "backend": "cuda",
    **{knob.name: knob.default for knob in KNOBS},
    "algo": "ring",
    "proto": "simple",
    "dtype": "float32",
    "redop": "sum",
    "placement": "out",
    "group": "mpi",
    "repeat_times_us": "",
    "histogram": "",
    "limit": "",
    "status": "ok",
    "reason": "",
    "notes": "",
    "run": "r",
    "host": "h",
    "device": "4 x GPU",
    "versions": "",
    "timestamp": "",
}


def row(times: tuple[float, ...] = (), **named: Any) -> dict[str, Any]:
    """A row as a mapping of columns; its times make the measured ones."""
    values: dict[str, Any] = (
        dict.fromkeys(record.COLUMNS, 0) | _TEXT | {name: float("nan") for name in record.FLOATS}
    )
    values |= {"ranks": 4, "hosts": 1, "size_bytes": 1024, "schema": record.SCHEMA}
    if named.get("backend") in ("nccl", "mpi"):
        values |= {"algo": "library", "proto": ""}
    values |= named
    if times:
        time_us = sorted(times)[len(times) // 2]
        algbw = values["size_bytes"] / time_us / 1e3
        values |= {
            "repeats": len(times),
            "repeat_times_us": ";".join(map(str, times)),
            "time_us": time_us,
            "time_low_us": min(times),
            "time_high_us": max(times),
            "algbw_gbs": algbw,
            "busbw_gbs": algbw * collective(values["op"]).factor(values["ranks"]),
        }
    return values


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    """A frame of rows, as compare.load gives it."""
    return pd.DataFrame(list(rows), columns=list(record.COLUMNS))


def read(file: Path) -> pd.DataFrame:
    """A file of ours as such a frame."""
    rows = []
    for one in record.read(file):
        cells = {name: getattr(one, name) for name in record.COLUMNS}
        cells |= {
            name: float("nan") if cells[name] is None else float(cells[name])
            for name in record.FLOATS
        }
        rows.append(
            cells
            | {"repeat_times_us": ";".join(f"{time:.6g}" for time in one.repeat_times_us)}
            | {"histogram": histogram_text(one.histogram)}
        )
    return frame(*rows)
