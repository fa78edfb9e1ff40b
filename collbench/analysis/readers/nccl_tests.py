"""The text that nccl-tests prints, of any version, as it comes out of launchers and with NCCL's own
lines in between.

The columns are those that the heading names: versions differ in root, redop, `#wrong` and its older
forms `error` and `res`, in columns at the end, and before March 2019 in the unit of times. The
numbers themselves say how they are to be read (proof.py). Source: nccl-tests 1.0 to 2.19.6,
rccl-tests to 2024, and outputs of both. Its JSON is nccl_tests_json's.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from collbench.analysis.readers.foreign import (
    NUMBER,
    Table,
    devices_line,
    dtype_of,
    foreign,
    hosts_line,
    merged,
    op_in,
    refuse_too_many,
)
from collbench.analysis.readers.launch_line import (
    conditions_of_command,
    is_export,
    settings_in,
)
from collbench.analysis.readers.log_lines import Line, log_lines
from collbench.analysis.readers.proof import (
    Printed,
    Reading,
    reading_of,
    some_lines,
)
from collbench.results.record import Record
from collbench.spec.collectives import OPS, OpName, collective
from collbench.spec.dtypes import DTYPES, dtype
from collbench.util.errors import UsageError

# What only nccl-tests prints, at the start of its lines.
HEADING = re.compile(
    r"(?:#\s{0,3})?(?:nThread:?\s{1,3}\d{1,6}\s{1,3}nGpus:?\s|Out of bounds values\s{0,5}:)"
    r"|#\s{1,40}(?:size\s{1,40}count|bytes\s{1,40}N)\s{1,40}type\b"
    r"|#\s{0,3}nccl-tests version\s"
    r"|#\s{1,5}Rank\s{1,7}\d{1,7}\s.{0,40}?\bon\s{1,80}\S{1,80}\s{1,5}device\s"
)
_TABLE_HEADING = re.compile(r"#\s+(?:size|(bytes))\s+(?:count|N)\s+type\b(.*)")
_UNITS_LINE = re.compile(r"#\s+\((?:B|bytes)\)\s.*")
_TIME_UNIT = re.compile(r"\((us|ms|s|ns)\)")
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
_TABLE_LINE = re.compile(r"(\d{1,18})\s+(\d{1,18})\s+([a-z]\w{1,20})\b(.*\d.*|)")
_RANK = re.compile(
    r"#\s+Rank\s+(\d{1,7})\s.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)"
)
_PROGRAM = re.compile(
    r"(?<![A-Za-z0-9])((?:[a-z]{1,10}_){0,2}?(?:all_?reduce|reduce_?scatter|all_?gather|all_?to_?allv?"
    r"|broadcast|bcast|send_?recv|gather|scatter|reduce|hypercube))_perf(?![A-Za-z])"
)
_START = re.compile(
    r"#?\s*(?:nThread:?\s|nccl-tests version|Collective test starting|Using devices|NCCL Tests comp)"
)
_VALIDATION = re.compile(r"\bvalidation:\s*(-?\d{1,9})")
_ITERS = re.compile(r"\biters:?\s+(\d{1,9})\s+(?:agg|validation)")
# other times come of them
_MODES = re.compile(r"\b(agg iters|graph|unalign|side_work|work_sms|direction):\s*(\S{1,20})")
_BLOCKING = re.compile(r"#\s*Blocking Enabled:?\s*(.{0,100})")
_USUAL_MODES = {"agg iters": "1", "graph": "0", "unalign": "0", "side_work": "0"}
_VERSION = re.compile(r"nccl-tests version (\S{1,30})")
_RCCL = re.compile(r"rccl-tests: Version (\S{1,40})")
_LIBRARY = re.compile(r"nccl-library=(\d{4,6})\b")
_LIBRARY_NAMED = re.compile(r"\b[NR]CCL version (?::\s?)?(\d+\.\d+\.\d+)")
_LIBRARY_LINE = re.compile(r"\bNCCL (?:INFO|WARN|TRACE|ERROR|ABORT|VERSION)\b|\b[NR]CCL version\b")
_NRANKS = re.compile(r"\bn[Rr]anks (\d{1,7})\b")
_SET = re.compile(r"\b(NCCL_[A-Z0-9_]{1,40}) set by environment to (\S{1,40}?)\.?\s*$")
_NO_TIMES = ("nan", "-nan", "inf", "-inf")  # as C prints them
_CHECKS = ("#wrong", "error", "res", "delta")
_NOT_COUNTED = ("error", "res", "delta")  # the largest deviation
_DEVIATION = re.compile(r"(-?\d{1,15}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?)(\*?)")
# of a result of n ranks, over n - 1, by nccl-tests before 2.13 (common.cu); other types: 0
_TOLERANCES = {"float16": 1e-2, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}
_OUT_OF_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*:\s*(\d{1,18})\s+(FAILED|OK)")
_TIMES = ("time", "cputime")


@dataclass(slots=True, kw_only=True)
class _Run:
    """The contents of the lines above a table, and the rows of the table."""

    stream: str
    first: int
    last: int = 0
    program: str = ""
    command: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    devices: dict[int, str] = field(default_factory=dict)
    iters: int = 0
    validation: int = 1
    modes: dict[str, str] = field(default_factory=dict)
    version: str = ""
    library: str = ""
    nranks: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    columns_before: tuple[str, ...] = ()
    placements: tuple[str, ...] = ()
    unit: str = "us"
    rate_gbs: float = 1.0
    heading_line: int = 0
    rows: list[tuple[int, "_TableRow"]] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    failed: int = 0
    has_end: bool = False
    nothing: int = 0
    doubled_line: int = 0
    doubled: str = ""
    is_after_empty: bool = False

    @property
    def is_table(self) -> bool:
        return self.heading_line > 0

    @property
    def place(self) -> str:
        return f"line {self.heading_line}"

    def note_doubled(self, line: int, what: str) -> None:
        """Keep the first sign of a second program in the same lines."""
        if not self.doubled_line:
            self.doubled_line, self.doubled = line, what


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A time of a row and what stands beside it, as printed."""

    placement: str
    time: str
    algbw: str
    busbw: str
    check: str
    bounds: tuple[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableRow:
    """A line of the table."""

    size_bytes: int
    count: int
    dtype: str
    redop: str
    root: int
    parts: tuple[_Part, ...]


def is_mine(text: str) -> bool:
    r"""Whether the text is nccl-tests'.

    >>> is_mine("# nThread 1 nGpus 8 minBytes 8\n"), is_mine("# OSU MPI Allreduce Latency Test\n")
    (True, False)
    """
    return HEADING.search(text) is not None


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    parser = _RunParser()
    for line in log_lines(text, HEADING):
        parser.take(line)
    runs = [run for run in parser.runs if run.is_table]
    if not runs:
        raise UsageError(
            f"{name}, line {text.count(chr(10)) + 1}: nccl-tests' output ends before its table",
            "the run failed: look at the end of the file",
        )
    remarks: list[str] = []
    if parser.orphans:
        remarks.append(
            f"{len(parser.orphans)} lines that look like rows follow no heading: left out (line"
            f" {some_lines(parser.orphans)})"
        )
    rows: list[tuple[Table, int, Record]] = []
    for run in runs:
        _refuse_mixed(run, name)
        refuse_too_many(run.rows, name)
        op = op_in(run.program or _stem(name))
        if op is None and not run.program and (op := _op_by_rows(run)) is not None:
            remarks.append(
                f"the file does not name the collective ({run.place}): columns and rates are those"
                f" of {op} alone"
            )
        if op is None and run.program:
            remarks.append(
                f"{run.program}_perf ({run.place}) is no collective of ours:"
                f" {len(run.rows)} lines left out"
            )
            continue
        if op is None:
            raise UsageError(
                f"{name}, {run.place}: the file does not name the collective",
                "name the file after it, as in allreduce.txt",
            )
        remarks += _remarks(run)
        if run.rows:
            reading = _reading(run, op, name)
            remarks += (*reading.remarks, *_ranks_remarks(run, reading.ranks))
            table = Table(first=run.first, last=run.last, conditions=_conditions(run))
            rows += [
                (table, place, record)
                for place, row in run.rows
                for record in _records(run, place, row, op, reading)
            ]
    if not rows:
        why = (
            f": no row: {'; '.join(remarks)}"
            if remarks
            else f", {runs[-1].place}: no row follows the heading"
        )
        raise UsageError(name + why, "the run failed: look at the end of the file")
    return merged(rows, name), tuple(dict.fromkeys(remarks))


def _stem(name: str) -> str:
    return name.replace("\\", "/").rpartition("/")[2]


def _refuse_mixed(run: _Run, name: str) -> None:
    """Raise UsageError for a table that several programs print at once, or whose times are of
    something else.
    """
    doubled, what = run.doubled_line, run.doubled
    if not doubled and run.is_after_empty:
        keys = [(row.size_bytes, row.dtype, row.redop, row.root) for _, row in run.rows]
        same = (run.rows[at][0] for at in range(1, len(keys)) if keys[at] == keys[at - 1])
        doubled, what = next(same, 0), "a size is printed twice"
    without = [line for line, row in run.rows if row.redop in ("", "none")]
    if not doubled and 0 < len(without) < len(run.rows):
        doubled, what = without[0], "rows with a reduction stand beside rows without one"
    if doubled:
        raise UsageError(
            f"{name}, line {doubled}: {what}: several programs, that knew nothing of each other,"
            " print into one file",
            "build nccl-tests with MPI=1",
        )
    if "cputime" in run.columns:
        raise UsageError(
            f"{name}, {run.place}: these are times of the CPU (-C 1), not of the collective",
            "run nccl-tests without -C",
        )


def _remarks(run: _Run) -> Iterator[str]:
    if run.broken:
        yield f"{len(run.broken)} cut lines left out (line {some_lines(run.broken)})"
    if run.nothing:
        yield f"{run.nothing} rows of 0 bytes left out"
    if any(column in _NOT_COUNTED for column in run.columns) and _is_any_checked(run):
        yield (
            f"this version prints how far results are off, not how many are wrong ({run.place}):"
            " wrong is left empty"
        )
    if not run.has_end:
        yield f"the table of {run.place} has no end: the run stopped, or the file is cut"
    if run.failed:
        yield f"{run.failed} values out of bounds: nccl-tests calls this run failed"
        if run.rows and not _shows_failures(run):
            yield f"no row of the table ({run.place}) shows which: none counts as checked"
    if run.rows and not _is_any_checked(run):
        yield f"no result was checked ({run.place}: -c 0)"


def _ranks_remarks(run: _Run, ranks: int) -> Iterator[str]:
    known = len(run.hosts)
    if known and ranks != known:
        yield (
            f"{known} lines name a rank, but busbw / algbw is that of {ranks or 'no number of'}"
            f" ranks ({run.place})"
        )
    elif ranks and not known and ranks != run.nranks:
        yield f"how many ranks: {ranks}, by busbw / algbw ({run.place})"
    elif not ranks:
        yield f"the number of ranks is not in the file ({run.place}): no bus bandwidth"


def _conditions(run: _Run) -> dict[str, str]:
    """What two runs of one log must share to be repeats of one measurement."""
    return {
        "the stream of lines": run.stream,
        "the command": run.command,
        "what is set": " ".join(f"{name}={value}" for name, value in sorted(run.settings.items())),
        "how it ran": " ".join(f"{name}: {value}" for name, value in sorted(run.modes.items())),
        "the host": hosts_line(run.hosts.values()),
        "the device": devices_line(list(run.devices.values())),
        "the version": f"{run.version} {run.library}".strip(),
    }


@dataclass(slots=True, kw_only=True)
class _RunParser:
    """The runs in a text, from its lines one by one. Each stream of lines has a run of its own;
    NCCL's own lines come from every rank and belong to the run of that time.
    """

    runs: list[_Run] = field(default_factory=list)
    current: dict[str, _Run] = field(default_factory=dict)
    program: str = ""
    command: str = ""
    nranks: int = 0
    library: str = ""
    exported: dict[str, str] = field(default_factory=dict)
    of_command: dict[str, str] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    orphans: list[int] = field(default_factory=list)

    def take(self, line: Line) -> None:
        """The next line."""
        text = line.text
        if _LIBRARY_LINE.search(line.whole) and not _TABLE_LINE.match(text):
            self._add_library_line(line.whole)
            return
        if text.startswith("# OSU "):  # another tool's table follows
            self.current.pop(line.stream, None)
        elif _is_comment(text):
            run = self._run(line)
            _add_comment(run, line.number, text)
            run.program = run.program or self.program
            run.command = run.command or self.command
        elif row := _TABLE_LINE.match(text):
            table = self.current.get(line.stream)
            if table is None or not table.is_table:
                self.orphans.append(line.number)
                return
            _add_row(table, line.number, row)
            table.last = line.number
            table.nranks = table.nranks or self.nranks
            table.library = table.library or self.library
            table.settings = self.exported | self.of_command | self.told
        elif (ours := _RCCL.match(text)) and self.runs:
            self.runs[-1].version = f"rccl-tests {ours[1]}"
        else:
            self._add_command(line)

    def _add_command(self, line: Line) -> None:
        """A line of a shell, which names the program of the next table and what is set for it."""
        programs = set(_PROGRAM.findall(line.text))
        if is_export(line.text):
            self.exported |= settings_in(line.text)
        elif programs:
            self.of_command = settings_in(line.text)
        if not programs:
            return
        self.program = programs.pop() if len(programs) == 1 else ""
        self.command = (
            conditions_of_command(line.text, f"{self.program}_perf") if self.program else ""
        )
        run = self.current.get(line.stream)
        if run is not None and not run.is_table:
            run.program, run.command = self.program, self.command

    def _run(self, line: Line) -> _Run:
        """The run that a comment belongs to; a program that starts after a table is a new one."""
        run = self.current.get(line.stream)
        is_start = _START.match(line.text) or _TABLE_HEADING.match(line.text)
        if run is None or (run.is_table and is_start):
            is_after_empty = run is not None and not run.rows and not run.has_end
            if run is not None:
                self.nranks, self.library, self.told = 0, "", {}
            run = self.current[line.stream] = _Run(
                stream=line.stream, first=line.number, is_after_empty=is_after_empty
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
            self.library = match[1]


def _is_comment(text: str) -> bool:
    """Whether nccl-tests wrote a line around its table, and no shell whose prompt is #."""
    if text.startswith("#"):
        return "Collective test" in text or not _PROGRAM.search(text)
    return HEADING.match(text) is not None


def _add_comment(run: _Run, number: int, line: str) -> None:
    if heading := _TABLE_HEADING.match(line):
        words = tuple(heading[2].split())
        first = next((at for at, word in enumerate(words) if word in _TIMES), len(words))
        run.columns_before, run.columns = words[:first], words[first:]
        run.heading_line = number
        run.unit = "ms" if heading[1] else "us"  # the heading of 1.0 and 2.0 names no unit
        if len(run.placements) != sum(column in _TIMES for column in run.columns):
            run.placements = ("out", "in")
    elif _UNITS_LINE.match(line) and (unit := _TIME_UNIT.search(line)):
        run.unit = unit[1]
        if rate := _RATE_UNIT.search(line):
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
        run.hosts[int(rank[1])], run.devices[int(rank[1])] = rank[2], rank[3].strip()
    elif failed := _OUT_OF_BOUNDS.match(line):
        if run.has_end:
            run.note_doubled(number, "a table ends twice")
        run.has_end, run.failed = True, int(failed[1]) if failed[2] == "FAILED" else 0
    elif blocking := _BLOCKING.match(line):
        run.modes["blocking"] = blocking[1].strip()
    elif (program := _PROGRAM.search(line)) and "Collective test" in line:
        run.program = run.program if "concluded" in line and run.program else program[1]
    if match := _ITERS.search(line):
        run.iters = int(match[1])
        run.modes |= {
            mode: value
            for mode, value in _MODES.findall(line)
            if _USUAL_MODES.get(mode) not in (None, value)
        }
    if match := _VALIDATION.search(line):
        run.validation = int(match[1])
    if match := _VERSION.search(line):
        run.version = f"nccl-tests {match[1]}"
    if match := _LIBRARY.search(line):
        run.library = nccl_version(int(match[1]))


def nccl_version(code: int) -> str:
    """NCCL_VERSION_CODE in words: major x 10000 + minor x 100 + patch, before 2.9 major x 1000.

    >>> nccl_version(22809), nccl_version(2708)
    ('2.28.9', '2.7.8')
    """
    unit = 10000 if code >= 10000 else 1000
    return f"{code // unit}.{code % unit // 100}.{code % 100}"


def _add_row(run: _Run, number: int, match: re.Match[str]) -> None:
    """Keep a line of the table, or note that it is cut."""
    if not int(match[1]):
        run.nothing += 1
        return
    columns = run.columns
    cells = match[4].split()
    # Versions before 2.11 leave the reduction blank where there is none.
    redop = cells.pop(0) if cells and cells[0].isalpha() and cells[0] not in ("nan", "inf") else ""
    has_root = "root" in run.columns_before and cells and re.fullmatch(r"-?\d{1,9}", cells[0])
    root = cells.pop(0) if has_root else "0"
    starts = [place for place, column in enumerate(columns) if column in _TIMES]
    parts = []
    for placement, start, end in zip(
        run.placements, starts, (*starts[1:], len(columns)), strict=False
    ):
        part = _part(placement, columns[start:end], cells[start:end])
        if part is None:
            run.broken.append(number)
            return
        parts.append(part)
    run.rows.append(
        (
            number,
            _TableRow(
                size_bytes=int(match[1]),
                count=int(match[2]),
                dtype=match[3],
                redop=redop,
                root=int(root),
                parts=tuple(parts),
            ),
        )
    )


def _part(placement: str, columns: Sequence[str], cells: Sequence[str]) -> _Part | None:
    """A time and what stands beside it; None if something of it is missing or no number."""
    named = dict(zip(columns, cells, strict=False))
    check = next((named.get(column, "") for column in _CHECKS if column in columns), "")
    rates = [named.get(column, "") for column in (columns[0], "algbw", "busbw")]
    if any(_number(cell) is None and cell not in _NO_TIMES for cell in rates):
        return None
    if not _DEVIATION.fullmatch(check) and check != "N/A":
        return None
    low, high = named.get("i_min", ""), named.get("i_max", "")
    return _Part(
        placement=placement,
        time=rates[0],
        algbw=rates[1],
        busbw=rates[2],
        check=check,
        bounds=(low, high) if _number(low) and _number(high) else None,
    )


def _number(text: str) -> float | None:
    return float(text) if NUMBER.fullmatch(text) else None


def _half_unit(text: str) -> float:
    """Half a unit of the last digit."""
    digits, _, power = text.partition("e")
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2])) / 2


