"""Files from anyone as bytes, JSON or TOML: bounded in size and in depth, and every error names the
file.
"""

import io
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from collbench.util.errors import UsageError

STDIN = Path("/dev/stdin")
_PIECE_BYTES = 1 << 20
_DOTTED_KEY = re.compile(r"""(?:[ \t]{0,9}\.[ \t]{0,9}[\w"'-]{1,99}){64}""")
_MAX_DEPTH = 64  # ours have less than 10; Python shows no value of more than some 900


def read_bytes(file: Path, most_bytes: int) -> bytes:
    """The whole of a file or of a pipe; or more than `most_bytes` where it has more, as a device
    without an end has. Raises OSError or ValueError (a NUL in its name) if it cannot be read.
    """
    with file.open("rb") as opened:
        size = min(os.fstat(opened.fileno()).st_size, most_bytes)  # 0 of a pipe or a device
        data = io.BytesIO(opened.read(size))  # whose value is not copied
        data.seek(0, io.SEEK_END)
        # in pieces: read(n) takes memory for n bytes first
        while data.tell() <= most_bytes and (piece := opened.read(_PIECE_BYTES)):
            data.write(piece)
    return data.getvalue()


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
