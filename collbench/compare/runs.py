"""Saved runs: the rows of every sweep, with the command that measured them and the machine, in a
folder of the user's state ($XDG_STATE_HOME, else ~/.local/state). Each has a name that stays, of
its day and a hash (`@1126-ab12cd`); `@1` is the newest of the directory that one is in, or of all
if none was started there.
"""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from collbench.core.codec import dumps, loads
from collbench.core.errors import CollbenchError, UsageError
from collbench.core.files import state_folder, write_whole
from collbench.core.reading import read_state
from collbench.core.record import Record, Writer

_ROWS, _FACTS, _MACHINE = "rows.csv", "run.json", "machine.json"
_MOST_FACTS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a run was. started: ISO 8601, to the microsecond. seconds: until it ended, 0 if it was
    cut off. exit_code: -1 if it was cut off. title: what was measured, in a few words. directory:
    where it was started. problem: why it failed.
    """

    command: str
    started: str
    title: str
    points: int
    rows: int = 0
    wrong: int = 0
    seconds: float = 0.0
    exit_code: int = -1
    directory: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRun:
    """A run that can be read again. number: 1 is the newest; 0 of one of another directory, and of
    one that failed before its first row.
    """

    number: int
    folder: Path
    facts: RunFacts

    @property
    def name(self) -> str:
        """What it is called from then on: the month, the day and the hash of its folder."""
        return name_of(self.folder.name)

    @property
    def rows(self) -> Path:
        """The file of its rows."""
        return self.folder / _ROWS


def name_of(folder: str) -> str:
    """The name of a run by that of its folder.

    >>> name_of("20261126T163400-ab12cd")
    '1126-ab12cd'
    """
    day, _, number = folder.rpartition("-")
    return f"{day[4:8]}-{number}" if len(day) > len("20261126") else folder


def folder_of_runs() -> Path:
    """Where runs are saved. Raises RuntimeError if there is no home."""
    return state_folder() / "runs"


class Keeper:
    """Saves a run while it goes on: nothing before its first row that is not waived, unless it
    fails. Whatever fails there is told in `problem` and ends the saving, not the run.
    """

    def __init__(self, name: str, facts: RunFacts, machine: str = "") -> None:
        self.facts, self.problem = facts, ""
        self._name, self._machine = name, machine
        self._writer: Writer | None = None
        self._waived: list[Record] = []

    def saved_as(self) -> str:
        """The name of the run, or an empty text if nothing can be read again."""
        if self._writer is None or self.problem:
            return ""
        return f"@{name_of(self._name)}"

    def keep(self, record: Record) -> None:
        """Save a row."""
        if self.problem:
            return
        if self._writer is None and record.status == "waived":
            self._waived.append(record)
            return
        try:
            if self._writer is None:
                self._writer = self._begin()
                self._writer.write(self._waived)
            self._writer.write([record])
        except (OSError, RuntimeError, CollbenchError) as error:
            self.problem = _problem(error)

    def _begin(self) -> Writer:
        folder = folder_of_runs() / self._name
        folder.mkdir(mode=0o700, parents=True)
        try:
            _write(folder / _FACTS, self.facts)
            if self._machine:
                write_whole(folder / _MACHINE, self._machine.encode())
            return Writer(folder / _ROWS)
        except (OSError, CollbenchError):
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def finish(self, facts: RunFacts) -> None:
        """Close the rows and say how the run ended."""
        if self._writer is None and (self.problem or not facts.problem):
            return
        try:
            if self._writer is None:
                facts, self._writer = replace(facts, rows=0), self._begin()
            self._writer.close()
            if not self.problem:
                _write(folder_of_runs() / self._name / _FACTS, facts)
        except (OSError, RuntimeError, CollbenchError) as error:
            self.problem = _problem(error)


def _problem(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename or folder_of_runs()}"
    return error.message if isinstance(error, CollbenchError) else str(error)


def _write(file: Path, facts: RunFacts) -> None:
    write_whole(file, dumps(facts))


def saved_runs() -> list[SavedRun]:
    """Every saved run, the newest last. A folder that is none is left out."""
    found = []
    with suppress(OSError, RuntimeError):
        for folder in folder_of_runs().iterdir():
            facts = _facts_of(folder)
            if facts is not None and (folder / _ROWS).is_file():
                found.append((folder, facts))
    found.sort(key=lambda one: (one[1].started, one[0]))
    here = directory_here()
    read = [(folder, facts) for folder, facts in found if facts.rows or facts.exit_code < 0]
    mine = [folder for folder, facts in read if facts.directory == here]
    numbered = list(reversed(mine or [folder for folder, _ in read]))
    numbers = {folder: place for place, folder in enumerate(numbered, 1)}
    return [
        SavedRun(number=numbers.get(folder, 0), folder=folder, facts=facts)
        for folder, facts in found
    ]


def directory_here() -> str:
    """Where this command was started; empty if that is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _facts_of(folder: Path) -> RunFacts | None:
    """The facts in a folder, None where they are missing or broken."""
    file = folder / _FACTS
    try:
        text = read_state(file, _MOST_FACTS_BYTES).decode()
        return loads(RunFacts, text, str(file), _MOST_FACTS_BYTES)
    except (OSError, ValueError, UsageError):
        return None


def saved_run(name: str) -> SavedRun:
    """The run of a number such as `@1`, or of a name. Raises UsageError if there is none."""
    runs, text = saved_runs(), name.removeprefix("@")
    for run in runs:
        if text in (str(run.number), run.name, run.folder.name) and text != "0":
            return run
    have = f"there are {len(runs)}" if len(runs) > 1 else f"there is {'one' if runs else 'none'}"
    raise UsageError(
        f"{name}: no such saved run, {have}", "collbench runs lists them; @1 is the newest"
    )


def remove(runs: Sequence[SavedRun]) -> None:
    """Remove runs, also those that another command removes meanwhile. Raises OSError for one that
    stays.
    """
    for run in runs:
        while run.folder.exists():
            with suppress(FileNotFoundError):  # of a file that the other one was faster with
                shutil.rmtree(run.folder)
