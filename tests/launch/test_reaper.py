"""What a launcher's ranks leave behind, and what may be removed."""

import time
import uuid
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path

import pytest

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


def test_other_memory_stays() -> None:
    other = SHARED / f"collbench-test-{uuid.uuid4().hex}"
    other.touch()
    try:
        remove_memory_of_mpi(time.time() - CLOCK_S, wait_s=0)
        assert other.exists()
    finally:
        other.unlink()
