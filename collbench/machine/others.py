"""What other processes have of the processors while something is measured, and who they are.

Read from /proc/stat: the time of all cores (user, nice, system, interrupts, and what the hypervisor
gave to others), less what the processes of the run had by their own clocks; and how many tasks run
or wait for a core. The time shows load over a while, but the kernel counts it in steps of up to
0.01 s. The queue of tasks shows it at once, but only at a moment. Where /proc is restricted nothing
is known, and nothing is said.
"""

import os
import shlex
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from collbench.core.limits import FOREIGN_LEAST_S
from collbench.core.text import escaped

BUSIEST = 3  # processes that are named
FOREIGN_NOTE = "other-processes:"  # of a row, and how many cores these had or waited for
_LEAST_NAMED = 0.02  # cores' worth of time of a process that is worth its name
_COMMAND_CHARS = 40
_PROC = Path("/proc")
_USER, _SYSTEM = 11, 12  # fields of /proc/PID/stat behind the name: time in ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A moment. busy_s: of the cores, since they started. own_s: of the run's processes, since they
    started. queued: other tasks that run or wait for a core; None where only some cores count.
    """

    when_s: float
    busy_s: float
    own_s: float
    queued: int | None = None


Span = tuple[Look, Look]  # from one moment to another


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyProcess:
    """A process, and the cores' worth of time that it had."""

    pid: int
    command: str
    cores: float


def look(own: Collection[int], cores: Collection[int] = (), root: Path = _PROC) -> Look | None:
    """The processors now. own: the processes of the run. cores: that count, all if none is given.
    None where the kernel does not say.
    """
    # first the states: one that falls asleep in between is counted too little, and never too much
    own_running = sum(next(iter(_fields(pid, root)), "") == "R" for pid in own)
    try:
        text = (root / "stat").read_text()
        own_s = sum(map(_own_seconds, own)) + sum(os.times()[2:4])  # and what has ended
        lines = {line.split(" ", 1)[0]: line.split()[1:] for line in text.splitlines()}
        names = [f"cpu{core}" for core in cores] or ["cpu"]
        busy_s = sum(busy_seconds(lines[name]) for name in names)
        queued = None if cores else max(0, int(lines["procs_running"][0]) - own_running)
    except (OSError, KeyError, ValueError, IndexError):
        return None
    return Look(when_s=time.monotonic(), busy_s=busy_s, own_s=own_s, queued=queued)


def _own_seconds(pid: int) -> float:
    """The time of all threads of a process, to the nanosecond, by its own clock (the number of
    clock_getcpuclockid); 0 if it has ended.
    """
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def busy_seconds(fields: Sequence[str]) -> float:
    """Of a core, by its line of /proc/stat: all but the idle time and what waits for a disk."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def demand(spans: Iterable[Span]) -> float:
    """How many cores other processes had or waited for in some spans of time: what they had on the
    average, or the median of the tasks that were queued both before and after, if that is more.

    >>> before = Look(when_s=0.0, busy_s=5.0, own_s=4.0, queued=3)
    >>> demand([(before, Look(when_s=1.0, busy_s=7.0, own_s=5.5, queued=2))])
    2.0
    """
    known = list(spans)
    elapsed_s = sum(end.when_s - start.when_s for start, end in known)
    if elapsed_s <= 0:
        return 0.0
    had_s = sum(end.busy_s - start.busy_s - (end.own_s - start.own_s) for start, end in known)
    queued = [
        min(start.queued, end.queued)
        for start, end in known
        if start.queued is not None and end.queued is not None
    ]
    had = had_s / elapsed_s if had_s > FOREIGN_LEAST_S else 0.0
    return max(had, float(median_low(queued)) if queued else 0.0)


def foreign_note(cores: float) -> str:
    """The note of a row from which other processes took cores."""
    return f"{FOREIGN_NOTE}{cores:.1f}"


def foreign_cores(notes: str) -> float:
    """What the notes of a row say that other processes had of the cores; the most of several.

    >>> foreign_cores("in-cache other-processes:1.5 other-processes:12.0"), foreign_cores("noisy")
    (12.0, 0.0)
    """
    words = [one for one in notes.split() if one.startswith(FOREIGN_NOTE)]
    return max((float(one.removeprefix(FOREIGN_NOTE)) for one in words), default=0.0)


class Census:
    """The time of every process from now on, to name the busiest."""

    def __init__(self, root: Path = _PROC) -> None:
        self._root, self._start_s = root, time.monotonic()
        self._before = _times(root)

    def busiest(self, own: Collection[int], most: int = BUSIEST) -> list[BusyProcess]:
        """Those that had most of the cores since then, without the run's own."""
        elapsed_s = max(time.monotonic() - self._start_s, 1e-9)
        had = {
            pid: (seconds - self._before.get(pid, 0.0)) / elapsed_s
            for pid, seconds in _times(self._root).items()
            if pid not in own
        }
        first = sorted(had, key=had.__getitem__, reverse=True)[:most]
        return [
            BusyProcess(pid=pid, command=_command(pid, self._root), cores=had[pid])
            for pid in first
            if had[pid] >= _LEAST_NAMED
        ]


def _fields(pid: int, root: Path) -> list[str]:
    """What /proc/PID/stat has behind the name; nothing if the process has ended."""
    try:
        return (root / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _times(root: Path) -> dict[int, float]:
    """Seconds that every visible process has computed."""
    tick = os.sysconf("SC_CLK_TCK")
    try:
        pids = [int(one.name) for one in root.iterdir() if one.name.isdecimal()]
    except OSError:
        return {}
    known = {pid: fields for pid in pids if len(fields := _fields(pid, root)) > _SYSTEM}
    return {
        pid: (int(fields[_USER]) + int(fields[_SYSTEM])) / tick for pid, fields in known.items()
    }


def _command(pid: int, root: Path) -> str:
    """The command of a process, shortened, as a terminal may see it; its name if it has none."""
    try:
        words = (root / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        words = [Path(words[0]).name, *filter(None, words[1:])] if words[0] else []
        text = shlex.join(words)
        text = text or f"[{(root / str(pid) / 'comm').read_text().strip()}]"
    except OSError:
        return "?"
    return escaped(text if len(text) <= _COMMAND_CHARS else f"{text[: _COMMAND_CHARS - 3]}...")
