"""Documents that commands write to a file or to stdout."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from collbench.cli._options import remark
from collbench.util.errors import UnavailableError


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
    """Raise UnavailableError before the work if a file cannot be written. It creates no file."""
    with named_in_errors(file, option):
        place = Path(file).resolve()
        if not place.exists():
            place.touch()
            place.unlink()
        elif not place.is_fifo():  # opening a FIFO waits for a reader
            place.open("a").close()


def write_document(text: str, file: str, option: str) -> None:
    """Write to a file, or to stdout if it is `-`. Raises UnavailableError."""
    if file == "-":
        click.echo(text, nl=False)
        return
    with named_in_errors(file, option):
        Path(file).write_text(text, encoding="utf-8")
    remark(f"wrote {file}")
