"""Documents that commands write to a file or to stdout."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from collbench import __version__
from collbench.core.errors import UnavailableError
from collbench.core.files import check_whole, write_whole
from collbench.core.screen import document_on_stdout, remark
from collbench.core.text import printable

_MOST_CHARS = 2000  # of a command line


@contextmanager
def named_in_errors(file: str | Path, option: str) -> Iterator[None]:
    """Turn an error of a file into UnavailableError, which names the file and its option."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise UnavailableError(
            f"cannot write {file}: {why}", f"give another file with {option}"
        ) from None


def check_writable(file: str | Path, option: str) -> None:
    """Raise UnavailableError before the work if a file cannot be written. It leaves no file."""
    with named_in_errors(file, option):
        check_whole(Path(file))


def result_json(data: object, *, machine: str = "", verdict: str = "") -> str:
    """A result as the JSON document that all commands write: who wrote it, the command, what it is
    of, the verdict of those that have one (else null), and the result itself.
    """
    document = {
        "tool": "collbench",
        "version": __version__,
        "command": command_line(),
        "machine": machine,
        "verdict": verdict or None,
        "data": data,
    }
    return json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n"


def command_line() -> str:
    """The command that runs, as one could type it again."""
    context = click.get_current_context(silent=True)
    arguments: tuple[str, ...] = (context.find_root().obj if context is not None else ()) or ()
    text = shlex.join(["collbench", *arguments])
    return printable(text if len(text) <= _MOST_CHARS else text[:_MOST_CHARS] + " ...")


def write_document(text: str, file: str, option: str) -> None:
    """Write to a file, or to stdout if it is `-`. Raises UnavailableError."""
    if file == "-":
        out = document_on_stdout()
        out.write(text)
        out.flush()
        return
    with named_in_errors(file, option):
        write_whole(Path(file), text.encode())
    remark(f"wrote {file}")
