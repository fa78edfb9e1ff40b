"""Parsing JSON from anyone: bounded, and every error names the file."""

import json
from typing import NoReturn

from collbench.util.errors import UsageError


def parse_json(text: str, name: str, most_chars: int) -> object:
    """The value of a file's text. Raises UsageError with line and column."""

    def no_number(constant: str) -> NoReturn:
        raise UsageError(f"{name}: {constant} is no number of JSON")

    if len(text) > most_chars:
        raise UsageError(f"{name} has more than {most_chars >> 20} Mi characters: that is too long")
    try:
        return json.loads(text, parse_constant=no_number)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{name}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}",
            "is the file cut off?",
        ) from None
    except RecursionError:
        raise UsageError(f"{name}: nests too deep") from None
    except ValueError:
        raise UsageError(f"{name}: a number has too many digits") from None
