"""The text of OSU micro-benchmarks' collectives: a size and an average latency a line, with -f also
the least, the most and the iterations.

The time is the mean over ranks of each rank's mean, where nccl-tests and we give the slowest
rank's. The size is one rank's block for allgather, alltoall, gather and scatter, which S is n of;
the number of ranks is never in the text, but a launch line above it may show it. Source: OSU
micro-benchmarks 5.6 to 7.5 (osu_util_mpi.c, and the collectives' own files).
"""

import re
from dataclasses import dataclass, field
from typing import get_args

from collbench.analysis.readers.foreign import (
    LAUNCH_PREFIX,
    MOST_RANKS,
    NUMBER,
    dtype_of,
    foreign,
    lines_of,
    merged,
    op_in,
    refuse_too_many,
)
from collbench.results.record import Record
from collbench.spec.collectives import OpName, collective
from collbench.spec.dtypes import DtypeName, dtype
from collbench.util.errors import UsageError

_TITLE_LINE = re.compile(r"#?\s{0,3}OSU MPI(-\w{1,12})?\s(.{1,80}?)\sTest\b(?:\s+v(\S{1,20}))?")
_LAUNCH = re.compile(
    r"\s(?:-n|-np|--np|--ntasks)[ =]?(\d{1,7})\s.*\bosu_\w+|#\s*ranks:?\s+(\d{1,7})\b"
)
_DATATYPE = re.compile(r"#\s*Datatype:\s*(\w{1,30}?)\.?\s*$")
_SIZE_HEADING = re.compile(r"#\s*Size\b(.*)")
_SIZE_LINE = re.compile(r"(\d{1,18})\s+(\d.*|nan.*)")
# overlap with computing, or other operations
_NO_COLLECTIVES = ("non-blocking", "persistent", "neighbor")
_TIME = "avg latency(us)"


@dataclass(slots=True, kw_only=True)
class _OsuTable:
    """One benchmark's output."""

    title: str
    line: int
    version: str
    memory: str
    ranks: int
    dtype: str = ""
    columns: tuple[str, ...] = ()
    rows: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)


def is_mine(text: str) -> bool:
    r"""Whether the text is OSU micro-benchmarks'.

    >>> is_mine("# OSU MPI-CUDA Allreduce Latency Test v7.4\n"), is_mine("# nThread 1 nGpus 8\n")
    (True, False)
    """
    return _TITLE_LINE.search(text) is not None


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    tables, remarks = _tables(text), ["OSU's time is the mean over ranks, not the slowest rank's"]
    rows: list[tuple[int, int, Record]] = []
    for number, table in enumerate(tables, start=1):
        op = _op(table.title)
        if op is None:
            remarks.append(
                f"'{table.title}' (line {table.line}) is no collective of ours: {len(table.rows)}"
                " lines left out"
            )
            continue
        if table.columns and _TIME not in table.columns:
            raise UsageError(
                f"{name}, line {table.line}: no column '{_TIME}' among {', '.join(table.columns)}",
                "give what a blocking collective prints",
            )
        refuse_too_many(table.rows, name)
        if table.broken:
            remarks.append(
                f"{len(table.broken)} lines cut or mixed with others left out (line"
                f" {table.broken[0]})"
            )
        if not table.ranks and collective(op).size_in_blocks and op != "reducescatter":
            raise UsageError(
                f"{name}, line {table.line}: {op}'s size is one rank's block, and the number of"
                " ranks is not in the file",
                "put the launch line above it, or a line such as: # ranks: 8",
            )
        if not table.ranks and table.rows:
            remarks.append(
                f"the number of ranks is not in the file (line {table.line}): put a line such as '#"
                " ranks: 8' above it"
            )
        rows += [
            (number, line, _record(table, cells, op, str(number) if len(tables) > 1 else ""))
            for line, cells in table.rows
        ]
    if not rows:
        where = tables[-1].line if tables else 1
        raise UsageError(
            f"{name}, line {where}: no row:"
            f" {'; '.join(remarks[1:]) or 'nothing follows the title'}",
            "the run failed, or is no collective's",
        )
    return merged(rows, name), tuple(remarks)


