"""Option types that commands share, whose errors name the option and what is allowed."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from collbench.core.errors import CollbenchError, UsageError, did_you_mean
from collbench.core.options import DEFAULT_FACTOR, MAX_COUNT, MAX_S, flag
from collbench.core.units import parse_size, parse_whole

Item = TypeVar("Item")
Parameter: TypeAlias = click.Parameter | None
Context: TypeAlias = click.Context | None
F = TypeVar("F", bound=Callable[..., object] | click.Command)
_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?(s|m|min|h|)")
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}
_WIDEST = 40  # metavar of the help
SIZES_HELP = "Sizes in bytes and ranges of them, each size 4 times the one before (1K:1M:x2: twice)"
MAX_RANKS = 4096  # schedules of more take minutes to build and to check


class FileName(click.ParamType):  # type: ignore[type-arg]
    """The name of a file, which need not exist, or `-`; a directory and an empty name are none."""

    name = "file"

    def convert(self, value: object, param: Parameter, ctx: Context) -> str:
        text = str(value)
        if not text:
            raise _bad(param, "an empty name of a file", "give the name of a file")
        with suppress(OSError, ValueError):  # too long, or a NUL in it
            if text.endswith("/") or Path(text).is_dir():
                raise _bad(param, f"{text} is a directory", "give the name of a file")
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class FolderName(click.Path):
    """The name of a folder, which need not exist; a file and an empty name are none."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: Parameter, ctx: Context) -> Any:  # Any: as of click.Path
        if not str(value) or Path(value).is_file():
            what = f"{value} is a file" if str(value) else "an empty name of a folder"
            raise _bad(param, what, "give the name of a folder")
        return super().convert(value, param, ctx)


class OutputFile(FileName):
    """A file that the command writes. marks: texts near the beginning or the end of what it writes
    there, by which an older one is known; none where it appends, and refuses what it cannot
    append to.
    """

    def __init__(self, *marks: str) -> None:
        self.marks = marks

    def convert(self, value: object, param: Parameter, ctx: Context) -> str:
        if str(value).startswith("@"):
            name = f"{value} is the name of a saved run"
            raise _bad(param, name, f"give ./{value} for a file of that name")
        return super().convert(value, param, ctx)


PAGE = '<meta name="generator" content="collbench'  # of every page
DRAWING = '<svg class="collbench"'
VERSION = '"collbench": "'  # of traces


class ListOf(click.ParamType, Generic[Item]):  # type: ignore[type-arg]
    """A comma list of values read by `parse`; `all` stands for every one of `choices`, whose names
    are read in any case, or for each of `all_choices`. One that is given twice counts once, or is
    refused.
    """

    def __init__(
        self,
        name: str,
        parse: Callable[[str], Item],
        choices: Sequence[Item] = (),
        all_choices: Sequence[Item] = (),
        *,
        keeps_repeats: bool = False,
    ) -> None:
        self.name, self._parse, self._choices = name, parse, tuple(choices)
        self._all = tuple(all_choices) or self._choices
        self._keeps_repeats = keeps_repeats

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"{self.name.upper()}[,...]"

    def convert(self, value: object, param: Parameter, ctx: Context) -> tuple[Item, ...]:
        if isinstance(value, tuple):
            return value
        text = str(value)
        if self._all and text.lower() == "all":
            return self._all
        items = [item.strip() for item in text.split(",")]
        if self._all and "all" in map(str.lower, items):
            raise _bad(param, "'all' stands alone", "leave out what is beside it, or all")
        values = [self._read(item, param) for item in items]
        return tuple(values if self._keeps_repeats else dict.fromkeys(values))

    def _read(self, item: str, param: Parameter) -> Item:
        try:
            value = self._parse(item.lower() if self._choices else item)
        except CollbenchError as error:
            raise _bad(param, error.message, error.hint) from None
        return value if value in (self._choices or (value,)) else self._read_other(item, param)

    def _read_other(self, item: str, param: Parameter) -> Item:
        """An item that is none of the choices."""
        raise _not_allowed(param, item, [*map(str, self._choices), "all"])

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The choices, for the last item of the list."""
        before, comma, last = incomplete.rpartition(",")
        names = [*map(str, self._choices), *(["all"] if self._choices and not before else [])]
        return [
            CompletionItem(before + comma + name)
            for name in names
            if name.lower().startswith(last.lower())
        ]


class OneOf(click.Choice):  # type: ignore[type-arg]
    """One of some names, in any case; the help names those that are too many for its line."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        names = f"[{'|'.join(self.choices)}]"
        return names if len(names) <= _WIDEST else str(param.name).upper()

    def convert(self, value: object, param: Parameter, ctx: Context) -> str:
        if str(value).lower() not in self.choices:
            raise _not_allowed(param, str(value), self.choices)
        return str(value).lower()