def _reading(run: _Run, op: OpName, name: str) -> Reading:
    printed = [
        Printed(
            line=line,
            placement=part.placement,
            size_bytes=row.size_bytes,
            time=float(part.time),
            time_error=_half_unit(part.time),
            algbw=float(part.algbw) * run.rate_gbs,
            algbw_error=_half_unit(part.algbw) * run.rate_gbs,
            busbw=float(part.busbw) * run.rate_gbs,
            busbw_error=_half_unit(part.busbw) * run.rate_gbs,
        )
        for line, row in run.rows
        for part in row.parts
        if not {part.time, part.algbw, part.busbw} & set(_NO_TIMES)
    ]
    return reading_of(
        op,
        printed,
        claimed=max(run.hosts, default=-1) + 1 or run.nranks,
        counted=_counted_ranks(run, op),
        unit=run.unit,
        name=name,
        place=run.place,
    )


def _op_by_rows(run: _Run) -> OpName | None:
    """The only collective that the columns and the rates of a table may be of; None if several."""
    fitting = [op for op in OPS if run.rows and _may_be(op, run)]
    return fitting[0] if len(fitting) == 1 else None


def _may_be(op: OpName, run: _Run) -> bool:
    known = collective(op)
    has_redop = any(row.redop not in ("", "none") for _, row in run.rows)
    is_rooted = "root" in run.columns_before and all(row.root >= 0 for _, row in run.rows)
    # versions with all columns in every table print the operation of sendrecv, too
    has_any_redop = op == "sendrecv" and {"redop", "root"} <= set(run.columns_before)
    if known.is_rooted != is_rooted or (known.is_reduction != has_redop and not has_any_redop):
        return False
    in_place = {part.check for _, row in run.rows for part in row.parts if part.placement == "in"}
    if run.validation and not known.has_in_place and in_place - {"N/A"}:
        return False
    if run.validation and known.has_in_place and in_place == {"N/A"} and _is_any_checked(run):
        return False
    if known.size_in_blocks != (_size_over_count(run) > 1):
        return False
    try:
        return not _reading(run, op, "").misfits
    except UsageError:
        return False


