"""Texts of files, of the environment and of people, as a terminal may see them."""

import re
from collections.abc import Iterable
from typing import Any, Protocol

# The colours of our own tables: those that click.style and report/ write.
_COLOURS = re.compile(r"(\x1b\[(?:[012]|[39][1-7])m)")


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


def some_of(names: Iterable[str], most: int) -> str:
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
