"""The tables of mscclpp's Python benchmarks: of allreduce_bench, which measures NCCL beside it, and
of bench_collective.

Sizes are for people, in KiB and MiB with one digit after the point, and must agree with the time
and the rate. allreduce_bench times rank 0 and names no number of ranks; bench_collective times the
slowest rank, and its bus bandwidth shows the number. Source: mscclpp 0.9.0
(python/mscclpp_benchmark).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from collbench.analysis.readers.foreign import (
    NUMBER,
    Remarks,
    Table,
    dtype_of,
    foreign,
    merged,
    op_in,
    refuse_too_many,
)
from collbench.analysis.readers.launch_line import launched_ranks
from collbench.analysis.readers.log_lines import Line, log_lines
from collbench.analysis.readers.proof import MOST_RANKS, Printed, half_unit, ranks_of
from collbench.results.record import Record
from collbench.spec.collectives import OpName, collective
from collbench.spec.dtypes import DTYPES, dtype
from collbench.util.errors import UsageError

TOOL = "mscclpp's Python benchmarks"
IS_DOCUMENT = False
HEADING = re.compile(
    r"MSCCL\+\+ [a-z_]{4,20} benchmark:|batch\s{1,30}\|\s{1,3}msg\s{1,30}\|\s{1,3}total\s"
    r"|\|\s{1,20}Size(?: \(\w{2,12}\))?\s{1,20}\|\s{1,20}Time \(us\)\s"
)
_BENCHMARK = re.compile(r"MSCCL\+\+ ([a-z_]{4,20}) benchmark:.{0,200}\bdtype=(\w{2,20})")
_STATED_RANKS = re.compile(r"#\s*ranks:?\s+(\d{1,7})\b")
_PROGRAM = re.compile(r"\b(?:allreduce_bench|bench_collective)\b")
_OUT_OF_PLACE = re.compile(r"--buffer-mode[= ]out-of-place\b")
_SIZE = re.compile(r"(\d{1,9}\.\d) ([KMGT]i)?B")
_DTYPE = re.compile(r"size \((\w{2,12})\)")
_UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_RULE = re.compile(r"[+|=-]{5,}\Z")
_VERDICTS = ("PASS", "FAIL", "SKIP")


@dataclass(slots=True, kw_only=True)
class _BenchTable:
    """One table: its columns in small letters, and its rows as they are printed."""

    line: int
    last: int
    stream: str
    op: OpName | None
    dtype: str
    ranks: int
    placement: str
    columns: tuple[str, ...]
    rows: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    misfits: list[int] = field(default_factory=list)

    @property
    def has_nccl(self) -> bool:
        """Whether it is of allreduce_bench."""
        return "nccl time (us)" in self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """One time of a row, with the names of its columns."""

    backend: str
    size: str
    time: str
    algbw: str
    busbw: str
    check: str


_OURS = _Measured(
    backend="mscclpp",
    size="size",
    time="time (us)",
    algbw="algbw (gb/s)",
    busbw="",
    check="correctness",
)
_NCCL = _Measured(
    backend="nccl",
    size="size",
    time="nccl time (us)",
    algbw="nccl algbw (gb/s)",
    busbw="",
    check="nccl correctness",
)
_COLLECTIVE = _Measured(
    backend="mscclpp",
    size="total",
    time="time_us",
    algbw="algbw_gb/s",
    busbw="busbw_gb/s",
    check="check",
)


def is_mine(text: str) -> bool:
    r"""Whether the text is of mscclpp's Python benchmarks.

    >>> is_mine("|  Size (fp16) | Time (us) |\n"), is_mine("# Initializing MSCCL++\n")
    (True, False)
    """
    return HEADING.search(text) is not None


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    parser = _BenchParser()
    for line in log_lines(text, HEADING):
        parser.take(line)
    remarks = Remarks("line")
    rows: list[tuple[Table, int, Record]] = []
    for table in parser.tables:
        refuse_too_many(table.rows, name)
        if table.op is None:
            raise UsageError(
                f"{name}, line {table.line}: the text does not name the collective",
                "keep the line 'MSCCL++ ... benchmark:' above the table",
            )
        span = Table(
            first=table.line, last=table.last, conditions={"the stream of lines": table.stream}
        )
        rows += [(span, line, row) for line, row in _records(table, table.op)]
        for said, places in _remarks(table):
            remarks.add(said, *places)
    said_of_all = remarks.texts()
    if not rows:
        last = parser.tables[-1].last if parser.tables else text.count("\n") + 1
        raise UsageError(
            f"{name}, line {last}: no row:"
            f" {'; '.join(said_of_all) or 'the output ends before its table'}",
            "the run failed: look at the end of the file",
        )
    return merged(rows, name), said_of_all


def _remarks(table: _BenchTable) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Texts for Remarks, each with its places."""
    here = (table.line,)
    if table.broken:
        yield "{count} lines cut or mixed with others left out ({at})", tuple(table.broken)
    if table.misfits:
        yield (
            "{count} times left out whose rates are not those of size and time ({at})",
            tuple(table.misfits),
        )
    if not table.rows:
        return
    if table.has_nccl:
        yield (
            "times are rank 0's, and whether in place is not in the text: read as in place, as"
            " NCCL's call beside it ({at})",
            here,
        )
    if not table.ranks:
        yield (
            "the number of ranks is not in the file ({at}): put a line such as '# ranks: 8' above"
            " it",
            here,
        )