def _is_any_checked(run: _Run) -> bool:
    return any(_is_checked(run, part) for _, row in run.rows for part in row.parts)


def _size_over_count(run: _Run) -> int:
    """Size over the bytes of `count` elements, of all rows; 0 if it is no one whole number."""
    numbers = set()
    for _, row in run.rows:
        name = dtype_of(row.dtype)
        known = next((one for one in DTYPES if one == name), None)
        block = row.count * dtype(known).item_bytes if known else 0
        numbers.add(row.size_bytes // block if block and not row.size_bytes % block else 0)
    return numbers.pop() if len(numbers) == 1 else 0


def _counted_ranks(run: _Run, op: OpName) -> int:
    """The number of ranks by which size and count of every row differ; 0 if there is none."""
    ratio = _size_over_count(run) if collective(op).size_in_blocks else 0
    return ratio if ratio > 1 else 0


def _is_checked(run: _Run, part: _Part) -> bool:
    # the oldest versions print -1 where nothing is checked
    if part.check == "N/A" or part.check.startswith("-"):
        return False
    # what counts wrong elements has checked them
    return run.validation != 0 or ("#wrong" in run.columns and bool(_number(part.check)))


def _failure(run: _Run, row: _TableRow, part: _Part) -> str:
    """Why a result of a version that counts no wrong elements is wrong; empty if it is not."""
    match = _DEVIATION.fullmatch(part.check)
    if not match or "#wrong" in run.columns or not _is_checked(run, part):
        return ""
    n = max(max(run.hosts, default=-1) + 1 or run.nranks, 2)
    is_over = float(match[1]) > _TOLERANCES.get(dtype_of(row.dtype), 0.0) * (n - 1)
    is_known_right = run.has_end and not run.failed
    return f"off by {match[1]}" if match[2] or (is_over and not is_known_right) else ""


def _shows_failures(run: _Run) -> bool:
    """Whether a row, whole or cut, may be the one that failed."""
    return bool(run.broken) or any(
        _failure(run, row, part) or ("#wrong" in run.columns and _number(part.check))
        for _, row in run.rows
        for part in row.parts
    )


def _records(
    run: _Run, place: int, row: _TableRow, op: OpName, reading: Reading
) -> Iterator[Record]:
    settings = "".join(f" {name}={value}" for name, value in sorted(run.settings.items()))
    versions = [run.version or "nccl-tests", f"nccl {run.library}" if run.library else ""]
    library = "; ".join(filter(None, versions)) + (f" with{settings}" if settings else "")
    is_unclear = bool(run.failed) and not _shows_failures(run)
    for part in row.parts:
        if (place, part.placement) in reading.misfits:
            continue
        is_counted = "#wrong" in run.columns and _is_checked(run, part)
        count = _number(part.check) if is_counted else None
        low, high = part.bounds or ("", "")
        yield foreign(
            op=op,
            backend="nccl",
            dtype=dtype_of(row.dtype),
            redop=row.redop,
            root=row.root,
            placement=part.placement,
            ranks=reading.ranks,
            hosts=len(set(run.hosts.values())),
            size_bytes=row.size_bytes * (reading.ranks if reading.is_block else 1),
            count=row.count,
            times_us=[float(part.time) * reading.to_us],
            bounds_us=(
                (float(low) * reading.to_us, float(high) * reading.to_us) if part.bounds else None
            ),
            iters=run.iters,
            wrong=None if count is None else int(count),
            is_checked=_is_checked(run, part) and not is_unclear,
            failure=_failure(run, row, part),
            host=hosts_line(run.hosts.values()),
            device=devices_line(list(run.devices.values())),
            versions=library,
        )
