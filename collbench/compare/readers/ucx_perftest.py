"""The text of ucx_perftest, of UCX: for each test a table, of which the last row counts: the
median, mean and overall time of a message, the rate now and overall, and messages a second.

Rates are 2^20 bytes. A latency is half a round trip; the time of a bandwidth is that of one of
several messages in flight. The size stands in the command (-s) or in a line of its own. Source: UCX
1.5 to 1.19 (perftest.c).
"""

import math
import re
from dataclasses import dataclass, field

from collbench.compare.readers.foreign import ForeignRemarks, ForeignTable, foreign, merged
from collbench.compare.readers.log_lines import log_lines
from collbench.core.errors import UsageError
from collbench.core.record import Record
from collbench.machine.topology.rates import most_links, nvlink

TOOL = "ucx_perftest"
HEADING = re.compile(r"\|.{0,40}\| +(?:latency|overhead) \(usec\) +\| +bandwidth \(MB/s\)")
is_mine = re.compile(rf"{HEADING.pattern}|(?m:^\s{{0,9}}Final:(?:\s+\d[\d.]*){{8}}\s*$)").search
_COMMAND = re.compile(r"\bucx_perftest(?=(?:\s+\S+)?(?:\s+-|\s*$)|\s+[\d.]+\s*$).*")
_OPTION = re.compile(r"\s-(?P<name>[ts])[= ]?(?P<value>\w{1,40})(?!\S)")
_TITLE = re.compile(r"={5,} (?P<test>\w{1,40}) ={5,}|\| Message size: +(?P<size>\d{1,15})\b")
_ROW = re.compile(
    r"(?:\[thread \d+\]|Final:)?\s*(?P<iters>\d{1,12})\s+[\d.]+\s+[\d.]+\s+(?P<us>\d{1,9}\.\d{3})"
    r"\s+(?P<now>\d{1,9}\.\d\d)\s+(?P<mib>\d{1,9}\.\d\d)\s+\d+\s+(?P<rate>\d{1,12})\s*$"
)
_FITTING = 0.02  # of a rate by that of messages, which is rounded
_UNSTEADY = 2  # times: between the stages of one test
_USUAL_SIZE = "8"  # bytes of a message, if the command names no other


@dataclass(slots=True)
class _UcxTable:
    line: int
    test: str
    size_bytes: int
    is_latency: bool
    row: re.Match[str] | None = None
    rates: list[float] = field(default_factory=list)


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    remarks = ForeignRemarks("line")
    rows: list[tuple[ForeignTable, int, Record]] = []
    for table in _tables(text, remarks):
        if table.row is None:
            remarks.add("no whole row follows the heading of {at}", table.line)
            continue
        rate, time_us = float(table.row["mib"]) * 2**20, float(table.row["us"])
        messages = max(int(table.row["rate"]), 1)
        told_bytes, rounding = rate / messages, 0.5 / messages
        near = 1 << round(math.log2(max(told_bytes, 1)))
        off = abs(near / told_bytes - 1) if rate else 1.0
        is_near = off <= min(_FITTING, rounding + 0.005 * 2**20 / max(rate, 1))
        size_bytes = table.size_bytes or (near if is_near else 0)
        if told_bytes and abs(size_bytes / told_bytes - 1) > _FITTING + rounding and size_bytes:
            remarks.add("size, rate and messages a second do not fit: left out ({at})", table.line)
            continue
        low, high = min(table.rates), max(table.rates)
        if high > _UNSTEADY * low:
            remarks.add(
                f"unsteady: {low:.3g} to {high:.3g} GB/s within one test ({{at}})", table.line
            )
        if rate / 1e9 > nvlink(5, most_links(100)).raw_gbs:
            said = "more than links of a GPU carry: both may be one GPU, or memory of one host"
            remarks.add(f"{said} ({{at}})", table.line)
        said = f"takes {time_us:g} us, half a round trip"
        if not table.is_latency:
            said = f"reaches {rate / 1e9:.4g} GB/s ({rate / 125e6:.4g} Gb/s) one way"
        told = size_bytes or f"about {told_bytes:.3g}"
        of_size = "" if table.size_bytes else f", in messages of {told} bytes by its rates"
        remarks.add(f"{table.test or TOOL} {said}{of_size} ({{at}})", table.line)
        if size_bytes and rate and time_us:
            sided = [f"rma-{one}" for one in re.findall("put|get|add|swap", table.test)]
            row = foreign(
                op="sendrecv",
                backend="ucx",
                ranks=2,
                size_bytes=size_bytes,
                times_us=[time_us if table.is_latency else size_bytes / rate * 1e6],
                iters=int(table.row["iters"]),
                device="",
                versions=f"{TOOL} {table.test}".strip(),
                traffic=" ".join(("one-way", *["window-ucx"] * (not table.is_latency), *sided)),
            )
            span = ForeignTable(first=table.line, last=table.line, conditions={"test": table.test})
            rows.append((span, table.line, row))
    if not rows:
        said = f"{name}: no row: {'; '.join(remarks.texts())}"
        raise UsageError(said, "keep the command above it, which has the size (-s)")
    return merged(rows, name), remarks.texts()


def _tables(text: str, remarks: ForeignRemarks) -> list[_UcxTable]:
    tables: list[_UcxTable] = []
    test, size_bytes = "", 0
    for line in log_lines(text, HEADING):
        if HEADING.match(line.text):
            is_latency = test.endswith("lat") or (not test and "latency" in line.text)
            tables.append(_UcxTable(line.number, test, size_bytes, is_latency))
        elif title := _TITLE.search(line.text):
            test, size_bytes = title["test"] or test, int(title["size"] or size_bytes)
            if tables and tables[-1].row is None:  # the size stands below the heading
                tables[-1].size_bytes = size_bytes
        elif command := _COMMAND.search(line.text):
            given = {one["name"]: one["value"] for one in _OPTION.finditer(command[0])}
            test, size = given.get("t", ""), given.get("s", _USUAL_SIZE)
            size_bytes = int(size) if size.isdecimal() and len(size) < 16 else 0
        elif "CPU affinity is not set" in line.whole:
            remarks.add(
                "the program was bound to no core, which costs time ({at}): -c", line.number
            )
        elif row := _ROW.match(line.text.strip()):
            if not tables:  # its heading is cut
                tables.append(_UcxTable(line.number, test, size_bytes, test.endswith("lat")))
            tables[-1].row = row
            tables[-1].rates.append(float(row["now"]) * 2**20 / 1e9)
    return tables
