"""Option types that commands share: comma lists with `all`, sizes, and the screen to write to."""

import math
import os
import shutil
from collections.abc import Callable, Sequence
from typing import IO, Any, Generic, TypeVar

import click

from collbench.launch.launcher import launcher
from collbench.util.errors import CollbenchError, UsageError
from collbench.util.units import parse_size

T = TypeVar("T")


class ListOf(click.ParamType, Generic[T]):  # type: ignore[type-arg]
    """A comma list of values read by `parse`; `all` stands for every one of `choices`. One that is
    given twice counts once, or is refused.
    """

    def __init__(
        self,
        name: str,
        parse: Callable[[str], T],
        choices: Sequence[T] = (),
        *,
        is_each_once: bool = False,
    ) -> None:
        self.name, self._parse, self._choices, self._is_each_once = (
            name,
            parse,
            tuple(choices),
            is_each_once,
        )

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"{self.name.upper()}[,...]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[T, ...]:
        if isinstance(value, tuple):
            return value
        if value == "all" and self._choices:
            return self._choices
        found: list[T] = []
        for item in str(value).split(","):
            try:
                found.append(self._parse(item.strip()))
            except CollbenchError as error:
                self.fail(
                    f"{error.message}: {error.hint}" if error.hint else error.message, param, ctx
                )
            if self._choices and found[-1] not in self._choices:
                self.fail(
                    f"'{item}' is not one of {', '.join(map(str, self._choices))}, all", param, ctx
                )
            if self._is_each_once and found[-1] in found[:-1]:
                self.fail(f"'{item}' is given twice", param, ctx)
        return tuple(dict.fromkeys(found))


class Size(click.ParamType):  # type: ignore[type-arg]
    """Bytes with an optional suffix."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(str(value))
        except CollbenchError as error:
            self.fail(f"{error.message}: {error.hint}", param, ctx)


class Finite(click.FloatRange):
    """A number in a range; `nan`, which compares with nothing, and `inf` are none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


def natural(text: str) -> int:
    """A whole number from 0 on. Raises UsageError."""
    if not text.isdecimal():
        raise UsageError(f"'{text}' is not a whole number from 0 on")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1 on. Raises UsageError."""
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"'{text}' is not a whole number from 1 on")
    return int(text)


def some_bytes(text: str) -> int:
    """Bytes, more than none. Raises UsageError."""
    if (size_bytes := parse_size(text)) == 0:
        raise UsageError(f"'{text}' has no room for data", "give more bytes, or leave it out")
    return size_bytes


def width(stream: IO[str]) -> int:
    """Columns of the screen; through a pipe 80, unless COLUMNS says otherwise."""
    return (
        shutil.get_terminal_size((80, 24)).columns
        if is_terminal(stream) or "COLUMNS" in os.environ
        else 80
    )


def is_terminal(stream: IO[str]) -> bool:
    """Whether somebody looks at the stream. A rank's terminal under a launcher is no such thing."""
    return stream.isatty() and launcher() is None


def bars(stream: IO[str]) -> str:
    """Eight characters of growing height (or weight) that the stream's encoding can show."""
    from collbench.report.plots.sparkline import ASCII, BLOCKS

    try:
        BLOCKS.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS
