"""Real runs of the command line into which tests inject faults: start one, wait for rows, find its
ranks, see what it leaves behind.

Every process of a run carries a tag in its environment, which children inherit however they are
started; so what is left of a run is found in /proc without knowing how its launcher arranges
processes.
"""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from collbench.core.errors import CollbenchError
from collbench.core.launcher import OPEN_MPI_VARIABLES, find_mpirun, library_vendor
from collbench.core.record import Record, read
from collbench.launch.cleaner import CLOCK_S, memory_of_mpi, used_files
from collbench.launch.processes import command_of, fate, parent_of, send, stat_of
from collbench.machine.discovery._system import mpi_library

ROOT = Path(__file__).resolve().parents[2]
# what other tools and machines printed, where it is at hand
SHARED = Path(os.environ.get("COLLBENCH_SHARED") or ROOT.parent / "shared") / "data"
LIMIT_S = 90.0  # far beyond what any run here takes on a busy machine
# in which a run with a stopped rank and a --timeout of STUCK_TIMEOUT_S must be over
STUCK_LIMIT_S = 45.0
STUCK_TIMEOUT_S = 2
TAG = "COLLBENCH_TEST_RUN"
# 129 points of some tens of milliseconds
LONG = tuple(split("--algo ring --hot -b 1M -e 2M -i 8K --iters 160 --repeats 1"))
LAUNCHER_VARIABLES = ("PMI_", "OMPI_", "PMIX_", "SLURM_", "MPI_LOCAL", "COLLBENCH_")
# how Open MPI starts on this host, with or without a launcher above
HOST_VARIABLES = ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_")


def mpirun() -> str | None:
    """The mpirun that tests use, or None where MPI cannot be used."""
    if find_spec("mpi4py") is None:
        return None
    try:
        return find_mpirun()
    except CollbenchError:
        return None


needs_mpi = pytest.mark.skipif(
    mpirun() is None, reason="needs mpi4py and mpirun: pip install 'collbench[mpi]'"
)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without what a launcher above the tests put there, and so that Open MPI
    starts more ranks than cores, also as root.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(LAUNCHER_VARIABLES) or name.startswith(HOST_VARIABLES)
    }
    path = os.pathsep.join(
        filter(
            None, [(extra or {}).get("PYTHONPATH", ""), str(ROOT), os.environ.get("PYTHONPATH", "")]
        )
    )
    return {**kept, **OPEN_MPI_VARIABLES, "COLUMNS": "200", **(extra or {}), "PYTHONPATH": path}


def said_by(
    command: Sequence[str | Path], limit_s: float = 120.0, **more: Any
) -> "subprocess.CompletedProcess[str]":
    """A process that has ended, with what it said and its exit code. more: as of subprocess.run."""
    of: dict[str, Any] = {"env": environment(), "capture_output": True, "text": True, **more}
    return subprocess.run(command, check=False, timeout=limit_s, **of)


