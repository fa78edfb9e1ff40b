"""Checks that were saved as the reference of their machine, in a folder of the user's state beside
the saved runs: what a later check of the same machine is held against.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from collbench.core.codec import dumps, loads
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.files import check_whole, state_folder, write_whole
from collbench.core.reading import read_state

MOST_KEPT = 50
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheck:
    """A check that is a reference. machine: what tells machines and ways to start apart. started:
    ISO 8601. values: by the name of a finding and its unit.
    """

    machine: str
    started: str
    values: Mapping[str, float]

    @property
    def day(self) -> str:
        return self.started[:10]


class SavedValue(NamedTuple):
    """A number of a saved check, and its day."""

    value: float
    day: str


def reference_values(machine: str) -> dict[str, SavedValue]:
    """Of each number the value in the newest saved check of that machine that has it: one that was
    noise is missing in the check, and leaves the value before.
    """
    known = [one for file in _files() if (one := _read(file)) is not None]
    return {
        name: SavedValue(value, one.day)
        for one in sorted(known, key=lambda one: one.started)
        if one.machine == machine
        for name, value in one.values.items()
    }


def keep(check: SavedCheck, name: str) -> None:
    """Keep a check under a name of its own, and the newest others. Raises OSError or
    RuntimeError.
    """
    folder = _folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(folder / f"{name}.json", dumps(check))
    for old in sorted(_files(), key=lambda file: file.stat().st_mtime)[:-MOST_KEPT]:
        old.unlink(missing_ok=True)


def refuse_unkept() -> None:
    """Raise UnavailableError before the work if a check cannot be kept, in the words of `tune`."""
    try:
        folder = _folder()
        is_new = not folder.exists()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_whole(folder / "new.json")
        if is_new:
            folder.rmdir()
    except (OSError, RuntimeError) as error:
        why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise UnavailableError(f"what is found cannot be kept: {why}", "leave out --save") from None


def forget() -> int:
    """Remove what is kept of all machines; returns how many checks there were. Raises OSError."""
    files = _files()
    for file in files:
        file.unlink(missing_ok=True)
    return len(files)


def _folder() -> Path:
    # what is in "checks" there was kept by earlier versions without being asked
    return state_folder() / "references"


def _files() -> list[Path]:
    with suppress(OSError, RuntimeError):
        return [file for file in _folder().iterdir() if file.suffix == ".json" and file.is_file()]
    return []


def _read(file: Path) -> SavedCheck | None:
    """The check in a file, None where it is missing or broken."""
    try:
        text = read_state(file, _MOST_BYTES).decode()
        check = loads(SavedCheck, text, str(file), _MOST_BYTES)
    except (OSError, ValueError, UsageError):
        return None
    return check if all(value > 0 for value in check.values.values()) else None
