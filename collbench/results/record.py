"""The row: the result of one point of a sweep, as one line of a CSV file. It is written as it is
measured, and read back by the same module.

KINDS says what each column holds: the reading of a line here and of a whole file in frame.py check
by it. The schema counts changes of the columns. A file of an older schema lacks only the columns of
knobs that came later: its rows get their defaults and are then rows of this schema. Any other file
is refused, because its numbers may mean something else.
"""

import csv
import io
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from math import ulp
from pathlib import Path
from typing import IO, Literal, get_args, get_type_hints

from collbench.spec.collectives import OPS
from collbench.spec.dtypes import DTYPES, REDOPS
from collbench.spec.knobs import FIRST_SCHEMA, KNOBS, UNASKED, Knobs
from collbench.util.errors import UnavailableError, UsageError

SCHEMA = max(knob.since for knob in KNOBS)
# Notes of rows that measured something else than rows without them.
CONDITIONS = ("hot", "unchecked", "blocking", "aggregate-", "isolated", "stream", "net-")
Status = Literal["ok", "wrong", "waived", "error"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Knobs):
    """One row. The columns up to `count` are the independent variables; times are microseconds,
    bandwidths decimal GB/s.

    ceiling_gbs is the bus bandwidth that the links allow its schedule and protocol, limit the hop
    that limits it, percent the part that was reached. time_us is the median over repeats of the
    slowest rank's mean; time_low_us and time_high_us bound it (stats.interval). A row whose status
    is not ok has no times, and a reason.
    """

    op: str
    backend: str
    ctas: int
    dtype: str
    redop: str
    root: int
    placement: str
    group: str
    ranks: int
    hosts: int
    size_bytes: int
    count: int
    time_us: float | None = None
    time_low_us: float | None = None
    time_high_us: float | None = None
    repeats: int = 0
    repeat_times_us: tuple[float, ...] = ()
    iters: int = 0
    algbw_gbs: float | None = None
    busbw_gbs: float | None = None
    ceiling_gbs: float | None = None
    percent: float | None = None
    limit: str = ""
    wrong: int | None = None
    status: Status
    reason: str = ""
    notes: str = ""
    run: str = ""
    host: str = ""
    device: str = ""
    versions: str = ""
    timestamp: str = ""
    schema: int = SCHEMA

    @property
    def key(self) -> tuple[object, ...]:
        """The independent variables: two rows with the same key measured the same thing."""
        return tuple(getattr(self, name) for name in KEY)


def columns_of(schema: int) -> tuple[str, ...]:
    """The columns of a file of a schema, in its order."""
    op, backend, ctas, *rest = (of.name for of in fields(Record) if of.name not in UNASKED)
    knobs = [knob.name for knob in KNOBS if knob.since <= schema]
    at = knobs.index("threads") + 1
    return (op, backend, *knobs[:at], ctas, *knobs[at:], *rest)


COLUMNS = columns_of(SCHEMA)
KEY = COLUMNS[: COLUMNS.index("count") + 1]
# Of these, what rows may differ in and still be compared where somebody asks for it.
ACROSS = ("group", "hosts", "backend", *KEY[KEY.index("algo") : KEY.index("dtype")])
SCHEMAS = {columns_of(number): number for number in range(FIRST_SCHEMA, SCHEMA + 1)}
_KEPT = "rows before this one are in the file"
ColumnKind = Literal["text", "status", "integer", "count", "time", "times", "rate"]
_KIND_OF: dict[object, ColumnKind] = {
    int: "integer",
    int | None: "count",  # empty: not counted
    float | None: "rate",
    tuple[float, ...]: "times",
    Status: "status",
}
_HINTS = get_type_hints(Record)
KINDS: dict[str, ColumnKind] = {name: _KIND_OF.get(_HINTS[name], "text") for name in COLUMNS}
KINDS |= dict.fromkeys(("time_us", "time_low_us", "time_high_us"), "time")
# The least value of what was measured; the most is the largest finite number.
LEAST_OF_KIND: dict[ColumnKind, float] = {"time": ulp(0.0), "times": ulp(0.0), "rate": 0.0}
MOST = sys.float_info.max


def named(*kinds: ColumnKind) -> tuple[str, ...]:
    """The columns of some kinds."""
    return tuple(name for name, kind in KINDS.items() if kind in kinds)


INTEGERS = named("integer")
FLOATS = named("time", "rate", "count")  # in a frame; a count is NaN where nothing was counted


def to_line(record: Record) -> str:
    """The row as a CSV line with its line end. Numbers keep six significant digits."""
    return line_of([getattr(record, name) for name in COLUMNS])


