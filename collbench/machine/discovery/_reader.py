"""Reads one value after another. A value that cannot be read is None, and the reason is kept under
the value's name.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class ValueReader:
    """Collects why values of one object are missing. errors: what a failing read raises."""

    def __init__(self, *errors: type[Exception]) -> None:
        self.errors = errors
        self.unknown: dict[str, str] = {}

    def read(self, name: str, function: Callable[..., T], *args: object) -> T | None:
        """What the function returns, or None."""
        try:
            return function(*args)
        except self.errors as error:
            self.unknown[name] = reason_of(error)
            return None


def reason_of(error: Exception) -> str:
    """The reason of an error, without names of files."""
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
