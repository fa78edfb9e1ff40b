"""The text that nccl-tests prints, of any version, as it comes out of launchers and with NCCL's own
lines in between.

The columns are those that the heading names: versions differ in root, redop, `#wrong` and its older
form `error`, and in columns at the end. Source: nccl-tests 2.19.6 (util.cu, common.cu) and outputs
of 2.0 to 2.19. Its JSON is nccl_tests_json's.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from collbench.analysis.readers.foreign import (
    LAUNCH_PREFIX,
    NUMBER,
    devices_line,
    dtype_of,
    foreign,
    hosts_line,
    lines_of,
    merged,
    op_in,
    ranks_of,
    refuse_too_many,
)
from collbench.results.record import Record
from collbench.spec.collectives import OpName
from collbench.util.errors import UsageError

MOST_LINES_NAMED = 5
_TABLE_HEADING = re.compile(r"#\s+(?:size|bytes)\s+(?:count|N)\s+type\b(.*)")
_TABLE_LINE = re.compile(r"(\d{1,18})\s+(\d{1,18})\s+([a-z]\w{1,20})(.*)")
_RANK = re.compile(
    r"#\s+Rank\s+(\d{1,7})\s.*?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)"
)
_PROGRAM_ENDING = "_perf"
_PROGRAM = re.compile(r"\b(\w{3,40})_perf\b")
_START = re.compile(r"#\s*(?:nThread\s|nccl-tests version|Collective test starting|Using devices)")
_MINE = re.compile(
    r"#\s{1,3}nThread\s{1,3}\d|#\s{1,20}(?:size\s{1,20}count|bytes\s{1,20}N)\s{1,20}type|#"
    r" nccl-tests version"
)
_ITERS = re.compile(r"\biters:?\s+(\d{1,9})\s+(?:agg|validation)")
_VERSION = re.compile(r"nccl-tests version (\S{1,30})")
_RCCL = re.compile(r"rccl-tests: Version (\S{1,40})")
_LIBRARY = re.compile(r"nccl-library=(\d{4,6})\b")
_LIBRARY_NAMED = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_NRANKS = re.compile(r"\bnranks (\d{1,7})\b", re.IGNORECASE)
_SET = re.compile(r"\b(NCCL_[A-Z0-9_]{1,40}) set by environment to (\S{1,40}?)\.?\s*$")
_NO_TIMES = ("nan", "-nan", "inf", "-inf")  # as C prints them
_NOT_COUNTED = ("error", "res", "delta")
_OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,18})\s+(FAILED|OK)")


@dataclass(slots=True, kw_only=True)
class _Run:
    """The contents of the lines above a table, and the rows of the table."""

    program: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    devices: dict[int, str] = field(default_factory=dict)
    iters: int = 0
    version: str = ""
    library: str = ""
    nranks: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    placements: tuple[str, ...] = ()
    heading_line: int = 0
    rows: list[tuple[int, "_TableRow"]] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    failed: int = 0
    has_end: bool = False
    nothing: int = 0
    doubled_line: int = 0

    @property
    def is_table(self) -> bool:
        return bool(self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableRow:
    """A line of the table; parts: placement, time, algbw, busbw, wrong."""

    size_bytes: int
    count: int
    dtype: str
    redop: str
    root: int
    parts: tuple[tuple[str, str, str, str, str], ...]


def is_mine(text: str) -> bool:
    r"""Whether the text is nccl-tests'.

    >>> is_mine("# nThread 1 nGpus 8 minBytes 8\n"), is_mine("# OSU MPI Allreduce Latency Test\n")
    (True, False)
    """
    return _MINE.search(text) is not None


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    parser = _RunParser()
    for number, line in lines_of(text):
        parser.take(number, line)
    runs = [run for run in parser.runs if run.is_table]
    if not runs:
        raise UsageError(
            f"{name}, line {text.count(chr(10)) + 1}: nccl-tests' output ends before its table",
            "the run failed: look at the end of the file",
        )
    remarks: list[str] = []
    rows: list[tuple[int, int, Record]] = []
    for number, run in enumerate(runs, start=1):
        if run.doubled_line:
            raise UsageError(
                f"{name}, line {run.doubled_line}: a rank is named twice: several programs, that"
                " knew nothing of each other, print into one file",
                "build nccl-tests with MPI=1",
            )
        refuse_too_many(run.rows, name)
        if "cputime" in run.columns:
            raise UsageError(
                f"{name}, line {run.heading_line}: these are times of the CPU (-C 1), not of the"
                " collective",
                "run nccl-tests without -C",
            )
        op = op_in(run.program or _stem(name))
        if op is None and run.program:
            remarks.append(
                f"{run.program}_perf (line {run.heading_line}) is no collective of ours:"
                f" {len(run.rows)} lines left out"
            )
            continue
        if op is None:
            raise UsageError(
                f"{name}, line {run.heading_line}: the file does not name the collective",
                "name the file after it, as in allreduce.txt",
            )
        remarks += _remarks(run)
        ranks = _ranks(run, op)
        known = len(run.hosts)
        if known and ranks != known and run.rows:
            remarks.append(
                f"{known} lines name a rank, but busbw / algbw is that of {ranks or 'no number of'}"
                f" ranks (line {run.heading_line})"
            )
        elif ranks and not known and ranks != run.nranks:
            remarks.append(f"how many ranks: {ranks}, by busbw / algbw (line {run.heading_line})")
        elif not ranks and run.rows:
            remarks.append(
                f"the number of ranks is not in the file (line {run.heading_line}): no bus"
                " bandwidth"
            )
        name_of_run = str(number) if len(runs) > 1 else ""
        rows += [
            (number, place, record)
            for place, row in run.rows
            for record in _records(run, row, op, ranks, name_of_run)
        ]
    if not rows:
        why = (
            f": no row: {'; '.join(remarks)}"
            if remarks
            else f", line {runs[-1].heading_line}: no row follows the heading"
        )
        raise UsageError(name + why, "the run failed: look at the end of the file")
    return merged(rows, name), tuple(remarks)


def _stem(name: str) -> str:
    return name.replace("\\", "/").rpartition("/")[2]


def _remarks(run: _Run) -> Iterator[str]:
    if run.broken:
        some = ", ".join(map(str, run.broken[:MOST_LINES_NAMED])) + (
            " ..." if len(run.broken) > MOST_LINES_NAMED else ""
        )
        yield f"{len(run.broken)} cut lines left out (line {some})"
    if run.nothing:
        yield f"{run.nothing} rows of 0 bytes left out"
    if any(column in _NOT_COUNTED for column in run.columns):
        yield (
            "this version prints how far results are off, not how many are wrong (line"
            f" {run.heading_line}): wrong is left empty"
        )
    if not run.has_end:
        yield (
            f"the table of line {run.heading_line} has no end: the run stopped, or the file is cut"
        )
    if run.failed:
        yield f"{run.failed} values out of bounds: nccl-tests calls this run failed"


@dataclass(slots=True, kw_only=True)
class _RunParser:
    """The runs in a text, from its lines one by one. Each launcher's prefix has a run of its own;
    NCCL's own lines come from every rank and belong to the run of that time.
    """

    runs: list[_Run] = field(default_factory=list)
    current: dict[str, _Run] = field(default_factory=dict)
    program: str = ""
    nranks: int = 0
    library: str = ""
    settings: dict[str, str] = field(default_factory=dict)

    def take(self, number: int, whole: str) -> None:
        """The next line."""
        prefix = LAUNCH_PREFIX.match(whole)
        tag, line = (
            (prefix[1] or "", whole[prefix.end() :].rstrip()) if prefix else ("", whole.rstrip())
        )
        if (
            _PROGRAM_ENDING in line
            and "NCCL" not in line
            and "concluded" not in line
            and (named := _PROGRAM.search(line))
        ):
            self.program = named[1]
            if tag in self.current and not self.current[tag].is_table:
                self.current[tag].program = named[1]
        if line.startswith("#"):
            run = self._run(tag.strip(), line)
            _add_comment(run, number, line)
            run.program = run.program or self.program
        elif (
            (row := _TABLE_LINE.match(line))
            and (table := self.current.get(tag.strip())) is not None
            and table.is_table
        ):
            _add_row(table, number, row)
            table.nranks = table.nranks or self.nranks
            table.library = table.library or self.library
            table.settings = self.settings
        elif (ours := _RCCL.match(whole.strip())) and self.runs:
            self.runs[-1].version = f"rccl-tests {ours[1]}"
        elif "NCCL" in line:
            self._add_library_line(line)

    def _run(self, tag: str, line: str) -> _Run:
        """The run that a comment belongs to; a program that starts after a table is a new one."""
        run = self.current.get(tag)
        if run is None or (run.is_table and (_START.match(line) or _TABLE_HEADING.match(line))):
            if run is not None:
                self.nranks, self.library, self.settings = 0, "", {}
            run = self.current[tag] = _Run()
            self.runs.append(run)
        return run

    def _add_library_line(self, line: str) -> None:
        if match := _NRANKS.search(line):
            self.nranks = int(match[1])
        elif match := _SET.search(line):
            self.settings[match[1]] = match[2]
        elif match := _LIBRARY_NAMED.search(line):
            self.library = match[1]


def _add_comment(run: _Run, number: int, line: str) -> None:
    if heading := _TABLE_HEADING.match(line):
        run.columns, run.heading_line = tuple(heading[1].split()), number
        if len(run.placements) != sum(column in ("time", "cputime") for column in run.columns):
            run.placements = ("out", "in")
    elif "of-place" in line or "in-place" in line:
        run.placements = tuple(
            "out" if word == "out-of-place" else "in"
            for word in line.split()
            if word in ("out-of-place", "in-place")
        )
    elif rank := _RANK.match(line):
        run.doubled_line = run.doubled_line or (number if int(rank[1]) in run.hosts else 0)
        run.hosts[int(rank[1])], run.devices[int(rank[1])] = rank[2], rank[3].strip()
    elif failed := _OUT_OF_BOUNDS.match(line):
        run.has_end, run.failed = True, int(failed[1]) if failed[2] == "FAILED" else 0
    if match := _ITERS.search(line):
        run.iters = int(match[1])
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
    starts = [place for place, column in enumerate(columns) if column in ("time", "cputime")]
    cells = match[4].split()
    # Versions before 2.11 leave the reduction blank where there is none.
    redop = cells.pop(0) if cells and cells[0].isalpha() and cells[0] not in ("nan", "inf") else ""
    has_root = "root" in columns and cells and re.fullmatch(r"-?\d{1,9}", cells[0])
    root = cells.pop(0) if has_root else "0"
    parts = []
    for placement, start in zip(run.placements, starts, strict=False):
        part = cells[start - starts[0] : start - starts[0] + 4]
        if _is_cut(part):
            run.broken.append(number)
            return
        is_counted = columns[start + 3 : start + 4] and columns[start + 3] not in _NOT_COUNTED
        wrong = part[3] if is_counted or part[3] == "N/A" else ""
        parts.append((placement, part[0], part[1], part[2], wrong))
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


def _number(text: str) -> float | None:
    return float(text) if NUMBER.fullmatch(text) else None


def _is_cut(cells: list[str]) -> bool:
    """Whether these are not time, algbw, busbw and wrong."""
    return (
        len(cells) < 4
        or any(_number(cell) is None and cell not in _NO_TIMES for cell in cells[:3])
        or (_number(cells[3]) is None and cells[3] != "N/A")
    )


def _ranks(run: _Run, op: OpName) -> int:
    claimed = max(run.hosts, default=-1) + 1 or run.nranks
    rates = [part[2:4] for _, row in run.rows for part in row.parts]
    return ranks_of(
        op,
        [
            (float(algbw), float(busbw), _half_unit(algbw, busbw))
            for algbw, busbw in rates
            if not {algbw, busbw} & set(_NO_TIMES)
        ],
        claimed,
    )


def _half_unit(*texts: str) -> float:
    """Half a unit of the last digit of the number written least exactly."""
    units = []
    for text in texts:
        digits, _, power = text.partition("e")
        units.append(10.0 ** (int(power or 0) - len(digits.partition(".")[2])))
    return max(units) / 2


def _records(run: _Run, row: _TableRow, op: OpName, ranks: int, number: str) -> Iterator[Record]:
    settings = "".join(f" {name}={value}" for name, value in sorted(run.settings.items()))
    versions = [run.version or "nccl-tests", f"nccl {run.library}" if run.library else ""]
    library = "; ".join(filter(None, versions)) + (f" with{settings}" if settings else "")
    for placement, time, _, _, wrong in row.parts:
        count = _number(wrong)
        yield foreign(
            op=op,
            backend="nccl",
            dtype=dtype_of(row.dtype),
            redop=row.redop,
            root=row.root,
            placement=placement,
            ranks=ranks,
            hosts=len(set(run.hosts.values())),
            size_bytes=row.size_bytes,
            count=row.count,
            times_us=[float(time)],
            iters=run.iters,
            wrong=None if count is None else int(count),
            is_checked=wrong != "N/A",
            run=number,
            host=hosts_line(run.hosts.values()),
            device=devices_line(list(run.devices.values())),
            versions=library,
        )
