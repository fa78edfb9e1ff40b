"""What a cleaner does: which memory of MPI's it removes, and which launcher it ends."""

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path

import pytest

from collbench.launch import cleaner
from collbench.launch.cleaner import CLOCK_S, mapped_files, remove_memory_of_mpi
from collbench.launch.processes import command_of, descendants
from tests.support.runs import are_gone, said_by

SHARED = Path("/dev/shm")
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="there is no /dev/shm")


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file as MPICH makes one, or of another name."""
    file = SHARED / getattr(request, "param", "mpich_shm_{}_0").format(uuid.uuid4().hex)
    file.write_bytes(bytes(4096))
    yield file
    file.unlink(missing_ok=True)


@needs_shared
@pytest.mark.parametrize(
    ("memory", "later_s", "is_kept"),
    [("mpich_shm_{}_0", 0, False), ("mpich_shm_{}_0", 3600, True), ("collbench-test-{}", 0, True)],
    indirect=["memory"],
)
def test_memory_of_mpi_that_nobody_has_is_removed_and_no_other(
    memory: Path, later_s: float, is_kept: bool
) -> None:
    remove_memory_of_mpi(time.time() + later_s - CLOCK_S, wait_s=0)
    assert memory.exists() == is_kept


@needs_shared
def test_memory_that_a_process_has_stays(memory: Path) -> None:
    with memory.open("r+b") as file:
        remove_memory_of_mpi(time.time() - CLOCK_S, wait_s=0)
        assert memory.exists()
        mapped = mmap(file.fileno(), 4096)
    remove_memory_of_mpi(time.time() - CLOCK_S, wait_s=0)
    assert memory.exists()
    assert memory in mapped_files("self")
    mapped.close()


@needs_shared
@pytest.mark.parametrize("look", ["listdir", "scandir"])
def test_a_process_that_ends_meanwhile_keeps_no_file(
    memory: Path, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    real = getattr(os, look)

    def gone(path: object = ".") -> object:
        if str(path) == f"/proc/{os.getpid()}/fd":
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr(os, look, gone)
    remove_memory_of_mpi(time.time() - CLOCK_S, wait_s=0)
    assert not memory.exists()


def test_the_file_of_mpichs_launcher_is_known_by_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "_TEMPORARY", tmp_path)
    start = time.time() - CLOCK_S
    first = tmp_path / "hydra_hwloc_xmlfile_1"
    first.touch()
    assert cleaner.topology_of_mpi(start) == [first]
    assert cleaner.topology_of_mpi(start + 9) == []
    (tmp_path / "hydra_hwloc_xmlfile_2").touch()
    assert cleaner.topology_of_mpi(start) == []


def test_a_stopped_cleaner_ends_with_its_guardian() -> None:
    guard = (
        "import os, signal\n"
        "from collbench.core.launcher import Launcher\n"
        "from collbench.launch.cleaner import start_cleaner\n"
        "start_cleaner(Launcher(vendor='MPICH', size=1, rank=0))\n"
        "pid = open(f'/proc/{os.getpid()}/task/{os.getpid()}/children').read().split()[0]\n"
        "while os.getsid(int(pid)) != int(pid): pass\n"  # it is set up by then
        "os.kill(int(pid), signal.SIGSTOP)\n"
        "print(pid)\n"
    )
    pid = int(said_by([sys.executable, "-c", guard]).stdout)
    assert are_gone(pid)


@needs_shared
def test_what_a_rank_makes_after_its_guardians_end_is_removed() -> None:
    name = f"mpich_shm_{uuid.uuid4().hex}_0"
    guard = (
        "import os, time\n"
        "from collbench.core.launcher import Launcher\n"
        "from collbench.launch.cleaner import start_cleaner\n"
        "cleaner, _ = start_cleaner(Launcher(vendor='MPICH', size=1, rank=0))\n"
        "guardian = os.getpid()\n"
        "if os.fork() == 0:\n"
        "    os.close(cleaner)\n"
        "    while os.getppid() == guardian: pass\n"
        "    time.sleep(0.5)\n"  # a cleaner that does not wait has looked by then
        f"    open('/dev/shm/{name}', 'w').close()\n"
        "    print('made', flush=True)\n"
    )
    assert said_by([sys.executable, "-c", guard]).stdout == "made\n"
    try:
        deadline = time.monotonic() + 10
        while (SHARED / name).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not (SHARED / name).exists()
    finally:
        (SHARED / name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("name", "script", "ended_by"),
    [
        ("prterun", "read", signal.SIGTERM),
        ("mpirun", "sleep 60 & echo; wait", None),  # it has a process
        ("bash", "read", None),
    ],
)
def test_a_launcher_without_processes_is_ended_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str, ended_by: int | None
) -> None:
    monkeypatch.setattr(cleaner, "_HUNG_S", 0.2)
    monkeypatch.setattr(cleaner, "_GIVEN_UP_S", 0.5)
    program = tmp_path / name
    shutil.copy(shutil.which("bash") or "/bin/bash", program)
    with subprocess.Popen([program, "-c", f"echo; {script}"], stdin=-1, stdout=-1) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            while "&" in script and not any(descendants(process.pid)):
                pass
            cleaner._end_without_ranks(process.pid)
            ended = process.wait(timeout=5) if ended_by is not None else process.poll()
            assert (command_of(process.pid), ended) == (
                ("", -ended_by) if ended_by is not None else (name, None)
            )
        finally:
            for pid in [*descendants(process.pid), process.pid]:
                subprocess.run(["kill", "-9", str(pid)], check=False)
