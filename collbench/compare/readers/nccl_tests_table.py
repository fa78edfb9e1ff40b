"""The tables in a text of nccl-tests: what stands above each, its rows as they are printed, and
nothing of what they mean.

The columns are those that the heading names: versions differ in root, redop, `#wrong` and its older
form `error`, and in columns at the end. Source: nccl-tests 2.4 to 2.19.6, rccl-tests to 2024, and
outputs of both. Versions before March 2019 had other columns, and times in milliseconds.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from collbench.compare.readers.foreign import NUMBER
from collbench.compare.readers.launch_line import (
    conditions_of_command,
    is_export,
    launched_ranks,
    settings_in,
)
from collbench.compare.readers.log_lines import Line, words_above
from collbench.compare.readers.proof import MOST_RANKS

# What only nccl-tests prints, at the start of its lines.
HEADING = re.compile(
    r"(?:#\s{0,3})?(?:nThread:?\s{1,3}\d{1,6}\s{1,3}nGpus:?\s|Out of bounds values\s{0,5}:)"
    r"|#\s{1,40}(?:\w{1,20}\s{1,40})?size\s{1,40}count\s{1,40}type\b"
    r"|#\s{0,3}nccl-tests version\s"
    r"|#\s{1,5}Rank\s{1,7}\d{1,7}\s.{0,40}?\bon\s{1,80}\S{1,80}\s{1,5}device\s"
)
# label: of a column that people put before the sizes, such as a number of nodes
TABLE_HEADING = re.compile(r"#\s+(?:(?P<label>\w{1,20})\s+)?size\s+count\s+type\b(?P<rest>.*)")
_LABELLED = re.compile(r"(\S{1,40})\s+(?=\d{1,18}\s+\d{1,18}\s+[a-z]\w{1,20}\b)")
# of what a forum or a person took the sign of a comment; a launcher's tag may stand before it
_BARE = re.compile(
    r"^((?:[^#\n]{0,120}?(?:[>\]:|)]|\dZ| [FP]) ?)?)[ \t]{0,80}"
    r"(?=nccl-tests version|Collective test (?:starting|concluded)|Using devices"
    r"|nThread:? +\d+ +nGpus|Rank +\d+ +.{0,99}?\bon +\S+ +device|(?:\w{1,20} +)?size +count +type"
    r"|\((?:B|bytes)\) +\(elements\)|(?:out-of|in)-place +|Out of bounds values +:"
    r"|Avg bus bandwidth +:|Blocking Enabled)",
    re.MULTILINE,
)
_TIME_AND_RATES = r"[ \t]+\d[\d.]*(?:e[+-]?\d+)?[ \t]+\d+\.\d+[ \t]+\d+\.\d+[ \t]+"
_CHECKED = rf"{_TIME_AND_RATES}(?:\d+|\de[+-]\d\d|N/A)"
_DEVIATES = rf"{_TIME_AND_RATES}\de[+-]\d\d"  # all rows before 2.13, some without a reduction
_WHOLE_ROW = re.compile(
    r"^[ \t]*\d+[ \t]+\d+[ \t]+[a-z]\w{2,19}(?:[ \t]+(?P<redop>sum|prod|max|min|avg|mulsum|none)"
    rf"(?P<root>[ \t]+-?\d+)?{_CHECKED}(?:{_CHECKED})?|{_DEVIATES}(?:{_DEVIATES})?)[ \t]*$",
    re.MULTILINE,
)
# of mscclpp-test, which has the same lines around it and is not read
OTHER_TABLE = re.compile(r"#\s{1,9}size\s{1,40}count\s{1,40}time\s")
_UNITS_LINE = re.compile(r"#\s+\((?:B|bytes)\)\s.*")
_RATE_UNIT = re.compile(r"\(([GMT]i?B/s|G(?:b/s|bps|bit/s))\)")
_RATES_GBS = {
    "GB/s": 1.0,
    "MB/s": 1e-3,
    "TB/s": 1e3,
    "GiB/s": 2**30 / 1e9,
    "MiB/s": 2**20 / 1e9,
    "TiB/s": 2**40 / 1e9,
}
_BITS_GBS = 0.125  # of a Gb/s
_TABLE_LINE = re.compile(r"(\d{1,18})\s+(\d{1,18})\s+([a-z]\w{1,20})\b(.*)")
_RANK = re.compile(
    r"#\s+(?:Rank|Device)\s+(\d{1,7})\s(?:\s*Group\s+(\d{1,7})\s)?"
    r"(?:.*?\bon\s+(\S+)\s+device|.*?device|\s*->)\s+\d+\s+\[[^\]]*\]\s*(.*)"
)
_PROGRAM = re.compile(
    r"(?<!\w)(\w{0,20}?(?:reduce|gather|scatter|all_?to_?all|cast|recv|cube)\w{0,20}?)"
    r"_(?:perf|test)(?![A-Za-z])"
)
_OF_PROCESS = re.compile(r"\s(?:-[gt]|--ngpus|--nthreads)[= ]?(\d{1,4})\b")
_START = re.compile(
    r"#?\s*(?:nThread:?\s|nccl-tests version|Collective test starting|Using devices|NCCL Tests )"
)
_FIRST = re.compile(r"#?\s*(?:nThread:?\s|nccl-tests version|Collective test starting)")
_VALIDATION = re.compile(r"\bvalidation:\s*(-?\d{1,9})")
_WARMUP = re.compile(r"\bwarmup iters:\s*(\d{1,9})")
_ITERS = re.compile(r"\biters:?\s+(\d{1,9})\s+(?:agg|validation)")
# other times come of them
_MODES = re.compile(r"\b(agg iters|graph|unalign|side_work|work_sms|direction):\s*(\S{1,20})")
_BLOCKING = re.compile(r"#\s*Blocking Enabled:?\s*(.{0,100})")
_USUAL_MODES = {"agg iters": "1", "graph": "0", "unalign": "0", "side_work": "0"}
_VERSION = re.compile(r"nccl-tests version (\S{1,30})")
_RCCL = re.compile(r"rccl-tests: Version (\S{1,40})")
_LIBRARY = re.compile(r"nccl-library=(\d{4,6})\b")
_LIBRARY_NAMED = re.compile(r"\b([NR]CCL) version (?::\s?)?(\d+\.\d+\.\d+)")
_LIBRARY_LINE = re.compile(r"\bNCCL (?:INFO|WARN|TRACE|ERROR|ABORT|VERSION)\b|\b[NR]CCL version\b")
_NRANKS = re.compile(r"\bn[Rr]anks (\d{1,7})\b")
_SET = re.compile(r"\b(NCCL_[A-Z0-9_]{1,40}) set by environment to (\S{1,40}?)\.?\s*$")
NO_TIMES = ("nan", "-nan", "inf", "-inf")  # as C prints them
_CHECKS = ("#wrong", "error")
DEVIATION = re.compile(r"(-?\d{1,15}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?)(\*?)")
_OUT_OF_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*:\s*(\d{1,18})\s+(FAILED|OK)")
_TIMES = ("time", "cputime")
_DIGITS = re.compile(r"(?<!\S)\d\S*")
# of a row that another program's line breaks off: the cells before, and those on a later line
_CELL = r"(?:\d[\d.]*(?:e[+-]?\d+)?|N/A)"
_CELLS = re.compile(rf"\s*(?:[a-z]{{3,8}}(?=\s))?(?:\s+-?{_CELL}(?=\W|[A-Za-z]|\Z))*")
_REST = re.compile(rf"{_CELL}(?:\s+{_CELL})*")
_FEWEST_CELLS = 3  # numbers of a row: a time and two rates


def as_printed(text: str) -> tuple[str, bool]:
    """A text with the signs of comments as nccl-tests printed them; and whether the heading of the
    table had to be added, which the form of a whole row tells.

    >>> as_printed(" Using devices")
    ('# Using devices', False)
    """
    text = _BARE.sub(r"\1# ", text)
    row = None if TABLE_HEADING.search(text) else _WHOLE_ROW.search(text)
    if row is None:
        return text, False
    before = " redop" * bool(row["redop"]) + " root" * bool(row["root"])
    part = f" time algbw busbw {'error' if re.search(r'e[+-]..[ ]*$', row[0]) else '#wrong'}"
    return (
        f"{text[: row.start()]}#  size count type{before}{part}{part}\n{text[row.start() :]}",
        True,
    )


@dataclass(slots=True, kw_only=True)
class TableRun:
    """The contents of the lines above a table, and the rows of the table. nodes: how many hosts,
    where they have no names. rounding: of a number, beside half a unit of its last digit.
    """

    stream: str = ""
    words: str = ""
    first: int = 1
    last: int = 0
    program: str = ""
    command: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    devices: dict[int, str] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)
    iters: int = 0
    warmup: int | None = None
    validation: int = 1
    modes: dict[str, str] = field(default_factory=dict)
    version: str = ""
    library: str = ""
    nranks: int = 0
    launched: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    label: str = ""
    columns: tuple[str, ...] = ()
    columns_before: tuple[str, ...] = ()
    placements: tuple[str, ...] = ()
    rate_gbs: float = 1.0
    heading_line: int = 0
    rows: list[tuple[int, "TableRow"]] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    halves: list[int] = field(default_factory=list)
    failed: int = 0
    has_end: bool = False
    nothing: list[int] = field(default_factory=list)
    begun: tuple[int, re.Match[str], str] | None = None
    doubled_line: int = 0
    doubled: str = ""
    is_after_empty: bool = False
    is_op_by_rows: bool = False
    nodes: int = 0
    rounding: float = 0.0
    timestamp: str = ""

    @property
    def is_table(self) -> bool:
        return self.heading_line > 0

    @property
    def claimed_ranks(self) -> int:
        """How many ranks a collective of the run has by the text; 0 if it does not tell.

        With NCCL_TESTS_SPLIT the ranks are in groups, which have collectives of their own.
        """
        sizes = set(Counter(self.groups.values()).values())
        if len(set(self.groups.values())) > 1:
            return sizes.pop() if len(sizes) == 1 else 0
        return max(self.hosts, default=-1) + 1 or self.nranks or self.launched

    def note_doubled(self, line: int, what: str) -> None:
        """Keep the first sign of a second program in the same lines."""
        if not self.doubled_line:
            self.doubled_line, self.doubled = line, what


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """A time of a row and what stands beside it, as printed."""

    placement: str
    time: str
    algbw: str
    busbw: str
    check: str
    bounds_us: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A line of the table. iters: of this row, where it has its own."""

    size_bytes: int
    count: int
    dtype: str
    redop: str
    root: int
    parts: tuple[TablePart, ...]
    iters: int = 0