def _records(table: _BenchTable, op: OpName) -> Iterator[tuple[int, Record]]:
    measured = (_OURS, _NCCL) if table.has_nccl else (_COLLECTIVE,)
    if not table.has_nccl:
        table.ranks = _ranks(table, op)
    known = next((one for one in DTYPES if one == table.dtype), None)
    for line, cells in table.rows:
        size_bytes = _size_of(cells[measured[0].size])
        for one in measured:
            if not _agrees(cells[measured[0].size], cells[one.time], cells[one.algbw]):
                table.misfits.append(line)
                continue
            check = cells.get(one.check, "SKIP")
            yield (
                line,
                foreign(
                    op=op,
                    backend=one.backend,
                    algo=cells.get("algorithm", ""),
                    dtype=table.dtype,
                    placement=table.placement,
                    ranks=table.ranks,
                    size_bytes=size_bytes,
                    count=(
                        collective(op).block_count(
                            size_bytes, dtype(known).item_bytes, max(table.ranks, 1)
                        )
                        if known and (table.ranks or not collective(op).size_in_blocks)
                        else 0
                    ),
                    times_us=[float(cells[one.time])],
                    iters=0,
                    wrong=0 if check == "PASS" else None,
                    is_checked=check in ("PASS", "FAIL"),
                    failure="mscclpp's check failed" if check == "FAIL" else "",
                    device="",
                    versions="mscclpp",
                ),
            )


def _ranks(table: _BenchTable, op: OpName) -> int:
    """The number of ranks that makes busbw of algbw; 0 if none, or several do."""
    rates = [
        Printed(
            line=line,
            placement=table.placement,
            size_bytes=0,
            time=0.0,
            time_error=0.0,
            algbw=float(cells[_COLLECTIVE.algbw]),
            algbw_error=half_unit(cells[_COLLECTIVE.algbw]),
            busbw=float(cells[_COLLECTIVE.busbw]),
            busbw_error=half_unit(cells[_COLLECTIVE.busbw]),
        ).rates
        for line, cells in table.rows
    ]
    return ranks_of(op, rates, table.ranks)[0]


def _size_of(text: str) -> int:
    """The bytes of a size for people; 0 of what is none.

    >>> _size_of("1.5 KiB"), _size_of("1.5"), _size_of("512.0 B")
    (1536, 0, 512)
    """
    match = _SIZE.fullmatch(text)
    return round(float(match[1]) * _UNITS[match[2] or ""]) if match else 0


def _agrees(size: str, time: str, algbw: str) -> bool:
    """Whether size, time and rate may be of one row."""
    number, unit = size.split()
    error = half_unit(number) * _UNITS[unit.removesuffix("B")]
    low = (float(time) - half_unit(time)) * max(float(algbw) - half_unit(algbw), 0.0) * 1e3
    high = (float(time) + half_unit(time)) * (float(algbw) + half_unit(algbw)) * 1e3
    return low - error <= _size_of(size) <= high + error


@dataclass(slots=True, kw_only=True)
class _BenchParser:
    """The tables in a text, from its lines one by one; each stream of lines has one of its own."""

    tables: list[_BenchTable] = field(default_factory=list)
    current: dict[str, _BenchTable] = field(default_factory=dict)
    op: OpName | None = None
    dtype: str = ""
    ranks: int = 0
    placement: str = "in"

    def take(self, line: Line) -> None:
        """The next line."""
        text, table = line.text, self.current.get(line.stream)
        cells = [cell.strip() for cell in text.strip("| ").split("|")]
        if named := _BENCHMARK.match(text):
            self.op, self.dtype = op_in(named[1]), dtype_of(named[2])
        elif stated := _STATED_RANKS.match(text):
            self.ranks = min(int(stated[1]), MOST_RANKS)
        elif _PROGRAM.search(text):
            launched = launched_ranks(text)
            self.ranks = self.ranks if launched is None else min(launched, MOST_RANKS)
            self.placement = "out" if _OUT_OF_PLACE.search(text) else "in"
        elif HEADING.match(text):
            self._start(line, cells)
        elif table is not None and "|" in text and not _RULE.match(text):
            table.last = line.number
            _add_row(table, line.number, cells)
        elif table is not None and not _RULE.match(text):
            self.current.pop(line.stream)

    def _start(self, line: Line, cells: list[str]) -> None:
        columns = [cell.lower() for cell in cells]
        kind = _DTYPE.fullmatch(columns[0])
        is_nccl = columns[0].startswith("size")
        if is_nccl:
            columns[0] = "size"
        table = _BenchTable(
            line=line.number,
            last=line.number,
            stream=line.stream,
            op="allreduce" if is_nccl else self.op,
            dtype=dtype_of(kind[1]) if kind else "" if is_nccl else self.dtype,
            ranks=self.ranks,
            placement="in" if is_nccl else self.placement,
            columns=tuple(columns),
        )
        self.tables.append(table)
        self.current[line.stream] = table


def _add_row(table: _BenchTable, number: int, cells: list[str]) -> None:
    named = dict(zip(table.columns, cells, strict=False))
    measured = (_OURS, _NCCL) if table.has_nccl else (_COLLECTIVE,)
    is_whole = len(cells) == len(table.columns) and all(
        _size_of(named.get(one.size, ""))
        and NUMBER.fullmatch(named.get(one.time, ""))
        and NUMBER.fullmatch(named.get(one.algbw, ""))
        and (not one.busbw or NUMBER.fullmatch(named.get(one.busbw, "")))
        and named.get(one.check, "SKIP") in _VERDICTS
        for one in measured
    )
    if is_whole:
        table.rows.append((number, named))
    else:
        table.broken.append(number)
