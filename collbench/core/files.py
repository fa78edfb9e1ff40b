"""Files that are written as a whole or not at all, the documents that commands write to them or to
stdout, and where the user's state is kept.
"""

import json
import os
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Literal

import click

from collbench import __version__
from collbench.core.errors import UnavailableError
from collbench.core.screen import document_on_stdout, remark
from collbench.core.text import printable

JSON_SCHEMA = 1  # of what commands write: docs/reference/json.md says when it rises
_MOST_CHARS = 2000  # of a command line
WholeVerdict = Literal["PASS", "WARN", "FAIL", "UNKNOWN"]


def state_folder() -> Path:
    """Where the user's state is kept. Raises RuntimeError if there is no home."""
    return own_folder("XDG_STATE_HOME", ".local/state")


def own_folder(variable: str, default: str) -> Path:
    """Our own folder in the one that a variable names, or else in a folder of the home. Raises
    RuntimeError if there is no home.
    """
    named = os.environ.get(variable, "")
    # the standard takes no relative folder
    return (Path(named) if named.startswith("/") else _home() / default) / "collbench"


def _home() -> Path:
    """The user's home. Raises RuntimeError if there is none, or one of another user, as where a
    container has HOME=/root for everybody.
    """
    home = Path("~").expanduser()
    try:
        is_closed = home.exists() and not os.access(home, os.X_OK)
    except PermissionError:
        is_closed = True
    if is_closed:
        _tell(f"HOME {home} may not be entered: nothing is kept, and no own file is read")
        raise RuntimeError(f"{home} may not be entered")
    return home


@cache
def _tell(text: str) -> None:
    """A remark, once."""
    remark(text)


def user_folder(kind: str) -> Path:
    """Where the user's own profiles of a kind are: ~/.config/collbench/KIND, or in the folder that
    XDG_CONFIG_HOME names. Raises RuntimeError if there is no home.
    """
    return own_folder("XDG_CONFIG_HOME", ".config") / kind


def write_whole(file: Path, data: bytes) -> None:
    """Write a file beside its old content and rename it, so that a full disk or a crash leaves the
    old one, with its rights and its owner. Of a symbolic link the target is replaced.

    FIFOs, devices, and what stdout or stderr goes to are written straight through. Raises OSError.
    """
    old = _status(file)
    if old is not None and (stream := _stream(file, old)) is not None:
        with stream as through:
            through.write(data)
        return
    place = _writable_place(file)
    draft = _draft(place)
    try:
        with draft.open("xb") as out:
            if old is not None:
                with suppress(PermissionError):  # the file of somebody else becomes ours
                    os.fchown(out.fileno(), old.st_uid, old.st_gid)
                os.fchmod(out.fileno(), stat.S_IMODE(old.st_mode))
            out.write(data)
            out.flush()
            os.fsync(out.fileno())  # a network's file system may find its disk full only now
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)


_ENDS_BYTES = 8192  # at the beginning and at the end of a file, where it says what it is


def is_foreign(file: Path, marks: Sequence[str]) -> bool:
    """Whether a file has something in it, and lacks one of the marks of what would replace it.
    FIFOs and devices are never foreign, nor is what cannot be read.
    """
    with suppress(OSError, ValueError):  # ValueError: a NUL in the name
        if not stat.S_ISREG(file.stat().st_mode):
            return False
        with file.open("rb") as old:
            text = old.read(_ENDS_BYTES)
            old.seek(max(0, file.stat().st_size - _ENDS_BYTES))
            text += old.read(_ENDS_BYTES)
        return bool(text) and not all(mark.encode() in text for mark in marks)
    return False


def check_whole(file: Path) -> None:
    """Raise OSError if write_whole would, as far as one can know before. It leaves no file."""
    old = _status(file)
    if old is not None and not _is_replaced(old):
        if stat.S_ISCHR(old.st_mode):  # opening a FIFO waits for a reader
            with file.open("ab", buffering=0) as device:
                device.write(b"")  # /dev/full refuses even that
        return
    draft = _draft(_writable_place(file))
    try:
        draft.touch(exist_ok=False)
    finally:
        draft.unlink(missing_ok=True)


def _stream(file: Path, status: os.stat_result) -> IO[bytes] | None:
    """What takes data as it comes, opened: a FIFO, a device, what stdout or stderr goes to. None
    for any other file.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # it is closed, or no file
            stream.flush()
            if os.path.samestat(status, os.fstat(stream.fileno())):
                return os.fdopen(os.dup(stream.fileno()), "ab")
    return None if _is_replaced(status) else file.open("ab")


def _is_replaced(status: os.stat_result) -> bool:
    """Whether a file of that kind is replaced, or refused: no FIFO and no device."""
    return stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)


def _status(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except FileNotFoundError:
        return None


def _writable_place(file: Path) -> Path:
    """Where the file itself is. Raises OSError for a read-only one, which renaming replaces."""
    place = file.resolve()
    if place.exists():
        place.open("ab").close()
    return place


def _draft(place: Path) -> Path:
    """A new name beside a file, of a length that every file system takes."""
    return place.with_name(f".collbench-{os.urandom(8).hex()}")


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


def check_files(options: Mapping[str, object], *names: str) -> None:
    """Raise UnavailableError before the work if a file that an option names cannot be written."""
    for name in names:
        if options.get(name) not in (None, "-"):
            check_writable(str(options[name]), f"--{name}")


def result_json(data: object, *, machine: str = "", verdict: WholeVerdict | None = None) -> str:
    """A result as the JSON document that all commands write: who wrote it, in which schema, the
    command, what it is of, the verdict of those that judge (else null), and the result itself.
    """
    document = {
        "tool": "collbench",
        "schema": JSON_SCHEMA,
        "version": __version__,
        "command": command_line(),
        "machine": machine,
        "verdict": verdict,
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
