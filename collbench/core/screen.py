"""Where text leaves for the screen. Every command says what it says through here, so that nothing
of a file, of the environment or of a command line reaches a terminal raw.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from threading import Event, Thread
from typing import IO, TextIO

import click

from collbench.core.launcher import is_first_rank, launcher
from collbench.core.text import TextTarget, one_line, printable, wrapped


def say(
    text: str = "", *, file: IO[str] | None = None, err: bool = False, color: bool = False
) -> None:
    """Print text and a line end, without what a terminal would obey. color: its colours are ours
    and stay. What goes to stderr is lost where nothing can be written: the exit code still tells.
    """
    with suppress(OSError) if err else nullcontext():
        click.echo(printable(text, has_colours=color), file=file, err=err, color=color)


def talk_beside(options: Mapping[str, object], *documents: str) -> TextIO:
    """Where to say things: on stderr where a document, which an option names, goes to stdout."""
    return sys.stderr if any(options.get(name) == "-" for name in documents) else sys.stdout


class _Terminal:
    """Stdout where somebody looks at it."""

    def write(self, text: str) -> object:
        return sys.stdout.write(printable(text))

    def flush(self) -> None:
        sys.stdout.flush()


def document_on_stdout() -> TextTarget:
    """What takes a document, or rows, for stdout: as they are, unless it is a terminal."""
    return _Terminal() if sys.stdout.isatty() else sys.stdout


def remark(text: str) -> None:
    """Print what a reader must know beside the data: a line on stderr, on one rank."""
    if is_first_rank():
        say(on_screen(one_line(f"# {text}"), sys.stderr, "#   "), err=True)


def on_screen(line: str, stream: IO[str], indent: str = "  ") -> str:
    """A line within the columns of the screen; through a pipe as it is."""
    if is_terminal(stream):
        return "\n".join(wrapped(line, width(stream), indent))
    return line


def width(stream: IO[str]) -> int:
    """Columns of the screen; through a pipe 80, unless COLUMNS says otherwise."""
    if is_terminal(stream) or "COLUMNS" in os.environ:
        return shutil.get_terminal_size((80, 24)).columns
    return 80


def is_terminal(stream: IO[str]) -> bool:
    """Whether somebody looks at the stream. A rank's terminal under a launcher is no such thing."""
    return stream.isatty() and launcher() is None


def is_coloured(color: str, stream: IO[str]) -> bool:
    """Whether a stream gets colours by the value of --color, and by NO_COLOR (no-color.org)."""
    is_wanted = is_terminal(stream) and not os.environ.get("NO_COLOR")
    return color == "always" or (color == "auto" and is_wanted)


FIRST_S, SHORTEST_S, LONGEST_S = 2.0, 10.0, 60.0  # until the first remark, and between others


class Remarks:
    """Remarks at growing intervals: `due` says whether it is time for one."""

    def __init__(self, first_s: float = SHORTEST_S) -> None:
        self._interval_s = SHORTEST_S
        self._next = time.monotonic() + first_s

    def due(self) -> bool:
        """Whether to make a remark now; the next is due later then."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._interval_s
        self._interval_s = min(2 * self._interval_s, LONGEST_S)
        return True


@contextmanager
def activity_shown(what: Callable[[], str]) -> Iterator[None]:
    """Show what is going on while the body runs, which may be one long call. Nothing may be forked
    meanwhile: a thread does it, which is over at the end.
    """
    is_over = Event()

    def show() -> None:
        if not is_terminal(sys.stderr):
            remarks = Remarks(FIRST_S)
            while not is_over.wait(0.2):
                if remarks.due():
                    remark(what())
            return
        if is_over.wait(FIRST_S):
            return
        from rich.console import Console

        with Console(stderr=True).status(what()) as status:
            while not is_over.wait(0.2):
                status.update(what())

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
