"""What a launcher's ranks leave behind, and what may be removed."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path

import pytest

from collbench.launch import reaper
from collbench.launch.processes import fate
from collbench.launch.reaper import CLOCK_S, mapped_files, remove_memory_of_mpi

SHARED = Path("/dev/shm")

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="there is no /dev/shm")


@pytest.fixture
def memory() -> Iterator[Path]:
    """A file as MPICH makes one."""
    file = SHARED / f"mpich_shm_{uuid.uuid4().hex}_0"
    file.write_bytes(bytes(4096))
    yield file
    file.unlink(missing_ok=True)


def test_memory_that_nobody_has_is_removed(memory: Path) -> None:
    remove_memory_of_mpi(time.time() - CLOCK_S, wait_s=0)
    assert not memory.exists()


def test_memory_of_before_stays(memory: Path) -> None:
    remove_memory_of_mpi(time.time() + 3600, wait_s=0)
    assert memory.exists()


def test_memory_that_a_process_has_stays(memory: Path) -> None:
    with memory.open("r+b") as file:
        remove_memory_of_mpi(time.time() - CLOCK_S, wait_s=0)
        assert memory.exists()
        mapped = mmap(file.fileno(), 4096)
    remove_memory_of_mpi(time.time() - CLOCK_S, wait_s=0)
    assert memory.exists()
    assert memory in mapped_files("self")
    mapped.close()


def test_the_file_of_mpichs_launcher_is_known_by_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "_TOPOLOGIES", tmp_path / "hydra_hwloc_xmlfile_*")
    start = time.time() - CLOCK_S
    first = tmp_path / "hydra_hwloc_xmlfile_1"
    first.touch()
    assert reaper.topology_of_mpi(start, time.time() + CLOCK_S) == [first]
    assert reaper.topology_of_mpi(start - 9, start) == []
    (tmp_path / "hydra_hwloc_xmlfile_2").touch()
    assert reaper.topology_of_mpi(start, time.time() + CLOCK_S) == []


def test_a_stopped_reaper_ends_all_when_its_driver_has_gone() -> None:
    drive = (
        "import os, signal, subprocess, sys, time\n"
        "command = sys.executable, sys.argv[1], str(os.getpid()), 'sleep', '99'\n"
        "reaper = subprocess.Popen(command, stdout=subprocess.DEVNULL)\n"
        "children = f'/proc/{reaper.pid}/task/{reaper.pid}/children'\n"
        "while not open(children).read().split():\n"
        "    time.sleep(0.01)\n"
        "os.kill(reaper.pid, signal.SIGSTOP)\n"
        "print(reaper.pid, open(children).read())\n"
    )
    command = [sys.executable, "-c", drive, reaper.__file__]
    pids = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert len(pids) == 2
    assert are_gone(pids)


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
    command = [sys.executable, "-c", guard]
    pids = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert len(pids) == 1
    assert are_gone(pids)


def are_gone(pids: list[str]) -> bool:
    """Whether processes end within seconds."""
    deadline = time.monotonic() + 15
    while alive := [pid for pid in pids if fate(int(pid), None) not in ("is gone", "is dead")]:
        if time.monotonic() > deadline:
            return not alive
        time.sleep(0.05)
    return True


def test_other_memory_stays() -> None:
    other = SHARED / f"collbench-test-{uuid.uuid4().hex}"
    other.touch()
    try:
        remove_memory_of_mpi(time.time() - CLOCK_S, wait_s=0)
        assert other.exists()
    finally:
        other.unlink()
