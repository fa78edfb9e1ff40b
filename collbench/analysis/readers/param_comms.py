"""What comms.py of PARAM prints, in lines that begin with COMMS-RES: a header, and for each size
the percentiles over the ranks of each rank's mean time.

The time of a row is the largest, Max: that of the slowest rank. PARAM's own rates are of the
median, so bandwidths here are lower. Sizes are of all ranks' blocks, as S is. Point to point has a
round trip, of which a row has half, and the rates of one direction and of the sum of both, with a
window of messages in flight (--window, 100). Since 2021 lines name the collective, since 2023 the
type. Source: facebookresearch/param of October 2021 to June 2026 (train/comms/pt/comms.py).
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
    hosts_line,
    merged,
    refuse_too_many,
)
from collbench.analysis.readers.log_lines import Line, log_lines
from collbench.analysis.readers.proof import MOST_RANKS, Rates, half_unit, ranks_of
from collbench.results.record import Record
from collbench.spec.collectives import OpName, collective
from collbench.spec.dtypes import DTYPES, dtype
from collbench.util.errors import UsageError

TOOL = "PARAM's comms.py"
IS_DOCUMENT = False
HEADING = re.compile(r"COMMS-RES(?=[\s-])")
_ROW = re.compile(
    r"COMMS-RES-(QUANT-)?([a-z_][a-z_0-9]{1,40})(?:-([a-z0-9_]{2,20})(\S{0,80}))?\s+(\S.*)"
)
_HEADER = re.compile(r"COMMS-RES(-QUANT)?\s+(\S.*)")
_RANK = re.compile(
    r".{0,40}?\[Rank\s+(\d{1,7})\] host (\S{1,200}), device: ([a-z]{1,10})\S{0,8},?"
    r".{0,60}\bworld_size: (\d{1,7})"
)
_PROGRAM = re.compile(r"\bcomms\.py\b")
_BACKEND = re.compile(r"\s--backend[= ](\w{1,20})")
_WINDOW = re.compile(r"\s--window[= ](\d{1,7})\b")
_USUAL_WINDOW = 100
_BACKENDS = {"cuda": "nccl", "cpu": "gloo"}  # the default by device
_OPS: dict[str, OpName] = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "all_gather_base": "allgather",
    "reduce_scatter": "reducescatter",
    "reduce_scatter_base": "reducescatter",
    "all_to_all": "alltoall",
    "all_to_all_single": "alltoall",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
_POINT_TO_POINT = "pt2pt"
_SIZE = re.compile(r"[1-9]\d{0,17}")
_SIZES = ("total-size(B)", "size(B)")
_UNI, _BI, _TOTAL = "avgUniBW(GB/s)", "avgBiBW(GB/s)", "totalUniBW(GB/s)"
_ALGBW, _BUSBW = "AlgBW(GB/s)", "BusBW(GB/s)"
_ROUND_TRIP = "pingPongLatency(us):p50"


@dataclass(slots=True, kw_only=True)
class _CommsTable:
    """The rows under a header."""

    line: int
    last: int
    stream: str
    command: str
    world: int
    hosts: tuple[str, ...]
    device: str
    is_quantised: bool
    columns: tuple[str, ...]
    rows: list[tuple[int, "_CommsRow"]] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)

    @property
    def backend(self) -> str:
        """The process group's; by its device where the command does not name it."""
        named = _BACKEND.search(self.command)
        return named[1] if named else _BACKENDS.get(self.device, "nccl")

    @property
    def window(self) -> int:
        """How many messages are in flight where rates are measured."""
        named = _WINDOW.search(self.command)
        return int(named[1]) if named else _USUAL_WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommsRow:
    """A line of results: cells by column."""

    collective: str
    dtype: str
    tag: str
    cells: dict[str, str]

    @property
    def size_bytes(self) -> int:
        return int(next(self.cells[name] for name in _SIZES if name in self.cells))


