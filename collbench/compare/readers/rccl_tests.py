"""What rccl-tests writes with --output_file: JSON objects, one a line or in a list, or CSV.

A row is one placement of one size; cycles (-N) are repeats. Builds with MPI name ranks and the GPUs
of each, others GPUs. Until May 2026 the CSV of builds with MPI has no name for `nodes`. Source:
ROCm/rccl-tests pull requests 93 and 140, rocm-systems 6004.
"""

import json
import re
from collections.abc import Iterator, Mapping

from collbench.compare.readers.foreign import ForeignRemarks
from collbench.compare.readers.nccl_tests import rows_of
from collbench.compare.readers.nccl_tests_table import TablePart, TableRow, TableRun
from collbench.compare.readers.proof import MOST_RANKS
from collbench.core.errors import UsageError
from collbench.core.record import Record

TOOL = "rccl-tests"
IS_DOCUMENT = True
_JSON = re.compile(r'[\[{\s]*"(?:numCycle|#?wrong|name|algBw|gpus)"\s*:')
_HEADER = re.compile(r"\s*(?:numCycle,)?(?:collective|name),.*\bbusbw\b", re.IGNORECASE)
_UNNAMED = "nodes"  # before ranks, in the CSV of builds with MPI
_ROUNDING = 5e-7  # of what is written with six digits after the point
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
    runs: dict[str, TableRun] = {}
    for line, cells in _csv_rows(text) if _HEADER.match(text) else _json_rows(text, name):
        program = cells.get("name", "")
        run = runs.setdefault(program, _run(program, line))
        run.rows.append((line, _row(cells, f"{name}, line {line}")))
        run.nranks = max(run.nranks, min(_claimed_ranks(cells), MOST_RANKS))
        run.nodes = int(cells["nodes"][:9]) if cells.get("nodes", "").isdecimal() else 0
        run.last = line
    if not runs:
        raise UsageError(f"{name}: no row: it is empty", "")
    return rows_of(list(runs.values()), name, ForeignRemarks("line"))


def _run(program: str, line: int) -> TableRun:
    return TableRun(
        program=program,
        first=line,
        heading_line=line,
        columns=("time", "algbw", "busbw", "#wrong"),
        columns_before=("redop", "root"),
        version="rccl-tests",
        rounding=_ROUNDING,
        has_end=True,
    )


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


def _row(cells: Cells, place: str) -> TableRow:
    for key in ("size", "time", "algbw", "busbw"):
        try:
            number = float(cells.get(key, ""))
        except ValueError:
            number = -1.0
        if not 0 <= number < 2**63:
            raise UsageError(f"{place}: {key} is missing or no number", "mend the file, or cut it")
    placement = _PLACEMENTS.get(cells.get("inplace", ""), "")
    if not placement:
        raise UsageError(f"{place}: inPlace is neither 0 nor 1", "mend the file")
    rates = [cells[key] for key in ("time", "algbw", "busbw")]
    # CSV has fewer digits than JSON; what ends in zeros is written without them
    digits = max(len(rate.partition(".")[2]) for rate in rates)
    time, algbw, busbw = (f"{float(rate):.{min(digits, 9)}f}" for rate in rates)
    wrong = cells.get("wrong", "").partition(".")[0]
    return TableRow(
        size_bytes=int(float(cells["size"])),
        count=0,
        dtype=cells.get("type", ""),
        redop=cells.get("redop", ""),
        root=0,
        parts=(
            TablePart(
                placement=placement,
                time=time,
                algbw=algbw,
                busbw=busbw,
                check=wrong if wrong.isdecimal() and len(wrong) < 19 else "N/A",
            ),
        ),
    )
