"""What others did to a log's lines before it was given: put them into a column of a table, or broke
them at the width of a terminal or a mail. Both are told by the beginning of a file.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from collbench.core.errors import UsageError
from collbench.core.pasted import SAMPLE, WIDEST, how_broken, joined

# names of the column that has the lines, in what CloudWatch, Datadog, Loki, Splunk and Kibana write
_COLUMN = re.compile(r"@?(?:log[._ ]?)?(?:message|msg|line|log|text|content|body|event|_raw)", re.I)
_HEADING = re.compile(r"(?! )[^,]{1,40}(?:,(?! )[^,]{0,40}){1,63}")


def numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    r"""The lines as they were written, with the numbers that they have in the file.

    >>> list(numbered(["time,message\n", '7,"a ""b"", c"\n', '8,"d\n', 'e"\n']))
    [(2, 'a "b", c'), (3, 'd'), (3, 'e')]
    """
    rest = iter(lines)
    sample = list(islice(rest, 1))
    if (column := _column_of("".join(sample))) is not None:
        return _of_column(rest, column)
    try:
        while 0 < len(sample) < SAMPLE and len(sample[-1]) <= WIDEST:
            sample.append(next(rest))
    except StopIteration:
        pass
    except UsageError as error:  # of a damaged archive, behind what is read of it
        rest = _raised(error)
    every = enumerate(chain(sample, rest), 1)
    broken = how_broken([line.rstrip("\r\n") for line in sample])
    return joined(every, broken) if broken else every


def _raised(error: UsageError) -> Iterator[str]:
    raise error
    yield


def _column_of(first: str) -> int | None:
    """Which column has the lines, by a row of headings."""
    first = first.strip().lstrip("\ufeff")
    if not _HEADING.fullmatch(first):
        return None
    names = [name.strip('"') for name in first.split(",")]
    return max((at for at, name in enumerate(names) if _COLUMN.fullmatch(name)), default=None)


def _of_column(rest: Iterator[str], column: int) -> Iterator[tuple[int, str]]:
    rows, line = csv.reader(rest), 2
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error:  # a field beyond the reader's limit
            continue
        for part in (row[column] if column < len(row) else ",".join(row)).splitlines():
            yield line, part
        line = rows.line_num + 2
