"""Texts of files, of the environment and of people, as a terminal may see them, and tables of them.

One style for all tables: no lines, two columns between others, nothing at the end of a line.
"""

import re
import textwrap
from collections.abc import Collection, Iterable, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.text import Text


# The colours of our own tables: those that click.style and report/ write.
_COLOURS = re.compile(r"(\x1b\[(?:[012]|[39][1-7])m)")
UNBOUNDED = 10_000  # columns of what is no screen
NARROW_COLUMNS = 80  # of a pipe, and of what is not made for wider terminals
GAP = 2  # columns between two of a table
_LEAST_TEXT = 8  # columns that a text keeps on the narrowest screen
_WORD = 14  # characters of a word that is not broken, as `reducescatter`


class TextTarget(Protocol):
    """What takes lines: an open file, or the screen."""

    def write(self, text: str, /) -> object:
        """Take a part of the text."""

    def flush(self) -> None:
        """Hand on what was taken."""


def printable(text: str, *, has_colours: bool = False) -> str:
    r"""A text in which all that a terminal would obey or hide is spelled out: control characters,
    escape sequences, marks of direction, half characters. Line ends and tabs stay; has_colours:
    those of our own tables, too.

    >>> print(printable("a\x1b[2J \u202eb\n\x1b[31mc"))
    a\x1b[2J \u202eb
    \x1b[31mc
    >>> printable("\x1b[31mc\x1b[0m\x1b[2J", has_colours=True)
    '\x1b[31mc\x1b[0m\\x1b[2J'
    """
    if has_colours and "\x1b" in text:
        parts = _COLOURS.split(text)
        return "".join(part if place % 2 else printable(part) for place, part in enumerate(parts))
    return "\n".join(escaped(line, kept="\t") for line in text.split("\n"))


def escaped(text: str, kept: str = "") -> str:
    r"""A text with escapes for line ends, control characters and all else that cannot be printed,
    also bytes that are no text; kept: characters that stay.

    >>> print(escaped("a\rb \x1b[31m \udcff"))
    a\rb \x1b[31m \udcff
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in kept else one.encode("unicode_escape").decode()
        for one in text
    )


def counted(number: int, what: str, ending: str = "s") -> str:
    """So many of a thing.

    >>> counted(1, "pair"), counted(2, "pair"), counted(2, "process", "es")
    ('1 pair', '2 pairs', '2 processes')
    """
    return f"{number} {what}{ending * (number != 1)}"


def listed(parts: Iterable[str]) -> str:
    """Parts of a sentence.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    *others, last = (*parts,) or ("",)
    return f"{', '.join(others)} and {last}" if others else last


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """Numbers that follow each other.

    >>> runs([3, 0, 1])
    [[0, 1], [3]]
    """
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found


def some_of(names: Iterable[str], most: int = 6) -> str:
    """The first names, and how many more there are.

    >>> some_of("abc", 3), some_of("abc", 2)
    ('a, b, c', 'a, b and 1 more')
    """
    known = list(names)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def texts_of(values: Iterable[Any]) -> list[str]:
    """Different values in order, as texts, without those that stand for nothing.

    >>> texts_of(["b", "", "a", "b"]), texts_of([0, 10, 9])
    (['a', 'b'], ['9', '10'])
    """
    return [str(value) for value in sorted(set(values)) if value not in ("", 0)]


def natural_key(name: str) -> list[tuple[int, str]]:
    """Sorts node2 before node10.

    >>> sorted(["node10", "node2"], key=natural_key)
    ['node2', 'node10']
    """
    parts = re.split(r"([0-9]{1,18})", name)
    return [(int(part) if place % 2 else 0, part) for place, part in enumerate(parts)]


def one_line(text: str) -> str:
    """A text that a terminal may see, in one line."""
    return " ".join(printable(text).split("\n"))


