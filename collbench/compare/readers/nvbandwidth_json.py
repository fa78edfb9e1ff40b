"""The JSON of nvbandwidth -j: a list of tests, each with a matrix of texts. Until version 0.8 the
matrices of one test stand below each other in one. What they mean is in nvbandwidth_matrix.
"""

import re
from collections.abc import Mapping

from collbench.compare.readers.foreign import ForeignRemarks
from collbench.compare.readers.nvbandwidth_matrix import Host, Matrix, is_matrix, rows_of
from collbench.core.errors import UsageError
from collbench.core.reading import parse_json
from collbench.core.record import Record

TOOL = "nvbandwidth"
IS_DOCUMENT = True
_BEGINNING = re.compile(r'\s*\{\s*"nvbandwidth"\s*:')
_DEVICE = re.compile(r"\d{1,5}:\s*(.{1,99}?)\s*(?:\([0-9a-fA-F:.]{8,24}\).{0,200})?\Z")
_HOST = re.compile(r"\(([^()]{1,200})\)\s*\Z")
_MOST_CHARS = 32 << 20


def is_mine(text: str) -> bool:
    """Whether the text is such a file.

    >>> is_mine('{"nvbandwidth": {}}'), is_mine('{"results": []}')
    (True, False)
    """
    return _BEGINNING.match(text) is not None


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    whole = parse_json(text, name, _MOST_CHARS)
    inner = whole.get("nvbandwidth") if isinstance(whole, dict) else None
    tests = inner.get("testcases") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(tests, list):
        error = inner.get("error", "") if isinstance(inner, dict) else ""
        raise UsageError(
            f"{name}: nvbandwidth's JSON has no list 'testcases'{f': {error}' if error else ''}",
            "the run failed: look at its text output",
        )
    host, remarks = _host(inner), ForeignRemarks("test")
    found = []
    for place, test in enumerate(tests, start=1):
        matrix = _matrix(test, place, f"{name}, test {place}")
        if matrix is None:
            status = test.get("status", "no status") if isinstance(test, dict) else ""
            remarks.add(f"{_text(test, 'name')} did not run: {str(status).lower()} ({{at}})", place)
        else:
            found.append((matrix, host))
    return rows_of(found, name, remarks, "there is no test")


def _host(inner: Mapping[str, object]) -> Host:
    listed = inner.get("GPU Device list")
    devices = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    known = [match[1] for one in devices if (match := _DEVICE.match(one))]
    hosts = [match[1] for one in devices if (match := _HOST.search(one)) and ":" not in match[1]]
    version, driver = _text(inner, "version").lstrip("v"), _text(inner, "Driver Version")
    return Host(
        versions=f"nvbandwidth {version}".strip() + (f"; driver {driver}" if driver else ""),
        devices=tuple(known),
        name=_text(inner, "Hostname") or ",".join(dict.fromkeys(hosts)),
    )


def _matrix(test: object, place: int, where: str) -> Matrix | None:
    """The matrix of a test, the last of several; None of a test that did not run. Raises UsageError
    if it is none.
    """
    listed = test.get("bandwidth_matrix") if isinstance(test, dict) else None
    if listed is None:
        return None
    rows = (
        [[str(cell) for cell in row] for row in listed if isinstance(row, list)]
        if isinstance(listed, list)
        else []
    )
    if not rows or not is_matrix(rows):
        raise UsageError(
            f"{where}: bandwidth_matrix is no matrix of numbers", "the file was changed, or is cut"
        )
    columns = tuple(map(str, range(len(rows[0]))))
    if len(rows) > len(columns) and len(rows) % len(columns) == 0:
        rows = rows[-len(columns) :]
    return Matrix(
        test=_text(test, "name"),
        place=place,
        description=_text(test, "bandwidth_description"),
        columns=columns,
        rows={str(number): tuple(row) for number, row in enumerate(rows)},
    )


def _text(values: object, key: str) -> str:
    value = values.get(key, "") if isinstance(values, dict) else ""
    return value if isinstance(value, str) else str(value)
