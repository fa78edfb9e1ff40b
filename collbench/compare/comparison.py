"""A comparison as CI reads it: JSON, and the lines of its assessment, one a row and a group."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pandas as pd

from collbench.compare.changes import Changes
from collbench.compare.gate import Gate, GateVerdict
from collbench.compare.tables.changes import (
    NAME_COLUMNS,
    between,
    by_change,
    configuration,
    varying,
)
from collbench.core.assessment import AssessedLine, Assessment, Grade
from collbench.core.files import result_json
from collbench.core.text import counted, texts_of
from collbench.core.units import format_size
from collbench.core.verdict import VERDICTS

_GROUP = ("verdict", "rows", "ratio", "low", "high")
_NUMBERS = ("ratio", "low", "high", "time_us", "time_us_base")


def json_of(changes: Changes, gate: Gate | None, titles: tuple[str, str]) -> str:
    """The document: counts, groups and rows of a comparison, and what its gate says. Ratios are of
    times, new over base; times are in microseconds.
    """
    knobs = varying(changes.rows) if len(changes.rows) else []
    document = {
        "new": titles[0],
        "base": titles[1],
        "gate": None if gate is None else _gate(gate),
        "counts": {verdict: changes.count(verdict) for verdict in VERDICTS},
        "groups": [
            {"name": one.title} | {key: getattr(one, key) for key in _GROUP}
            for one in changes.called
        ],
        "rows": [_row(row, knobs) for _, row in by_change(changes.rows).iterrows()],
        "losses": [{"kind": loss.kind, "text": loss.text} for loss in changes.losses],
        "not_compared": changes.not_compared,
        "differences": [
            {"name": name, "new": new, "base": base} for name, new, base in changes.differences
        ],
        "same_within": changes.same,
        "row_called_from": None if math.isnan(changes.least_row) else changes.least_row,
        "runs": {"new": changes.runs[0], "base": changes.runs[1]},
        "remarks": list(changes.remarks),
    }
    machine = ", ".join(sorted(set(changes.rows["device"]) - {""})) if len(changes.rows) else ""
    return result_json(document, machine=machine, verdict=None if gate is None else gate.verdict)


def _gate(gate: Gate) -> dict[str, object]:
    return {
        "verdict": gate.verdict,
        "exit_code": gate.exit_code,
        "limit_percent": gate.percent,
        "slower_rows": len(gate.slower),
        "unjudged_rows": len(gate.unjudged),
        "reasons": list(gate.reasons),
        "remedy": gate.remedy,
    }


def _row(row: "pd.Series", knobs: list[str]) -> dict[str, object]:
    names = {
        name: int(value) if hasattr(value := row[name], "__index__") else str(value)
        for name in ("size_bytes", *NAME_COLUMNS, *knobs)
    }
    return {"verdict": row["verdict"], **names, **{name: float(row[name]) for name in _NUMBERS}}


_GRADES: Mapping[GateVerdict, Grade] = {"PASS": "good", "FAIL": "bad", "UNKNOWN": "unknown"}


def assessment_of(changes: Changes, gate: Gate | None, titles: tuple[str, str]) -> Assessment:
    """The same as an assessment. Bad is a row or a group that is slower (by more than the limit of
    the gate, if there is one) or a loss; unknown is a row that took longer by more than the limit
    and cannot be judged; skipped is one that cannot be told otherwise. The whole is what the gate
    says; without one it is bad where a line is, and unknown where none is good.
    """
    lines = [*_row_lines(changes, gate), *_group_lines(changes, gate)]
    losses = changes.losses if gate is None else gate.losses
    lines += [_line("losses", one.kind, "bad", one.text) for one in losses]
    hosts = set(texts_of(changes.rows["host"])) if len(changes.rows) else set()
    grades = {line.grade for line in lines}
    seen: Grade = "bad" if "bad" in grades else "good" if "good" in grades else "unknown"
    worse = sum(line.grade == "bad" for line in lines)
    if gate is None:
        why = {"bad": f"{counted(worse, 'line')} worse", "unknown": "nothing is sure"}.get(seen, "")
    else:
        why = "; ".join(gate.reasons) * (gate.verdict != "PASS")
    return Assessment(
        command="compare",
        subject=f"{titles[0]} against {titles[1]}",
        grade=seen if gate is None else _GRADES[gate.verdict],
        why=why,
        lines=lines,
        host=hosts.pop() if len(hosts) == 1 else "",
        ended_s=time.time(),
    )


def _line(kind: str, name: str, grade: Grade, text: str = "") -> AssessedLine:
    return AssessedLine(name=name, kind=kind, grade=grade, text=text if grade != "good" else "")


def _row_lines(changes: Changes, gate: Gate | None) -> Iterator[AssessedLine]:
    rows = changes.rows
    if not len(rows):
        return
    knobs = [*NAME_COLUMNS[1:], *varying(rows)]
    is_worse = (rows["verdict"] == "worse").to_numpy()
    slower = set(is_worse.nonzero()[0] if gate is None else gate.slower)
    unjudged = set(gate.unjudged) if gate is not None and gate.verdict != "PASS" else set()
    for place, (_, row) in enumerate(rows.iterrows()):
        name = f"{format_size(int(row['size_bytes']))} {configuration(row, knobs)}"
        grade: Grade = "skipped" if row["verdict"] == "cannot tell" else "good"
        grade = "bad" if place in slower else "unknown" if place in unjudged else grade
        line = _line(str(row["op"]), name, grade, between(row["ratio"], row["low"], row["high"]))
        if grade == "bad":
            line = replace(line, unit="us", value=row["time_us"], expected=row["time_us_base"])
        yield line


def _group_lines(changes: Changes, gate: Gate | None) -> Iterator[AssessedLine]:
    least = 1.0 if gate is None else 1 + gate.percent / 100
    for one in changes.called:
        is_bad = one.verdict == "worse" and one.ratio > least
        text = between(one.ratio, one.low, one.high)
        yield _line("groups", one.title, "bad" if is_bad else "good", text)