def wrapped(text: str, columns: int, indent: str = "  ") -> list[str]:
    """Lines of at most so many columns, unless a word is longer."""
    if 0 < len(text) <= columns and text.isprintable() and not text.endswith(" "):
        return [text]  # most texts, in a twentieth of the time
    return textwrap.wrap(
        text, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def paragraphs(texts: Iterable[str], columns: int, indent: str = "  ") -> list[str]:
    """The lines of several texts."""
    return [line for text in texts for line in wrapped(text, columns, indent)]


def titled(
    parts: Iterable[tuple[str, str]], width: int, columns: int = NARROW_COLUMNS, lead: int = 2
) -> list[str]:
    """Texts behind their titles, in as many lines as they need. lead: columns before a title.

    >>> titled([("why", "a text"), ("", "b")], 5, 13)
    ['  why  a text', '       b']
    """
    start = " " * (lead + width)
    return [
        line
        for title, text in parts
        for line in wrapped(f"{'':{lead}}{title:<{width}}{text}", columns, start)
    ]


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Collection[int] = (),
    columns: int = NARROW_COLUMNS,
    least: Sequence[int] = (),
) -> list[str]:
    """Columns as wide as they need, those numbered in `right` set to the right. Where the screen is
    too narrow for all, the others fold; where that is not enough, those with heads come below,
    behind the first ones that tell rows apart. least: the least widths of columns whose rows are
    shown one by one, heeded where there is room. A head with spaces gives its column a least width,
    and one of two lines takes less; without heads there is no line of them. Cells may have our
    colours.

    >>> table(("pair", "GB/s"), [("GPU0 - GPU1", "12.0")], right=(1,))
    ['pair         GB/s', 'GPU0 - GPU1  12.0']
    >>> table(("", "a", ""), [("ring", "12.0", "more than there is room for")], (1,), columns=27)
    ['         a', 'ring  12.0  more than there', '            is room for']
    >>> table(("size", "time us", "busbw"), [("1M", "1999", "367.9")], (1, 2), columns=16)
    ['size  time us', '1M       1999', '', 'size  busbw', '1M    367.9']
    """
    from rich.console import Console  # here: loading it takes longer than most commands
    from rich.table import Table

    grid = Table(
        box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=any(heads), header_style=""
    )
    least = least if sum(least) + GAP * len(least) <= columns else ()
    rows = list(rows)
    cells = [list(map(_cell, row)) for row in rows]
    heads = [printable(head) for head in heads]
    taken: list[int] = []  # columns that each of them cannot do without
    for place, head in enumerate(heads):
        width = max([*map(len, head.split("\n")), *(row[place].cell_len for row in cells)])
        width = max([width, *least[place : place + 1]])
        is_right = place in right
        words = [
            word for cell in [head, *(row[place].plain for row in cells)] for word in cell.split()
        ]
        text = min(width, max([_LEAST_TEXT, *(len(word) for word in words if len(word) <= _WORD)]))
        grid.add_column(
            _cell(head),
            justify="right" if is_right else "left",
            width=width if is_right or least[place : place + 1] else None,
            min_width=text,
            overflow="fold",
        )
        taken.append(width if is_right else text)
    kept, needed = len(heads), sum(taken) + GAP * (len(heads) - 1)
    while any(heads) and not least and kept > 2 and sum(taken[:kept]) + GAP * (kept - 1) > columns:
        kept -= 1
    if kept < len(heads):
        told = (n for n in range(1, kept) if len({tuple(row[:n]) for row in rows}) == len(rows))
        parts = (list(range(kept)), [*range(next(told, 1)), *range(kept, len(heads))])
        first, rest = (
            table(
                [heads[place] for place in part],
                [[row[place] for place in part] for row in rows],
                [number for number, place in enumerate(part) if place in right],
                columns,
            )
            for part in parts
        )
        return [*first, "", *rest]
    for row in cells:
        grid.add_row(*row)
    out = StringIO()
    console = Console(
        file=out, width=max(columns, needed), color_system="standard", force_terminal=True,
        legacy_windows=False, _environ={},
    )  # fmt: skip
    console.print(grid, crop=False)
    return [line.rstrip(" ") for line in out.getvalue().split("\n")[:-1]]


def _cell(text: str) -> "Text":
    from rich.text import Text

    if text.isprintable():  # from_ansi takes twice the time
        return Text(text)
    return Text.from_ansi(printable(text, has_colours=True))


def share_text(percent: float, time_us: float, low_us: float, high_us: float) -> str:
    """A share of what the links allow, and between which shares the repeats leave it. low_us,
    high_us: the ends of the interval of the time; the same for a single repeat, which leaves
    nothing to say.

    >>> share_text(98.6, 100.0, 99.0, 101.0), share_text(98.6, 100.0, 100.0, 100.0)
    ('98.6% (97.6-99.6)', '99%')
    """
    if low_us == high_us:
        return f"{percent:.0f}%"
    low, high = percent * time_us / high_us, percent * time_us / low_us
    return f"{percent:.1f}% ({low:.1f}-{high:.1f})"