@dataclass(frozen=True, slots=True)
class _Command:
    """A line that started a program: which, under what conditions, and what NCCL was told."""

    program: str = ""
    conditions: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    ranks: int = 0


@dataclass(slots=True, kw_only=True)
class RunParser:
    """The runs in a text, from its lines one by one. Each stream of lines has a run of its own;
    NCCL's own lines come from every rank and belong to the run of that time.
    """

    runs: list[TableRun] = field(default_factory=list)
    current: dict[str, TableRun] = field(default_factory=dict)
    commands: dict[str, _Command] = field(default_factory=dict)
    last_command: _Command = field(default_factory=_Command)
    nranks: int = 0
    library: str = ""
    exported: dict[str, str] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    orphans: list[int] = field(default_factory=list)
    words: str = ""

    def take(self, line: Line) -> None:
        """The next line."""
        text = line.text
        if _LIBRARY_LINE.search(line.whole) and not _TABLE_LINE.match(text):
            self._add_library_line(line.whole)
            return
        if text.startswith("# OSU "):  # another tool's table follows
            self.current.pop(line.stream, None)
        elif self._is_commented_row(line):
            self._add_row(line, text.lstrip("# "))
        elif _is_comment(text):
            run = self._run(line)
            _add_comment(run, line.number, text)
            command = self._command_of(line.stream)
            run.program = run.program or command.program
            run.command = run.command or command.conditions
            run.launched = run.launched or command.ranks
        elif _TABLE_LINE.match(text):
            self._add_row(line, text)
        elif (labelled := _LABELLED.match(text)) and self._is_of_label(line, labelled[1]):
            self._add_row(line, text[labelled.end() :])
        elif _REST.fullmatch(text):
            if line.stream in self.current:
                _add_rest(self.current[line.stream], text)
        elif (ours := _RCCL.match(text)) and self.runs:
            self.runs[-1].version = f"rccl-tests {ours[1]}"
        else:
            self._add_command(line)

    def _is_commented_row(self, line: Line) -> bool:
        """Whether a row was made a comment, as in a script that keeps what it printed."""
        run = self.current.get(line.stream)
        is_comment = line.text.startswith("#") and run is not None and run.is_table
        return is_comment and _TABLE_LINE.match(line.text.lstrip("# ")) is not None

    def _is_of_label(self, line: Line, label: str) -> bool:
        """Whether the table has labels; the rows of each are a run of their own."""
        run = self.current.get(line.stream)
        if run is None or not run.label:
            return False
        words = f"{run.label} {label}"
        if run.rows and run.words != words:
            run = replace(run, first=line.number, rows=[], broken=[], halves=[], nothing=[])
            self.runs.append(run)
            self.current[line.stream] = run
        run.words = words
        return True

    def _add_row(self, line: Line, text: str) -> None:
        row, table = _TABLE_LINE.match(text), self.current.get(line.stream)
        if row is None:
            return
        if table is None or not table.is_table:
            if len(_DIGITS.findall(row[4])) >= _FEWEST_CELLS:
                self.orphans.append(line.number)
            return
        _add_row(table, line.number, row)
        table.last = line.number
        table.nranks = table.nranks or self.nranks
        table.library = table.library or self.library
        table.settings = self.exported | {**self._command_of(line.stream).settings} | self.told

    def _add_command(self, line: Line) -> None:
        """A line of a shell, which names the program of the next table and what is set for it, or
        words on it.
        """
        programs = set(_PROGRAM.findall(line.text))
        if len(programs) != 1:
            self.words = words_above(self.words, line)
        settings = settings_in(line.text)
        if is_export(line.text):
            self.exported |= settings
        if not programs:
            return
        program = programs.pop() if len(programs) == 1 else ""
        conditions = conditions_of_command(line.text, program) if program else ""
        ranks = launched_ranks(line.text) or 0
        for each in _OF_PROCESS.finditer(line.text.partition(program)[2] if ranks else ""):
            ranks = min(ranks * int(each[1]), MOST_RANKS)
        command = _Command(program, conditions, {} if is_export(line.text) else settings, ranks)
        self.commands[line.stream] = self.last_command = command
        run = self.current.get(line.stream)
        if run is not None and not run.is_table:
            run.program, run.command = command.program, command.conditions
            run.launched = command.ranks

    def _command_of(self, stream: str) -> _Command:
        """The last command of a stream, or of the whole log where the stream has none."""
        return self.commands.get(stream, self.last_command)

    def _run(self, line: Line) -> TableRun:
        """The run that a comment belongs to; a program that starts after a table is a new one."""
        run = self.current.get(line.stream)
        is_start = _START.match(line.text) or TABLE_HEADING.match(line.text)
        is_again = run is not None and bool(run.hosts) and _FIRST.match(line.text)
        if run is None or is_again or (run.is_table and is_start):
            is_after_empty = run is not None and not run.rows and not run.has_end
            if run is not None:
                self.nranks, self.library, self.told = 0, "", {}
            run = self.current[line.stream] = TableRun(
                stream=line.stream,
                words=self.words,
                first=line.number,
                is_after_empty=is_after_empty,
            )
            self.runs.append(run)
        run.last = line.number
        return run

    def _add_library_line(self, line: str) -> None:
        if match := _NRANKS.search(line):
            self.nranks = int(match[1])
        elif match := _SET.search(line):
            self.told[match[1]] = match[2]
        elif match := _LIBRARY_NAMED.search(line):
            self.library = f"{match[1].lower()} {match[2]}"


