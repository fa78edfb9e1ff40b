"""Asks for one value after another. A value that cannot be read is None, and the reason is kept
under the value's name.
"""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Asker:
    """Collects values of one object, and why some are missing. errors: what a failing question
    raises.
    """

    def __init__(self, errors: tuple[type[Exception], ...]) -> None:
        self.errors = errors
        self.unknown: dict[str, str] = {}

    def ask(self, name: str, question: Callable[..., T], *args: Any) -> T | None:
        """What the question answers, or None."""
        try:
            return question(*args)
        except self.errors as error:
            self.unknown[name] = why(error)
            return None


def why(error: Exception) -> str:
    """The reason in words, without names of files."""
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
