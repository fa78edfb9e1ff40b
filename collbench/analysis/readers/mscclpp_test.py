"""The text of mscclpp-test: tables as nccl-tests has them, without a type, and with one part of a
row only, that in place first.

The time is rank 0's, over launches of a CUDA graph. Elements are of int32, reductions are sums. The
collective is in the name of the program alone. Source: mscclpp 0.9.0 (test/mscclpp-test/common.cc).
"""

import re
from dataclasses import dataclass, field

from collbench.analysis.readers.foreign import (
    NUMBER,
    Remarks,
    Table,
    devices_line,
    foreign,
    hosts_line,
    merged,
    op_in,
    refuse_too_many,
)
from collbench.analysis.readers.log_lines import Line, log_lines
from collbench.analysis.readers.proof import Printed, half_unit, reading_of
from collbench.results.record import Record
from collbench.spec.collectives import OpName, collective
from collbench.util.errors import UsageError

TOOL = "mscclpp-test"
IS_DOCUMENT = False
HEADING = re.compile(
    r"#\s{1,9}(?:Initializing MSCCL\+\+|size\s{1,40}count\s{1,40}time\s{1,40}algbw\b)"
    r"|#\s{1,3}minBytes\s{1,3}\d"
)
_COLUMNS = re.compile(r"#\s+size\s+count\s+time\s+algbw\s+busbw\b")
_SETTINGS = re.compile(
    r"#\s+minBytes \d.{0,200}?\biters: (\d{1,9}) validation: (\d)\b"
    r"(?:.{0,60}\bkernel num: (\d{1,4}))?"
)
_RANK = re.compile(
    r"#\s+Rank\s+(\d{1,7}) Pid\s+\d+ on\s+(\S{1,200}) device\s+\d+ \[[^\]]{1,40}\]\s*(.{0,99})"
)
_PROGRAM = re.compile(r"\b([a-z_]{4,30})_test_perf\b")
_ROW = re.compile(r"(\d{1,18})\s{1,20}(\d{1,18})(\s{1,60})(\S.*)")
_OUT_OF_PLACE = 20  # spaces after the count, where the part in place is empty: 33
_ITEM_BYTES = 4
_CELLS = (3, 4)  # of a row: time, algbw, busbw, and with validation the wrong elements


@dataclass(slots=True, kw_only=True)
class _Tested:
    """One run: what stands above its table, and the rows of it."""

    line: int
    last: int
    stream: str
    program: str
    kernel: str = ""
    iters: int = 0
    has_checks: bool = False
    has_table: bool = False
    hosts: dict[int, str] = field(default_factory=dict)
    devices: dict[int, str] = field(default_factory=dict)
    rows: list[tuple[int, "_TestRow"]] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    nothing: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TestRow:
    size_bytes: int
    count: int
    placement: str
    cells: tuple[str, ...]

    def printed(self, line: int) -> Printed:
        time, algbw, busbw = self.cells[:3]
        return Printed(
            line=line,
            placement=self.placement,
            size_bytes=self.size_bytes,
            time=float(time),
            time_error=half_unit(time),
            algbw=float(algbw),
            algbw_error=half_unit(algbw),
            busbw=float(busbw),
            busbw_error=half_unit(busbw),
        )


def is_mine(text: str) -> bool:
    r"""Whether the text is mscclpp-test's.

    >>> is_mine("# Initializing MSCCL++\n"), is_mine("# nThread 1 nGpus 8 minBytes 8\n")
    (True, False)
    """
    return HEADING.search(text) is not None


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    parser = _TestParser()
    for line in log_lines(text, HEADING):
        parser.take(line)
    remarks = Remarks("line")
    rows: list[tuple[Table, int, Record]] = []
    for run in parser.runs:
        refuse_too_many(run.rows, name)
        if run.broken:
            remarks.add("{count} lines cut or mixed with others left out ({at})", *run.broken)
        if run.nothing:
            remarks.add("{count} rows of 0 bytes left out ({at})", *run.nothing)
        if not run.rows:
            continue
        if not run.has_checks:
            remarks.add("no result was checked ({at}: -c 0)", run.line)
        remarks.add("times are rank 0's, not the slowest rank's ({at})", run.line)
        span = Table(first=run.line, last=run.last, conditions={"the stream of lines": run.stream})
        rows += [(span, line, row) for line, row in _records(run, name, remarks)]
    said = remarks.texts()
    if not rows:
        last = parser.runs[-1].last if parser.runs else 1
        raise UsageError(
            f"{name}, line {last}: no row: {'; '.join(said) or 'the output ends before its table'}",
            "the run failed: look at the end of the file",
        )
    return merged(rows, name), said


