"""The text of OSU micro-benchmarks: a size and an average latency or a bandwidth a line, with -f
also the least, the most and the iterations, with -z percentiles, with -c whether the result was
right. And that of ucc_perftest, which has a count before the size, and with -F bandwidths, or what
people made of it between bars.

Point to point is a sendrecv whose traffic the notes name, MPI_Put and MPI_Get too. Latency is of a
message one way, half a round trip. Bandwidth is decimal MB/s with a window of messages in flight
(-W, 64 if the command does not name it): the time of a row is that of one message in this stream.
Both directions at once print the sum of both, of which a row has half; several pairs that of all.

The time is the mean over ranks of each rank's mean, where nccl-tests and we give the slowest
rank's. The size is one rank's block for allgather, alltoall, gather and scatter, which S is n of;
the number of ranks is never in the text, but a launch line above it, or UCC's bandwidths, may show
it. With -T all one title has a table for each type. Source: OSU micro-benchmarks 5.6 to 7.5
(osu_util_mpi.c, and the benchmarks' own files), UCC 1.0 to 1.5 (ucc_pt_benchmark.cc).
"""

import re
from collections import Counter
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
from collbench.compare.readers.log_lines import Line, log_lines, words_above
from collbench.compare.readers.proof import MOST_RANKS, ranks_of
from collbench.core.collectives import OpName, collective
from collbench.core.errors import UsageError
from collbench.core.record import Record
from collbench.core.text import counted

TOOL = "the OSU micro-benchmarks"
# What only these tools print, at the start of their lines.
HEADING = re.compile(
    r"(?:#\s{0,3})?OSU\s[A-Z]\S{0,40}\s.{0,80}?\b[Tt]est\b|#\s{0,3}Datatype:\s*MPI_"
    r"|(?i:\W{0,9}count[ |]{1,40}(?:msg_)?size[ |]{1,40}(?:time, us|avg\b))"
)
is_mine = HEADING.search
_TITLE = re.compile(
    r"(?:#\s{0,3})?OSU\s(?P<whole>(?:(?P<of>MPI|NCCL|RCCL)(?P<sided>_[A-Z]\w{2,20})?"
    r"(?:-(?P<memory>\w{1,12}))?\s)?(?P<title>.{1,120}?))\s[Tt]est\b(?:\s+v(?P<version>\S{1,20}))?"
)
_BACKENDS = {"MPI": "mpi", "NCCL": "nccl", "RCCL": "nccl"}
_UCC_FIELD = re.compile(r"(Collective|Memory type|Data ?type|Inplace):\s+(\S{1,40})\s*$")
_OF_TABLE = re.compile(rf"#|\d|{_UCC_FIELD.pattern}")
_UCC_HEADING = re.compile(r"(?i:\W{0,9}count\s{1,40}(?:msg_)?size\s{1,40}(?:time, us|avg\b))")
_BARRED = re.compile(r"^[ \t]{0,40}\|.*", re.MULTILINE)
_ROUNDING = 0.006  # GB/s, of a bandwidth with two digits
_UCC_COLUMNS = ("avg latency(us)", "min latency(us)", "max latency(us)", "bandwidth(gb/s)")
_STATED_RANKS = re.compile(r"#\s*ranks:?\s+(\d{1,7})\b")
_PROGRAM = re.compile(r"\bosu_\w{1,60}|\bucc_perftest\b")
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
_FALLS = 0.7  # of the highest rate, below which the largest size is slow
_COUNT = re.compile(r"\d{1,7}\Z")
_SET = re.compile(r"(?:\W{0,3}export +)?([A-Z]\w{1,60})=\S{1,200}\s*\Z")  # for the commands below
# overlap with computing, or other operations; its size is not said alike by all versions
_NO_COLLECTIVES = ("non-blocking", "persistent", "neighbor")
_TIMES = ("avg latency(us)", "latency(us)")
_RATES = ("bandwidth(mb/s)", "bi-bandwidth(mb/s)", "mb/s")
_VERDICTS = ("Pass", "Fail")


# what goes between two ranks: between several pairs, both ways at once, and as a rate of several
_TRANSFER = re.compile(
    r"(?P<pairs>multi(?:ple)? )?(?P<both>bi-?directional )?(?:latency|(?P<rate>bandwidth))"
    r"(?: / message rate)?\Z",
    re.IGNORECASE,
)


