"""The row: the result of one point of a sweep, as one line of a CSV file. It is written as it is
measured, and read back by the same module.

KINDS says what each column holds, and cells are checked by it. The schema counts changes of the
columns. A file of an older schema lacks only columns that came later: those of knobs get their
defaults, others stay empty, and its rows are then rows of this schema. Any other file is refused,
because its numbers may mean something else.
"""

import csv
import fcntl
import io
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache, partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, get_args, get_type_hints

from collbench.core.collectives import ALL_OPS, collective
from collbench.core.distribution import PERCENTILES, Histogram, histogram_text, parse_histogram
from collbench.core.dtypes import DTYPES, REDOPS
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.knobs import FIRST_SCHEMA, KNOBS, UNASKED, Knobs
from collbench.core.screen import remark
from collbench.core.text import TextTarget, escaped

if TYPE_CHECKING:
    import _csv

# The columns of single launches' times, which are empty where none were timed; and the first schema
# of a column that is no knob's, where that is not the first of all.
LAUNCH_TIMES = (*PERCENTILES, "max_us")
SINCE = dict.fromkeys((*LAUNCH_TIMES, "histogram"), 6) | dict.fromkeys(
    ("skew", "imbalance", "groups", "mix", "alone_us", "over_alone"), 8
)
SINCE |= dict.fromkeys(("wire_bytes", "wire_expected", "wire_foreign"), 9) | {"chosen": 10}
SINCE |= dict.fromkeys(("floor_us", "of_floor"), 11)
SCHEMA = max(*(knob.since for knob in KNOBS), *SINCE.values())
# Notes of rows of other tools whose messages go another way than those of the collective: in one
# direction, several in flight between the same two ranks, as plain copies, or between two GPUs that
# are named.
GPUS = "gpus-"
TRAFFIC = ("one-way", "window-", "rma-", "copy-", GPUS)
# Notes of rows that measured something else than rows without them.
CONDITIONS = (
    *("hot", "unchecked", "blocking", "aggregate-", "isolated", "stream", "net-", "order-"),
    *TRAFFIC,
)
Status = Literal["ok", "wrong", "impossible", "waived", "error"]
STATUSES: tuple[Status, ...] = get_args(Status)
NOT_TRUE: tuple[Status, ...] = ("wrong", "impossible")  # it ran, and what it did is not believed


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Knobs):
    """One row. The columns up to `count` are the independent variables; times are microseconds,
    bandwidths decimal GB/s.

    skew: the formula of unequal blocks, or the name of the file that has them. imbalance: what the
    busiest rank must send or receive, over what it were if all blocks were equal, as a part of
    busbw. ceiling_gbs is the bus bandwidth that the links allow its schedule and protocol, limit
    the hop that limits it, percent the part that was reached. floor_us is the least time that the
    launch can take (see bench/rows.py), of_floor its part of time_us in percent; impossible: one
    of CPU ranks that took far less. time_us is the median over repeats of the slowest rank's mean;
    time_low_us and time_high_us bound it (verdict.interval). p50_us to max_us and the
    histogram are of single launches (see core/distribution.py). wire_bytes: of a launch, over
    all links that were counted; wire_expected: what its schedule must move there; wire_foreign:
    what is beyond that. chosen:
    what decided algorithm and protocol: asked, tuned or priced. A row whose status is not ok has no
    times, and a reason.
    """

    op: str
    backend: str
    ctas: int
    dtype: str
    redop: str
    root: int
    placement: str
    skew: str = ""
    groups: str = ""
    mix: str = ""
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
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    max_us: float | None = None
    histogram: Histogram = ()
    imbalance: float | None = None
    alone_us: float | None = None
    over_alone: float | None = None
    algbw_gbs: float | None = None
    busbw_gbs: float | None = None
    ceiling_gbs: float | None = None
    percent: float | None = None
    limit: str = ""
    floor_us: float | None = None
    of_floor: float | None = None
    wire_bytes: int | None = None
    wire_expected: int | None = None
    wire_foreign: int | None = None
    wrong: int | None = None
    status: Status
    reason: str = ""
    chosen: str = ""
    notes: str = ""
    run: str = ""
    host: str = ""
    device: str = ""
    versions: str = ""
    timestamp: str = ""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        for name in TEXTS:
            object.__setattr__(self, name, escaped(getattr(self, name)))

    @property
    def key(self) -> tuple[object, ...]:
        """The independent variables: two rows with the same key measured the same thing."""
        return _key_of(self)

    @property
    def point(self) -> tuple[object, ...]:
        """The key, and the conditions in the notes."""
        return (*self.key, *_conditions(self.notes))

    def repeats_refusal(self, before: "Record | None") -> bool:
        """Whether the row, like the last one of its point, is waived for the same reason."""
        return (
            before is not None
            and self.status == before.status == "waived"
            and self.reason == before.reason
        )


