"""What mscclpp-test writes with -o: a JSON object a line, one for each size of each run.

Whether in place is not in it, nor whether results were checked. Source: mscclpp 0.9.0
(test/mscclpp-test/common.cc, test/deploy/perf_*.jsonl).
"""

import json
import re
from collections.abc import Iterator, Mapping
from math import isfinite

from collbench.analysis.readers.foreign import (
    Remarks,
    Table,
    foreign,
    merged,
    op_named,
    refuse_too_many,
)
from collbench.analysis.readers.proof import MOST_RANKS, Printed, half_unit, reading_of
from collbench.results.record import Record
from collbench.spec.collectives import OpName, collective
from collbench.util.errors import UsageError

TOOL = "mscclpp-test"
IS_DOCUMENT = True
_FIRST_LINE = re.compile(r'\s*\{(?=[^\n]{0,400}"kernel"\s*:)(?=[^\n]{0,400}"busBw"\s*:)')
_ITEM_BYTES = 4  # of int32
_NUMBERS = ("size", "time", "algBw", "busBw", "ranks", "kernel")
Cells = Mapping[str, str]


def is_mine(text: str) -> bool:
    """Whether the text is such a file.

    >>> is_mine('{"algBw":1.0,"busBw":1.5,"kernel":3}'), is_mine('{"#wrong":"0","busBw":0.05}')
    (True, False)
    """
    return _FIRST_LINE.match(text) is not None


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    kinds: dict[tuple[str, str], list[tuple[int, Cells]]] = {}
    for line, cells in _lines(text, name):
        kinds.setdefault((cells["name"], cells["ranks"]), []).append((line, cells))
    refuse_too_many([row for of_kind in kinds.values() for row in of_kind], name)
    remarks = Remarks("line")
    rows: list[tuple[Table, int, Record]] = []
    for (program, ranks), of_kind in kinds.items():
        op = op_named(program)
        here = of_kind[0][0]
        if op is None:
            remarks.add(
                f"{program} is no collective of ours: {len(of_kind)} lines left out ({{at}})", here
            )
            continue
        claimed = min(int(float(ranks)), MOST_RANKS)
        reading = reading_of(
            op,
            [_printed(cells, line) for line, cells in of_kind],
            claimed=claimed,
            counted=0,
            unit="us",
            name=name,
            place=here,
        )
        for said, places in reading.remarks:
            remarks.add(said, *places)
        if reading.ranks != claimed:
            remarks.add(
                f"the file names {claimed} ranks, but busbw / algbw is that of {reading.ranks}"
                " ({at})",
                here,
            )
        table = Table(first=here, last=of_kind[-1][0], conditions={})
        rows += [
            (table, line, _record(op, cells, reading.ranks))
            for line, cells in of_kind
            if (line, "out") not in reading.misfits
        ]
    said_of_all = remarks.texts()
    if not rows:
        raise UsageError(f"{name}: no row: {'; '.join(said_of_all) or 'it is empty'}", "")
    return merged(rows, name), (
        "whether in place, and whether results were right, is not in the file: read as out of"
        " place and unchecked",
        "times are rank 0's, not the slowest rank's",
        *said_of_all,
    )


def _lines(text: str, name: str) -> Iterator[tuple[int, Cells]]:
    """The objects with their lines; numbers as they are written."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line, parse_float=str, parse_int=str)
        except (ValueError, RecursionError):
            raise UsageError(
                f"{name}, line {number}: not JSON", "the file is cut, or was changed"
            ) from None
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise UsageError(f"{name}, line {number}: no object with a name", "mend the file")
        cells = {key: value for key, value in entry.items() if isinstance(value, str)}
        for key in _NUMBERS:
            if not _is_number(cells.get(key, "")):
                raise UsageError(
                    f"{name}, line {number}: {key} is missing or no number",
                    "mend the file, or cut it",
                )
        yield number, cells


def _is_number(text: str) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return isfinite(number) and 0 <= number < 2**63


def _printed(cells: Cells, line: int) -> Printed:
    return Printed(
        line=line,
        placement="out",
        size_bytes=int(float(cells["size"])),
        time=float(cells["time"]),
        time_error=half_unit(cells["time"]),
        algbw=float(cells["algBw"]),
        algbw_error=half_unit(cells["algBw"]),
        busbw=float(cells["busBw"]),
        busbw_error=half_unit(cells["busBw"]),
    )


def _record(op: OpName, cells: Cells, ranks: int) -> Record:
    size_bytes = int(float(cells["size"]))
    each = cells.get("ranksPerNode", "")
    per_node = int(float(each)) if _is_number(each) else 0
    return foreign(
        op=op,
        backend="mscclpp",
        algo=f"kernel{int(float(cells['kernel']))}",
        dtype="int32",
        placement="out",
        ranks=ranks,
        hosts=-(-ranks // per_node) if per_node else 0,
        size_bytes=size_bytes,
        count=collective(op).block_count(size_bytes, _ITEM_BYTES, max(ranks, 1)),
        times_us=[float(cells["time"])],
        iters=0,
        wrong=None,
        is_checked=False,
        device="",
        versions="mscclpp-test",
    )
