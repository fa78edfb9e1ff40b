"""The saved runs of the machine that a file was measured on, for its page."""

from typing import TYPE_CHECKING

from collbench.compare.load import ResultFile
from collbench.compare.runs import saved_runs
from collbench.core.errors import UsageError

if TYPE_CHECKING:
    from collbench.compare.history import History

MOST_RUNS = 20  # of the machine, the newest
_HEAD_BYTES = 1 << 14
_MOST_LOOKED_AT = 100  # of any machine
_MOST_BYTES = 32 << 20  # of all that are read: the page of a large file is not to wait for them


def history_of(loaded: ResultFile) -> "History | None":
    """The history of a file's points over its machine's runs; None if there are too few."""
    from collbench.compare.history import Run, history, machine_of
    from collbench.compare.load import load

    machine = machine_of(loaded.frame)
    hosts = [str(name).encode() for name in machine[0]]
    runs: list[Run] = []
    read = 0
    for run in reversed(saved_runs()[-_MOST_LOOKED_AT:]):
        try:
            with run.rows.open("rb") as opened:  # other machines' runs are not worth a reading
                head = opened.read(_HEAD_BYTES)
            if not any(host in head for host in hosts or [b""]):
                continue
            read += run.rows.stat().st_size
            if read > _MOST_BYTES or len(runs) == MOST_RUNS:
                break
            frame = load(run.rows).frame
        except (OSError, UsageError):  # a run that was cut off, or is of another version
            continue
        if machine_of(frame) == machine:
            runs.append(Run(f"@{run.name}", run.facts.started, frame))
    return history(runs[::-1], loaded.frame)
