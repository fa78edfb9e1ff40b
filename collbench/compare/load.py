"""Files of results as rows: our CSV, and what other tools write (see
readers); recognised by the content.

Not what the numbers mean side by side. A file comes from anyone: it becomes a table, or one
UsageError with the place.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from collbench.compare.readers import own
from collbench.compare.readers.foreign import TwoRunsError
from collbench.core.catalog import read_by, results
from collbench.core.errors import UsageError
from collbench.core.pasted import WORD, joined, plain_text, without_prefix
from collbench.core.reading import read_content
from collbench.core.record import INTEGERS, MOST_INTEGER, Record
from collbench.core.screen import remark

if TYPE_CHECKING:
    import pandas as pd


MOST_OWN_BYTES = 1 << 30  # of our CSV, before its rows are counted
MOST_ROWS = 300_000  # of all files of a comparison, in which a row takes 4 KB of memory
_FEWER = "keep what is compared: (head -n 1 FILE; grep '^allreduce,' FILE) > part.csv"
# of other tools' output, which is some KiB; more is NCCL's debug lines of a large cluster
MOST_FOREIGN_BYTES = 32 << 20
_MOST_JOINED = 1 << 20  # characters of a text that a terminal may have broken
_BROKEN = "lines were broken at the width of a terminal or a mail: each is read with its rest"
_RUN = re.compile(r"@[\w-]{1,41}")  # the name of a saved run
# but tab, line ends, form feed, and escape, which colours a log
_CONTROL = bytes([*range(9), *range(14, 27), *range(28, 32)])
_BYTES_AT_ONCE = 1 << 20  # so that a large file is not in memory twice
_NET_RATE = re.compile(r"\+ NET\[(\d{1,4}(?:\.\d{1,3})?)\] - NET/([0-9a-fA-F-]{1,9})")
_BOLD = re.compile(r"\*\*(\d[\d.]{0,15})\*\*")  # numbers that a forum shows so


@dataclass(frozen=True, kw_only=True)
class ResultFile:
    """A file's rows, and the same as a table (see frame_of).

    name: the file as it was given. kind: the tool that wrote it. remarks: what a reader must know,
    such as lines left out. network_gbits: of all NICs of a host, where the text has it.
    """

    records: Sequence[Record]
    name: str
    kind: str
    remarks: tuple[str, ...] = ()
    network_gbits: float = 0.0

    @cached_property
    def frame(self) -> "pd.DataFrame":
        from collbench.core.frame import frame_of

        return frame_of(self.records)


def load(file: Path) -> ResultFile:
    """The rows of a file, `-` for stdin, or of a saved run (`@1`). Raises
    UsageError with the place if it cannot be read, is none of the known formats, is broken, or has
    no row.
    """
    if _RUN.fullmatch(str(file)) and not file.exists():
        from collbench.compare.runs import saved_run

        run = saved_run(str(file))
        name = f", @{run.name}" * (str(file) != f"@{run.name}")
        remark(f"{file} is the run of {run.facts.started[:16]} UTC{name}: {run.facts.title}")
        return replace(_load(run.rows), name=str(file))
    return _load(file)


def _load(file: Path) -> ResultFile:
    name = "stdin" if str(file) == "-" else str(file)
    is_reference = name in results() and not file.exists()
    hint = f"results are shipped by that name: compare FILE --against {name}"
    data = read_content(file, MOST_OWN_BYTES, hint if is_reference else "give a file of results")
    place = _place_of(_CONTROL, data)
    if place is not None:
        raise UsageError(
            f"{name} is no text: byte {data[place]:#04x} at offset {place}", _formats()
        )
    if own.BEGINNING in data or b"{" in data:
        data = _document(data)
    if own.is_mine(data):
        _refuse_many(name, data.count(b"\n") - 1)
        records, remarks = own.read(data, name)
        return ResultFile(records=records, name=name, kind="collbench", remarks=remarks)
    if len(data) > MOST_FOREIGN_BYTES:
        raise UsageError(
            f"{name} has {len(data)} bytes; other tools' results are read up to"
            f" {MOST_FOREIGN_BYTES}",
            "leave NCCL's own lines out: grep -v 'NCCL '",
        )
    text = data.decode(errors="replace")
    try:
        return _of_text(text, name)
    except TwoRunsError as error:
        error.whole = text
        raise


def load_runs(error: TwoRunsError) -> tuple[ResultFile, ResultFile]:
    """The runs of a file with two, each below what is above both. Raises UsageError if not."""
    lines, name = error.whole.split("\n"), error.name
    if not error.first or error.whole.lstrip().startswith("{"):
        raise error
    above = [*lines[: error.first - 1], *[""] * (error.last + 1 - error.first)]
    second = "\n".join((*above, *lines[error.last :]))
    first = "\n".join((*lines[: error.last], ""))
    old, new = _of_text(first, f"{name} (first run)"), _of_text(second, f"{name} (second run)")
    if (tables := max(one.repeats for one in new.records)) > max(
        one.repeats for one in old.records
    ):
        said = f"there are {tables} tables behind the first run: they are taken for repeats"
        new = replace(new, remarks=(*new.remarks, said))
    return old, new


def _of_text(text: str, name: str) -> ResultFile:
    kind, records, remarks = _fuller(text, name)
    if not text.endswith("\n") and not text.lstrip().startswith("{"):
        remarks = (*remarks, "the last line has no end: the output may be cut")
    if any(abs(getattr(one, column)) > MOST_INTEGER for one in records for column in INTEGERS):
        raise UsageError(f"{name}: a number is too large: it has over 64 bits", "mend the file")
    return ResultFile(
        records=records, name=name, kind=kind, remarks=remarks, network_gbits=_network_gbits(text)
    )


def _document(data: bytes) -> bytes:
    """Our CSV or JSON that stands behind tags, in quotes or in a log driver's lines; other data as
    it is.
    """
    if own.is_mine(data) or len(data) > MOST_FOREIGN_BYTES:
        return data
    lines = plain_text(data.decode(errors="replace")).split("\n")
    bare = "\n".join(without_prefix(lines)).encode()
    return bare if own.is_mine(bare) or bare.lstrip().startswith(b"{") else data


def _network_gbits(text: str) -> float:
    r"""The rate of all NICs of a host in Gbit/s by NCCL's topology beside a table; 0 without it.

    >>> line = "n1:7:7 [0] NCCL INFO   + NET[50.0] - NET/{0} ({0}/0/50.000000)\n"
    >>> _network_gbits(line.format(0) + line.format(1) + line.format(0))
    800.0
    """
    return sum({nic[2]: 8 * float(nic[1]) for nic in _NET_RATE.finditer(text)}.values())


def load_all(files: Sequence[Path]) -> tuple[ResultFile, ...]:
    """The rows of each file. Raises UsageError if one cannot be read, or is given twice, be it as a
    copy of our own rows, which name their run and the time of each.
    """
    for place, file in enumerate(files):
        if file.resolve() in {other.resolve() for other in files[:place]}:
            raise UsageError(f"{file} is given twice: nothing can differ", "give each file once")
    loaded: list[ResultFile] = []
    for file in files:
        loaded.append(load(file))
        _refuse_many("the files together", sum(len(one.records) for one in loaded))
    for place, one in enumerate(loaded):
        for other in loaded[:place]:
            if one.kind == "collbench" and _are_alike(one.records, other.records):
                raise UsageError(
                    f"{one.name} holds the same rows as {other.name}: nothing can differ",
                    "give files of different runs",
                )
    return tuple(loaded)


def _refuse_many(name: str, rows: int) -> None:
    """Raise UsageError if these are more rows than are held at once."""
    if rows > MOST_ROWS:
        raise UsageError(
            f"{name}: {rows:,} rows, of which {MOST_ROWS:,} are compared at once", _FEWER
        )


def _are_alike(rows: Sequence[Record], others: Sequence[Record]) -> bool:
    """Whether two files have the same rows, in any order."""
    runs, others_runs = ({row.run for row in one} for one in (rows, others))
    return runs == others_runs and Counter(rows) == Counter(others)


def _place_of(bytes_: bytes, data: bytes) -> int | None:
    """The offset of the first of some bytes; None where there is none of them."""
    for first in range(0, len(data), _BYTES_AT_ONCE):
        here = data[first : first + _BYTES_AT_ONCE]
        if len(here.translate(None, bytes_)) < len(here):
            return first + next(place for place, byte in enumerate(here) if byte in bytes_)
    return None


def _fuller(text: str, name: str) -> tuple[str, list[Record], tuple[str, ...]]:
    """What a text has, or what it has with its lines joined if that is more."""
    ways = ((), (WORD,), (WORD, " ")) if len(text) <= _MOST_JOINED else ()
    found, errors = [], []
    for part in dict.fromkeys((text, *(joined(text, *way) for way in ways))):
        try:
            found.append((part, _records_of(_BOLD.sub(r"\1", plain_text(part)), name)))
        except UsageError as error:
            errors.append(error)
            if "no row" not in error.message:
                break
    if not found:
        raise errors[0]
    part, (kind, records, remarks) = max(found, key=lambda one: _known(one[1][1]))
    return kind, records, remarks if part == text else (_BROKEN, *remarks)


def _known(rows: Sequence[Record]) -> tuple[int, int]:
    """How many rows there are, and how many whose data was checked."""
    return len(rows), sum("unchecked" not in row.notes for row in rows)


def _records_of(text: str, name: str) -> tuple[str, list[Record], tuple[str, ...]]:
    """The tool, the rows and remarks; a log may hold tables of more than one.

    Raises UsageError if none is known, or the only one has no row.
    """
    from collbench.compare.readers import FAMILY

    formats = [found for found in map(FAMILY.load, FAMILY) if found.is_mine(text)]
    formats = [one for one in formats if getattr(one, "IS_DOCUMENT", False)][:1] or formats
    rows: list[Record] = []
    remarks: list[str] = []
    errors: list[UsageError] = []
    for found in formats:
        try:
            read, said = found.read(text, name)
        except UsageError as error:
            errors.append(error)
        else:
            rows += read
            remarks += said
    if errors and not rows:
        raise errors[0]
    if not formats:
        if known := read_by(text, name, "compare"):
            raise UsageError(f"{name}: this is {known[0]}", known[1])
        first = text.lstrip().partition("\n")[0][:60]
        raise UsageError(
            f"{name} holds no results that we know; it begins with: {first}", _formats()
        )
    remarks += [error.message.removeprefix(name).lstrip(":, ") for error in errors]
    return formats[0].TOOL, rows, tuple(remarks)


def _formats() -> str:
    """All that is read, in words."""
    from collbench.compare.readers import FAMILY

    tools = ", ".join(dict.fromkeys(FAMILY.load(name).TOOL for name in FAMILY))
    return f"compare reads collbench's CSV and what these tools write: {tools}"
