"""What readers of JSON share: documents of a bounded size, and one error for what is none."""

import json
from collections.abc import Iterator
from typing import IO, Any

from collbench.core.errors import UsageError
from collbench.core.reading import parse_json
from collbench.jobs.formats import Opened

_LARGEST = 512 << 20  # characters of a document


def text_of(file: IO[str], name: str) -> str:
    """The whole text of a file. Raises UsageError if that is too long."""
    text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise UsageError(
            f"{name} has more than {_LARGEST >> 20} Mi characters", "give a trace of fewer steps"
        )
    return text


def document(file: IO[str], name: str, what: str) -> dict[str, Any]:  # Any: JSON
    """The object that a file is. Raises UsageError."""
    value = parse_json(text_of(file, name), name, _LARGEST)
    if isinstance(value, list):  # a trace may be its events alone
        value = {"traceEvents": value}
    if not isinstance(value, dict):
        raise UsageError(f"{name}: it is not {what}", "give the whole file")
    return value


def documents(file: IO[str], name: str) -> Iterator[dict[str, Any]]:  # Any: JSON
    """The objects of a file, one behind the other, in lines or not. Raises UsageError; a last one
    that is cut is left out.
    """
    text, decoder, at = text_of(file, name), json.JSONDecoder(), 0
    while (at := _next(text, at)) < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            if text.find("\n{", at + 1) < 0 and at:
                return
            line = text.count("\n", 0, at) + 1
            raise UsageError(f"{name}, line {line}: not JSON: {error}") from None
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                yield one


def _next(text: str, at: int) -> int:
    """The next character that is neither white nor between two objects."""
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def first_only(files: Opened) -> tuple[tuple[str, IO[str]], list[str]]:
    """The first file, whose rank stands for all, and a remark if there are more."""
    name, file = files[0]
    others = len(files) - 1
    remarks = [f"the rank of {name} stands for those of {others} other files"] if others else []
    return (name, file), remarks


def number_or_none(value: object) -> float | None:
    """A number of a file, which may be missing."""
    return float(value) if isinstance(value, int | float) and value == value else None
