"""Lines of tables of plain text whose names may be longer than their column. Pure text.

rich folds texts that do not fit, and shows what has colours or wide characters.
"""

import textwrap
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from io import StringIO
from itertools import groupby
from typing import TYPE_CHECKING

from collbench.core.text import printable

if TYPE_CHECKING:
    from rich.align import VerticalAlignMethod
    from rich.text import Text

NARROW_COLUMNS = 80  # of a pipe, and of what is not made for wider terminals
_GAP = 2  # columns between two of a table
_LEAST_TEXT = 8  # columns that a text keeps on the narrowest screen


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
) -> list[str]:
    """Columns as wide as they need, those numbered in `right` set to the right. Where the screen is
    too narrow for all, the others fold. A head with spaces gives its column a least width; without
    heads there is no line of them. Cells may have our colours.

    >>> table(("pair", "GB/s"), [("GPU0 - GPU1", "12.0")], right=(1,))
    ['pair         GB/s', 'GPU0 - GPU1  12.0']
    >>> table(("", "a", ""), [("ring", "12.0", "more than there is room for")], (1,), columns=27)
    ['         a', 'ring  12.0  more than there', '            is room for']
    """
    rows = list(rows)
    widths = [max(map(_width, column)) for column in zip(heads, *rows, strict=True)]
    if sum(widths) + _GAP * (len(heads) - 1) > columns:
        widths = _fitting(widths, right, columns)
    lines: list[str] = []
    if any(heads):
        lines += (_in_columns if _is_plain(heads) else _folded)(
            [heads], widths, right, is_head=True
        )
    for is_plain, group in groupby(rows, _is_plain):
        lines += (_in_columns if is_plain else _folded)(list(group), widths, right)
    return lines


def _width(text: str) -> int:
    """Columns that a cell takes on the screen."""
    if text.isascii() and text.isprintable():
        return len(text)
    return _cell(text).cell_len


def _is_plain(row: Sequence[str]) -> bool:
    """Whether every character of a row takes one column."""
    return all(text.isascii() and text.isprintable() for text in row)


def _in_columns(
    rows: Sequence[Sequence[str]],
    widths: Sequence[int],
    right: Collection[int],
    *,
    is_head: bool = False,
) -> list[str]:
    """Lines of plain rows, in a hundredth of the time that rich takes. is_head: texts that fold end
    in the last line.
    """
    aligned = [
        f"{{:{'>' if place in right else '<'}{width}}}" for place, width in enumerate(widths)
    ]
    line = (" " * _GAP).join(aligned)
    lines = []
    for row in rows:
        parts = [_parts(text, width) for text, width in zip(row, widths, strict=True)]
        height = max(map(len, parts))
        for number in range(height):
            at = [number - (height - len(part)) * is_head for part in parts]
            texts = [
                part[k] if 0 <= k < len(part) else "" for part, k in zip(parts, at, strict=True)
            ]
            lines.append(line.format(*texts).rstrip(" "))
    return lines


@lru_cache(maxsize=4096)
def _parts(text: str, width: int) -> tuple[str, ...]:
    """A plain text in lines of a width, as rich folds it: many rows have the same texts."""
    if len(text) <= width:
        return (text,)
    from rich.console import Console
    from rich.text import Text

    lines = Text(text).wrap(Console(file=StringIO(), _environ={}), width, overflow="fold")
    return tuple(line.plain.rstrip(" ") for line in lines)


def _fitting(widths: Sequence[int], right: Collection[int], columns: int) -> list[int]:
    """The widths that rich gives columns of these widths on a narrow screen: it shows a row that
    fills them.
    """
    shown = [place for place, width in enumerate(widths) if width]
    full = [["x" * widths[place] for place in shown]]
    kept = {number for number, place in enumerate(shown) if place in right}
    line, *_ = _folded(full, None, kept, columns=columns - _GAP * (len(widths) - len(shown)))
    runs = dict(zip(shown, map(len, line.split()), strict=True))
    return [runs.get(place, 0) for place in range(len(widths))]


def _cell(text: str) -> "Text":
    from rich.text import Text

    if text.isprintable():  # from_ansi takes twice the time
        return Text(text)
    return Text.from_ansi(printable(text, has_colours=True))


def _folded(
    rows: Sequence[Sequence[str]],
    widths: Sequence[int] | None,
    right: Collection[int],
    *,
    columns: int = 0,
    is_head: bool = False,
) -> list[str]:
    """Lines of rows by rich, with these widths, or with those that so many columns allow. is_head:
    texts that fold end in the last line.
    """
    from rich.console import Console  # here: loading it takes longer than most tables
    from rich.table import Table

    cells = [list(map(_cell, row)) for row in rows]
    align: VerticalAlignMethod = "bottom" if is_head else "top"
    wanted = widths or [
        max(cell.cell_len for cell in column) for column in zip(*cells, strict=True)
    ]
    grid = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, show_header=False)
    for place, width in enumerate(wanted):
        grid.add_column(
            justify="right" if place in right else "left",
            width=width if widths or place in right else None,
            overflow="fold",
            vertical=align,
        )
    for row in cells:
        grid.add_row(*row)
    least = _GAP * (len(wanted) - 1) + sum(
        width if widths or place in right else min(width, _LEAST_TEXT)
        for place, width in enumerate(wanted)
    )
    out = StringIO()
    console = Console(
        file=out, width=max(columns, least), color_system="standard", force_terminal=True,
        legacy_windows=False, _environ={},
    )  # fmt: skip
    console.print(grid, crop=False)
    return [line.rstrip(" ") for line in out.getvalue().split("\n")[:-1]]


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
