"""The text of the Intel MPI Benchmarks, IMB-MPI1: a table for each benchmark and number of
processes, with the bytes of a message, repetitions, and the least, the largest and the mean time
of the ranks.

The time of a row is the largest, t_max: that of the slowest rank. Bytes are one rank's block for
allgather, alltoall, gather, scatter and reduce_scatter_block, which S is n of; for reduce_scatter
they are so from IMB 2019 on, and were the total before. PingPong is a message one way, half a
round trip; Sendrecv is a shift by one, and PingPing is it on two ranks by other calls. Mbytes/sec
counts what is sent and received, in units of 2^20 bytes before 2018: it only has to agree with the
time. Uniband and Biband print a rate alone, of all pairs, with a window of messages in flight.
Source: IMB 3.2 to 2021.11 (IMB_output.c, IMB_parse_name_mpi1.c, the benchmarks' own files).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from collbench.analysis.readers.foreign import (
    NUMBER,
    Remarks,
    Table,
    dtype_of,
    foreign,
    merged,
    refuse_too_many,
)
from collbench.analysis.readers.log_lines import Line, log_lines
from collbench.analysis.readers.proof import MOST_RANKS
from collbench.results.record import Record
from collbench.spec.collectives import OpName, collective
from collbench.spec.dtypes import DTYPES, dtype
from collbench.util.errors import UsageError

TOOL = "the Intel MPI Benchmarks"
IS_DOCUMENT = False
HEADING = re.compile(
    r"#\s{1,9}Intel\s?\(R\) MPI Benchmark|#\s{0,3}Benchmarking\s{1,3}[A-Z]"
    r"|#bytes\s{1,12}#repetitions\s"
)
_VERSION = re.compile(
    r"#\s{1,9}Intel\s?\(R\) MPI Benchmarks?(?: Suite)?\s{1,3}V?(\d[\w.]{0,12}(?: Update \d+)?)"
    r"(.{0,60})"
)
_OTHER_PARTS = ("P2P", "MT part")  # whose benchmarks of the same names measure something else
_TITLE = re.compile(r"#\s{0,3}Benchmarking\s{1,3}(\S{1,60})")
_PROCESSES = re.compile(r"#\s{0,3}#processes\s{0,3}=\s{0,3}(\d{1,7})\b")
_GROUPS = re.compile(r"#\s{0,3}\(\s*(\d{1,7}) groups of (\d{1,7}) processes")
_TYPE = re.compile(r"#\s{0,3}MPI_Datatype(\s+for reductions)?\s*:\s*(MPIX?_\w{1,30})")
_CALLED = re.compile(r"#\s.{0,200}\bIMB-[A-Z]\w{1,8}\b(.*)")
_WINDOW = re.compile(r"(?:^|\s)-window_size[= ](\d{1,7})\b")
_COLUMNS = re.compile(r"(?:Group\s+)?(?:#bytes\s+)?#repetitions\s+\S.*")
_ROW = re.compile(r"(\d{1,18})\s+(\S.*)")
_LOST = re.compile(r"(\d{1,18})\s+(out-of-mem|int-overflow|time-out)")
_TIMES = ("t_max[usec]", "t[usec]")
_RATE = "Mbytes/sec"
_HALF_UNIT = 0.005  # of a time or a rate, which have two digits after the point
_SLACK = 1e-6
_MIB = 1.048576  # of a megabyte
_MOST_DEFECT = 0.01  # IMB_declare.h: from there on a build with -DCHECK calls the result wrong
_FIRST_IN_BLOCKS = 2019  # the version from which on reduce_scatter's bytes are of one block
_FIRST_WIDE_WINDOW = 2021.2
_DTYPES = {"MPI_BYTE": "uint8", "MPIX_C_FLOAT16": "float16", "MPIX_C_BF16": "bfloat16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Benchmark:
    """What a benchmark is here. in_blocks: its bytes are of one block. messages: how often
    Mbytes/sec counts the bytes; 0 where there is no such column. algo: how it sends, where that is
    not the only way. directions: of a table of rates, 0 for a table of times.
    """

    op: OpName
    in_blocks: bool = False
    messages: int = 0
    algo: str = ""
    is_one_way: bool = False
    directions: int = 0


_BENCHMARKS = {
    "PingPong": _Benchmark(op="sendrecv", messages=1, is_one_way=True),
    "PingPing": _Benchmark(op="sendrecv", messages=1, algo="isend"),
    "Sendrecv": _Benchmark(op="sendrecv", messages=2),
    "Uniband": _Benchmark(op="sendrecv", is_one_way=True, directions=1),
    "Biband": _Benchmark(op="sendrecv", directions=2),
    "Bcast": _Benchmark(op="broadcast"),
    "Reduce": _Benchmark(op="reduce"),
    "Allreduce": _Benchmark(op="allreduce"),
    "Reduce_scatter": _Benchmark(op="reducescatter"),
    "Reduce_scatter_block": _Benchmark(op="reducescatter", in_blocks=True, algo="block"),
    "Allgather": _Benchmark(op="allgather", in_blocks=True),
    "Alltoall": _Benchmark(op="alltoall", in_blocks=True),
    "Gather": _Benchmark(op="gather", in_blocks=True),
    "Scatter": _Benchmark(op="scatter", in_blocks=True),
}


@dataclass(slots=True, kw_only=True)
class _ImbTable:
    """One benchmark on one number of processes."""

    title: str
    line: int
    last: int
    version: str
    command: str
    stream: str
    types: dict[str, str]
    part: str
    ranks: int = 0
    groups: int = 1
    columns: tuple[str, ...] = ()
    rows: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    nothing: list[int] = field(default_factory=list)
    misfits: list[int] = field(default_factory=list)

    @property
    def benchmark(self) -> _Benchmark | None:
        """What is known of it; None for one that is not comparable."""
        is_other = self.groups > 1 or any(part in self.part for part in _OTHER_PARTS)
        return None if is_other else _BENCHMARKS.get(self.title)

    @property
    def result_column(self) -> str:
        """The column of the time or of the rate; empty if there is none, or none of the bytes."""
        if "#bytes" not in self.columns:
            return ""
        known = (_RATE,) if self.benchmark and self.benchmark.directions else _TIMES
        return next((column for column in known if column in self.columns), "")

    @property
    def year(self) -> float:
        """The version as a number: 2019.6 of "2019 Update 6"; 0 if it is not in the text."""
        match = re.match(r"(\d{1,4})(?: Update |\.)?(\d{0,2})", self.version)
        return float(f"{match[1]}.{match[2] or 0}") if match else 0.0

    @property
    def is_total(self) -> bool:
        """Whether the bytes of reduce_scatter are the total."""
        return 0 < self.year < _FIRST_IN_BLOCKS

    @property
    def window(self) -> int:
        """How many messages are in flight, in a table of rates."""
        named = _WINDOW.search(self.command)
        usual = 64 if 0 < self.year < _FIRST_WIDE_WINDOW else 256
        return int(named[1]) if named else usual


def is_mine(text: str) -> bool:
    r"""Whether the text is the Intel MPI Benchmarks'.

    >>> is_mine("# Benchmarking PingPong\n"), is_mine("# OSU MPI Allreduce Latency Test v7.4\n")
    (True, False)
    """
    return HEADING.search(text) is not None


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    parser = _ImbParser()
    for line in log_lines(text, HEADING):
        parser.take(line)
    remarks = Remarks("line")
    if parser.orphans:
        remarks.add(
            "{count} tables have no line 'Benchmarking ...': left out ({at})", *parser.orphans
        )
    rows: list[tuple[Table, int, Record]] = []
    for table in parser.tables:
        benchmark = table.benchmark
        if benchmark is None:
            groups = f" in {table.groups} groups at once" if table.groups > 1 else ""
            count = len(table.rows) + len(table.broken) + len(table.nothing)
            remarks.add(
                f"'{table.title}'{groups} ({{at}}) is not comparable, it is no collective of ours:"
                f" {count} lines left out",
                table.line,
            )
            continue
        if table.columns and not table.result_column:
            raise UsageError(
                f"{name}, line {table.line}: no column '#bytes', or none of '{_TIMES[0]}' and"
                f" '{_TIMES[1]}', among {', '.join(table.columns)}",
                "give the text as IMB-MPI1 printed it",
            )
        refuse_too_many(table.rows, name)
        if table.rows and not table.ranks:
            raise UsageError(
                f"{name}, line {table.line}: the number of processes is not in the text",
                f"put the line '# #processes = N' under 'Benchmarking {table.title}'",
            )
        span = Table(first=table.line, last=table.last, conditions=_conditions(table))
        rows += [(span, line, row) for line, row in _records(table, benchmark)]
        for said, places in _remarks(table, benchmark):
            remarks.add(said, *places)
    said_of_all = remarks.texts()
    if not rows:
        last = parser.tables[-1].line if parser.tables else text.count("\n") + 1
        raise UsageError(
            f"{name}, line {last}: no row: {'; '.join(said_of_all) or 'the output ends here'}",
            "the run failed, or is of no collective",
        )
    return merged(rows, name), said_of_all


def _conditions(table: _ImbTable) -> dict[str, str]:
    """What two tables of one log must share to be repeats of one measurement."""
    return {
        "the stream of lines": table.stream,
        "the command": table.command,
        "the version": table.version,
    }


def _remarks(table: _ImbTable, benchmark: _Benchmark) -> Iterator[tuple[str, Sequence[int]]]:
    """Texts for Remarks, each with its places."""
    here = (table.line,)
    if table.broken:
        yield "{count} lines cut or mixed with others left out ({at})", table.broken
    if table.lost:
        yield "{count} sizes were not measured: no memory, no time, or too large ({at})", table.lost
    if table.nothing:
        yield "{count} rows of 0 bytes left out ({at})", table.nothing
    if table.misfits:
        yield (
            "{count} times left out whose Mbytes/sec are not those of size and time ({at})",
            table.misfits,
        )
    if not table.rows:
        return
    if "defects" not in table.columns:
        yield "no result was checked ({at}: IMB was built without CHECK)", here
    if benchmark.is_one_way:
        yield (
            "messages go one way ({at}): not compared with sendrecv of collbench and nccl-tests,"
            " where each rank sends and receives at once",
            here,
        )
    if benchmark.directions == 2:
        yield (
            "the bandwidth of both directions is halved ({at}): rates are those of one direction",
            here,
        )
    if benchmark.directions:
        yield (
            f"times are those of one message among {table.window} in flight ({{at}}): size /"
            " bandwidth, no latency",
            here,
        )
    if table.title == "Reduce_scatter":
        what = "the total, as before IMB 2019" if table.is_total else "one rank's block"
        yield f"reduce_scatter's bytes are read as {what} ({{at}})", here


def _records(table: _ImbTable, benchmark: _Benchmark) -> Iterator[tuple[int, Record]]:
    """The rows with their lines; those whose rate contradicts the time become misfits."""
    for line, cells in table.rows:
        named = dict(zip(table.columns, cells, strict=True))
        size, result = int(named["#bytes"]), _float(named[table.result_column])
        if benchmark.messages and not _agrees(size, result, named.get(_RATE), benchmark.messages):
            table.misfits.append(line)
            continue
        yield line, _record(table, benchmark, named, size, result)


def _agrees(size: int, time_us: float, rate: str | None, messages: int) -> bool:
    """Whether Mbytes/sec may be that of size and time, in megabytes or, as before 2018, MiB."""
    if rate is None or time_us <= _HALF_UNIT:
        return True
    return any(
        messages * size / unit / (time_us + _HALF_UNIT) * (1 - _SLACK) - _HALF_UNIT
        <= _float(rate)
        <= messages * size / unit / (time_us - _HALF_UNIT) * (1 + _SLACK) + _HALF_UNIT
        for unit in (1.0, _MIB)
    )


def _record(
    table: _ImbTable, benchmark: _Benchmark, named: dict[str, str], size: int, result: float
) -> Record:
    op = benchmark.op
    is_block = benchmark.in_blocks or (op == "reducescatter" and not table.is_total)
    size_bytes = size * (table.ranks if is_block else 1)
    kind = table.types.get("reductions" if collective(op).is_reduction else "others", "")
    name = _DTYPES.get(kind, dtype_of(kind))
    known = next((one for one in DTYPES if one == name), None)
    item = dtype(known).item_bytes if known else 0
    traffic = "one-way " if benchmark.is_one_way else ""
    if benchmark.directions:
        pairs = max(table.ranks // 2, 1)
        each = result / pairs / benchmark.directions  # MB/s is bytes a microsecond
        time_us, traffic = size / each if each else 0.0, f"{traffic}window-{table.window}"
    else:
        time_us = result
    defect = _float(named["defects"]) if "defects" in named else None
    return foreign(
        op=op,
        backend="mpi",
        algo=benchmark.algo,
        dtype=name,
        placement="out",
        ranks=table.ranks,
        size_bytes=size_bytes,
        count=collective(op).block_count(size_bytes, item, table.ranks) if item else 0,
        times_us=[time_us],
        iters=int(_float(named["#repetitions"])),
        wrong=None,
        is_checked=defect is not None,
        failure=f"off by {defect:g}" if defect is not None and defect > _MOST_DEFECT else "",
        traffic=traffic.strip(),
        device="",
        versions=f"intel-mpi-benchmarks {table.version}".strip(),
    )


@dataclass(slots=True, kw_only=True)
class _ImbParser:
    """The tables in a text, from its lines one by one; each stream of lines has one of its own."""

    tables: list[_ImbTable] = field(default_factory=list)
    current: dict[str, _ImbTable] = field(default_factory=dict)
    orphans: list[int] = field(default_factory=list)
    version: str = ""
    part: str = ""
    command: str = ""
    types: dict[str, str] = field(default_factory=dict)

    def take(self, line: Line) -> None:
        """The next line."""
        text, table = line.text, self.current.get(line.stream)
        if title := _TITLE.match(text):
            self._start(line, title[1])
        elif version := _VERSION.match(text):
            self.version, self.part, self.command, self.types = *version.groups(), "", {}
            self.current.pop(line.stream, None)
        elif kind := _TYPE.match(text):
            self.types = self.types | {"reductions" if kind[1] else "others": kind[2]}
        elif called := _CALLED.match(text):
            self.command = " ".join(called[1].split())
        elif table is None and _COLUMNS.match(text):
            self.orphans.append(line.number)
        elif table is not None:
            table.last = line.number
            if not _add(table, line):
                self.current.pop(line.stream)

    def _start(self, line: Line, title: str) -> None:
        table = _ImbTable(
            title=title,
            line=line.number,
            last=line.number,
            version=self.version,
            command=self.command,
            stream=line.stream,
            types=self.types,
            part=self.part,
        )
        self.tables.append(table)
        self.current[line.stream] = table


def _add(table: _ImbTable, line: Line) -> bool:
    """Take a line of a table; whether the table goes on."""
    text = line.text
    if processes := _PROCESSES.match(text):
        table.ranks = min(int(processes[1]), MOST_RANKS)
    elif groups := _GROUPS.match(text):
        table.groups, table.ranks = int(groups[1]), min(int(groups[2]), MOST_RANKS)
    elif _COLUMNS.match(text):
        if table.rows or table.nothing:  # a second heading: whose rows follow is not known
            return False
        table.columns = tuple(text.split())
    elif _LOST.match(text):
        table.lost.append(line.number)
    elif table.columns and (row := _ROW.match(text)):
        _add_row(table, line.number, text.split(), is_empty=not int(row[1]))
    elif text.startswith("#") and table.rows:
        return False
    return True


def _add_row(table: _ImbTable, number: int, cells: Sequence[str], *, is_empty: bool) -> None:
    is_whole = len(cells) == len(table.columns) and all(map(NUMBER.fullmatch, cells))
    if not is_whole:
        table.broken.append(number)
    elif is_empty and table.columns[0] == "#bytes":
        table.nothing.append(number)
    else:
        table.rows.append((number, tuple(cells)))


def _float(text: str) -> float:
    return float(text) if NUMBER.fullmatch(text) else 0.0
