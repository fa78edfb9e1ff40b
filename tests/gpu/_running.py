"""Starts batches and sweeps as separate processes, alone or one a GPU under mpirun, so that a fault
of a GPU ends only one of them.
"""

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pytest

from tests.support.runs import ROOT, mpirun, said_by

LIMIT_S = 280.0  # of a batch, which may have to compile its kernels first
RESTARTS = 3  # of a batch that a fault of a GPU ended, behind the plan at fault
SHOWN = 10  # failures of a batch
MODELS = ("local", "mpi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A process that ended: its exit code, -1 if it was killed, its seconds and its output."""

    code: int
    seconds: float
    stdout: str
    stderr: str

    def lines(self, start: str) -> list[str]:
        """The lines of stdout with a prefix, without it."""
        return [
            line.removeprefix(start) for line in self.stdout.splitlines() if line.startswith(start)
        ]

    @property
    def errors(self) -> str:
        """The error messages of the command line."""
        return "\n".join(line for line in self.stderr.splitlines() if line.startswith("Error: "))


@cache
def launch_options(launcher: str) -> tuple[str, ...]:
    """The options with which an mpirun starts a rank a GPU as root, not bound to cores."""
    version = subprocess.run(
        [launcher, "--version"], capture_output=True, text=True, check=False, timeout=30
    ).stdout
    return (
        ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
        if re.search(r"Open MPI|OpenRTE|PRRTE", version)
        else ()
    )


def started(model: str, ranks: int, arguments: Sequence[str]) -> list[str]:
    """A command of this Python in a process model; skips the test if there is no mpirun."""
    command = [sys.executable, *arguments]
    if model == "local":
        return command
    launcher = mpirun()
    if launcher is None:
        pytest.skip("needs mpi4py and mpirun: pip install 'collbench[mpi]'")
    return [launcher, *launch_options(launcher), "-n", str(ranks), *command]


def run(command: Sequence[str], limit_s: float) -> Ended:
    """Run a command to its end, or to its limit."""
    start, of = time.monotonic(), {"cwd": ROOT, "stdin": subprocess.DEVNULL}
    try:
        done = said_by(command, limit_s, **of)
        code, stdout, stderr = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        said = ((text or b"").decode(errors="replace") for text in (error.stdout, error.stderr))
        code, (stdout, stderr) = -1, said
    return Ended(code=code, seconds=time.monotonic() - start, stdout=stdout, stderr=stderr)


def failures_with_four(gpus: int, name: str) -> list[str]:
    """The failures of a batch under mpirun with a rank a GPU, and with at least four ranks, which
    share GPUs if necessary: two ranks have one peer each and no ring.
    """
    return [
        failure
        for ranks in sorted({gpus, max(4, gpus)})
        for failure in failures_of("mpi", ranks, name)
    ]


def failures_of(model: str, gpus: int, name: str) -> list[str]:
    """The failures of a batch of tests/gpu/batch.py; its summary is printed."""
    failures: list[str] = []
    first = "0"
    for _ in range(1 + RESTARTS):
        ended = run(started(model, gpus, ["-m", "tests.gpu.batch", name, first]), LIMIT_S)
        for line in ended.lines("SUMMARY "):
            print(f"\n{model} {name}: {line}")
        for line in ended.lines("SKIP "):
            pytest.skip(line)
        failures += ended.lines("FAIL ")
        if ended.code == 0 or (ended.code == 1 and ended.lines("SUMMARY ")):
            break
        failures.append(
            f"the batch ended with {ended.code} after {ended.seconds:.0f}"
            f" s:\n{ended.stdout[-400:]}\n{ended.stderr[-2000:]}"
        )
        if not ended.lines("NEXT "):
            break
        (first,) = ended.lines("NEXT ")
    return (
        failures
        if len(failures) <= SHOWN
        else [*failures[:SHOWN], f"and {len(failures) - SHOWN} more"]
    )