class Run:
    """One run of the command line, in a process group of its own as a shell would start it. Use as
    a context: nothing outlives it.
    """

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        extra: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.tag = uuid.uuid4().hex
        self.csv = folder / "rows.csv"
        self._out, self._err = folder / "stdout", folder / "stderr"
        self._folder, self._since = folder, time.time() - CLOCK_S
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [*prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                start_new_session=True,
                env=environment({**(extra or {}), TAG: self.tag, "TMPDIR": str(folder)}),
            )

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.pids():
            send(pid, signal.SIGKILL)
        self.process.wait()

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    def pids(self) -> list[int]:
        """Living processes of the run."""
        wanted = f"{TAG}={self.tag}"
        there = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return sorted(pid for pid in there if wanted in read_of(pid, "environ").split("\0"))

    def ranks(self, n: int) -> list[int]:
        """Process ids of the ranks in rank order: under a launcher as it numbers them, otherwise
        the driver's forks as they were made.
        """
        by_rank = {}
        forks = []
        for pid in self.pids():
            if command_of(pid).startswith("cb-"):
                continue
            if number := rank_of(pid):
                by_rank[int(number)] = pid
            elif parent_of(pid) == self.process.pid:
                forks.append(pid)
        found = [by_rank[rank] for rank in sorted(by_rank)] or sorted(forks, key=_started)
        assert len(found) == n, f"{n} ranks expected, found {found}\n{self.stderr}"
        return found

    def lines(self) -> int:
        """Lines of the CSV file, its heading among them."""
        return self.csv.read_text().count("\n") if self.csv.exists() else 0

    def wait_for_rows(self, rows: int = 3) -> str:
        """Wait until so many rows are in the CSV file; returns it up to the last whole row."""
        self.wait_until(lambda: self.lines() > rows)
        text = self.csv.read_text()
        return text[: text.rindex("\n") + 1]

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Wait for a condition while the run goes on."""
        deadline = time.monotonic() + LIMIT_S
        while not is_done():
            assert self.process.poll() is None, (
                "the run ended early with"
                f" {self.process.returncode}:\n{self.stdout[-500:]}{self.stderr}"
            )
            assert time.monotonic() < deadline, (
                f"the run does not get there:\n{self.stdout[-500:]}{self.stderr}"
            )
            time.sleep(0.02)

    def finish(self, limit_s: float = LIMIT_S) -> int:
        """The exit code, once the run ended by itself and nothing of it is left. Fails the test if
        it does not end, or ends in a traceback.
        """
        try:
            code = self.process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the run did not end in {limit_s:.0f} s:\n{self.stderr}")
        self.assert_gone()
        known = {self.csv, self._out, self._err}
        assert not [
            file for file in self._folder.iterdir() if file not in known and file.is_file()
        ], "files left behind"
        assert "Traceback" not in self.stderr, self.stderr
        return code

    def assert_gone(self) -> None:
        """No process of the run is left, and no shared memory: the kernel takes a moment to end
        those whose parent died.
        """
        deadline = time.monotonic() + 20
        while self.pids() and time.monotonic() < deadline:
            time.sleep(0.02)
        left = [(pid, read_of(pid, "cmdline").replace("\0", " ")) for pid in self.pids()]
        assert not left, f"left behind: {left}"
        assert not self.memory_left(), "shared memory left behind"

    def memory_left(self) -> set[Path]:
        """Shared memory of MPI's that was made since the start, and that no process of any run has
        any more, nor anybody removes within seconds.
        """
        deadline = time.monotonic() + 8
        while left := memory_of_mpi(self._since) and memory_of_mpi(self._since) - used_files():
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        return left

    def rows(self) -> list[Record]:
        """The whole rows in the CSV file."""
        return read(self.csv)

    def errors(self) -> list[str]:
        """What the run says went wrong: one rank talks, once."""
        return [line for line in self.stderr.splitlines() if line.startswith("Error: ")]


def sweep(*args: str) -> list[str]:
    """The command of a sweep, on CPUs without MPI's own collectives unless it names backends."""
    backend = () if "--backend" in args else ("--backend", "cpu")
    return [sys.executable, "-m", "collbench", "sweep", *args, *backend]


def corrupt(defect: str, command: Sequence[str]) -> list[str]:
    """That sweep with a defect of tests/_corrupt.py."""
    at = command.index("collbench")
    return [*command[:at], "tests.support.corrupt", defect, *command[at + 1 :]]


def library() -> str:
    """The MPI library whose mpirun is here, or an empty text; not started, since Open MPI leaves
    shared memory behind where it runs without a launcher.
    """
    return library_vendor(mpi_library() or "") if mpirun() else ""


def under_mpirun(n: int, command: Sequence[str], *options: str) -> list[str]:
    """A command under mpirun."""
    return [mpirun() or "mpirun", *options, "-n", str(n), *command]


def without_mpi4py(folder: Path) -> dict[str, str]:
    """Variables under which Python finds no mpi4py, as where it is not installed."""
    blocker = folder / "blocker"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\nfind ="
        " PathFinder.find_spec\nPathFinder.find_spec = lambda name, *more: None if"
        " name.partition('.')[0] == 'mpi4py' else find(name, *more)\n"
    )
    return {"PYTHONPATH": str(blocker)}


def rank_of(pid: int) -> str:
    """The number that a launcher gave a process, empty if none did."""
    pairs = read_of(pid, "environ").split("\0")
    variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return variables.get("PMI_RANK") or variables.get("OMPI_COMM_WORLD_RANK") or ""


def read_of(pid: int, what: str) -> str:
    """A file of /proc about a process, empty if that has gone."""
    try:
        return Path(f"/proc/{pid}/{what}").read_text(errors="replace")
    except OSError:
        return ""


def _started(pid: int) -> tuple[int, int]:
    fields = stat_of(pid)
    return (int(fields[19]) if fields else 0), pid


def are_gone(*pids: int) -> bool:
    """Whether processes have ended, or do within seconds."""
    deadline = time.monotonic() + 15
    while any(fate(pid, None) not in ("is gone", "is dead") for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
