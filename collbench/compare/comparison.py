"""A comparison as CI reads it: JSON, and JUnit's XML with a test case a row and a group."""

import math
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pandas as pd

from collbench.compare.changes import Changes
from collbench.compare.gate import Gate
from collbench.compare.groups import Change
from collbench.compare.tables.changes import (
    NAME_COLUMNS,
    by_change,
    configuration,
    percent,
    varying,
)
from collbench.core.documents import result_json
from collbench.core.units import format_size
from collbench.core.verdict import VERDICTS

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
        "groups": [_group(one) for one in changes.called],
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
    return result_json(document, verdict="" if gate is None else gate.verdict)


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


def _group(one: Change) -> dict[str, object]:
    return {
        "name": one.title,
        "verdict": one.verdict,
        "rows": one.rows,
        "ratio": one.ratio,
        "low": one.low,
        "high": one.high,
    }


def _row(row: "pd.Series", knobs: list[str]) -> dict[str, object]:
    names = {name: _plain(row[name]) for name in ("size_bytes", *NAME_COLUMNS, *knobs)}
    return {"verdict": row["verdict"], **names, **{name: float(row[name]) for name in _NUMBERS}}


def _plain(value: object) -> object:
    return int(value) if hasattr(value, "__index__") else str(value)


def junit_of(changes: Changes, gate: Gate | None, titles: tuple[str, str]) -> str:
    """The same as JUnit's XML. A failure is a row or a group that is slower (by more than the limit
    of the gate, if there is one) or a loss; an error is a row that took longer by more than the
    limit and cannot be judged; skipped is one that cannot be told otherwise. The gate is a case of
    its own, so that a suite is never green where the exit code is not 0.
    """
    cases = [*_row_cases(changes, gate), *_group_cases(changes, gate), *_loss_cases(changes, gate)]
    cases += [] if gate is None else [_gate_case(gate)]
    suite = ET.Element("testsuite", name=f"{titles[0]} against {titles[1]}", tests=str(len(cases)))
    for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(kind) is not None for case in cases)))
    suite.extend(cases)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _row_cases(changes: Changes, gate: Gate | None) -> Iterator[ET.Element]:
    rows = changes.rows
    if not len(rows):
        return
    knobs = [*NAME_COLUMNS[1:], *varying(rows)]
    slower = set(_places(changes, "worse") if gate is None else gate.slower)
    unjudged = set(gate.unjudged) if gate is not None and gate.verdict != "pass" else set()
    for place, (_, row) in enumerate(rows.iterrows()):
        name = f"{format_size(int(row['size_bytes']))} {configuration(row, knobs)}"
        case = ET.Element("testcase", classname=f"compare.{row['op']}", name=name)
        case.set("time", f"{1e-6 * float(row['time_us']):.9f}")
        text = f"{percent(row['ratio'])} ({percent(row['low'])} to {percent(row['high'])})"
        if place in slower:
            ET.SubElement(case, "failure", message=text, type="worse")
        elif place in unjudged:
            ET.SubElement(case, "error", message=text, type="cannot tell")
        elif row["verdict"] == "cannot tell":
            ET.SubElement(case, "skipped", message=f"cannot tell: {text}")
        yield case


def _places(changes: Changes, verdict: str) -> list[int]:
    is_so: list[bool] = (changes.rows["verdict"] == verdict).tolist()
    return [place for place, mark in enumerate(is_so) if mark]


def _group_cases(changes: Changes, gate: Gate | None) -> Iterator[ET.Element]:
    least = 1.0 if gate is None else 1 + gate.percent / 100
    for one in changes.called:
        case = ET.Element("testcase", classname="compare.groups", name=one.title)
        if one.verdict == "worse" and one.ratio > least:
            text = f"{percent(one.ratio)} ({percent(one.low)} to {percent(one.high)})"
            ET.SubElement(case, "failure", message=text, type="worse")
        yield case


def _loss_cases(changes: Changes, gate: Gate | None) -> Iterator[ET.Element]:
    for loss in changes.losses if gate is None else gate.losses:
        case = ET.Element("testcase", classname="compare.losses", name=loss.kind)
        ET.SubElement(case, "failure", message=loss.text, type=loss.kind)
        yield case


def _gate_case(gate: Gate) -> ET.Element:
    case = ET.Element("testcase", classname="compare.gate", name=f"within {gate.percent:g}%")
    if gate.verdict != "pass":
        kind = "failure" if gate.verdict == "worse" else "error"
        ET.SubElement(case, kind, message="; ".join(gate.reasons), type=gate.verdict)
    return case
