"""Says which other processes were busy while something was measured: once, before its results."""

import os
from collections.abc import Collection, Sequence

from collbench.bench.runner import Measurement
from collbench.core.limits import FOREIGN_SHARE
from collbench.core.record import Record
from collbench.core.screen import remark
from collbench.core.text import counted
from collbench.launch.local import own_processes
from collbench.machine.others import Census, demand, foreign_cores, look

_WHAT_TO_DO = "End them, or measure when they have ended."


class BusyRemark:
    """Watches from now on. What is said, is said once."""

    def __init__(self) -> None:
        self._census, self._is_said = Census(), False
        self._first = look(own_processes())

    def at_start(self, run: Measurement) -> None:
        """Say it if others are busy when the sessions of a run have been opened, and something is
        to be measured.
        """
        if (cores := run.foreign_at_start) and not all(point.waived for point in run.points):
            self._say(f"Other processes want {_cores(cores)} of this machine", run.own)

    def of_rows(self, records: Sequence[Record], own: Collection[int] = ()) -> None:
        """Say it if rows do."""
        taken = [cores for row in records if (cores := foreign_cores(row.notes))]
        if taken:
            rows = f"{len(taken)} of {counted(len(records), 'row')} (busy:N)"
            self._say(
                f"Other processes disturbed {rows}, by up to {_cores(max(taken))}",
                own or own_processes(),
            )

    def of_all(self, ranks: int) -> bool:
        """Say it if others left fewer cores than ranks of this host, from then until now; returns
        whether they did.
        """
        if text := self.text_of_all(ranks):
            self._remark(text)
        return bool(text)

    def text_of_all(self, ranks: int) -> str:
        """That others left fewer cores than ranks of this host, or an empty text."""
        own = own_processes()
        last = look(own)
        if self._first is not None and last is not None:
            cores = demand([(self._first, last)])
            if cores > FOREIGN_SHARE and cores + ranks > (os.cpu_count() or 1):
                what = f"Other processes had or wanted {_cores(cores)} of this machine"
                return f"{what}: {self.names(own)}."
        return ""

    def _say(self, what: str, own: Collection[int]) -> None:
        self._remark(f"{what}: {self.names(own)}.")

    def _remark(self, text: str) -> None:
        if not self._is_said:
            remark(f"{text} {_WHAT_TO_DO}")
        self._is_said = True

    def names(self, own: Collection[int]) -> str:
        """The busiest, with their ids and what they had of the cores."""
        busiest = [one for one in self._census.busiest(own) if round(one.cores, 1) > 0]
        texts = [f"{one.pid} {one.command} ({one.cores:.1f})" for one in busiest]
        return ", ".join(texts) or "which ones is not known, they have ended or are hidden"


def _cores(cores: float) -> str:
    return f"{cores:.1f} core{'s' * (cores != 1)}"
