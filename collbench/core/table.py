"""Lines of tables of plain text whose names may be longer than their column. Pure text."""

import textwrap
from collections.abc import Collection, Sequence

NARROW_COLUMNS = 80  # of a pipe, and of what is not made for wider terminals


def wrapped(text: str, columns: int, indent: str = "  ") -> list[str]:
    """Lines of at most so many columns, unless a word is longer."""
    if 0 < len(text) <= columns and text.isprintable() and not text.endswith(" "):
        return [text]  # most texts, in a twentieth of the time
    return textwrap.wrap(
        text, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def named_lines(size: str, name: str, width: int, numbers: str, columns: int) -> list[str]:
    """A row: size, name, numbers. A name that its column cannot hold stands above its numbers, as
    its end distinguishes it from others.

    >>> (
    ...     named_lines("4M", "ring ll", 10, "12.0", 80),
    ...     named_lines("4M", "ring ll ch 16", 10, "12.0", 20),
    ... )
    (['    4M  ring ll     12.0'], ['    4M  ring ll ch', '        16', '                    12.0'])
    """
    if len(name) <= width:
        return [f"{size:>6}  {name:<{width}}  {numbers}"]
    return [*wrapped(f"{size:>6}  {name}", columns, " " * 8), f"{'':>6}  {'':<{width}}  {numbers}"]


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()
) -> list[str]:
    """Columns as wide as they need, those numbered in `right` set to the right. A head with spaces
    gives its column a least width.

    >>> table(("pair", "GB/s"), [("GPU0 - GPU1", "12.0")], right=(1,))
    ['pair         GB/s', 'GPU0 - GPU1  12.0']
    """
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return [
        "  ".join(
            f"{cell:>{width}}" if place in right else f"{cell:<{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip(" ")
        for row in (heads, *rows)
    ]


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