def is_mine(text: str) -> bool:
    r"""Whether the text has PARAM's lines.

    >>> is_mine("\tCOMMS-RES-all_reduce-float32   1024"), is_mine("# nThread 1 nGpus 8\n")
    (True, False)
    """
    return HEADING.search(text) is not None


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    parser = _CommsParser()
    for line in log_lines(text, HEADING):
        parser.take(line)
    remarks = Remarks("line")
    if parser.orphans:
        remarks.add("{count} lines of results follow no header: left out ({at})", *parser.orphans)
    rows: list[tuple[Table, int, Record]] = []
    for table in parser.tables:
        refuse_too_many(table.rows, name)
        if table.broken:
            remarks.add("{count} lines cut or mixed with others left out ({at})", *table.broken)
        rows += _rows_of(table, name, remarks)
    said = remarks.texts()
    if not rows:
        last = parser.tables[-1].last if parser.tables else text.count("\n") + 1
        raise UsageError(
            f"{name}, line {last}: no row: {'; '.join(said) or 'no line of results follows'}",
            "the run failed: look at the end of the file",
        )
    return merged(rows, name), said


def _rows_of(
    table: _CommsTable, name: str, remarks: Remarks
) -> Iterator[tuple[Table, int, Record]]:
    if not table.is_quantised and not {"Max", _ROUND_TRIP} & set(table.columns):
        raise UsageError(
            f"{name}, line {table.line}: no column 'Max' among {', '.join(table.columns)}",
            "give what a version from October 2021 on prints",
        )
    kinds: dict[tuple[str, str], list[tuple[int, _CommsRow]]] = {}
    for line, row in table.rows:
        kinds.setdefault((row.collective, row.tag), []).append((line, row))
    for (what, tag), rows in kinds.items():
        here = rows[0][0]
        op = _OPS.get(what)
        if table.is_quantised or (op is None and what != _POINT_TO_POINT):
            kind = "quantised " if table.is_quantised else ""
            remarks.add(
                f"{kind}{what} ({{at}}) is not comparable: {len(rows)} lines left out", here
            )
            continue
        span = Table(
            first=table.line,
            last=table.last,
            conditions={"the command": table.command, "the tag": tag},
        )
        remarks.add("whether results were right is not in the text: unchecked ({at})", here)
        if op is None:
            yield from ((span, line, one) for line, row in rows for one in _messages(table, row))
            for said in _remarks_on_messages(table):
                remarks.add(said, here)
            continue
        ranks = _ranks(op, rows, table.world)
        remarks.add(
            "times are the slowest rank's; PARAM's own rates are of the median rank ({at})", here
        )
        if ranks != table.world:
            remarks.add(f"how many ranks: {ranks or 'unknown'}, by busbw / algbw ({{at}})", here)
        yield from ((span, line, _record(table, row, op, ranks)) for line, row in rows)


def _remarks_on_messages(table: _CommsTable) -> Iterator[str]:
    yield (
        "messages go one way ({at}): not compared with sendrecv of collbench and nccl-tests, where"
        " each rank sends and receives at once"
    )
    yield "the bandwidth of both directions is halved ({at}): rates are those of one direction"
    yield (
        f"times with a window are those of one message among {table.window} in flight ({{at}}):"
        " size / bandwidth, no latency"
    )


def _ranks(op: OpName, rows: list[tuple[int, _CommsRow]], world: int) -> int:
    """The number of ranks that makes busbw of algbw; 0 if none, or several do."""
    rates: list[Rates] = []
    for _, row in rows:
        algbw, busbw = row.cells[_ALGBW], row.cells[_BUSBW]
        rates.append((float(algbw), float(busbw), max(half_unit(algbw), half_unit(busbw))))
    return ranks_of(op, rates, world)[0]


def _record(table: _CommsTable, row: _CommsRow, op: OpName, ranks: int) -> Record:
    return _foreign(
        table, row, op=op, ranks=ranks, size_bytes=row.size_bytes, time_us=float(row.cells["Max"])
    )


def _messages(table: _CommsTable, row: _CommsRow) -> Iterator[Record]:
    """The rows of a line of point to point: half a round trip, one direction, both."""
    uni, both = float(row.cells[_UNI]), float(row.cells[_BI]) / 2
    total = row.cells.get(_TOTAL, "")
    pairs = round(float(total) / uni) if NUMBER.fullmatch(total) and uni else 1
    window = f"window-{table.window}"
    for time_us, traffic in (
        (float(row.cells[_ROUND_TRIP]) / 2, "one-way"),
        (row.size_bytes / uni / 1e3 if uni else 0.0, f"one-way {window}"),
        (row.size_bytes / both / 1e3 if both else 0.0, window),
    ):
        yield _foreign(
            table,
            row,
            op="sendrecv",
            ranks=min(2 * max(pairs, 1), MOST_RANKS),
            size_bytes=row.size_bytes,
            time_us=time_us,
            traffic=traffic,
        )


