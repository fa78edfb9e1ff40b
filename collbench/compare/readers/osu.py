"""The text of OSU micro-benchmarks: a size and an average latency or a bandwidth a line, with -f
also the least, the most and the iterations, with -z percentiles, with -c whether the result was
right.

Point to point is a sendrecv whose traffic the notes name. Latency is of a message one way, half a
round trip. Bandwidth is decimal MB/s with a window of messages in flight (-W, 64 if the command
does not name it): the time of a row is that of one message in this stream. Both directions at once
print the sum of both, of which a row has half; several pairs print the sum of all.

The time is the mean over ranks of each rank's mean, where nccl-tests and we give the slowest
rank's. The size is one rank's block for allgather, alltoall, gather and scatter, which S is n of;
the number of ranks is never in the text, but a launch line above it may show it. With -T all one
title has a table for each type. Source: OSU micro-benchmarks 5.6 to 7.5 (osu_util_mpi.c, and the
benchmarks' own files).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from collbench.compare.readers.foreign import (
    NUMBER,
    ForeignRemarks,
    ForeignTable,
    dtype_of,
    foreign,
    merged,
    op_in,
    refuse_too_many,
    ways_told,
)
from collbench.compare.readers.launch_line import conditions_of_command, launched_ranks
from collbench.compare.readers.log_lines import Line, log_lines
from collbench.compare.readers.proof import MOST_RANKS
from collbench.core.collectives import OpName, collective
from collbench.core.errors import UsageError
from collbench.core.record import Record

TOOL = "the OSU micro-benchmarks"
IS_DOCUMENT = False
# What only OSU micro-benchmarks print, at the start of their lines.
HEADING = re.compile(r"(?:#\s{0,3})?OSU\s[A-Z]\S{0,40}\s.{0,80}?\bTest\b|#\s{0,3}Datatype:\s*MPI_")
_TITLE_LINE = re.compile(
    r"(?:#\s{0,3})?OSU (MPI|NCCL|RCCL)(-\w{1,12})?\s(.{1,80}?)\sTest\b(?:\s+v(\S{1,20}))?"
)
_ANY_TITLE = re.compile(r"(?:#\s{0,3})?OSU\s(.{1,120}?)\sTest\b(?:\s+v(\S{1,20}))?")
_BACKENDS = {"MPI": "mpi", "NCCL": "nccl", "RCCL": "nccl"}
_STATED_RANKS = re.compile(r"#\s*ranks:?\s+(\d{1,7})\b")
_PROGRAM = re.compile(r"\bosu_\w{1,60}")
_DATATYPE = re.compile(r"#\s*Datatype:\s*(\w{1,30}?)\.?\s*$")
_SIZE_HEADING = re.compile(r"#\s*Size\b(.*)")
_SIZE_LINE = re.compile(r"(\d{1,18})\s+(\d.*|nan.*)")
_OTHER_TOOL = re.compile(
    r"#\s{0,9}(?:nThread:?\s\d|nccl-tests version|Intel\s?\(R\) MPI Benchmark|Benchmarking\s"
    r"|bytes\s+#repetitions|Initializing MSCCL|minBytes\s\d)"
)
_PAIRS = re.compile(r"#\s*\[\s*pairs:\s*(\d{1,7})\s*\](?:\s*\[\s*window size:\s*(\d{1,7})\s*\])?")
_BUFFERS = re.compile(r"#\s*Send Buffer on \w+ \((\w)\) and Receive Buffer on \w+ \((\w)\)")
_WINDOW = re.compile(r"\s(?:-W|--window-size)[= ]?(\d{1,7})\b")
_USUAL_WINDOW = 64
# overlap with computing, or other operations; its size is not said alike by all versions
_NO_COLLECTIVES = ("non-blocking", "persistent", "neighbor")
_TIMES = ("avg latency(us)", "latency(us)")
_RATES = ("bandwidth(mb/s)", "bi-bandwidth(mb/s)", "mb/s")
_VERDICTS = ("Pass", "Fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transfer:
    """What a point-to-point benchmark sends: in how many directions at once, whether several
    messages are in flight and the rate of them is printed, and whether between several pairs.
    """

    directions: int = 1
    is_windowed: bool = False
    has_pairs: bool = False


_TRANSFERS = {
    "latency": _Transfer(),
    "multi latency": _Transfer(has_pairs=True),
    "bandwidth": _Transfer(is_windowed=True),
    "bi-directional bandwidth": _Transfer(directions=2, is_windowed=True),
    "bidirectional bandwidth": _Transfer(directions=2, is_windowed=True),
    "multiple bandwidth / message rate": _Transfer(is_windowed=True, has_pairs=True),
}


@dataclass(slots=True, kw_only=True)
class _OsuTable:
    """One table of one type of a benchmark's output."""

    title: str
    op: OpName | None
    line: int
    last: int
    version: str
    memory: str
    backend: str
    ranks: int
    command: str
    stream: str
    transfer: _Transfer | None
    window: int = _USUAL_WINDOW
    buffers: str = ""
    dtype: str = ""
    columns: tuple[str, ...] = ()
    rows: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    nothing: list[int] = field(default_factory=list)

    @property
    def known_columns(self) -> tuple[str, ...]:
        """What the column of the result may be called, the usual name first."""
        return _RATES if self.transfer and self.transfer.is_windowed else _TIMES

    @property
    def result_column(self) -> str:
        """The column of the time or of the rate; empty if there is none."""
        columns = self.columns or self.known_columns[:1]
        return next((column for column in self.known_columns if column in columns), "")

    @property
    def traffic(self) -> str:
        """The notes of its rows; empty for a collective."""
        if self.transfer is None:
            return ""
        direction = "one-way" if self.transfer.directions == 1 else ""
        window = f"window-{self.window}" if self.transfer.is_windowed else ""
        return f"{direction} {window}".strip()