def _op(run: _Tested, name: str) -> OpName:
    """The collective, by the program or the name of the file. Raises UsageError if neither does."""
    op = op_in(run.program) or op_in(name.replace("\\", "/").rpartition("/")[2])
    if op is None:
        raise UsageError(
            f"{name}, line {run.line}: mscclpp-test does not name the collective",
            "put its command line above it, or name the file after it, as in allreduce.txt",
        )
    return op


def _records(run: _Tested, name: str, remarks: Remarks) -> list[tuple[int, Record]]:
    op = _op(run, name)
    claimed = max(run.hosts, default=-1) + 1
    reading = reading_of(
        op,
        [row.printed(line) for line, row in run.rows],
        claimed=claimed,
        counted=0,
        unit="us",
        name=name,
        place=run.line,
    )
    for text, places in reading.remarks:
        remarks.add(text, *places)
    if reading.ranks != claimed:
        remarks.add(f"how many ranks: {reading.ranks}, by busbw / algbw ({{at}})", run.line)
    return [
        (
            line,
            foreign(
                op=op,
                backend="mscclpp",
                algo=f"kernel{run.kernel}" if run.kernel else "",
                dtype="int32",
                placement=row.placement,
                ranks=reading.ranks,
                hosts=len(set(run.hosts.values())),
                size_bytes=row.size_bytes * (reading.ranks if reading.is_block else 1),
                count=collective(op).block_count(
                    row.size_bytes, _ITEM_BYTES, max(reading.ranks, 1)
                ),
                times_us=[float(row.cells[0]) * reading.to_us],
                iters=run.iters,
                wrong=int(row.cells[3]) if len(row.cells) > 3 else None,
                is_checked=len(row.cells) > 3,
                host=hosts_line(run.hosts.values()),
                device=devices_line(list(run.devices.values())),
                versions="mscclpp-test",
            ),
        )
        for line, row in run.rows
        if (line, row.placement) not in reading.misfits
    ]


@dataclass(slots=True, kw_only=True)
class _TestParser:
    """The runs in a text, from its lines one by one; each stream of lines has one of its own."""

    runs: list[_Tested] = field(default_factory=list)
    current: dict[str, _Tested] = field(default_factory=dict)
    program: str = ""

    def take(self, line: Line) -> None:
        """The next line."""
        text, run = line.text, self.current.get(line.stream)
        if program := _PROGRAM.search(text):
            self.program = program[1]
        elif settings := _SETTINGS.match(text):
            run = self._start(line)
            run.iters, run.has_checks = int(settings[1]), settings[2] != "0"
            run.kernel = settings[3] or ""
        elif _COLUMNS.match(text):
            if run is None or run.has_table:
                run = self._start(line)
            run.has_table, run.has_checks = True, "#wrong" in text
        elif run is not None:
            run.last = line.number
            if rank := _RANK.match(text):
                run.hosts[int(rank[1])] = rank[2]
                run.devices[int(rank[1])] = rank[3].strip()
            elif run.has_table and (row := _ROW.match(text)):
                _add_row(run, line.number, row)
            elif text.startswith("#") and run.rows:
                self.current.pop(line.stream)

    def _start(self, line: Line) -> _Tested:
        run = _Tested(line=line.number, last=line.number, stream=line.stream, program=self.program)
        self.runs.append(run)
        self.current[line.stream] = run
        return run


def _add_row(run: _Tested, number: int, match: re.Match[str]) -> None:
    cells = tuple(match[4].split())
    is_whole = len(cells) in _CELLS and all(map(NUMBER.fullmatch, cells))
    if not is_whole or not all(map(str.isdecimal, cells[3:])):
        run.broken.append(number)
    elif not int(match[1]):
        run.nothing.append(number)
    else:
        row = _TestRow(
            size_bytes=int(match[1]),
            count=int(match[2]),
            placement="out" if len(match[3]) > _OUT_OF_PLACE else "in",
            cells=cells,
        )
        run.rows.append((number, row))