@dataclass(slots=True, kw_only=True)
class _OsuTable:
    """One table of one type of a benchmark's output. op: as far as its title tells it. names: of
    what people put behind UCC's times. nothing: lines of 0 bytes, and their times.
    """

    title: str
    op: OpName | None
    line: int
    last: int
    backend: str
    ranks: int
    command: str
    words: str
    stream: str
    transfer: re.Match[str] | None
    version: str = ""
    memory: str = ""
    sided: str = ""
    placement: str = "out"
    names: tuple[str, ...] = ()
    window: int = _USUAL_WINDOW
    buffers: str = ""
    dtype: str = ""
    columns: tuple[str, ...] = ()
    rows: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    nothing: dict[int, str] = field(default_factory=dict)
    misfits: list[int] = field(default_factory=list)

    @property
    def known_columns(self) -> tuple[str, ...]:
        """What the column of the result may be called, the usual name first."""
        return _RATES if self.transfer and self.transfer["rate"] else _TIMES

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
        direction = "" if self.transfer["both"] else "one-way"
        window = f"window-{self.window}" if self.transfer["rate"] else ""
        return " ".join(filter(None, (direction, window, self.sided)))


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    parser = _OsuParser()
    text = _BARRED.sub(lambda row: row[0].replace("|", " "), text)
    for line in log_lines(text, HEADING):
        parser.take(line)
    tables = [table for table in parser.tables if table.title or table.rows or table.broken]
    remarks = ForeignRemarks("line")
    rows: list[tuple[ForeignTable, int, Record]] = []
    for table in tables:
        if table.backend == "ucc":
            _complete(table, name)
        if table.op is None:
            results = sorted((_float(cells[1]), cells[1]) for _, cells in table.rows)
            left = f"{counted(len(results), 'line')} left out"
            left += f" ({results[0][1]} to {results[-1][1]})" if results else ""
            remarks.add(f"'{table.title}' ({{at}}) is no collective of ours: {left}", table.line)
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
            "the run failed, has 0 bytes alone (-m 1:), or is of another kind than osu_alltoall",
        )
    if any(table.rows and table.op and table.transfer is None for table in tables):
        said = ("times are means over ranks, not the slowest rank's", *said)
    return merged(rows, name), said


def _complete(table: _OsuTable, name: str) -> None:
    """Find out of what a table of UCC is, and the number of its ranks. Raises UsageError."""
    table.op = table.op or (None if table.title else op_in(name.rpartition("/")[2]))
    if table.op is None and not table.title:
        raise UsageError(
            f"{name}, line {table.line}: the file does not name the collective",
            "name the file after it, as in allreduce.txt, or put above it: Collective: Allreduce",
        )
    if table.op is None or len(table.columns) < len(_UCC_COLUMNS):
        return
    # of one block, and of all; N/A is of a collective without a bandwidth
    rates = []
    shown: Counter[int] = Counter()
    for line, cells in table.rows:
        if time_us := _float(cells[1]):
            algbw, busbw = int(cells[0]) / time_us / 1e3, _float(cells[4])
            rates.append((line, algbw, busbw))
            by_rank = ranks_of(table.op, [(algbw, busbw, _ROUNDING)], 0)[0]
            by_block = round(busbw / algbw) + 1 if busbw > _ROUNDING else 0
            shown[by_block if _is_block(table.op) else by_rank] += 1
    del shown[0]
    misfits = dict[int, list[int]]()
    for n in {table.ranks: 0, min(max(shown, key=shown.__getitem__, default=0), MOST_RANKS): 0}:
        factor = n - 1 if _is_block(table.op) else collective(table.op).factor(max(n, 1))
        off = [(line, abs(algbw * factor - busbw) - busbw / 100) for line, algbw, busbw in rates]
        misfits[n] = [line for line, error in off if n and error > _ROUNDING]
    table.ranks = min(filter(None, misfits), key=lambda n: len(misfits[n]), default=0)
    table.misfits = misfits[table.ranks]
    if 0 < sum(busbw > _ROUNDING for *_, busbw in rates) == len(table.misfits):
        table.misfits = [line for line, *_ in rates]  # those rounded to nothing tell no more
    table.rows = [row for row in table.rows if row[0] not in table.misfits]