def is_mine(text: str) -> bool:
    r"""Whether the text is OSU micro-benchmarks'.

    >>> is_mine("# OSU MPI-CUDA Allreduce Latency Test v7.4\n"), is_mine("# nThread 1 nGpus 8\n")
    (True, False)
    """
    return HEADING.search(text) is not None


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    parser = _OsuParser()
    for line in log_lines(text, HEADING):
        parser.take(line)
    tables = parser.tables
    remarks = ForeignRemarks("line")
    rows: list[tuple[ForeignTable, int, Record]] = []
    for table in tables:
        if table.op is None:
            remarks.add(
                f"'{table.title}' ({{at}}) is no collective of ours: {len(table.rows)} lines left"
                " out",
                table.line,
            )
            continue
        if table.columns and not table.result_column:
            raise UsageError(
                f"{name}, line {table.line}: no column '{table.known_columns[0]}' among"
                f" {', '.join(table.columns)}",
                "give what a blocking collective, or one of point to point, prints",
            )
        refuse_too_many(table.rows, name)
        if not table.ranks and _is_block(table.op):
            raise UsageError(
                f"{name}, line {table.line}: {table.op}'s size is one rank's block, and the number"
                " of ranks is not in the file",
                "put the launch line above it, or a line such as: # ranks: 8",
            )
        _add_remarks(remarks, table)
        span = ForeignTable(first=table.line, last=table.last, conditions=_conditions(table))
        rows += [(span, line, _record(table, cells, table.op)) for line, cells in table.rows]
    said = remarks.texts()
    if not rows:
        where = tables[-1].line if tables else 1
        raise UsageError(
            f"{name}, line {where}: no row: {'; '.join(said) or 'nothing follows the title'}",
            "the run failed, is no collective's, or of 0 bytes alone (-m 1:)",
        )
    if any(table.rows and table.op and table.transfer is None for table in tables):
        said = ("OSU's time is the mean over ranks, not the slowest rank's", *said)
    return merged(rows, name), said


