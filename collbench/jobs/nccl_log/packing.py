"""What others did to a log's lines before it was given: put them into a column of a table, or broke
them at the width of a terminal or a mail. Both are told by the beginning of a file.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise
from typing import NamedTuple

from collbench.core.errors import UsageError

# names of the column that has the lines, in what CloudWatch, Datadog, Loki, Splunk and Kibana write
_COLUMN = re.compile(r"@?(?:log[._ ]?)?(?:message|msg|line|log|text|content|body|event|_raw)", re.I)
_HEADING = re.compile(r"(?! )[^,]{1,40}(?:,(?! )[^,]{0,40}){1,63}")
_SAMPLE = 400  # lines by which it is told whether they are broken
_NARROWEST, _WIDEST = 60, 200  # columns of terminals and mails
_FEWEST_BROKEN, _LONGEST_WORD = 3, 40
_LONGEST = 4096  # characters of a line that was broken
# how a row of a table begins, and a line of NCCL, whatever they follow
_HEAD = re.compile(r"[|+=]|--|.{0,60} NCCL (?:INFO|WARN) ")


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
        while 0 < len(sample) < _SAMPLE and len(sample[-1]) <= _WIDEST:
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


class _Broken(NamedTuple):
    """How lines were broken. starts: how whole ones begin."""

    width: int
    is_at_words: bool
    starts: frozenset[str] = frozenset()

    def has_rest(self, line: str, after: str) -> bool:
        """Whether a line goes on in the one after it, which had no place in it."""
        is_full = len(line) == self.width
        if self.is_at_words:
            word = after.split(" ", 1)[0]
            is_full = 0 < len(word) <= _LONGEST_WORD and len(line) + 1 + len(word) > self.width
        return is_full and _start(after) not in self.starts and not _HEAD.match(after)


def _how_broken(lines: list[str]) -> _Broken | None:
    """How lines were broken; None if they were not. Whole lines of one length are followed by
    others of their kind, and a rest by none; rows of a table begin alike.
    """
    width, pairs = max(map(len, lines), default=0), list(pairwise(lines))
    if not _NARROWEST <= width <= _WIDEST:
        return None
    ways = [_Broken(width, is_at_words) for is_at_words in (False, True)]
    columns, words = (sum(way.has_rest(*pair) for pair in pairs) for way in ways)
    way, ends = (ways[1], words) if 4 * columns < 3 * words else (ways[0], columns)
    whole = [after for line, after in pairs if not way.has_rest(line, after)]
    broken = way._replace(starts=frozenset(map(_start, [lines[0], *whole])))
    rests = Counter(_start(after) for line, after in pairs if broken.has_rest(line, after))
    number, most = rests.total(), max(rests.values(), default=0)
    is_many = number >= _FEWEST_BROKEN and number * 8 > len(lines)
    return broken if is_many and number * 4 >= 3 * ends and most * 2 <= number else None


def _start(line: str) -> str:
    return re.sub(r"\d", "0", line[:5])


def _joined(lines: Iterator[tuple[int, str]], broken: _Broken) -> Iterator[tuple[int, str]]:
    start, whole, last = 1, "", ""
    for number, line in lines:
        text = line.rstrip("\r\n")
        if broken.has_rest(last, text) and len(whole) < _LONGEST:
            whole += " " * broken.is_at_words + text
        else:
            if number > 1:
                yield start, whole
            start, whole = number, text
        last = text
    yield start, whole