def _is_comment(text: str) -> bool:
    """Whether nccl-tests wrote a line around its table, and no shell whose prompt is #."""
    if text.startswith("#"):
        return "Collective test" in text or not _PROGRAM.search(text)
    return HEADING.match(text) is not None


def _add_comment(run: TableRun, number: int, line: str) -> None:
    if heading := TABLE_HEADING.match(line):
        _add_heading(run, number, heading)
    elif _UNITS_LINE.match(line) and (rate := _RATE_UNIT.search(line)):
        run.rate_gbs = _RATES_GBS.get(rate[1], _BITS_GBS)
    elif "of-place" in line or "in-place" in line:
        run.placements = tuple(
            "out" if word == "out-of-place" else "in"
            for word in line.split()
            if word in ("out-of-place", "in-place")
        )
    elif rank := _RANK.match(line):
        if int(rank[1]) in run.hosts:
            run.note_doubled(number, "a rank is named twice")
        run.hosts[int(rank[1])], run.devices[int(rank[1])] = rank[3] or "", rank[4].strip()
        run.groups[int(rank[1])] = int(rank[2] or 0)
    elif failed := _OUT_OF_BOUNDS.match(line):
        if run.has_end:
            run.note_doubled(number, "a table ends twice")
        run.has_end, run.failed = True, int(failed[1]) if failed[2] == "FAILED" else 0
    elif blocking := _BLOCKING.match(line):
        run.modes["blocking"] = blocking[1].strip()
    elif (program := _PROGRAM.search(line)) and "Collective test" in line:
        run.program = run.program if "concluded" in line and run.program else program[1]
    else:
        _add_settings(run, line)


