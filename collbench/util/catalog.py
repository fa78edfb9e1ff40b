"""Where the shipped profiles are: beside the package in a checkout, inside it in an installed
wheel.
"""

import tomllib
from pathlib import Path
from typing import Any

from collbench.util.errors import UsageError, unknown

_PLACES = (
    Path(__file__).parent.parent / "profiles",
    Path(__file__).parent.parent.parent / "profiles",
)
_KIND_NAMES = {"machines": "machine profile", "sweeps": "preset"}


def names(kind: str) -> tuple[str, ...]:
    """Names of the shipped profiles of a kind: "machines", "sweeps" or "tuning"."""
    return tuple(sorted(file.stem for place in _PLACES for file in (place / kind).glob("*.toml")))


def results() -> dict[str, Path]:
    """The shipped results, by name."""
    return {
        file.stem: file for place in _PLACES for file in sorted((place / "results").glob("*.csv"))
    }


def load(kind: str, name: str) -> dict[str, Any]:  # Any: values of TOML
    """A shipped profile by its name, or any file by its path. Raises UsageError if there is none or
    it is not TOML.
    """
    files = [place / kind / f"{name}.toml" for place in _PLACES]
    file = next((file for file in files if file.is_file()), Path(name))
    try:
        return tomllib.loads(file.read_text())
    except (FileNotFoundError, IsADirectoryError):
        raise unknown(f"file or {_KIND_NAMES[kind]}", name, names(kind)) from None
    except (OSError, ValueError) as error:  # no text, no TOML, or a NUL in the name
        raise UsageError(f"cannot read {file}: {error}") from None