@cache
def _conditions(notes: str) -> tuple[str, ...]:
    return tuple(sorted(word for word in notes.split() if word.startswith(CONDITIONS)))


def columns_of(schema: int) -> tuple[str, ...]:
    """The columns of a file of a schema, in its order."""
    op, backend, ctas, *rest = (
        of.name
        for of in fields(Record)
        if of.name not in UNASKED and SINCE.get(of.name, FIRST_SCHEMA) <= schema
    )
    knobs = [knob.name for knob in KNOBS if knob.since <= schema]
    at = knobs.index("threads") + 1
    return (op, backend, *knobs[:at], ctas, *knobs[at:], *rest)


COLUMNS = columns_of(SCHEMA)
KEY = COLUMNS[: COLUMNS.index("count") + 1]
_key_of: Callable[[Record], tuple[object, ...]] = attrgetter(*KEY)
# Of these, what rows may differ in and still be compared where somebody asks for it.
ACROSS = ("group", "hosts", "backend", *KEY[KEY.index("algo") : KEY.index("dtype")])
SCHEMAS = {columns_of(number): number for number in range(FIRST_SCHEMA, SCHEMA + 1)}
_MOST_NAMED = 6  # of columns that a file lacks or has beside its own
_LEAST_COLUMNS = 3  # whole ones of a heading that a crash cut: fewer may be anybody's words
_KEPT = "rows before this one are in the file"
ColumnKind = Literal["text", "status", "integer", "count", "time", "times", "histogram", "rate"]
_KIND_OF: dict[object, ColumnKind] = {
    int: "integer",
    int | None: "count",  # empty: not counted
    float | None: "rate",
    tuple[float, ...]: "times",
    Histogram: "histogram",
    Status: "status",
}
# More than the 128 KiB of Python's default: variables of the environment stand in one cell.
csv.field_size_limit(1 << 30)
_HINTS = get_type_hints(Record)
KINDS: dict[str, ColumnKind] = {name: _KIND_OF.get(_HINTS[name], "text") for name in COLUMNS}
KINDS |= dict.fromkeys(
    ("time_us", "alone_us", "time_low_us", "time_high_us", "floor_us", *LAUNCH_TIMES), "time"
)
_MOST_MEASURED = 1e18  # us: beyond it, and below 1e-18, what is computed may have no number
MOST_INTEGER = (1 << 63) - 1


def named(*kinds: ColumnKind) -> tuple[str, ...]:
    """The columns of some kinds."""
    return tuple(name for name, kind in KINDS.items() if kind in kinds)


INTEGERS = named("integer")
TEXTS = named("text")
FLOATS = named("time", "rate", "count")  # in a frame; a count is NaN where nothing was counted


def to_line(record: Record) -> str:
    """The row as a CSV line with its line end. Numbers keep six significant digits."""
    return line_of(values_of(record))


def values_of(record: Record) -> list[object]:
    """What the row has in each of COLUMNS, as line_of() takes it."""
    histogram = histogram_text(record.histogram) if record.histogram else ""
    return [histogram if name == "histogram" else getattr(record, name) for name in COLUMNS]