class Profile(click.ParamType):  # type: ignore[type-arg]
    """A shipped profile by its name, in any case, or a file."""

    def __init__(self, name: str, names: Callable[[], Iterable[str]]) -> None:
        self.name, self._names = name, names

    def convert(self, value: object, param: Parameter, ctx: Context) -> str:
        name = str(value).lower()
        if not name:
            raise _bad(param, "an empty name", "give a name or a file")
        return name if name in self._names() else str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The shipped names, or files where none begins so."""
        names = [name for name in self._names() if name.startswith(incomplete.lower())]
        return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


class Size(click.ParamType):  # type: ignore[type-arg]
    """Bytes with an optional suffix."""

    name = "size"

    def convert(self, value: object, param: Parameter, ctx: Context) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(str(value))
        except CollbenchError as error:
            raise _bad(param, error.message, error.hint) from None


class Sizes(ListOf[tuple[int, ...]]):
    """Sizes and ranges of sizes, such as 1K:16M or 1K:16M:x2, in the order in which they stand."""

    def __init__(self) -> None:
        super().__init__("sizes", _sizes)

    def convert(  # type: ignore[override]
        self, value: object, param: Parameter, ctx: Context
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(dict.fromkeys(chain.from_iterable(super().convert(value, param, ctx))))


def _sizes(text: str) -> tuple[int, ...]:
    from collbench.bench.sweep import sizes_between

    first, *rest = text.split(":")
    if not rest:
        return (parse_size(first),)
    last, *factor = rest
    if len(factor) > 1 or (factor and not re.fullmatch(r"x\d{1,6}(\.\d{1,6})?", factor[0])):
        raise UsageError(f"'{text}' is no range of sizes", "for example 1K:16M or 1K:16M:x2")
    least, most = parse_size(first), parse_size(last)
    times = float(factor[0][1:]) if factor else DEFAULT_FACTOR
    if not 0 < least <= most or times <= 1:
        raise UsageError(f"'{text}' has no sizes", "for example 1K:16M or 1K:16M:x2")
    return sizes_between(least, most, factor=times)


# Any in the next two: click gives text to ranges, and types it as their number.
class Whole(click.IntRange):
    """A whole number in a range, which begins at 0 or above."""

    def convert(self, value: Any, param: Parameter, ctx: Context) -> int:
        number = parse_whole(str(value))
        if number is not None:
            with suppress(click.BadParameter):
                return int(super().convert(number, param, ctx))
        raise _out_of_range(param, value, "a whole number", self)


class Finite(click.FloatRange):
    """A number in a range; `nan`, which compares with nothing, and `inf` are none."""

    def convert(self, value: Any, param: Parameter, ctx: Context) -> float:
        with suppress(click.BadParameter):
            number = float(super().convert(value, param, ctx))
            if math.isfinite(number):
                return number
        raise _out_of_range(param, value, "a number", self)


def _budget(text: str) -> float:
    """Seconds, or a number with s, m or h. Raises UsageError."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < seconds <= MAX_S:
        raise UsageError(f"--budget: '{text}' is no duration", "for example 90, 120s or 2m")
    return seconds


