"""What others did to a log's lines before it was given: put them into a column of a table, or broke
them at the width of a terminal or a mail. Both are told by the beginning of a file.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import NamedTuple

from collbench.core.errors import UsageError

# names of the column that has the lines, in what CloudWatch, Datadog, Loki, Splunk and Kibana write
_COLUMN = re.compile(r"@?(?:log[._ ]?)?(?:message|msg|line|log|text|content|body|event|_raw)", re.I)
_MOST_COLUMNS = 64
_SAMPLE = 400  # lines by which it is told whether they are broken
_NARROWEST, _WIDEST = 60, 200  # columns of terminals and mails
_FEWEST_BROKEN = 3
_LONGEST_WORD = 40
_LONGEST = 4096  # characters of a line that was broken
_HEAD = re.compile(r".{0,60} NCCL (?:INFO|WARN) ")  # of a whole line, whatever it follows
_DIGIT = re.compile(r"\d")


def numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    r"""The lines as they were written, with the numbers that they have in the file.

    >>> list(numbered(["time,message\n", '7,"a ""b"", c"\n', '8,"d\n', 'e"\n']))
    [(2, 'a "b", c'), (3, 'd'), (3, 'e')]
    """
    rest = iter(lines)
    first = next(rest, None)
    if first is None:
        return iter(())
    column = _column_of(first)
    if column is not None:
        return _of_column(rest, column)
    sample = [first]
    try:
        while len(sample) < _SAMPLE and len(sample[-1]) <= _WIDEST:
            sample.append(next(rest))
    except StopIteration:
        pass
    except UsageError as error:  # of a damaged archive, behind what is read of it
        rest = _raised(error)
    every = enumerate(chain(sample, rest), 1)
    broken = _how_broken([line.rstrip("\r\n") for line in sample])
    return _joined(every, broken) if broken else every


def _raised(error: UsageError) -> Iterator[str]:
    raise error
    yield


def _column_of(first: str) -> int | None:
    """Which column has the lines, by a row of headings."""
    if "," not in first or len(first) > _WIDEST * 5:
        return None
    names = [name.strip('"') for name in first.lstrip("\ufeff").rstrip("\r\n").split(",")]
    found = [place for place, name in enumerate(names) if _COLUMN.fullmatch(name)]
    is_heading = len(names) <= _MOST_COLUMNS and all(
        len(name) <= _LONGEST_WORD and name == name.strip() for name in names
    )
    return found[-1] if found and is_heading else None


def _of_column(rest: Iterator[str], column: int) -> Iterator[tuple[int, str]]:
    rows = csv.reader(rest)
    line = 2
    while True:
        try:
            row = next(rows, None)
        except csv.Error:  # a field beyond the reader's limit
            row = []
        if row is None:
            return
        text = row[column] if column < len(row) else ",".join(row)
        for part in text.splitlines():
            yield line, part
        line = rows.line_num + 2


class _Broken(NamedTuple):
    """How lines were broken. starts: how whole ones begin."""

    width: int
    is_at_words: bool
    starts: frozenset[str]

    def has_rest(self, line: str, after: str) -> bool:
        """Whether a line goes on in the one after it."""
        is_full = _is_full(line, after, self.width, self.is_at_words)
        return is_full and _start(after) not in self.starts and not _HEAD.match(after)


def _how_broken(lines: list[str]) -> _Broken | None:
    """How lines were broken; None if they were not. Whole lines of one length are followed by
    others of their kind, and a rest by none.
    """
    width = max(map(len, lines))
    if not _NARROWEST <= width <= _WIDEST:
        return None
    pairs = list(pairwise(lines))
    ends = {way: sum(_is_full(*pair, width, way) for pair in pairs) for way in (False, True)}
    is_at_words = 4 * ends[False] < 3 * ends[True]
    whole = [after for line, after in pairs if not _is_full(line, after, width, is_at_words)]
    broken = _Broken(width, is_at_words, frozenset(map(_start, [lines[0], *whole])))
    rests = Counter(_start(after) for line, after in pairs if broken.has_rest(line, after))
    number = rests.total()
    is_many = number >= _FEWEST_BROKEN and number * 8 > len(lines)
    # rows of a table begin alike
    is_text = is_many and number * 4 >= 3 * ends[is_at_words] and max(rests.values()) * 2 <= number
    return broken if is_text else None


def _is_full(line: str, after: str, width: int, is_at_words: bool) -> bool:
    """Whether what comes after a line had no place in it."""
    word = after.split(" ", 1)[0]
    if not is_at_words:
        return len(line) == width
    return 0 < len(word) <= _LONGEST_WORD and len(line) + 1 + len(word) > width


def _start(line: str) -> str:
    return _DIGIT.sub("0", line[:5])


def _joined(lines: Iterator[tuple[int, str]], broken: _Broken) -> Iterator[tuple[int, str]]:
    start, whole, last = 0, "", ""
    for number, line in lines:
        text = line.rstrip("\r\n")
        if start and len(whole) < _LONGEST and broken.has_rest(last, text):
            whole += " " * broken.is_at_words + text
        else:
            if start:
                yield start, whole
            start, whole = number, text
        last = text
    if start:
        yield start, whole
