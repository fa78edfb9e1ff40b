"""How a sweep is saved while it runs: its rows, its command, the machine."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from collbench.bench.runner import Measurement
from collbench.compare.runs import Keeper, RunFacts, directory_here
from collbench.core.case import Case
from collbench.core.complaint import why_ended
from collbench.core.files import command_line
from collbench.core.record import NOT_TRUE, Record
from collbench.machine.discovery.recording import Recording, dumps


class SavedSweep:
    """Saves the rows of all runs of a sweep as they come."""

    def __init__(
        self, runs: Sequence[Measurement], cases: Sequence[Case], recordings: Sequence[Recording]
    ) -> None:
        facts = RunFacts(
            command=command_line(),
            started=datetime.now(UTC).isoformat(timespec="microseconds"),
            title=title_of(cases),
            points=sum(len(run.points) for run in runs),
            directory=directory_here(),
        )
        machine = dumps(recordings) if recordings else ""
        self._keeper = Keeper(runs[0].run_id, facts, machine)
        self._start_s = time.monotonic()
        self._rows = self._wrong = 0

    def keep(self, record: Record) -> None:
        """Save a row."""
        self._rows += 1
        self._wrong += record.status in NOT_TRUE
        self._keeper.keep(record)

    @property
    def has_wrong_data(self) -> bool:
        """Whether any row was wrong."""
        return self._wrong > 0

    @property
    def rows(self) -> int:
        """Rows until now."""
        return self._rows

    def saved_as(self) -> str:
        """The name by which the rows can be read again, or an empty text."""
        return self._keeper.saved_as()

    @property
    def problem(self) -> str:
        """Why they are not saved, or an empty text."""
        return self._keeper.problem

    def finish(self, exit_code: int, problem: str = "") -> None:
        """Save how it ended, and why it failed."""
        facts = replace(
            self._keeper.facts,
            rows=self._rows,
            wrong=self._wrong,
            seconds=round(time.monotonic() - self._start_s, 3),
            exit_code=exit_code,
            problem=problem,
        )
        self._keeper.finish(facts)


@contextmanager
def saved(
    runs: Sequence[Measurement], cases: Sequence[Case], recordings: Sequence[Recording]
) -> Iterator[SavedSweep]:
    """Save a sweep; it counts as wrong, interrupted or failed by how the body ends."""
    sweep = SavedSweep(runs, cases, recordings)
    try:
        yield sweep
    except (Exception, KeyboardInterrupt) as error:
        sweep.finish(*why_ended(error))
        raise
    else:
        sweep.finish(1 if sweep.has_wrong_data else 0)


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