def budget_option(what: str, default: str = "none") -> Callable[[F], F]:
    """How long a command may measure. default: what its absence means, or "none"."""
    return click.option(
        "--budget",
        type=_budget,
        default=None if default == "none" else default,
        metavar="TIME",
        help=f"{what}, for example 90, 120s or 2m. Default: {default}.",
    )


def json_option(command: str, what: str) -> Callable[[F], F]:
    """The result of a command as JSON; without a file on stdout."""
    return click.option(
        "--json",
        metavar="[FILE]",
        is_flag=False,
        flag_value="-",
        type=OutputFile('"tool": "collbench"', f'"command": "collbench {command}'),
        help=f"Write {what} as JSON, for example to {command}.json; - or no file is stdout.",
    )


def csv_option() -> Callable[[F], F]:
    """The file of the rows, of commands that measure."""
    return click.option(
        "--csv",
        type=OutputFile(),
        help=(
            "File that every row is appended to as it is measured, for example out.csv; - is"
            " stdout. Default: none."
        ),
    )


def assessment_options(command: str, *, has_hosts: bool) -> Callable[[F], F]:
    """The files of what a command judged (core/assessment.py). has_hosts: it names bad ones."""
    marks = {
        "junit": f'<testsuite name="collbench {command}:',
        "prometheus": f'collbench_verdict{{command="{command}"',
        "bad": "bad: ",
    }
    helps = {
        "junit": "Write a JUnit test case for each line, for example to junit.xml; - is stdout.",
        "prometheus": (
            "Write gauges for the textfile collector of node_exporter, for example to"
            f" collbench-{command}.prom; - is stdout."
        ),
        "bad": "Write the bad hosts as `bad: h[003,017]`, for example to bad.txt; - is stdout.",
    }

    def decorated(function: F) -> F:
        for name in ("junit", "prometheus", *(("bad",) if has_hosts else ())):
            function = click.option(
                f"--{name}", metavar="FILE", type=OutputFile(marks[name]), help=helps[name]
            )(function)
        return function

    return decorated


def color_option(purpose: str) -> Callable[[F], F]:
    """Whether the output has colours, and for what."""
    return click.option(
        "--color",
        type=OneOf(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help=f"{purpose}; auto: in a terminal, unless NO_COLOR is set.",
    )


def _bad(param: Parameter, message: str, hint: str) -> UsageError:
    return UsageError(f"{flag(param)}: {message}" if param is not None else message, hint)


def _not_allowed(param: Parameter, value: str, choices: Sequence[str]) -> UsageError:
    """The error for a value that is none of the choices."""
    return _bad(
        param,
        f"'{value}' is not one of {', '.join(choices)}",
        "sweep and replay measure kernels of files"
        if value.endswith(".py")
        else did_you_mean(value, choices) or "choose one of these",
    )


def _out_of_range(
    param: Parameter, value: object, what: str, limits: click.IntRange | click.FloatRange
) -> UsageError:
    """The error for a number that is none, or outside of its limits."""
    allowed = f"{what} from {limits.min:g}" + (
        f" to {limits.max:.10g}" if limits.max is not None else " on"
    )
    example = limits.min or (10 if limits.max is None or limits.max >= 10 else limits.max)
    return _bad(param, f"'{value}' is not {allowed}", f"for example {example:g}")


def whole(
    least: int, hint: str, most: int = MAX_COUNT, what: str = "whole number"
) -> Callable[[str], int]:
    """What reads a whole number between two. It raises UsageError."""

    def read(text: str) -> int:
        number = parse_whole(text)
        if number is None or not least <= number <= most:
            raise UsageError(f"'{text}' is not a {what} from {least} to {most}", hint)
        return number

    return read


natural, positive = whole(0, "for example 0 or 2"), whole(1, "for example 1 or 8")


def some_bytes(text: str) -> int:
    """Bytes, more than none. Raises UsageError."""
    if (size_bytes := parse_size(text)) == 0:
        raise UsageError(f"'{text}' has no room for data", "give more bytes, or leave it out")
    return size_bytes