def line_of(values: Iterable[object]) -> str:
    """Values as a CSV line with its line end. Numbers keep six significant digits."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(map(_cell, values))
    return out.getvalue()


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
    return escaped(str(value))


_NAMES: dict[str, Sequence[str]] = {  # columns whose texts are known
    "status": STATUSES,
    "op": ALL_OPS,
    "dtype": DTYPES,
    "redop": REDOPS,
}


def _number(name: str, text: str, kind: type[float]) -> float:
    try:
        return kind(text)
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise ValueError(f"{name} '{text}' is no {what}") from None


def _value(name: str, text: str) -> object:
    kind = KINDS[name]
    if kind == "count" and not text:
        return None
    if kind in ("integer", "count"):
        number = _number(name, text, int)
        if abs(number) > MOST_INTEGER:
            raise ValueError(f"{name} {text} has more than 64 bits")
        return number
    if kind == "histogram":
        return parse_histogram(text)
    if text not in _NAMES.get(name, (text,)):
        raise ValueError(f"there is no {name} '{text}'")
    return escaped(text)


def _reading(name: str) -> Callable[[str], object]:
    """What reads a cell of a column, each text but times once, because most rows have the same. It
    raises ValueError for a wrong cell.
    """
    kind = KINDS[name]
    if kind not in ("time", "times", "rate"):
        return cache(partial(_value, name))
    least = 0.0 if kind == "rate" else 1 / _MOST_MEASURED

    def measured(text: str) -> float | None:
        """A number that a measurement can have."""
        if not text:
            return None
        number = _number(name, text, float)
        if not least <= number <= _MOST_MEASURED:
            raise ValueError(f"{name} {text} is not a {'rate' if kind == 'rate' else 'time'}")
        return number

    if kind != "times":
        return measured
    return lambda text: tuple(map(measured, filter(None, text.split(";"))))


def _reader(columns: Sequence[str]) -> Callable[[Sequence[str]], Record]:
    """What makes a row of the cells of a file with such columns; columns that came later have their
    defaults. This takes a fifth of the time of Record(), which checks texts again.
    """
    setters = {of.name: getattr(Record, of.name).__set__ for of in fields(Record)}
    known = [name for name in columns if name in KINDS and name != "schema"]
    places = itemgetter(*map(columns.index, known))
    read = [(setters[name], _reading(name)) for name in known]
    rest = [(setters[of.name], of.default) for of in fields(Record) if of.name not in known]

    def record_of(cells: Sequence[str]) -> Record:
        record = object.__new__(Record)
        for (set_value, value_of), cell in zip(read, places(cells), strict=True):
            set_value(record, value_of(cell))
        for set_value, default in rest:
            set_value(record, default)
        return record

    return record_of


def read(file: Path) -> list[Record]:
    """All rows of a CSV file; a last line cut short by a crash is left out.

    Raises UsageError if the file cannot be read, has another schema or a broken row.
    """
    if file.exists() and not file.is_file():
        raise UsageError(f"{file} keeps no rows that could be read", "give another file")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {_why(error)}") from None
    return _rows(str(file), data, SCHEMAS)


def _rows(file: str, data: bytes, known: Collection[tuple[str, ...]]) -> list[Record]:
    """All rows of a file's data; a last line that a crash cut is left out. Raises UsageError if the
    file as a whole is not ours, as a word is not with which a heading happens to begin.
    """
    end = data.rfind(b"\n") + 1
    if data and not end:
        is_cut = any(header(columns).encode().startswith(data) for columns in known)
        if not is_cut or data.count(b",") < _LEAST_COLUMNS:
            raise _not_ours(file)
    try:
        text = data[:end].decode() + data[end:].decode(errors="replace")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} is no text: byte {data[error.start]:#04x} at offset {error.start}",
            "give another file",
        ) from None
    return parse(file, text, known)


def _not_ours(
    file: str, columns: Sequence[str] = (), known: Collection[tuple[str, ...]] = ()
) -> UsageError:
    """The error for a file of other columns; names those that differ where they are few."""
    # the newest of several
    nearest = min(known, key=lambda one: (len(set(one) ^ set(columns)), -len(one)), default=())
    wrong = [f"lacks {name}" for name in nearest if name not in columns]
    wrong += [f"has {escaped(name)}" for name in columns if name not in nearest]
    named = f": it {', '.join(wrong)}" if 0 < len(wrong) <= _MOST_NAMED else ""
    schema = SCHEMAS.get(nearest, SCHEMA)
    return UsageError(
        f"{file} does not have the columns of schema {schema}{named}",
        "another version or another command wrote it: give another file",
    )


def parse(
    file: str, text: str, known: Collection[tuple[str, ...]] = SCHEMAS.keys()
) -> list[Record]:
    """The rows of a file's text, in order; a last line cut short by a crash is left out. known: the
    columns that it may have. Raises UsageError at another schema or a broken row.
    """
    rows = csv.reader(io.StringIO(_whole_lines(text), newline=""))
    try:
        return list(_parsed(file, rows, known))
    except (ValueError, csv.Error) as error:
        raise UsageError(
            f"{file}, line {rows.line_num}: {error}", "mend or delete that line"
        ) from None


def _whole_lines(text: str) -> str:
    r"""The text without a last line that was cut short. One that only lacks its end stays: its last
    cell is the schema, of which nothing is missing.

    >>> _whole_lines("a,schema\nx,11\ny,11"), _whole_lines("a,schema\nx,11\ny,1")
    ('a,schema\nx,11\ny,11\n', 'a,schema\nx,11\n')
    >>> _whole_lines("a,schema\nx,11\ny\r,11"), _whole_lines('"a,schema\nx,11\ny')
    ('a,schema\nx,11\n', '"a,schema\nx,11\n')
    """
    end = text.rfind("\n") + 1
    whole, last = text[:end], text[end:]
    if last and whole:
        try:
            columns, *_, cells = csv.reader([whole.partition("\n")[0], last])
        except (ValueError, csv.Error):  # whoever reads the rest says where
            return whole
        schema = str(SCHEMAS.get(tuple(columns), SCHEMA))
        if len(cells) == len(columns) and (columns[-1], cells[-1]) == ("schema", schema):
            return f"{text}\n"
    return whole


def _parsed(file: str, rows: "_csv.Reader", known: Collection[tuple[str, ...]]) -> Iterator[Record]:
    heading = next(rows, None)
    if heading is None:
        return
    columns = tuple(heading)
    if columns not in known:
        raise _not_ours(file, columns, known)
    schema, place = str(SCHEMAS.get(columns, SCHEMA)), columns.index("schema")
    record_of = _reader(columns)
    for cells in filter(None, rows):
        cells += [""] * (len(columns) - len(cells))
        if cells == heading:
            raise UsageError(
                f"{file}, line {rows.line_num} is a heading again: several files in one",
                "give each file by itself, or delete that line",
            )
        if cells[place] != schema:
            raise UsageError(
                f"{file}, line {rows.line_num}: schema {cells[place] or 'none'}, where the columns"
                f" are those of {schema}",
                "give another file, or mend that line",
            )
        record = record_of(cells)
        if why := _contradiction(record):
            raise ValueError(why)
        yield record


def _contradiction(record: Record) -> str:
    """What cannot be of a row that is ok: more than a digit was lost."""
    if record.status != "ok":
        return ""
    if record.ranks < 1 or record.size_bytes < 0:
        return f"{record.ranks} ranks and {record.size_bytes} bytes"
    if record.wrong:
        return f"{record.wrong} wrong elements in a row that is ok"
    return ""


def has_another_rate(record: Record) -> bool:
    """Whether busbw_gbs is not what size and time make, by more than a digit that was rounded."""
    if record.mix or record.groups or record.op not in ALL_OPS:
        return False
    if record.status != "ok" or not record.time_us or record.busbw_gbs is None:
        return False
    factor = collective(record.op).factor(record.ranks) * (record.imbalance or 1)
    busbw_gbs = factor * record.size_bytes / record.time_us / 1e3
    return abs(record.busbw_gbs - busbw_gbs) > 0.05 * busbw_gbs


def _why(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


class Writer:
    """Appends rows to a CSV file, or to an open stream, each as soon as it is known. columns: of
    the file; more than a record's own are the caller's. rows: those that the file had before.

    Raises UsageError for a file of other columns or another schema, and UnavailableError if writing
    fails or if another process is writing the file.
    """

    def __init__(self, target: Path | TextTarget, columns: Sequence[str] = COLUMNS) -> None:
        self._name = str(target) if isinstance(target, Path) else "stdout"
        self._columns = tuple(columns)
        self.rows: list[Record] = []
        self._opened: IO[str] | None = None
        try:
            self._file: TextTarget
            if isinstance(target, Path):
                self._file = self._opened = self._open(target)
            else:
                self._file = target
            if not isinstance(target, Path) or target.stat().st_size == 0:
                self._write(header(self._columns))
        except OSError as error:
            self.close()
            raise UnavailableError(
                f"cannot write {self._name}: {_why(error)}", "give another file with --csv"
            ) from None

    def _open(self, file: Path) -> IO[str]:
        """The file, locked, without a last line that a crash cut."""
        if file.exists() and not file.is_file():  # a FIFO or a device
            return file.open("a", encoding="utf-8")
        opened = file.open("a+b")
        try:
            _lock(opened, self._name)
            opened.seek(0)
            data = opened.read()
            self.rows = _rows(self._name, data, {self._columns})
            self._end_last_line(opened, data)
        except BaseException:
            opened.close()
            raise
        return io.TextIOWrapper(opened, encoding="utf-8")

    def _end_last_line(self, opened: IO[bytes], data: bytes) -> None:
        """Give the last line its end where nothing else is missing; else remove it, and say so."""
        if data.endswith(b"\n") or not data:
            return
        text = data.decode(errors="replace")
        if _whole_lines(text) == f"{text}\n":
            opened.write(b"\n")
            return
        opened.truncate(data.rfind(b"\n") + 1)
        remark(f"{self._name}: the last line was cut short, and is removed")

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
            self._cut_line()
            # the reader has closed the pipe: the command line ends silently
            if isinstance(error, BrokenPipeError):
                raise
            raise UnavailableError(
                f"cannot write {self._name}: {_why(error)}", _KEPT if self._name != "stdout" else ""
            ) from None

    def _write(self, line: str) -> None:
        self._file.write(line)
        self._file.flush()

    def _cut_line(self) -> None:
        """Remove the part of a line for which there was no room."""
        file = Path(self._name)
        if self._opened is not None and file.is_file():
            with suppress(OSError), file.open("r+b") as opened:
                opened.truncate(opened.read().rfind(b"\n") + 1)

    def close(self) -> None:
        """Close the file. An error is ignored: every line was flushed before."""
        if self._opened is not None:
            with suppress(OSError):
                self._opened.close()


def _lock(file: IO[bytes], name: str) -> None:
    """Lock a file against other writers until this process closes it; a file system without locks
    has none. Ranks that are forked later do not inherit a record lock.
    """
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise UnavailableError(
            f"{name}: {_holder(file)} is writing it",
            "wait until that ends, or give another file with --csv",
        ) from None
    except OSError:  # for example NFS without its lock daemon
        return


def is_being_written(file: Path) -> bool:
    """Whether another process writes rows to a file at this moment."""
    with suppress(OSError), file.open("rb") as opened:
        return _lock_on(opened)[0] != fcntl.F_UNLCK
    return False


def _holder(file: IO[bytes]) -> str:
    """Who has locked a file."""
    process = _lock_on(file)[1]
    # 0 or less: on another host, or outside of this container
    return f"process {process}" if process > 0 else "another process"


def _lock_on(file: IO[bytes]) -> tuple[int, int]:
    """The kind of another process's lock on a file, and the process."""
    asked = struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0)
    kind, *_, process = struct.unpack("hhqqi", fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return kind, process