def line_of(values: Iterable[object]) -> str:
    """Values as a CSV line with its line end. Numbers keep six significant digits."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(map(_cell, values))
    # an environment variable may hold bytes that are not text
    return out.getvalue().encode(errors="backslashreplace").decode()


def header(columns: Sequence[str] = COLUMNS) -> str:
    """The first line of a file."""
    return ",".join(columns) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple):
        return ";".join(f"{item:.6g}" for item in value)
    return str(value)


def from_cells(cells: Mapping[str, str]) -> Record:
    """A row from its cells by column name. Raises ValueError for a wrong cell."""
    return Record(**{name: _value(name, text) for name, text in cells.items()})  # type: ignore[arg-type]


_NAMES: dict[str, Sequence[str]] = {"status": STATUSES, "op": OPS, "dtype": DTYPES, "redop": REDOPS}


def _value(name: str, text: str) -> object:
    kind = KINDS[name]
    if kind == "integer":
        return int(text)
    if kind == "count":
        return int(text) if text else None
    if kind in ("time", "rate"):
        return _measured(name, text) if text else None
    if kind == "times":
        return tuple(_measured(name, item) for item in text.split(";") if item)
    if text not in _NAMES.get(name, (text,)):
        raise ValueError(f"there is no {name} '{text}'")
    return text


def _measured(name: str, text: str) -> float:
    """A time or a rate. Raises ValueError for a number that no measurement can have."""
    number, kind = float(text), KINDS[name]
    if not LEAST_OF_KIND[kind] <= number <= MOST:
        raise ValueError(f"{name} {text} is not a {'rate' if kind == 'rate' else 'time'}")
    return number


def read(file: Path) -> list[Record]:
    """All rows of a CSV file; a last line cut short by a crash is left out.

    Raises UsageError if the file cannot be read, has another schema or a broken row.
    """
    try:
        data = file.read_bytes()
        # the last line may be cut in the middle of a character
        text = data[: data.rfind(b"\n") + 1].decode()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {_why(error)}") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} is no text: byte {error.object[error.start]:#04x} at offset {error.start}",
            "give another file",
        ) from None
    return list(parse(str(file), text))


def parse(
    file: str, text: str, known: Collection[tuple[str, ...]] = SCHEMAS.keys()
) -> Iterator[Record]:
    """The rows of a file's text, in order; a last line cut short by a crash is left out. known: the
    columns that it may have. Raises UsageError at another schema or a broken row.
    """
    text = text[: text.rfind("\n") + 1]
    if not text:
        return
    rows = csv.DictReader(io.StringIO(text))
    columns = tuple(rows.fieldnames or ())
    if columns not in known:
        raise UsageError(
            f"{file} does not have the columns of schema {SCHEMA}",
            "another version or another command wrote it: give another file",
        )
    schema = str(SCHEMAS.get(columns, SCHEMA))
    for number, row in enumerate(rows, start=2):
        try:
            if tuple(row.values()) == columns:
                raise UsageError(
                    f"{file}, line {number} is a heading again: several files in one",
                    "give each file by itself, or delete that line",
                )
            if row["schema"] != schema:
                raise UsageError(
                    f"{file}, line {number}: schema {row['schema']}, this version reads {schema}",
                    "give another file",
                )
            cells = {name: row[name] or "" for name in columns if name in KINDS}
            yield from_cells({**cells, "schema": str(SCHEMA)})
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{file}, line {number}: {error}", "mend or delete that line"
            ) from None


def _why(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


class Writer:
    """Appends rows to a CSV file, or to an open stream, each as soon as it is known. columns: of
    the file; more than a record's own are the caller's.

    Raises UsageError for a file of other columns or another schema and UnavailableError if writing
    fails.
    """

    def __init__(self, target: Path | IO[str], columns: Sequence[str] = COLUMNS) -> None:
        self._name = str(target) if isinstance(target, Path) else "stdout"
        self._columns = tuple(columns)
        try:
            self._file = self._open(target) if isinstance(target, Path) else target
            if not isinstance(target, Path) or target.stat().st_size == 0:
                self._write(header(self._columns))
        except OSError as error:
            self.close()
            raise UnavailableError(
                f"cannot write {self._name}: {_why(error)}", "give another file with --csv"
            ) from None

    def _open(self, file: Path) -> IO[str]:
        if file.exists() and file.stat().st_size:
            data = file.read_bytes()
            list(parse(str(file), data.decode(errors="replace"), {self._columns}))
            if not data.endswith(b"\n"):  # a crash cut the last line
                os.truncate(file, data.rfind(b"\n") + 1)
        return file.open("a", encoding="utf-8")

    def write(self, records: Iterable[Record]) -> None:
        """Append rows and hand them to the operating system."""
        self.write_lines(map(to_line, records))

    def write_lines(self, lines: Iterable[str]) -> None:
        """Append lines of the file's columns."""
        try:
            for line in lines:
                self._write(line)
        except OSError as error:
            self.close()
            # the reader has closed the pipe: the command line ends silently
            if isinstance(error, BrokenPipeError):
                raise
            raise UnavailableError(
                f"cannot write {self._name}: {_why(error)}", _KEPT if self._name != "stdout" else ""
            ) from None

    def _write(self, line: str) -> None:
        self._file.write(line)
        self._file.flush()

    def close(self) -> None:
        """Close the file. An error is ignored: every line was flushed before."""
        if self._name != "stdout" and hasattr(self, "_file"):
            with suppress(OSError):
                self._file.close()


def known_keys(records: Sequence[Record]) -> set[tuple[object, ...]]:
    """The keys of rows that need no second measurement, with the conditions in their notes: of all
    rows but those that ended in an error.
    """
    return {
        (
            record.key
            if record.status == "waived"
            else (
                *record.key,
                *sorted(note for note in record.notes.split() if note.startswith(CONDITIONS)),
            )
        )
        for record in records
        if record.status != "error"
    }