def _add_remarks(remarks: ForeignRemarks, table: _OsuTable) -> None:
    if table.broken:
        remarks.add("{count} line{s} cut or mixed with others left out ({at})", *table.broken)
    if table.misfits:
        said = "{count} row{s} left out whose bandwidth is not that of size and time ({at})"
        remarks.add(said, *table.misfits)
    rounded = [line for line, cells in table.rows if "." not in cells[1]]
    if rounded and table.backend != "ucc":
        is_all = len(rounded) == len(table.rows)
        said = "rounded" if is_all else "left out, as a point or digits were lost"
        remarks.add(f"{{count}} result{{s}} without OSU's decimals ({{at}}): {said}", *rounded)
        table.rows = [row for row in table.rows if is_all or row[0] not in rounded]
    if not table.ranks and table.rows:
        said = "the number of ranks is not in the file ({at}): put above it such as '# ranks: 8'"
        remarks.add(said, table.line)
    if table.rows and table.backend == "ucc":
        if len(table.columns) == len(_UCC_COLUMNS):
            of = f"{table.ranks} ranks" if table.ranks else "no number of ranks"
            remarks.add(f"UCC's bandwidths are those of {of} ({{at}})", table.line)
        remarks.add("no result was checked ({at})", table.line)
    elif table.rows and "validation" not in table.columns:
        remarks.add("no result was checked ({at}: no -c)", table.line)
    if table.nothing:
        took = f": {', '.join(table.nothing.values())} us" if table.known_columns is _TIMES else ""
        remarks.add(f"{{count}} row{{s}} of 0 bytes left out ({{at}}){took}", *table.nothing)
    if table.transfer is not None and table.rows:
        remarks.add(ways_told("messages", is_both=bool(table.transfer["both"])), table.line)
        if table.transfer["rate"]:
            said = f"times are those of one message among {table.window} in flight ({{at}})"
            remarks.add(f"{said}: size / bandwidth, no latency", table.line)
            rates = [(_float(cells[1]), cells[0]) for _, cells in table.rows]
            (peak, at), (last, size) = max(rates), rates[-1]
            if last < _FALLS * peak:
                said = f"{peak:g} MB/s at {at} bytes to {last:g} at {size}"
                remarks.add(f"the rate falls from {said} ({{at}})", table.line)