def _op(title: str) -> OpName | None:
    """The collective of a title such as "All-to-All Personalized Exchange Latency".

    >>> _op("All-to-All Personalized Exchange Latency"), _op("Non-blocking Allreduce Latency")
    ('alltoall', None)
    """
    plain = title.lower()
    return (
        None if any(word in plain for word in _NO_COLLECTIVES) else op_in(plain.replace(" ", "."))
    )


def _tables(text: str) -> list[_OsuTable]:
    tables: list[_OsuTable] = []
    ranks = 0
    for number, whole in lines_of(text):
        tag = LAUNCH_PREFIX.match(whole)
        line = whole[tag.end() :] if tag else whole
        if match := _LAUNCH.search(whole):
            ranks = int(match[1] or match[2])
            if tables and not tables[-1].rows:
                tables[-1].ranks = ranks
        elif match := _TITLE_LINE.match(line):
            tables.append(
                _OsuTable(
                    title=match[2],
                    line=number,
                    version=match[3] or "",
                    memory=(match[1] or "").lstrip("-"),
                    ranks=min(ranks, MOST_RANKS),
                )
            )
        elif tables:
            _add(tables[-1], number, line)
    return tables


def _add(table: _OsuTable, number: int, line: str) -> None:
    if match := _DATATYPE.match(line):
        table.dtype = dtype_of(match[1])
    elif match := _SIZE_HEADING.match(line):
        if table.rows:  # a second heading in one table: whose rows follow is not known
            table.broken.append(number)
            return
        table.columns = tuple(
            column.strip().lower() for column in re.split(r"\s{2,}", match[1].strip())
        )
    elif (match := _SIZE_LINE.match(line)) and int(match[1]):
        cells = (match[1], *match[2].split())
        wanted = len(table.columns) + 1 if table.columns else 2
        is_whole = len(cells) == wanted and all(
            NUMBER.fullmatch(cell) or cell in ("Pass", "Fail") for cell in cells
        )
        if is_whole:
            table.rows.append((number, cells))
        else:
            table.broken.append(number)


def _record(table: _OsuTable, cells: tuple[str, ...], op: OpName, number: str) -> Record:
    known = collective(op)
    named = dict(zip(table.columns or (_TIME,), cells[1:], strict=True))
    size_bytes_printed = int(cells[0])
    size_bytes = (
        size_bytes_printed * table.ranks
        if known.size_in_blocks and op != "reducescatter"
        else size_bytes_printed
    )
    item = dtype(name).item_bytes if (name := _dtype_name(table.dtype)) else 0
    low, high = named.get("min latency(us)"), named.get("max latency(us)")
    verdict = named.get("validation", "")
    return foreign(
        op=op,
        backend="mpi",
        dtype=table.dtype,
        placement="out",
        ranks=table.ranks,
        size_bytes=size_bytes,
        count=(
            known.block_count(size_bytes, item, table.ranks or 1)
            if item and (table.ranks or not known.size_in_blocks)
            else 0
        ),
        times_us=[_float(named[_TIME])],
        bounds_us=(_float(low), _float(high)) if low and high else None,
        iters=int(_float(named.get("iterations", "0"))),
        wrong=0 if verdict == "Pass" else None,
        is_checked=bool(verdict),
        failure="OSU's validation failed" if verdict == "Fail" else "",
        run=number,
        device=table.memory,
        versions=f"osu-micro-benchmarks {table.version}".strip(),
    )


def _dtype_name(text: str) -> DtypeName | None:
    return next((name for name in get_args(DtypeName) if name == text), None)


def _float(text: str) -> float:
    return float(text) if NUMBER.fullmatch(text) else 0.0
