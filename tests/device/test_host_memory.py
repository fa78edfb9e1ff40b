"""Host memory that ranks share, with a simulation of CUDA: one process reads what another writes,
and nothing is left behind.
"""

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collbench.core.errors import UnavailableError
from collbench.device.host_memory import HostMemory, make, reach

READER = """
import ctypes, sys
from tests.device.test_host_memory import Runtime
from collbench.device.host_memory import reach
found = reach(Runtime(), (int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), 0))
print(ctypes.string_at(found.address + 100, 5).decode())
ctypes.memmove(found.address, b"back", 4)
found.close()
"""


class Runtime:
    """CUDA's part: it registers pages and counts them."""

    class CUDARuntimeError(Exception):
        pass

    def __init__(self, *, refuses: bool = False, same_address: bool = True) -> None:
        self.registered: list[int] = []
        self.refuses, self.same_address = refuses, same_address

    def deviceGetAttribute(self, attribute: int, device: int) -> int:
        return int(self.same_address)

    def deviceGetPCIBusId(self, device: int) -> str:
        return "0000:00:00.0"

    def hostRegister(self, address: int, size: int, flags: int) -> None:
        if self.refuses:
            raise self.CUDARuntimeError("out of memory")
        self.registered.append(address)

    def hostUnregister(self, address: int) -> None:
        self.registered.remove(address)


def write(memory: HostMemory, offset: int, data: bytes) -> None:
    ctypes.memmove(memory.address + offset, data, len(data))


def test_another_process_reads_and_writes_it() -> None:
    runtime: Any = Runtime()
    memory = make(runtime, 0, 1 << 16)
    assert ctypes.string_at(memory.address, 1 << 16) == bytes(1 << 16)
    assert reach(runtime, memory.handle()) is None, "its own process uses the same address"
    write(memory, 100, b"hello")
    words = [sys.executable, "-c", READER, *map(str, memory.handle()[:3])]
    root = Path(__file__).parent.parents[1]
    assert subprocess.check_output(words, cwd=root, text=True, timeout=60).strip() == "hello"
    assert ctypes.string_at(memory.address, 4) == b"back"
    memory.close()
    assert runtime.registered == []


def test_memory_of_one_process_is_zeroed_and_given_back() -> None:
    runtime: Any = Runtime()
    memory = make(runtime, 0, 3 << 20, is_shared=False)
    assert ctypes.string_at(memory.address, 3 << 20) == bytes(3 << 20)
    assert runtime.registered == [memory.address]
    memory.close()
    assert runtime.registered == []


def test_what_cannot_be_is_refused_with_a_hint() -> None:
    with pytest.raises(UnavailableError, match="other addresses"):
        make(Runtime(same_address=False), 0, 4096)
    with pytest.raises(UnavailableError, match="cannot map"):
        make(Runtime(refuses=True), 0, 4096)
    with pytest.raises(UnavailableError, match="cannot be opened"):
        reach(Runtime(), (2**22 + 1, 3, 4096, 0))


def test_a_kernel_without_huge_pages_gives_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pages(mmap.mmap):
        def madvise(self, *args: int) -> None:
            # man 2 madvise: not configured with CONFIG_TRANSPARENT_HUGEPAGE
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Pages)
    memory = make(Runtime(), 0, 8192, is_shared=False)
    write(memory, 100, b"hello")
    memory.close()