def _conditions(table: _OsuTable) -> dict[str, str]:
    """What two tables of one log must share to be repeats of one measurement."""
    return {
        "the stream of lines": table.stream,
        "the line above": table.command or table.words,
        "the text above": table.words if table.command else "",
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
    words: str = ""
    exported: dict[str, str] = field(default_factory=dict)

    def take(self, line: Line) -> None:
        """The next line."""
        text = line.text
        if stated := _STATED_RANKS.match(text):
            self.stated, self.launched = min(int(stated[1]), MOST_RANKS), 0
            self._tell_ranks(line.stream)
        elif title := _TITLE.match(text):
            self._start_osu(line, title)
        elif (ucc := _UCC_FIELD.match(text)) and ucc[1] == "Collective":
            self._start(line, ucc[1], op=_op(ucc[2]), backend="ucc")
        elif _UCC_HEADING.match(text):
            self._start_ucc(line)
        elif _OTHER_TOOL.match(text):
            self.current.pop(line.stream, None)
        elif program := _PROGRAM.search(text):
            command = conditions_of_command(text, program[0])
            self.command = " ".join((*self.exported.values(), command))
            self.options = text[program.end() :]
            ranks = launched_ranks(text)
            if ranks is not None:
                self.launched = min(ranks, MOST_RANKS)
            self._tell_ranks(line.stream)
        elif (table := self.current.get(line.stream)) is not None and _OF_TABLE.match(text):
            self._add(table, line)
        elif variable := _SET.match(text.strip()):
            self.exported[variable[1]] = variable[0]
        else:
            self.words = words_above(self.words, line)

    def _tell_ranks(self, stream: str) -> None:
        """A table that has no row yet is that of the line that was just read."""
        table = self.current.get(stream)
        if table is not None and not table.rows:
            table.ranks, table.command = self._ranks(table.transfer), self.command

    def _ranks(self, transfer: re.Match[str] | None) -> int:
        """How many ranks a table is of; 0 if unknown. Two exchange messages, whoever else waits."""
        if transfer is not None and not transfer["pairs"]:
            return 2
        return self.launched or self.stated

    def _start_osu(self, line: Line, title: re.Match[str]) -> None:
        """A new title ends the table before it, whatever it is the title of."""
        sided = (title["sided"] or "").lower().lstrip("_")
        transfer = _TRANSFER.match(title["title"]) if title["of"] else None
        if sided not in ("", "put", "get"):
            transfer = None
        op = "sendrecv" if transfer else None if sided or not title["of"] else _op(title["title"])
        table = self._start(line, title["whole"], op, _BACKENDS.get(title["of"], "mpi"), transfer)
        table.version, table.memory = title["version"] or "", title["memory"] or ""
        table.sided = f"rma-{sided}" if sided else ""
        if window := _WINDOW.search(self.options):
            table.window = int(window[1])

    def _start_ucc(self, line: Line) -> None:
        """The heading of a table of UCC, whose title may be missing."""
        names = line.text.lower().split()
        table = self.current.get(line.stream)
        if table is None or table.backend != "ucc" or table.rows:
            table = self._start(line, "", None, "ucc")
        table.columns = _UCC_COLUMNS[: 4 if "bandwidth," in names else 3]
        table.names = tuple(names[5:]) if "avg" in names else ()

    def _start(
        self,
        line: Line,
        title: str,
        op: OpName | None,
        backend: str,
        transfer: re.Match[str] | None = None,
    ) -> _OsuTable:
        table = _OsuTable(
            title=title,
            op=op,
            line=line.number,
            last=line.number,
            backend=backend,
            ranks=self._ranks(transfer),
            command=self.command,
            words=self.words,
            stream=line.stream,
            transfer=transfer,
        )
        self.tables.append(table)
        self.current[line.stream] = table
        return table

    def _again(self, table: _OsuTable, line: Line) -> _OsuTable:
        """The table that goes on with other rows below the same title."""
        table = replace(table, line=line.number, rows=[], broken=[], nothing={})
        self.tables.append(table)
        self.current[line.stream] = table
        return table

    def _add(self, table: _OsuTable, line: Line) -> None:
        text = line.text
        if match := _DATATYPE.match(text):
            if table.rows or table.broken:  # -T all: a table for each type
                table = self._again(table, line)
                table.columns = ()
            table.dtype = dtype_of(match[1])
        elif match := _UCC_FIELD.match(text):
            if match[1].startswith("Data"):
                table.dtype = dtype_of(match[2]) if match[2].isidentifier() else ""
            elif match[1] == "Inplace":
                table.placement = "in" if match[2] == "1" else "out"
            else:
                table.memory = match[2].upper()
        elif match := _SIZE_HEADING.match(text):
            if table.rows:  # a second heading in one table: whose rows follow is not known
                table.broken.append(line.number)
                return
            table.columns = tuple(
                re.sub(r"\s+\(", "(", column.strip().lower())
                for column in re.split(r"\s{2,}|\t|(?<=[a-z]\)|ns) ", match[1].strip())
            )
        elif match := _PAIRS.match(text):
            table.ranks = min(2 * int(match[1]), MOST_RANKS)
            table.window = int(match[2] or table.window)
        elif match := _BUFFERS.match(text):
            table.buffers = f"{match[1]} {match[2]}"
        elif match := _SIZE_LINE.match(text):
            cells = (match[1], *match[2].split())
            if table.backend == "ucc":
                table, cells = self._of_ucc(table, line, cells)
            wanted = len(table.columns) + 1 if table.columns else 2
            known = (NUMBER.fullmatch(cell) or cell in _VERDICTS for cell in cells)
            if len(cells) != wanted or not cells[0].isdecimal() or not all(known):
                table.broken.append(line.number)
            elif int(cells[0]):
                table.rows.append((line.number, cells))
            else:
                table.nothing[line.number] = cells[1]
        table.last = line.number

    def _of_ucc(
        self, table: _OsuTable, line: Line, cells: tuple[str, ...]
    ) -> tuple[_OsuTable, tuple[str, ...]]:
        """A row of UCC without its count, and its table: rows of other nodes or settings, by what
        people put behind the times, are of another.
        """
        wanted = len(table.columns) + 2
        behind = dict(zip(table.names, cells[wanted:], strict=False))
        if behind and (command := " ".join(behind.values())) != table.command:
            table = self._again(table, line) if table.rows else table
            table.command = command
            nodes, each = behind.get("nnode", ""), behind.get("ppn", "")
            if _COUNT.match(nodes) and _COUNT.match(each):
                table.ranks = min(int(nodes) * int(each), MOST_RANKS)
        return table, cells[1:wanted]


def _record(table: _OsuTable, cells: tuple[str, ...], op: OpName) -> Record:
    named = dict(zip(table.columns or (table.result_column,), cells[1:], strict=True))
    size_bytes = int(cells[0]) * (table.ranks if _is_block(op) else 1)
    low, high = named.get("min latency(us)"), named.get("max latency(us)")
    verdict = named.get("validation", "")
    return foreign(
        op=op,
        backend=table.backend,
        dtype_name=table.dtype,
        placement=table.placement,
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
        versions="ucc_perftest"
        if table.backend == "ucc"
        else f"osu-micro-benchmarks {table.version}".strip(),
    )


def _time_us(table: _OsuTable, size_bytes: int, result: float) -> float:
    """The time of a row: as it is printed, or of one message at the rate of one direction of one
    pair; 0 without one.
    """
    if table.transfer is None or not table.transfer["rate"]:
        return result
    pairs = max(table.ranks // 2, 1) if table.transfer["pairs"] else 1
    mb_per_s = result / pairs / (2 if table.transfer["both"] else 1)
    return size_bytes / mb_per_s if mb_per_s else 0.0  # MB/s is bytes a microsecond


def _float(text: str) -> float:
    return float(text) if NUMBER.fullmatch(text) else 0.0
