"""Where text leaves for the screen. Every command says what it says through here, so that nothing
of a file, of the environment or of a command line reaches a terminal raw.
"""

import sys
from contextlib import nullcontext, suppress
from typing import IO

import click

from collbench.core.record import TextTarget
from collbench.core.text import printable


def say(
    text: str = "", *, file: IO[str] | None = None, err: bool = False, color: bool = False
) -> None:
    """Print text and a line end, without what a terminal would obey. color: its colours are ours
    and stay. What goes to stderr is lost where nothing can be written: the exit code still tells.
    """
    with suppress(OSError) if err else nullcontext():
        click.echo(printable(text, has_colours=color), file=file, err=err, color=color)


class _Terminal:
    """Stdout where somebody looks at it."""

    def write(self, text: str) -> object:
        return sys.stdout.write(printable(text))

    def flush(self) -> None:
        sys.stdout.flush()


def document_on_stdout() -> TextTarget:
    """What takes a document, or rows, for stdout: as they are, unless it is a terminal."""
    return _Terminal() if sys.stdout.isatty() else sys.stdout
