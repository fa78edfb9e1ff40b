"""Random faults: a signal to a process of a run, at a moment drawn by a seed, and what must come of
it. The table of docs/reference/faults.md says that.
"""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from collbench.launch.processes import command_of, parent_of, send, stat_of
from tests.support.runs import ROOT, Run, rank_of, read_of, sweep, under_mpirun

TIMEOUT_S = 5
LATE_S = 12.0  # beyond the timeout, on a busy machine
GONE_S = 15.0  # for what outlives a run: a cleaner waits 5 s while other runs have memory of MPI
POINTS = ("--op", "allreduce", "--algo", "ring,oneshot", "--sizes", "1K,16K,64K", "--hot")
LENGTH = ("--repeats", "3", "--iters", "200", "--timeout", str(TIMEOUT_S), "--csv", "rows.csv")
STARTS = {
    "alone": (sweep(*POINTS, *LENGTH, "--ranks", "2", "--backend", "cpu"),),
    "own mpirun": (
        sweep(*POINTS, *LENGTH, "--ranks", "2", "--backend", "cpu,mpi"),
        sweep(*POINTS, *LENGTH, "--ranks", "2", "--backend", "cpu", "--transport", "net"),
    ),
    "srun": (sweep(*POINTS, *LENGTH, "--backend", "cpu"),),
    "mpirun": (under_mpirun(2, sweep(*POINTS, *LENGTH, "--backend", "cpu,mpi")),),
}


def table(launcher: str, has_slurm: bool = False) -> dict[tuple[str, str], dict[str, set[int]]]:
    """The exit codes that the documentation promises, by (way to start, which process) and signal.
    launcher: the library whose mpirun is here, empty if there is none.
    """
    _, _, text = (ROOT / "docs/reference/faults.md").read_text().partition("<!-- faults -->\n")
    heading, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.partition("<!-- /faults -->")[0].splitlines()
    ]
    starts = {"alone": "alone"}
    if launcher:
        starts |= {"own mpirun": "own mpirun", f"{launcher}'s mpirun": "mpirun"}
    if has_slurm:
        starts["srun"] = "srun"
    return {
        (starts[start], which): {
            name: {int(code) for code in cell.split(",")}
            for name, cell in zip(heading[2:], cells, strict=True)
        }
        for start, which, *cells in rows
        if start in starts
    }


@dataclass(frozen=True, slots=True)
class Fault:
    """A signal to a process of a run, so many seconds after its start, or after so many rows."""

    start: str
    command: tuple[str, ...]
    which: str
    signal: str
    after_s: float
    rows: int = 0


def draw(seed: int, promised: Iterable[tuple[str, str]]) -> Fault:
    """The fault of a seed: ways to start and processes are even, moments from the first import to
    the end of the measurement.
    """
    chance = random.Random(seed)
    start, which = chance.choice(list(promised))
    command = tuple(chance.choice(STARTS[start]))
    name = chance.choice(("INT", "TERM", "HUP", "KILL", "STOP"))
    return Fault(start, command, which, name, chance.uniform(0.05, 2.5))


def processes(run: Run) -> dict[str, list[int]]:
    """The processes of a run by what they are."""
    found: dict[str, list[int]] = {}
    for pid in run.pids():
        line, number = read_of(pid, "cmdline"), rank_of(pid)
        if not line:
            continue
        if command_of(pid).startswith("cb-"):
            which = command_of(pid).removeprefix("cb-")
        elif "mpi_worker" in line and number:
            which = "worker"
        elif number:
            which = f"rank {number}"
        elif command_of(pid) in ("srun", "nsenter"):
            which = command_of(pid)
        elif pid == run.process.pid:
            which = "mpirun" if "mpirun" in line.split("\0collbench")[0] else "driver"
        elif "mpiexec" in line or "mpirun" in line or "proxy" in line:
            which = "mpirun" if parent_of(pid) == run.process.pid else "proxy"
        else:
            which = "rank"
        found.setdefault(which, []).append(pid)
    return found


def inject(run: Run, fault: Fault, promised: set[int]) -> set[int] | None:
    """Wait for the moment and send the signal; the exit codes that may come of it, None if any but
    0 may: a rank whose Python is still starting is the launcher's alone.
    """
    while run.process.poll() is None and fault.rows > run.lines() - 1:
        time.sleep(0.01)
    time.sleep(fault.after_s)
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline and run.process.poll() is None:
        there = processes(run)
        if pids := there.get(fault.which):
            victim = random.Random(fault.after_s).choice(pids)
            is_alone = fault.which.startswith("rank ") and (
                command_of(parent_of(victim)) != "cb-guardian"
            )
            os.kill(victim, signal.Signals[f"SIG{fault.signal}"])
            is_users = fault.which in ("driver", fault.start)  # who stops it lets it go on
            if fault.signal == "STOP" and (is_users or (0 in promised and not fault.rows)):
                time.sleep(1.0)
                for stopped in (victim, run.process.pid):  # nsenter stops with its child
                    send(stopped, signal.SIGCONT)
            is_launchers = fault.start in ("mpirun", "srun") and fault.which != "guardian"
            least = 1 if fault.which == "rank 0" else 2  # ranks come up in any order
            is_guarded = len(there.get("guardian", ())) >= least and not is_alone
            return promised if is_guarded or not is_launchers else None
        time.sleep(0.02)
    return {0}


def what_is_wrong(folder: Path, fault: Fault, promised: set[int], takes_s: float = 30) -> str:
    """Let a run that takes so long have a fault; what is not as it must be, or an empty text."""
    with Run(folder, fault.command) as run:
        expected: set[int] | None = {0}
        with suppress(ProcessLookupError):  # it has just ended
            expected = inject(run, fault, promised)
        try:
            code = run.process.wait(timeout=TIMEOUT_S + LATE_S + takes_s)
        except subprocess.TimeoutExpired:
            states = {
                f"{which} {pid}": stat_of(pid)[:2]
                for which, pids in processes(run).items()
                for pid in pids
            }
            return f"hangs: {states}: {run.stderr}"
        time.sleep(0.1)
        deadline = time.monotonic() + GONE_S
        while run.pids() and time.monotonic() < deadline:
            time.sleep(0.05)
        left = processes(run)
        if fault.signal == "STOP" and {*left} == {"cleaner"}:  # stopped when all above had ended
            for pid in left["cleaner"]:
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.5)
            left = processes(run)
        if left:
            return f"left behind: {left}: {run.stderr}"
        if memory := run.memory_left():
            return f"shared memory left behind: {memory}"
        text = run.stderr + run.stdout
        if "Traceback" in text or "Exception ignored" in text:
            return f"traceback: {text}"
        rows = run.rows() if run.csv.exists() else []
        if doubled := [key for key, count in Counter(row.key for row in rows).items() if count > 1]:
            return f"doubled rows: {doubled}"
        code = 128 - code if code < 0 else code  # as a shell has it
        is_whole = code == 0 and all(row.status == "ok" for row in rows)
        # MPICH itself may miss a rank in one of its collectives, or while it starts
        is_aborted = fault.which.startswith("rank ") and code > 0 and "Abort(" in text
        if is_aborted:
            return ""
        if expected is not None and code not in expected and not is_whole:
            return f"exit code {code}, not {sorted(expected)}: {text}"
        if code == 4 and not run.errors() and fault.which != "guardian":
            return f"no message: {text}"
        if any(row.status == "wrong" for row in rows):
            return f"wrong rows: {rows}"
    return ""
