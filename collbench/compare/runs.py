"""Saved runs: the rows of every sweep, with the command that measured them and the machine, in a
folder of the user's state ($XDG_STATE_HOME, else ~/.local/state). Each has a name that stays, of
its day and a hash (`@1126-ab12cd`); `@1` is the newest of the directory that one is in, or of all
if none was started there.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from collbench.core.case import Case
from collbench.core.codec import dumps, loads
from collbench.core.complaint import why_ended
from collbench.core.errors import CollbenchError, UsageError
from collbench.core.files import command_line, state_folder, write_whole
from collbench.core.reading import read_state
from collbench.core.record import NOT_TRUE, Record, Writer, is_being_written

_ROWS, _FACTS, _MACHINE = "rows.csv", "run.json", "machine.json"
_MOST_FACTS_BYTES = 1 << 20
_SIGNALLED = 128  # exit codes beyond are of runs that a signal ended


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a run was. started: ISO 8601, to the microsecond. seconds: until it ended, or its last
    row. exit_code: -1 until it ends. title: what was measured, in a few words. directory: where it
    was started. problem: why it did not reach its end.
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
    one that has no row.
    """

    number: int
    folder: Path
    facts: RunFacts

    @property
    def name(self) -> str:
        """What it is called from then on: the month, the day and the hash of its folder."""
        return name_of(self.folder.name)

    @property
    def ending(self) -> str:
        """How it ended, an empty text if it reached its end."""
        if self.facts.exit_code < 0:
            return "cut off" if self.facts.problem else "running"
        if self.facts.exit_code > _SIGNALLED:
            return "interrupted"
        return "failed" if self.facts.exit_code > 1 or self.facts.problem else ""

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
    """Saves a run while it goes on. One that ends well without a row that is not waived leaves
    nothing. rows, wrong: until now. Whatever fails here is told in `problem` and ends the saving,
    not the run.
    """

    def __init__(self, name: str, facts: RunFacts, machine: str = "") -> None:
        self.problem, self.rows, self.wrong = "", 0, 0
        self._facts, self._name, self._has_rows = facts, name, False
        self._start_s = time.monotonic()
        self._writer: Writer | None = None
        try:
            self._writer = self._begin(machine)
        except (OSError, RuntimeError, CollbenchError) as error:
            self.problem = _problem(error)

    def saved_as(self) -> str:
        """The name of the run, or an empty text if nothing can be read again."""
        return f"@{name_of(self._name)}" if self._has_rows and not self.problem else ""

    def keep(self, record: Record) -> None:
        """Save a row."""
        self.rows += 1
        self.wrong += record.status in NOT_TRUE
        if self._writer is None or self.problem:
            return
        try:
            self._writer.write([record])
            self._has_rows |= record.status != "waived"
        except (OSError, CollbenchError) as error:
            self.problem = _problem(error)

    def _begin(self, machine: str) -> Writer:
        folder = folder_of_runs() / self._name
        folder.mkdir(mode=0o700, parents=True)
        try:
            _write(folder / _FACTS, self._facts)
            if machine:
                write_whole(folder / _MACHINE, machine.encode())
            return Writer(folder / _ROWS)
        except (OSError, CollbenchError):
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def finish(self, exit_code: int, problem: str = "") -> None:
        """Close the rows and say how the run ended, and why it failed."""
        if self._writer is None:
            return
        facts = replace(
            self._facts,
            rows=self.rows if self._has_rows else 0,
            wrong=self.wrong,
            seconds=round(time.monotonic() - self._start_s, 3),
            exit_code=exit_code,
            problem=problem,
        )
        try:
            self._writer.close()
            folder = folder_of_runs() / self._name
            if not self._has_rows and not problem:
                shutil.rmtree(folder)
            elif not self.problem:
                _write(folder / _FACTS, facts)
        except (OSError, RuntimeError, CollbenchError) as error:
            self.problem = _problem(error)


@contextmanager
def saved(name: str, cases: Sequence[Case], points: int, machine: str = "") -> Iterator[Keeper]:
    """Save a sweep of that many points, and the recording of the machine; it counts as wrong,
    interrupted or failed by how the body ends.
    """
    facts = RunFacts(
        command=command_line(),
        started=datetime.now(UTC).isoformat(timespec="microseconds"),
        title=title_of(cases),
        points=points,
        directory=directory_here(),
    )
    keeper = Keeper(name, facts, machine)
    try:
        yield keeper
    except (Exception, KeyboardInterrupt) as error:
        keeper.finish(*why_ended(error))
        raise
    else:
        keeper.finish(1 if keeper.wrong else 0)


def title_of(cases: Sequence[Case]) -> str:
    """What a sweep measures, in a few words.

    >>> title_of([])
    'nothing'
    """
    if not cases:
        return "nothing"
    ops = list(dict.fromkeys(case.mix or case.op for case in cases))
    groups = list(dict.fromkeys(case.groups for case in cases if case.groups))
    of_groups = f" in groups {', '.join(groups)}" if groups else ""
    ranks = sorted({case.ranks for case in cases})
    backends = list(dict.fromkeys(case.backend for case in cases))
    shown = ", ".join(ops) if len(ops) <= 2 else f"{len(ops)} collectives"
    of_ranks = f"{', '.join(map(str, ranks))} rank{'s' * (ranks != [1])}"
    return f"{shown}; {of_ranks}{of_groups}; {', '.join(backends)}"


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
            if facts is not None:
                found.append((folder, facts))
    found.sort(key=lambda one: (one[1].started, one[0]))
    here = directory_here()
    read = [(folder, facts) for folder, facts in found if facts.rows]
    mine = [folder for folder, facts in read if facts.directory == here]
    numbered = list(reversed(mine or [folder for folder, _ in read]))
    numbers = {folder: place for place, folder in enumerate(numbered, 1)}
    return [
        SavedRun(number=numbers.get(folder, 0), folder=folder, facts=facts)
        for folder, facts in found
    ]


def _until_now(facts: RunFacts, rows: Path) -> RunFacts:
    """The facts of a run that did not write its end, by its rows."""
    started = datetime.fromisoformat(facts.started).timestamp()
    return replace(
        facts,
        rows=max(0, rows.read_bytes().count(b"\n") - 1),
        seconds=round(max(0.0, rows.stat().st_mtime - started), 3),
        problem="" if is_being_written(rows) else "killed, or the machine stopped",
    )


def directory_here() -> str:
    """Where this command was started; empty if that is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _facts_of(folder: Path) -> RunFacts | None:
    """The facts in a folder, None where they or the rows are missing or broken."""
    file, rows = folder / _FACTS, folder / _ROWS
    try:
        text = read_state(file, _MOST_FACTS_BYTES).decode()
        facts = loads(RunFacts, text, str(file), _MOST_FACTS_BYTES)
        if not rows.is_file():
            return None
        return facts if facts.exit_code >= 0 else _until_now(facts, rows)
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
