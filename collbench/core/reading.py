"""Files from anyone: bounded in size and depth, unpacked, and every error names the file."""

import codecs
import errno
import io
import json
import os
import re
import stat
import tomllib
import zlib
from pathlib import Path
from typing import IO, Any, NoReturn

from collbench.core.errors import UsageError

_PIECE_BYTES = 1 << 20
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\0"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_DOTTED_KEY = re.compile(r"""(?:[ \t]{0,9}\.[ \t]{0,9}[\w"'-]{1,99}){64}""")
_MAX_DEPTH = 64  # ours have less than 10; Python shows no value of more than some 900


def read_bytes(file: Path, most_bytes: int) -> bytes:
    """The whole of a file or of a pipe; or more than `most_bytes` where it has more, as a device
    without an end has. Raises OSError or ValueError (a NUL in its name) if it cannot be read.
    """
    with file.open("rb") as opened:
        size = min(os.fstat(opened.fileno()).st_size, most_bytes)  # 0 of a pipe or a device
        return _all_of(opened, size, most_bytes)


def read_state(file: Path, most_bytes: int) -> bytes:
    """The same of a file that we keep ourselves. Anything but a regular file is refused, so that
    nothing waits for a writer of a FIFO.
    """
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(file))
        return _all_of(opened, 0, most_bytes)


def _all_of(opened: IO[bytes], first: int, most_bytes: int) -> bytes:
    data = io.BytesIO(opened.read(first))  # whose value is not copied
    data.seek(0, io.SEEK_END)
    # in pieces: read(n) takes memory for n bytes first
    while data.tell() <= most_bytes and (piece := opened.read(_PIECE_BYTES)):
        data.write(piece)
    return data.getvalue()


def read_content(file: Path | str, most_bytes: int, hint: str) -> bytes:
    """The content of a user's file, or of stdin (`-`): out of gzip or xz, and in UTF-8 without a
    mark where it was UTF-16, as PowerShell redirects.

    Raises UsageError if it cannot be read, is empty, or has more bytes than that.
    """
    name = "stdin" if str(file) == "-" else str(file)
    try:
        if Path(file).is_dir():
            raise UsageError(f"{name} is a directory", hint)
        with unpacked(file) as opened:
            size = 0 if isinstance(opened.raw, _Unpacked) else os.fstat(opened.fileno()).st_size
            data = _all_of(opened, min(size, most_bytes), most_bytes)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {name}: {why}", hint) from None
    if len(data) > most_bytes:
        raise UsageError(f"{name} has more than {most_bytes >> 20} MiB", hint)
    if (encoding := encoding_of(data)) != "utf-8":
        data = data.decode(encoding, errors="replace").encode()
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data or data.isspace():
        raise UsageError(f"{name} is empty", hint)
    return data


def encoding_of(data: bytes) -> str:
    """How a text is encoded, by the mark at its beginning."""
    return "utf-16" if data.startswith(_UTF16) else "utf-8"


def read_text(file: Path | str, most_bytes: int, hint: str) -> str:
    """The same as text. Raises UsageError also for what is none."""
    data, name = read_content(file, most_bytes, hint), "stdin" if str(file) == "-" else str(file)
    if b"\0" in data:
        raise UsageError(f"{name}, byte {data.index(0)}: binary data, not text", hint)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name}, byte {error.start}: not UTF-8 text", "save it as UTF-8"
        ) from None


def unpacked(file: Path | str) -> "io.BufferedReader[Any]":
    """A file, or stdin (`-`), opened; gzip and xz are unpacked as they are read, which raises
    UsageError where they are damaged. Raises OSError, also for a device that may have no end, or
    ValueError.
    """
    raw = io.FileIO(0 if str(file) == "-" else file, closefd=str(file) != "-")
    if _may_be_endless(raw):
        raw.close()
        raise OSError(errno.EINVAL, "it is a device, not a file", str(file))
    opened: io.BufferedReader[Any] = io.BufferedReader(raw)
    try:
        head = opened.peek(len(_XZ))
    except OSError:
        opened.close()
        raise
    if head.startswith(_GZIP):
        import gzip

        inner, errors = gzip.GzipFile(fileobj=opened), (gzip.BadGzipFile, zlib.error)
        return io.BufferedReader(_Unpacked(inner, opened, str(file), errors))
    if head.startswith(_XZ):
        import lzma

        return io.BufferedReader(
            _Unpacked(lzma.LZMAFile(opened), opened, str(file), (lzma.LZMAError, MemoryError))
        )
    return opened


def _may_be_endless(raw: io.FileIO) -> bool:
    """Whether it is a device other than a terminal and the one that is empty."""
    status = os.fstat(raw.fileno())
    is_device = stat.S_ISCHR(status.st_mode) and status.st_rdev != Path(os.devnull).stat().st_rdev
    return is_device and not raw.isatty()


class _Unpacked(io.RawIOBase):
    """What is in an archive of one file. errors: that its reading raises where it is damaged."""

    def __init__(
        self,
        inner: io.BufferedIOBase,
        packed: IO[bytes],
        name: str,
        errors: tuple[type[Exception], ...],
    ) -> None:
        self._inner, self._packed, self._name = inner, packed, name
        self._errors: tuple[type[Exception], ...] = (EOFError, *errors)

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._packed.fileno()

    def readinto(self, buffer: Any) -> int:  # Any: a memoryview
        try:
            data = self._inner.read(len(buffer))
        except self._errors as error:
            name = "stdin" if self._name == "-" else self._name
            why = f"{name}: it cannot be unpacked: {error}"
            raise UsageError(why, "give the whole file") from None
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._inner.close()
        self._packed.close()
        super().close()


def parse_json(text: str, name: str, most_chars: int) -> object:
    """The value of a file's text. Raises UsageError with line and column."""

    def no_number(constant: str) -> NoReturn:
        raise UsageError(f"{name}: {constant} is no number of JSON")

    if len(text) > most_chars:
        raise UsageError(f"{name} has more than {most_chars >> 20} Mi characters: that is too long")
    try:
        value: object = json.loads(text, parse_constant=no_number)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{name}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}",
            "is the file cut off?",
        ) from None
    except RecursionError:
        raise _too_deep(name) from None
    except ValueError:
        raise UsageError(f"{name}: a number has too many digits", "mend the file") from None
    _check_depth(value, name)
    return value


def parse_toml(text: str, name: str) -> dict[str, Any]:  # Any: values of TOML
    """The tables of a file's text. Raises UsageError."""
    if _DOTTED_KEY.search(text):  # whose reading takes the square of its parts
        raise _too_deep(name)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name}: not TOML: {error}") from None
    except RecursionError:
        raise _too_deep(name) from None
    except ValueError:
        raise UsageError(f"{name}: a number has too many digits", "mend the file") from None
    _check_depth(table, name)
    return table


def _check_depth(value: object, name: str, left: int = _MAX_DEPTH) -> None:
    """Raise UsageError if lists and tables nest too deep to be shown in a message."""
    if isinstance(value, dict | list):
        if left == 0:
            raise _too_deep(name)
        for one in value.values() if isinstance(value, dict) else value:
            _check_depth(one, name, left - 1)


def _too_deep(name: str) -> UsageError:
    return UsageError(f"{name}: nests too deep", f"at most {_MAX_DEPTH} levels are read")