def _add_heading(run: TableRun, number: int, heading: re.Match[str]) -> None:
    words, run.label = tuple(heading["rest"].split()), heading["label"] or ""
    first = next((at for at, word in enumerate(words) if word in _TIMES), len(words))
    run.columns_before, run.columns, run.heading_line = words[:first], words[first:], number
    if len(run.placements) != sum(column in _TIMES for column in words):
        run.placements = ("out", "in")


def _add_settings(run: TableRun, line: str) -> None:
    """The lines on how the program runs, and which it is."""
    if match := _ITERS.search(line):
        run.iters = int(match[1])
        run.modes |= {
            mode: value
            for mode, value in _MODES.findall(line)
            if _USUAL_MODES.get(mode) not in (None, value)
        }
    if match := _WARMUP.search(line):
        run.warmup = int(match[1])
    if match := _VALIDATION.search(line):
        run.validation = int(match[1])
    if match := _VERSION.search(line):
        run.version = f"nccl-tests {match[1]}"
    if match := _LIBRARY.search(line):
        run.library = f"nccl {nccl_version(int(match[1]))}"


def nccl_version(code: int) -> str:
    """NCCL_VERSION_CODE in words: major x 10000 + minor x 100 + patch, before 2.9 major x 1000.

    >>> nccl_version(22809), nccl_version(2708)
    ('2.28.9', '2.7.8')
    """
    unit = 10000 if code >= 10000 else 1000
    return f"{code // unit}.{code % unit // 100}.{code % 100}"


