"""Lines of tables of plain text whose names may be longer than their column. Pure text.

rich makes those that do not fit, or that have colours; the others take a tenth of its time.
"""

import textwrap
from collections.abc import Collection, Iterable, Sequence
from io import StringIO

from collbench.core.text import printable

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
    lines = _in_columns([heads, *rows] if any(heads) else rows, heads, right)
    if max(map(len, lines), default=0) <= columns and all(
        text.isascii() and text.isprintable() for row in rows for text in row
    ):
        return lines

    from rich.console import Console  # here: loading it takes longer than most tables
    from rich.table import Table
    from rich.text import Text

    def cell(text: str) -> Text:
        if text.isprintable():  # from_ansi takes twice the time
            return Text(text)
        return Text.from_ansi(printable(text, has_colours=True))

    cells = [list(map(cell, row)) for row in rows]
    titles = [Text(head) for head in heads]
    widths = [max(cell.cell_len for cell in column) for column in zip(titles, *cells, strict=True)]
    gaps = _GAP * (len(heads) - 1)
    is_whole = sum(widths) + gaps <= columns
    grid = Table(
        box=None, padding=(0, _GAP, 0, 0), pad_edge=False, show_header=any(heads), header_style=""
    )
    for place, (title, width) in enumerate(zip(titles, widths, strict=True)):
        grid.add_column(
            title,
            justify="right" if place in right else "left",
            width=width if is_whole or place in right else None,
            overflow="fold",
        )
    for row in cells:
        grid.add_row(*row)
    least = gaps + sum(
        width if place in right else min(width, _LEAST_TEXT) for place, width in enumerate(widths)
    )
    out = StringIO()
    console = Console(
        file=out, width=max(columns, least), color_system="standard", force_terminal=True,
        legacy_windows=False, _environ={},
    )  # fmt: skip
    console.print(grid, crop=False)
    return [line.rstrip(" ") for line in out.getvalue().split("\n")[:-1]]


def _in_columns(
    rows: Sequence[Sequence[str]], heads: Sequence[str], right: Collection[int]
) -> list[str]:
    """Columns as wide as their longest texts, where each character takes one."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    aligned = [
        f"{{:{'>' if place in right else '<'}{width}}}" for place, width in enumerate(widths)
    ]
    line = (" " * _GAP).join(aligned)
    return [line.format(*row).rstrip(" ") for row in rows]


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
