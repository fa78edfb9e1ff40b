"""What lines NCCL and RCCL print: the table profiles/logs/nccl.toml, searched by first words."""

import functools
import re
from typing import NamedTuple

from collbench.core import catalog

_FIRST = re.compile(r"\s*([A-Za-z]+|\S)")


class LineKind(NamedTuple):
    """One kind of line. first: words that it may begin with, none for any."""

    name: str
    first: tuple[str, ...]
    pattern: re.Pattern[str]


@functools.cache
def kinds() -> tuple[LineKind, ...]:
    """The kinds of the table, in its order."""
    table = catalog.load("logs", "nccl")
    parts: dict[str, str] = {}
    for name, pieces in table["parts"].items():
        parts[name] = _pattern(pieces, parts)
    return tuple(
        LineKind(
            one["name"],
            tuple(one.get("first", "").split()),
            re.compile(_pattern(one["pattern"], parts)),
        )
        for one in table["kinds"]
    )


def _pattern(pieces: str | list[str], parts: dict[str, str]) -> str:
    """A pattern in one piece or several, with the parts that it names in braces."""
    text = "".join(pieces)
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text


def first_word(text: str) -> str:
    """The word by which kinds are found: letters, "0" for a digit, or one other character.

    >>> [first_word(text) for text in ("  AllReduce: opCount", "24 coll", "[Rank 0]", "")]
    ['AllReduce', '0', '[', '']
    """
    match = _FIRST.match(text)
    if match is None:
        return ""
    return "0" if match[1].isdigit() else match[1]


@functools.lru_cache(4096)  # ranks print the same
def match_of(text: str) -> tuple[LineKind, re.Match[str]] | None:
    """The kind of a message; None if no kind says it.

    >>> kind, match = match_of("Ring 00 : 3 -> 0 -> 1")
    >>> kind.name, match["after"]
    ('ring', '1')
    """
    if text[:1] == " ":
        text = text.lstrip()
    for kind in _kinds_of(_first_of(text.partition(" ")[0])):
        match = kind.pattern.match(text)
        if match is not None:
            return kind, match
    return None


_first_of = functools.lru_cache(4096)(first_word)


@functools.lru_cache(4096)
def _kinds_of(first: str) -> tuple[LineKind, ...]:
    """Those that may begin with a word."""
    return tuple(kind for kind in kinds() if first in kind.first or not kind.first)