def _add_remarks(remarks: ForeignRemarks, table: _OsuTable) -> None:
    if table.broken:
        remarks.add("{count} lines cut or mixed with others left out ({at})", *table.broken)
    if not table.ranks and table.rows:
        remarks.add(
            "the number of ranks is not in the file ({at}): put a line such as '# ranks: 8' above"
            " it",
            table.line,
        )
    if table.rows and "validation" not in table.columns:
        remarks.add("no result was checked ({at}: no -c)", table.line)
    if table.nothing:
        remarks.add("{count} rows of 0 bytes left out ({at})", *table.nothing)
    if table.transfer is not None and table.rows:
        for text in _transfer_remarks(table, table.transfer):
            remarks.add(text, table.line)


def _transfer_remarks(table: _OsuTable, transfer: _Transfer) -> Iterator[str]:
    yield ways_told("messages", is_both=transfer.directions == 2)
    if transfer.is_windowed:
        yield (
            f"times are those of one message among {table.window} in flight ({{at}}): size /"
            " bandwidth, no latency"
        )


def _conditions(table: _OsuTable) -> dict[str, str]:
    """What two tables of one log must share to be repeats of one measurement."""
    return {
        "the stream of lines": table.stream,
        "the command": table.command,
        "the version": table.version,
        "the memory": f"{table.memory} {table.buffers}".strip(),
    }


def _is_block(op: OpName) -> bool:
    """Whether the size that OSU prints is of one rank's block, and S is n of them."""
    return collective(op).size_in_blocks and op != "reducescatter"


def _op(title: str) -> OpName | None:
    """The collective of a title such as "All-to-All Personalized Exchange Latency".

    >>> _op("All-to-All Personalized Exchange Latency"), _op("Non-blocking Allreduce Latency")
    ('alltoall', None)
    """
    plain = title.lower()
    return (
        None if any(word in plain for word in _NO_COLLECTIVES) else op_in(plain.replace(" ", "."))
    )