def _add_row(run: TableRun, number: int, match: re.Match[str]) -> None:
    """Keep a line of the table, or note that it is cut."""
    run.begun = None
    if not int(match[1]):
        run.nothing.append(number)
        return
    # What another program wrote into the line may have put the rest of it on a later one.
    cells = _CELLS.match(match[4])
    run.begun = (number, match, cells[0] if cells else "")
    _keep(run, number, _row_of(run, match, match[4]))


def _add_rest(run: TableRun, text: str) -> None:
    """Keep a row whose end is on a line of its own; its rates prove that the two are one."""
    if run.begun is None or run.begun[0] not in (*run.broken[-1:], *run.halves[-1:]):
        return
    number, match, begun = run.begun
    if (row := _row_of(run, match, f"{begun} {text}")) is None:
        return
    if run.broken[-1:] == [number]:
        run.broken.pop()
    else:
        run.halves.pop()
        run.rows.pop()
    _keep(run, number, row)


def _keep(run: TableRun, number: int, row: TableRow | None) -> None:
    if row is None:
        run.broken.append(number)
        return
    if len(row.parts) < sum(column in _TIMES for column in run.columns):
        run.halves.append(number)
    run.rows.append((number, row))


def _row_of(run: TableRun, match: re.Match[str], text: str) -> TableRow | None:
    """The row of a size, a count and a type, and the text behind them; None if it is cut."""
    columns, cells = run.columns, text.split()
    # Versions before 2.11 leave the reduction blank where there is none.
    redop = cells.pop(0) if cells and cells[0].isalpha() and cells[0] not in ("nan", "inf") else ""
    has_root = "root" in run.columns_before and cells and re.fullmatch(r"-?\d{1,9}", cells[0])
    root = cells.pop(0) if has_root else "0"
    starts = [place for place, column in enumerate(columns) if column in _TIMES]
    ends = (*starts[1:], len(columns))
    if len(starts) > 1 and len(cells) == starts[1]:  # only the first part was measured
        starts = starts[:1]
    parts: list[TablePart] = []
    for placement, start, end in zip(run.placements, starts, ends, strict=False):
        part = _part(placement, columns[start:end], cells[start:end])
        if part is None and parts and len(cells) < len(columns):  # cut behind the first
            break
        if part is None:
            return None
        parts.append(part)
    return TableRow(
        size_bytes=int(match[1]),
        count=int(match[2]),
        dtype=match[3],
        redop=redop,
        root=int(root),
        parts=tuple(parts),
    )


def _part(placement: str, columns: Sequence[str], cells: Sequence[str]) -> TablePart | None:
    """A time and what stands beside it; None if something of it is missing or no number."""
    named = dict(zip(columns, cells, strict=False))
    # a table without such a column is of results that nobody checked
    check = next((named.get(column, "") for column in _CHECKS if column in columns), "N/A")
    rates = [named.get(column, "") for column in (columns[0], "algbw", "busbw")]
    if any(number(cell) is None and cell not in NO_TIMES for cell in rates):
        return None
    if not DEVIATION.fullmatch(check) and check != "N/A":
        return None
    low, high = named.get("i_min", ""), named.get("i_max", "")
    return TablePart(
        placement=placement,
        time=rates[0],
        algbw=rates[1],
        busbw=rates[2],
        check=check,
        bounds_us=(float(low), float(high)) if number(low) and number(high) else None,
    )


def number(text: str) -> float | None:
    """The number that a cell holds; None if it holds none.

    >>> number("5e+09"), number("N/A")
    (5000000000.0, None)
    """
    return float(text) if NUMBER.fullmatch(text) else None
