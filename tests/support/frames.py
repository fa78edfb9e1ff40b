"""Frames for tests of compare: rows with what a test does not name filled in."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collbench.compare.baselines import beside
from collbench.compare.changes import Changes, compare_beside
from collbench.compare.load import ResultFile
from collbench.core import record
from collbench.core.collectives import collective
from collbench.core.frame import frame_of
from collbench.core.knobs import KNOBS
from collbench.core.limits import BEHIND_SHARE
from collbench.core.record import Record
from collbench.core.units import parse_size
from tests.support.tables import values_of

H200 = Path(__file__).parent.parent.parent / "profiles/results/h200x4.csv"
_TEXT = {knob.name: knob.default for knob in KNOBS} | values_of(
    "op=allreduce backend=cuda algo=ring proto=simple dtype=float32 redop=sum placement=out"
    " group=mpi status=ok run=r host=h"
)
_TEXT |= {"repeat_times_us": (), "histogram": (), "device": "4 x GPU"}


def row(times: tuple[float, ...] = (), **named: Any) -> dict[str, Any]:
    """A row as a mapping of columns; its times make the measured ones."""
    values: dict[str, Any] = (
        dict.fromkeys(record.COLUMNS, 0)
        | dict.fromkeys(record.TEXTS, "")
        | _TEXT
        | {name: float("nan") for name in record.FLOATS}
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
            "repeat_times_us": tuple(float(f"{time:.6g}") for time in times),
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


def repeats(times: Iterable[tuple[float, ...]]) -> NDArray[np.object_]:
    """A column of repeats."""
    column = list(times)
    cells = np.empty(len(column), dtype=object)
    cells[:] = column
    return cells


def records_of(frame: pd.DataFrame) -> list[Record]:
    """The rows of such a frame."""
    rows = frame[list(record.COLUMNS)].itertuples(index=False, name=None)
    return [
        Record(
            **{name: _value(name, value) for name, value in zip(record.COLUMNS, row, strict=True)}
        )
        for row in rows
    ]


def _value(name: str, value: Any) -> Any:
    if value != value:  # NaN
        return None
    return int(value) if record.KINDS[name] in ("integer", "count") else value


def records(*rows: dict[str, Any]) -> list[Record]:
    """Rows, as compare.load gives them."""
    return records_of(frame(*rows))


def rows_of(lines: Sequence[str]) -> list[Record]:
    """Rows as text: times of repeats, then columns that differ from those of row()."""
    return records(*map(_row, lines))


def _row(line: str) -> dict[str, Any]:
    times = tuple(float(word) for word in shlex.split(line) if "=" not in word)
    return row(times, **typed(line))


def typed(line: str) -> dict[str, Any]:
    """Values of columns as text, such as `ranks=3 size_bytes=1M`; nan: what is not known."""
    words = [word.partition("=") for word in shlex.split(line)]
    return {name: _value(name, _typed(name, value)) for name, equals, value in words if equals}


def _typed(name: str, value: str) -> object:
    if name in record.INTEGERS:
        return parse_size(value)
    return float(value) if name in record.FLOATS else value


def write(rows: pd.DataFrame | Sequence[Record], file: Path) -> None:
    """Write rows as a file of ours, with every digit."""
    known = records_of(rows) if isinstance(rows, pd.DataFrame) else rows
    lines = [
        record.line_of(repr(one) if isinstance(one, float) else one for one in values)
        for values in map(record.values_of, known)
    ]
    file.write_text(record.header() + "".join(lines))


def read(file: Path) -> pd.DataFrame:
    """A file of ours as such a frame."""
    return frame_of(record.read(file))


def against_reference(mine: pd.DataFrame, theirs: pd.DataFrame, **options: Any) -> Changes:
    """A frame held against another as `compare --against` does it."""
    sides = [
        ResultFile(records=records_of(one), name=name, kind="collbench")
        for one, name in ((mine, "mine"), (theirs, "theirs"))
    ]
    held = beside(sides[0], sides[1], **options)
    changes = compare_beside(held.new.frame, held.base.frame, 1 / BEHIND_SHARE - 1)
    return replace(changes, remarks=(*changes.remarks, *held.remarks))