@dataclass(slots=True, kw_only=True)
class _OsuParser:
    """The tables in a text, from its lines one by one; each stream of lines has one of its own."""

    tables: list[_OsuTable] = field(default_factory=list)
    current: dict[str, _OsuTable] = field(default_factory=dict)
    stated: int = 0
    launched: int = 0
    command: str = ""
    options: str = ""

    def take(self, line: Line) -> None:
        """The next line."""
        text = line.text
        if stated := _STATED_RANKS.match(text):
            self.stated, self.launched = min(int(stated[1]), MOST_RANKS), 0
            self._tell_ranks(line.stream)
        elif title := _ANY_TITLE.match(text):
            self._start(line, _TITLE_LINE.match(text), title)
        elif _OTHER_TOOL.match(text):
            self.current.pop(line.stream, None)
        elif program := _PROGRAM.search(text):
            self.command = conditions_of_command(text, program[0])
            self.options = text[program.end() :]
            ranks = launched_ranks(text)
            if ranks is not None:
                self.launched = min(ranks, MOST_RANKS)
            self._tell_ranks(line.stream)
        elif (table := self.current.get(line.stream)) is not None:
            self._add(table, line)

    def _tell_ranks(self, stream: str) -> None:
        """A table that has no row yet is that of the line that was just read."""
        table = self.current.get(stream)
        if table is not None and not table.rows:
            table.ranks, table.command = self._ranks(table.transfer), self.command

    def _ranks(self, transfer: _Transfer | None) -> int:
        """How many ranks a table is of; 0 if unknown. Two exchange messages, whoever else waits."""
        if transfer is not None and not transfer.has_pairs:
            return 2
        return self.launched or self.stated

    def _start(self, line: Line, title: re.Match[str] | None, any_title: re.Match[str]) -> None:
        """A new title ends the table before it, whatever it is the title of."""
        transfer = _TRANSFERS.get(" ".join(title[3].lower().split())) if title else None
        window = _WINDOW.search(self.options)
        table = _OsuTable(
            title=title[3] if title else any_title[1],
            op="sendrecv" if transfer else _op(title[3]) if title else None,
            line=line.number,
            last=line.number,
            version=any_title[2] or "",
            memory=((title[2] or "") if title else "").lstrip("-"),
            backend=_BACKENDS[title[1]] if title else "mpi",
            ranks=self._ranks(transfer),
            command=self.command,
            stream=line.stream,
            transfer=transfer,
            window=int(window[1]) if window else _USUAL_WINDOW,
        )
        self.tables.append(table)
        self.current[line.stream] = table

    def _add(self, table: _OsuTable, line: Line) -> None:
        text = line.text
        if match := _DATATYPE.match(text):
            if table.rows or table.broken:  # -T all: a table for each type
                table = replace(table, line=line.number, columns=(), rows=[], broken=[], nothing=[])
                self.tables.append(table)
                self.current[line.stream] = table
            table.dtype = dtype_of(match[1])
        elif match := _SIZE_HEADING.match(text):
            if table.rows:  # a second heading in one table: whose rows follow is not known
                table.broken.append(line.number)
                return
            table.columns = tuple(
                re.sub(r"\s+\(", "(", column.strip().lower())
                for column in re.split(r"\s{2,}|\t", match[1].strip())
            )
        elif match := _PAIRS.match(text):
            table.ranks = min(2 * int(match[1]), MOST_RANKS)
            table.window = int(match[2] or table.window)
        elif match := _BUFFERS.match(text):
            table.buffers = f"{match[1]} {match[2]}"
        elif (match := _SIZE_LINE.match(text)) and not int(match[1]):
            table.nothing.append(line.number)
        elif match:
            cells = (match[1], *match[2].split())
            wanted = len(table.columns) + 1 if table.columns else 2
            is_whole = len(cells) == wanted and all(
                NUMBER.fullmatch(cell) or cell in _VERDICTS for cell in cells
            )
            if is_whole:
                table.rows.append((line.number, cells))
            else:
                table.broken.append(line.number)
        table.last = line.number


def _record(table: _OsuTable, cells: tuple[str, ...], op: OpName) -> Record:
    named = dict(zip(table.columns or (table.result_column,), cells[1:], strict=True))
    size_bytes = int(cells[0]) * (table.ranks if _is_block(op) else 1)
    low, high = named.get("min latency(us)"), named.get("max latency(us)")
    verdict = named.get("validation", "")
    return foreign(
        op=op,
        backend=table.backend,
        dtype_name=table.dtype,
        placement="out",
        ranks=table.ranks,
        size_bytes=size_bytes,
        times_us=[_time_us(table, size_bytes, _float(named[table.result_column]))],
        bounds_us=(_float(low), _float(high)) if low and high else None,
        iters=int(_float(named.get("iterations", "0"))),
        wrong=0 if verdict == "Pass" else None,
        is_checked=bool(verdict),
        failure="OSU's validation failed" if verdict == "Fail" else "",
        device=f"{table.memory} {table.buffers}".strip(),
        traffic=table.traffic,
        versions=f"osu-micro-benchmarks {table.version}".strip(),
    )


def _time_us(table: _OsuTable, size_bytes: int, result: float) -> float:
    """The time of a row: as it is printed, or of one message at the rate of one direction of one
    pair; 0 without one.
    """
    if table.transfer is None or not table.transfer.is_windowed:
        return result
    pairs = max(table.ranks // 2, 1) if table.transfer.has_pairs else 1
    mb_per_s = result / pairs / table.transfer.directions
    return size_bytes / mb_per_s if mb_per_s else 0.0  # MB/s is bytes a microsecond


def _float(text: str) -> float:
    return float(text) if NUMBER.fullmatch(text) else 0.0