def _foreign(
    table: _CommsTable,
    row: _CommsRow,
    *,
    op: OpName,
    ranks: int,
    size_bytes: int,
    time_us: float,
    traffic: str = "",
) -> Record:
    name = dtype_of(row.dtype)
    known = next((one for one in DTYPES if one == name), None)
    has_count = known and (ranks or not collective(op).size_in_blocks)
    return foreign(
        op=op,
        backend=table.backend,
        dtype=name,
        placement="out",
        ranks=ranks,
        hosts=len(set(table.hosts)),
        size_bytes=size_bytes,
        count=(
            collective(op).block_count(size_bytes, dtype(known).item_bytes, max(ranks, 1))
            if known and has_count
            else 0
        ),
        times_us=[time_us],
        iters=0,
        wrong=None,
        is_checked=False,
        host=hosts_line(table.hosts),
        device="",
        versions="param-comms",
        traffic=traffic,
    )


@dataclass(slots=True, kw_only=True)
class _CommsParser:
    """The tables in a text, from its lines one by one; each stream of lines has one of its own."""

    tables: list[_CommsTable] = field(default_factory=list)
    current: dict[str, _CommsTable] = field(default_factory=dict)
    orphans: list[int] = field(default_factory=list)
    command: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    world: int = 0
    device: str = ""

    def take(self, line: Line) -> None:
        """The next line."""
        text = line.text
        if row := _ROW.match(text):
            self._add(line, row)
        elif header := _HEADER.match(text):
            self._start(line, header)
        elif rank := _RANK.match(text):
            self.hosts[int(rank[1])] = rank[2]
            self.device, self.world = rank[3], min(int(rank[4]), MOST_RANKS)
        elif _PROGRAM.search(text):
            self.command, self.hosts, self.world, self.device = text, {}, 0, ""

    def _start(self, line: Line, header: re.Match[str]) -> None:
        table = _CommsTable(
            line=line.number,
            last=line.number,
            stream=line.stream,
            command=self.command,
            world=self.world,
            hosts=tuple(self.hosts[rank] for rank in sorted(self.hosts)),
            device=self.device,
            is_quantised=bool(header[1]),
            columns=tuple(header[2].replace(" (B)", "(B)").split()),
        )
        self.tables.append(table)
        self.current[line.stream] = table

    def _add(self, line: Line, match: re.Match[str]) -> None:
        table = self.current.get(line.stream)
        if table is None:
            self.orphans.append(line.number)
            return
        table.last = line.number
        # some versions head more columns than they print
        cells = dict(zip(table.columns, match[5].split(), strict=False))
        wanted = _wanted(match[2])
        size = next((cells[name] for name in _SIZES if name in cells), "")
        is_whole = all(NUMBER.fullmatch(cells.get(name, "")) for name in wanted)
        is_whole = is_whole and ("Min" not in cells or _agrees(cells))
        if table.is_quantised or (is_whole and _SIZE.fullmatch(size)):
            row = _CommsRow(
                collective=match[2], dtype=match[3] or "", tag=match[4] or "", cells=cells
            )
            table.rows.append((line.number, row))
        else:
            table.broken.append(line.number)


def _agrees(cells: dict[str, str]) -> bool:
    """Whether AlgBW is of a time between Min and Max: the median's, and before 2023 rank 0's."""
    size, low, high, algbw = (
        cells.get(name, "") for name in (_SIZES[_SIZES[0] not in cells], "Min", "Max", _ALGBW)
    )
    if not all(map(NUMBER.fullmatch, (size, low, high, algbw))):
        return False
    of_size = int(float(size)) / 1e3
    least = of_size / (float(high) + half_unit(high)) - half_unit(algbw)
    shortest = float(low) - half_unit(low)
    return least <= float(algbw) and (
        shortest <= 0 or float(algbw) <= of_size / shortest + half_unit(algbw)
    )


def _wanted(what: str) -> tuple[str, ...]:
    """The columns without which a line is cut."""
    if what == _POINT_TO_POINT:
        return (_ROUND_TRIP, _UNI, _BI)
    return ("Max", _ALGBW, _BUSBW)
