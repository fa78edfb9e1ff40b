"""What rccl-tests writes with --output_file: JSON objects, one a line or in a list, or CSV.

A row is one placement of one size; cycles (-N) are repeats. Builds with MPI name ranks and the GPUs
of each, others GPUs. Until May 2026 the CSV of builds with MPI has no name for `nodes`. Source:
ROCm/rccl-tests pull requests 93 and 140, rocm-systems 6004.
"""

import json
import re
from collections.abc import Iterator, Mapping
from math import isfinite

from collbench.compare.readers.foreign import (
    ForeignRemarks,
    ForeignTable,
    dtype_of,
    foreign,
    merged,
    op_in,
    refuse_too_many,
)
from collbench.compare.readers.proof import MOST_RANKS, Printed, reading_of
from collbench.core.collectives import OpName, collective
from collbench.core.dtypes import DTYPES, dtype
from collbench.core.errors import UsageError
from collbench.core.record import Record

TOOL = "rccl-tests"
IS_DOCUMENT = True
_JSON = re.compile(r'[\[{\s]*"(?:numCycle|#?wrong|name|algBw|gpus)"\s*:')
_HEADER = re.compile(r"\s*(?:numCycle,)?(?:collective|name),.*\bbusbw\b", re.IGNORECASE)
_UNNAMED = "nodes"  # before ranks, in the CSV of builds with MPI
_HALF_UNIT = 1e-6  # of what is written with six digits after the point
_PLACEMENTS = {"0": "out", "1": "in"}
Cells = Mapping[str, str]


def is_mine(text: str) -> bool:
    r"""Whether the text is such a file.

    >>> is_mine('{"#wrong":"0","busBw":0.05}'), is_mine("numCycle,collective,gpus,busbw\n")
    (True, True)
    """
    is_json = _JSON.match(text) is not None and '"busBw"' in text
    return is_json or _HEADER.match(text) is not None


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    rows = list(_csv_rows(text) if _HEADER.match(text) else _json_rows(text, name))
    refuse_too_many(rows, name)
    table = ForeignTable(first=1, last=max((line for line, _ in rows), default=1), conditions={})
    remarks = ForeignRemarks("line")
    records: list[tuple[ForeignTable, int, Record]] = []
    kinds: dict[str, list[tuple[int, Cells]]] = {}
    for line, cells in rows:
        kinds.setdefault(cells.get("name", ""), []).append((line, cells))
    for program, of_kind in kinds.items():
        op = op_in(program) or op_in(name.rpartition("/")[2])
        if op is None:
            remarks.add(f"{program or 'no name'} is no collective of ours ({{at}})", of_kind[0][0])
            continue
        printed = [_printed(cells, line, name) for line, cells in of_kind]
        claimed = min(max(_claimed_ranks(cells) for _, cells in of_kind), MOST_RANKS)
        reading = reading_of(
            op, printed, claimed=claimed, counted=0, name=name, place=of_kind[0][0]
        )
        for said, places in reading.remarks:
            remarks.add(said, *places)
        if reading.ranks != claimed:
            remarks.add(
                f"the file names {claimed} ranks, but busbw / algbw is that of {reading.ranks}"
                " ({at})",
                of_kind[0][0],
            )
        records += [
            (table, one.line, _record(op, cells, one, reading.ranks))
            for one, (_, cells) in zip(printed, of_kind, strict=True)
            if (one.line, one.placement) not in reading.misfits
        ]
    said_of_all = remarks.texts()
    if not records:
        raise UsageError(f"{name}: no row: {'; '.join(said_of_all) or 'it is empty'}", "")
    if all("unchecked" in record.notes for _, _, record in records):
        said_of_all = (*said_of_all, "no result was checked (-c 0)")
    return merged(records, name), said_of_all


