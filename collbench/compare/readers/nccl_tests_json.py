"""The JSON that nccl-tests writes with -J (versions 1 to 3 of the file): the same rows as its text,
with more digits.

Its booleans and roots are strings. Of several GPUs in one process only the first is listed; busbw /
algbw corrects the number of ranks where it shows another (NCCL_TESTS_SPLIT). It holds the whole
environment of the run, of which only NCCL_* is kept: the rest may be secret. Source: nccl-tests
2.19.6 (util.cu).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypedDict

from collbench.compare.readers.foreign import (
    MOST_REPEATS,
    ForeignRemarks,
    ForeignTable,
    devices_line,
    dtype_of,
    foreign,
    hosts_line,
    merged,
    op_in,
    op_named,
)
from collbench.compare.readers.nccl_tests_table import nccl_version
from collbench.compare.readers.proof import MOST_RANKS, Printed, ProofReading, reading_of
from collbench.core.collectives import OpName
from collbench.core.errors import UsageError
from collbench.core.reading import parse_json
from collbench.core.record import Record
from collbench.core.verdict import interval

TOOL = "nccl-tests"
IS_DOCUMENT = True
# times and rates have six digits after the point; each is rounded once more on its way
_HALF_UNIT = 1e-6
MOST_INTEGER = 2**63 - 1
_KEY = re.compile(r'"(?:results|nccl_version)"\s*:')
_MOST_CHARS = 32 << 20
_PARTS = (("out", "out_of_place"), ("in", "in_place"))


def is_mine(text: str) -> bool:
    """Whether the text is such a file.

    >>> is_mine('{"version": 2, "results": []}'), is_mine('{"nvbandwidth": {}}')
    (True, False)
    """
    return text.lstrip().startswith("{") and _KEY.search(text) is not None


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    whole = parse_json(text, name, _MOST_CHARS)
    results = whole.get("results") if isinstance(whole, dict) else None
    if not isinstance(whole, dict) or not isinstance(results, list):
        raise UsageError(
            f"{name} is JSON, but not nccl-tests': it has no list 'results'",
            "give what nccl-tests wrote with -J",
        )
    if not results:
        raise UsageError(f"{name}: 'results' is empty", "the run failed: look at its text output")
    op = _op(whole, name)
    config = _mapping(whole.get("config"))
    reading = _reading(op, config, results, name)
    remarks = ForeignRemarks("result")
    for text, places in reading.remarks:
        remarks.add(text, *places)
    run = _run(whole, reading.ranks)
    if not reading.ranks:
        remarks.add("the number of ranks is not in the file: no bus bandwidth")
    elif reading.ranks != _claimed_ranks(config):
        remarks.add(
            f"the configuration names {_claimed_ranks(config)} ranks, but busbw / algbw is that of"
            f" {reading.ranks}"
        )
    has_checks = _whole(config, "validation", 1) != 0
    iters = _whole(config, "iterations", 0)
    table = ForeignTable(first=1, last=len(results), conditions={})
    rows = [
        (table, place, record)
        for place, item in enumerate(results, start=1)
        for record in _records(
            item, op, run, reading, iters, f"{name}, result {place}", place, has_checks=has_checks
        )
    ]
    if not rows:
        raise UsageError(f"{name}: no result has a time", "the run failed: look at its text output")
    if all("unchecked" in record.notes for _, _, record in rows):
        remarks.add("no result was checked (-c 0)")
    bounds = whole.get("out_of_bounds")
    if isinstance(bounds, dict) and bounds.get("okay") == "false":
        remarks.add("nccl-tests calls this run failed: values out of bounds")
        if not any(record.status == "wrong" for _, _, record in rows):
            remarks.add("no result shows which: none counts as checked")
            rows = [
                (table, place, replace(record, notes="unchecked")) for table, place, record in rows
            ]
    return merged(rows, name), remarks.texts()


def _claimed_ranks(config: Mapping[str, object]) -> int:
    """How many ranks the configuration names: a device listed is the first of a process."""
    listed = config.get("devices")
    devices = max(len(listed) if isinstance(listed, list) else 0, 1)
    ranks = devices * _whole(config, "nthreads", 1) * _whole(config, "ngpus", 1)
    return min(ranks, MOST_RANKS)


def _reading(
    op: OpName, config: Mapping[str, object], results: list[object], name: str
) -> ProofReading:
    printed = []
    for place, item in enumerate(results, start=1):
        for placement, key in _PARTS:
            part = _mapping(_mapping(item).get(key))
            size = _number(_mapping(item).get("size"))
            time, algbw, busbw = (_number(part.get(key)) for key in ("time", "alg_bw", "bus_bw"))
            if None not in (size, time, algbw, busbw):
                printed.append(
                    Printed(
                        line=place,
                        placement=placement,
                        size_bytes=int(size or 0),
                        time=time or 0.0,
                        time_error=_HALF_UNIT,
                        algbw=algbw or 0.0,
                        algbw_error=_HALF_UNIT,
                        busbw=busbw or 0.0,
                        busbw_error=_HALF_UNIT,
                    )
                )
    claimed = _claimed_ranks(config)
    return reading_of(op, printed, claimed=claimed, counted=0, name=name, place=1)


def _op(whole: Mapping[str, object], name: str) -> OpName:
    args = whole.get("args")
    program = args[0] if isinstance(args, list) and args and isinstance(args[0], str) else ""
    named = program.replace("\\", "/").rpartition("/")[2].partition("_perf")[0]
    op = op_named(named) if program else op_in(name.rpartition("/")[2])
    if op is None:
        raise UsageError(
            f"{name}: {program or 'the file'} names no collective of ours",
            "name the file after it, as in allreduce.json" if not program else "",
        )
    return op


class _RunColumns(TypedDict):
    """The columns that all rows of a run share."""

    ranks: int
    hosts: int
    host: str
    device: str
    versions: str
    timestamp: str


def _run(whole: Mapping[str, object], ranks: int) -> _RunColumns:
    """The columns that all rows of a run share."""
    listed = _mapping(whole.get("config")).get("devices")
    devices = [_mapping(device) for device in listed] if isinstance(listed, list) else []
    env = whole.get("env")
    settings = (
        sorted(item for item in env if isinstance(item, str) and item.startswith("NCCL_"))
        if isinstance(env, list)
        else []
    )
    code = _whole(whole, "nccl_version", 0)
    versions = "nccl-tests"
    if 1000 <= code < 10**6:
        versions += f"; nccl {nccl_version(code)}"
        versions += f" with {' '.join(settings)}" if settings else ""
    hosts = [str(device.get("hostname", "")) for device in devices]
    names = [str(device.get("device_info", "")) for device in devices]
    is_alike = len(set(names)) == 1 and len(names) < ranks
    return {
        "ranks": ranks,
        "hosts": len(set(hosts)),
        "host": hosts_line(hosts),
        "device": devices_line(names * (ranks if is_alike and len(names) == 1 else 1)),
        "versions": versions,
        "timestamp": str(whole.get("start_time", "")),
    }


def _records(
    item: object,
    op: OpName,
    run: _RunColumns,
    reading: ProofReading,
    iters: int,
    place: str,
    number: int,
    *,
    has_checks: bool,
) -> list[Record]:
    row = _mapping(item)
    size, count, kind = _number(row.get("size")), _number(row.get("count")), row.get("type")
    if size == 0:
        return []  # a size below one element of each rank: nothing was sent
    if (
        size is None
        or count is None
        or not isinstance(kind, str)
        or not 0 <= size <= MOST_INTEGER
        or not 0 <= count <= MOST_INTEGER
    ):
        raise UsageError(
            f"{place}: size, count or type is missing or no number",
            "the file is not as nccl-tests wrote it",
        )
    try:
        root = int(str(row.get("root", "0")))
    except ValueError:
        root = 0
    records = []
    for placement, key in _PARTS:
        part = _mapping(row.get(key))
        if "cpu_time" in part:
            raise UsageError(
                f"{place}: these are times of the CPU (-C 1), not of the collective",
                "run nccl-tests without -C",
            )
        if not part:
            continue
        time, wrong = _number(part.get("time")), _number(part.get("nwrong"))
        if time is None and part.get("time") != "nan":
            raise UsageError(
                f"{place}, {key}: time is missing or no number",
                "the file is not as nccl-tests wrote it",
            )
        if (number, placement) in reading.misfits:
            continue
        records.append(
            foreign(
                op=op,
                backend="nccl",
                dtype=dtype_of(kind),
                redop=str(row.get("redop", "")),
                root=root if abs(root) < MOST_INTEGER else 0,
                placement=placement,
                size_bytes=int(size) * (reading.ranks if reading.is_block else 1),
                count=int(count),
                times_us=[math.nan if time is None else time],
                bounds_us=_bounds(row.get(f"{key}_per_iter")),
                iters=_whole(row, "actual_iterations", 0) or iters,
                wrong=None if wrong is None or not has_checks else int(wrong),
                is_checked=wrong is not None and has_checks,
                **run,
            )
        )
    return records


def _bounds(value: object) -> tuple[float, float] | None:
    """Bounds of the time by the times of the iterations; None where there are none.

    The iterations of one run are no repeats of it: they share its drift.
    """
    per_iteration = _mapping(value)
    listed = per_iteration.get("times_us")
    times = [_number(time) for time in listed] if isinstance(listed, list) else []
    skipped = _whole(per_iteration, "skipped_iterations", 0)
    known = [time for time in times[skipped:] if time is not None and time > 0]
    if not known or len(known) > MOST_REPEATS:
        low, high = _number(per_iteration.get("min_us")), _number(per_iteration.get("max_us"))
        return (low, high) if low and high and 0 < low <= high else None
    bounds = interval(known)
    return bounds.low, bounds.high


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    """The value if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) <= MOST_INTEGER:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return None


def _whole(values: Mapping[str, object], name: str, default: int) -> int:
    number = _number(values.get(name))
    return int(number) if number is not None and 0 <= number <= MOST_INTEGER else default
