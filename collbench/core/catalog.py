"""Where the shipped profiles are: beside the package, or inside it in an installed wheel."""

import csv
import re
from pathlib import Path
from typing import Any

from collbench.core.errors import unknown
from collbench.core.files import user_folder
from collbench.core.pasted import plain_text, without_prefix
from collbench.core.reading import parse_toml, read_text

_PLACES = (
    Path(__file__).parent.parent / "profiles",
    Path(__file__).parent.parent.parent / "profiles",
)
_MOST_BYTES = 1 << 20  # of a profile; ours have less than 100 KiB
_MOST_TOLD_CHARS = 1 << 16  # of a text, by which it is told what it is
_KIND_NAMES = {
    "causes": "table of causes",
    "machines": "machine profile",
    "settings": "table",
    "sweeps": "preset",
    "tuning": "tuning file",
}


def names(kind: str) -> tuple[str, ...]:
    """Names of the shipped profiles of a kind: "machines", "settings", "spread", "sweeps" or
    "tuning".
    """
    return tuple(sorted(file.stem for place in _PLACES for file in (place / kind).glob("*.toml")))


def results() -> dict[str, Path]:
    """The shipped results, by name."""
    return {
        file.stem: file for place in _PLACES for file in sorted((place / "results").glob("*.csv"))
    }


def rows(kind: str, name: str) -> list[dict[str, str]]:
    """The lines of a shipped table in CSV, by its columns."""
    file = next(one for place in _PLACES if (one := place / kind / f"{name}.csv").is_file())
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def read_by(text: str, file: str, *asked: str) -> tuple[str, str] | None:
    """What a text is, and what to run for it; None if no row of causes/files fits. asked: commands
    that the row must not name, as they were given it.

    >>> read_by("# OSU MPI Latency Test", "a.txt", "log")
    ("a table of OSU's benchmarks", 'collbench compare a.txt reads it')
    """
    lines = plain_text(text[:_MOST_TOLD_CHARS]).split("\n")
    text = "\n".join((*lines, *without_prefix(lines)))
    for one in load("causes", "files")["files"]:
        others = {one.get("command"), *one.get("never", ())}
        if others.isdisjoint(asked) and re.search(one["pattern"], text, re.MULTILINE):
            return one["what"], one.get("to_do") or f"collbench {one['command']} {file} reads it"
    return None


def user_files(kind: str) -> tuple[str, ...]:
    """The user's own profiles of a kind, by path."""
    try:
        files = user_folder(kind).glob("*.toml")
    except RuntimeError:
        return ()
    return tuple(sorted(str(file) for file in files if file.is_file()))


def load(kind: str, name: str) -> dict[str, Any]:  # Any: values of TOML
    """A shipped profile by its name, or any file by its path. Raises UsageError if there is none or
    it is not TOML.
    """
    files = [place / kind / f"{name}.toml" for place in _PLACES]
    file = next((file for file in files if file.is_file()), Path(name))
    try:
        is_there = file.exists() and not file.is_dir()
    except OSError:  # reading it says why
        is_there = True
    if not is_there:
        raise unknown(f"file or {_KIND_NAMES[kind]}", name, names(kind))
    text = read_text(file, _MOST_BYTES, f"give a {_KIND_NAMES.get(kind, 'profile')}")
    return parse_toml(text, str(file))
