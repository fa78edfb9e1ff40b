"""Documents that commands write to a file or to stdout."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collbench.core.errors import UnavailableError
from collbench.core.files import check_whole, write_whole
from collbench.core.screen import document_on_stdout, remark


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
