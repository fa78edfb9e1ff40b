"""What the matrices of nvbandwidth mean, however they are written.

Copies between two GPUs are a sendrecv of these two, one way or, if bidirectional, both ways; row
and column of the matrix stand in the notes, as gpus-ROW-COLUMN, and so does who copies. Rates are
decimal GB/s. From version 0.6 on a bidirectional test has a matrix for each direction and one of
their sum, half of which a row has; before, copy engines gave one direction and kernels the sum. The
size is that of the buffer (-b, in MiB), which no output names. Copies with the host, inside one
GPU, from or to all GPUs at once, and latencies have no counterpart. Source: nvbandwidth 0.2 to 0.8
(testcases_*.cpp, output.cpp, json_output.cpp).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from collbench.compare.readers.foreign import (
    NUMBER,
    ForeignRemarks,
    ForeignTable,
    devices_line,
    foreign,
    merged,
    refuse_too_many,
    ways_told,
)
from collbench.core.errors import NoRowError, UsageError
from collbench.core.record import Record
from collbench.core.text import counted
from collbench.machine.topology.rates import pcie_of_rate

USUAL_BUFFER_MIB = 512
MOST_BUFFER_MIB = 1 << 20
MOST_GPUS = 1024
WITH_ROWS = "copies between GPUs are read: nvbandwidth -t device_to_device_memcpy_write_ce"
_COPIES = re.compile(
    r"(?:multinode_)?device_to_device_(bidirectional_)?memcpy_(read|write)_(ce|sm|tma)"
    r"(_(?:read|write)[12]|_total)?\Z"
)
_BUFFER = re.compile(r"\s(?:-b|--bufferSize)[= ]?(\d{1,7})\b")
_UNVERIFIED = re.compile(r"\s(?:-s|--skipVerification)\b")


@dataclass(slots=True, kw_only=True)
class Matrix:
    """A matrix as it is written. place: its line, or the number of the test. rows: by label, each
    with its cells.
    """

    test: str
    place: int
    description: str = ""
    columns: tuple[str, ...] = ()
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    broken: list[int] = field(default_factory=list)
    has_end: bool = True

    @property
    def values(self) -> int:
        """How many numbers it has."""
        return sum(NUMBER.fullmatch(cell) is not None for row in self.rows.values() for cell in row)

    @property
    def is_direction(self) -> bool:
        """Whether it is of one direction of two, which another matrix has the sum of."""
        copies = _COPIES.match(self.test)
        return re.search(r" (?:Read|Write)[12] ", self.description) is not None or bool(
            copies and copies[4] and copies[4] != "_total"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What an output tells beside its matrices. command: the line that started it."""

    versions: str = ""
    devices: tuple[str, ...] = ()
    name: str = ""
    command: str = ""

    @property
    def buffer_mib(self) -> int:
        """The size of a copy, as the command names it; 0 if it does not."""
        named = _BUFFER.search(self.command)
        return min(int(named[1]), MOST_BUFFER_MIB) if named else 0


def rows_of(
    found: Sequence[tuple[Matrix, Host]],
    name: str,
    remarks: ForeignRemarks,
    empty: str,
    hint: str = WITH_ROWS,
) -> tuple[list[Record], tuple[str, ...]]:
    """The rows of all matrices, and what was said of them. empty: what is wrong where there is no
    matrix; hint: what to do then. Raises UsageError without a row.
    """
    rows = []
    for matrix, host in found:
        conditions = {"the command": host.command, "the version": host.versions}
        span = ForeignTable(first=matrix.place, last=matrix.place, conditions=conditions)
        rows += [(span, matrix.place, row) for row in _records_of(matrix, host, remarks)]
    refuse_too_many([(place, row) for _, place, row in rows], name)
    said = remarks.texts()
    if not rows:
        kind = NoRowError if any(matrix.values for matrix, _ in found) else UsageError
        raise kind(f"{name}: no row: {'; '.join(said) or empty}", hint)
    return merged(rows, name), said


def _records_of(matrix: Matrix, host: Host, remarks: ForeignRemarks) -> Iterator[Record]:
    """The rows of a matrix; none of one without a counterpart, which is told."""
    copies = _COPIES.match(matrix.test)
    if copies is None:
        what = matrix.test or "a test without a name"
        remarks.add(
            f"not comparable: {what}, {counted(matrix.values, 'value')} left out ({{at}})"
            f"{_range(matrix)}",
            matrix.place,
        )
        return
    if matrix.broken:
        remarks.add(
            "{count} row{s} of matrices cut or mixed with others left out ({at})", *matrix.broken
        )
    if not matrix.has_end:
        remarks.add(
            "the matrix of {at} has no end: the run stopped, or the file is cut", matrix.place
        )
    if matrix.is_direction:  # the sum of both follows
        return
    is_both, method = bool(copies[1]), f"{copies[2]}-{copies[3]}"
    is_sum = " Total " in matrix.description or copies[4] == "_total"
    is_halved = is_both and (is_sum or copies[3] == "sm")
    direction = "" if is_both else "one-way"
    size_bytes = (host.buffer_mib or USUAL_BUFFER_MIB) << 20
    without = 0
    for label, cells in matrix.rows.items():
        for column, cell in zip(matrix.columns, cells, strict=True):
            rate = float(cell) if NUMBER.fullmatch(cell) else 0.0
            if column == label or not rate:
                without += column != label
                continue
            rate = rate / 2 if is_halved else rate
            yield foreign(
                op="sendrecv",
                backend="nvbandwidth",
                ranks=2,
                size_bytes=size_bytes,
                times_us=[size_bytes / rate / 1e3],
                is_checked=_UNVERIFIED.search(host.command) is None,
                host=host.name,
                device=devices_line(host.devices),
                versions=host.versions,
                traffic=f"{direction} copy-{method} gpus-{label}-{column}".strip(),
            )
    if without:
        places = [matrix.place] * without
        remarks.add("{count} pair{s} of GPUs have no access to each other's memory", *places)
    if not host.buffer_mib:
        said = f"times are of {USUAL_BUFFER_MIB} MiB, nvbandwidth's usual buffer"
        remarks.add(f"{said}: no command line names another (-b)", matrix.place)
    if is_halved or not is_both:
        remarks.add(ways_told("copies", is_both=is_both), matrix.place)


def _range(matrix: Matrix) -> str:
    """The values of a matrix in words, with where the lowest is."""
    found = [
        (float(cell), label, column)
        for label, cells in matrix.rows.items()
        for column, cell in zip(matrix.columns, cells, strict=False)
        if NUMBER.fullmatch(cell)
    ]
    if not found:
        return ""
    (low, label, column), high = min(found), max(found)[0]
    said = f": {low:g} (row {label}, column {column}) to {high:g}" if low < high else f": {low:g}"
    if "local" in matrix.test or matrix.test.startswith("device_to_device_memcpy of"):
        return f"{said} GB/s; the memory carries twice that, as each byte is read and written"
    is_of_host = matrix.test.startswith(("host_to_device_memcpy", "device_to_host_memcpy"))
    links = {pcie_of_rate(low), pcie_of_rate(high)} if is_of_host else {""}
    return said if len(links) > 1 or "" in links else f"{said}, as {links.pop()} gives"


def is_matrix(rows: Sequence[Sequence[str]]) -> bool:
    """Whether rows have equally many cells, each a number or N/A, and not more than any machine."""
    return (
        len({len(row) for row in rows}) == 1
        and 0 < len(rows[0]) <= MOST_GPUS
        and all(cell == "N/A" or NUMBER.fullmatch(cell) for row in rows for cell in row)
    )
