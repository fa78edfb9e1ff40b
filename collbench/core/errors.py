"""Every error that collbench raises on purpose, each with the exit code that the command line turns
it into.

    CollbenchError
    |-- UsageError           2  an option or a file says something that cannot be meant
    |   |-- ScheduleError    2  a schedule (or its layout) does not do what its collective asks for
    |   `-- NoRowError       1  a file of results says something, and has no row to compare
    |-- UnavailableError     3  this environment cannot run it
    |   `-- RefusedError     3  a library refuses one way of doing it
    `-- HangError           4  a deadline passed
        `-- RankLostError    4  a rank died or stopped

No error has the code 5, UNJUDGED_CODE: everything ran, and there was nothing, or too little, to
judge it by.

A message says what is wrong, the value, and what is allowed; the hint says what to do next. The
command line prints the two in two lines, with a class's general hint where an error has none.
"""

from collections.abc import Iterable
from difflib import get_close_matches

UNJUDGED_CODE = 5  # of a verdict that could not be given: neither good (0) nor bad (1)


class CollbenchError(Exception):
    """Base of all: a message, a hint, an exit code."""

    exit_code = 1
    general_hint = "report it as a bug of collbench, with the command line"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def text(self) -> str:
        """Message and hint in one line, as a row of results shows them."""
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.hint)


class UsageError(CollbenchError):
    """An option or a file says something that cannot be meant."""

    exit_code = 2
    general_hint = "correct what the message names; --help explains what is allowed"


class NoRowError(UsageError):
    """A file of results says something, and has no row to compare."""

    exit_code = 1


class ScheduleError(UsageError):
    """A schedule, or the layout it was given, does not do what its collective asks for."""

    general_hint = "correct what the message names; docs/explanation/proof.md lists what is proved"


class UnavailableError(CollbenchError):
    """The environment cannot run it."""

    exit_code = 3
    general_hint = "run 'collbench topo' to see what this machine has"


class RefusedError(UnavailableError):
    """A library refuses one point, or what it was forced to; others may be fine."""


class HangError(CollbenchError):
    """A deadline passed: somebody waited for something that never came.

    suspect: how far the waiter had come (the later, the larger), and the rank that it waited for.
    Of several waits the one that had come least far names the rank at the root.
    """

    exit_code = 4
    general_hint = "look first at the rank that the message names; fewer ranks narrow it down"

    def __init__(
        self, message: str, hint: str = "", suspect: tuple[tuple[int, ...], int] | None = None
    ) -> None:
        super().__init__(message, hint)
        self.suspect = suspect

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.hint, self.suspect)


class RankLostError(HangError):
    """A rank died or stopped answering."""


def first_line(error: Exception) -> str:
    """What a library says, without its traces; its kind where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is none of the known ones: it lists these, and its hint is the one
    that was probably meant.

    >>> unknown("protocol", "lll", ["simple", "ll", "ll128"]).text
    "there is no protocol 'lll' (choose from: simple, ll, ll128); did you mean ll?"
    """
    names = list(known)
    return UsageError(
        f"there is no {what} '{name}' (choose from: {', '.join(names)})",
        did_you_mean(name, names) or "choose one of these",
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question for the known name that is nearest to a mistyped one; empty if none is near."""
    near = get_close_matches(name.lower(), known, n=1)
    return f"did you mean {near[0]}?" if near else ""