def _csv_rows(text: str) -> Iterator[tuple[int, Cells]]:
    header = [_plain(cell) for cell in text.lstrip().partition("\n")[0].split(",")]
    for number, line in enumerate(text.lstrip().split("\n")[1:], start=2):
        # nothing that is written has a comma or an end of a line in it
        cells = [cell.strip().strip('"') for cell in line.split(",")] if line.strip() else []
        if len(cells) == len(header) + 1 and _UNNAMED not in header and "ranks" in header:
            at = header.index("ranks")
            yield number, dict(zip([*header[:at], _UNNAMED, *header[at:]], cells, strict=True))
        elif any(cells):
            yield number, dict(zip(header, cells, strict=False))


def _json_rows(text: str, name: str) -> Iterator[tuple[int, Cells]]:
    """Objects in a list, or one after the other; without a number of a line they are counted."""
    decoder, at, number = json.JSONDecoder(), 0, 0
    between = re.compile(r"[\s,\[\]]*")
    while (at := _end_of(between, text, at)) < len(text):
        number += 1
        try:
            entry, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            raise UsageError(
                f"{name}, object {number}: not JSON", "the file is cut, or was changed"
            ) from None
        if not isinstance(entry, dict):
            raise UsageError(f"{name}, object {number}: no JSON object", "mend the file")
        yield number, {_plain(key): str(value) for key, value in entry.items()}


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _plain(key: str) -> str:
    """One name of a column in JSON and CSV, of any version."""
    plain = key.strip().lower().lstrip("#")
    return "name" if plain == "collective" else plain


def _claimed_ranks(cells: Cells) -> int:
    if cells.get("gpus", "").isdecimal():
        return int(cells["gpus"][:9])
    ranks, each = cells.get("ranks", ""), cells.get("gpusperrank", "1")
    return int(ranks[:9]) * int(each[:9]) if ranks.isdecimal() and each.isdecimal() else 0


def _printed(cells: Cells, line: int, name: str) -> Printed:
    numbers = []
    for key in ("size", "time", "algbw", "busbw"):
        try:
            number = float(cells.get(key, ""))
        except ValueError:
            number = -1.0
        if not isfinite(number) or not 0 <= number < 2**63:
            raise UsageError(
                f"{name}, line {line}: {key} is missing or no number", "mend the file, or cut it"
            )
        numbers.append(number)
    size, time, algbw, busbw = numbers
    placement = _PLACEMENTS.get(cells.get("inplace", ""), "")
    if not placement:
        raise UsageError(f"{name}, line {line}: inPlace is neither 0 nor 1", "mend the file")
    # CSV has fewer digits than JSON
    error = max(_HALF_UNIT, min(_half_unit(cells[key]) for key in ("time", "algbw", "busbw")))
    return Printed(
        line=line,
        placement=placement,
        size_bytes=int(size),
        time=time,
        time_error=error,
        algbw=algbw,
        algbw_error=error,
        busbw=busbw,
        busbw_error=error,
    )


def _half_unit(text: str) -> float:
    digits = text.partition(".")[2]
    return 10.0 ** -len(digits) / 2 if digits.isdecimal() else 0.5


def _record(op: OpName, cells: Cells, one: Printed, ranks: int) -> Record:
    name = dtype_of(cells.get("type", ""))
    known = next((known for known in DTYPES if known == name), None)
    wrong = cells.get("wrong", "").partition(".")[0]
    count = int(wrong) if wrong.isdecimal() and len(wrong) < 19 else None
    return foreign(
        op=op,
        backend="nccl",
        dtype=name,
        redop=cells.get("redop", ""),
        placement=one.placement,
        ranks=ranks,
        hosts=int(cells["nodes"][:9]) if cells.get("nodes", "").isdecimal() else 0,
        size_bytes=one.size_bytes,
        count=(
            collective(op).block_count(one.size_bytes, dtype(known).item_bytes, max(ranks, 1))
            if known
            else 0
        ),
        times_us=[one.time],
        iters=0,
        wrong=count,
        is_checked=count is not None,
        device="",
        versions="rccl-tests",
    )
