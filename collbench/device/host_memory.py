"""Host memory that GPUs read and write, registered with CUDA. Ranks that share it map an unnamed
file; a single rank uses its process's own pages.

The file has no name, so nothing is left behind if a process dies. A rank of another process opens
it through /proc. The pages lie on the NUMA node of the GPU whose rank created them, if the host has
several. Source of mbind's numbers: linux/mempolicy.h.
"""

import ctypes
import mmap
import os
from pathlib import Path

from collbench.core.errors import UnavailableError
from collbench.core.host import own_pages
from collbench.device.cupy_types import Runtime

_SYS_MBIND, _PREFERRED = 237, 1  # x86-64; elsewhere pages go where the kernel puts them
_PORTABLE_AND_MAPPED = 3  # cudaHostRegisterPortable | cudaHostRegisterMapped
_CAN_USE_HOST_POINTER = 91  # cudaDevAttrCanUseHostPointerForRegisteredMem
Handle = tuple[int, int, int, int]  # process, file, bytes, address there


class HostMemory:
    """One rank's mapping: its own file (created here), another rank's file (opened), or huge pages
    that no other rank maps.
    """

    def __init__(self, runtime: Runtime, size: int, file: int | None, *, node: int = -1) -> None:
        """Raises UnavailableError if CUDA cannot register it."""
        self._runtime, self.size, self.file = runtime, size, file
        self._map = own_pages(size) if file is None else mmap.mmap(file, size)
        self._anchor = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._anchor)
        if node >= 0 and os.uname().machine == "x86_64":
            mask = ctypes.c_ulong(1 << node)
            start, length = ctypes.c_void_p(self.address), ctypes.c_ulong(size)
            ctypes.CDLL(None).syscall(
                _SYS_MBIND, start, length, _PREFERRED, ctypes.byref(mask), ctypes.c_ulong(64), 0
            )
        try:
            runtime.hostRegister(self.address, size, _PORTABLE_AND_MAPPED)
        except runtime.CUDARuntimeError as error:
            raise UnavailableError(
                f"the GPU cannot map {size >> 20}M of host memory: {error}",
                "see ulimit -l, or use a smaller --buffsize",
            ) from error

    def handle(self) -> Handle:
        """What another rank needs to open it."""
        assert self.file is not None
        return os.getpid(), self.file, self.size, self.address

    def close(self) -> None:
        """Release the mapping; the mappings of other ranks stay."""
        self._runtime.hostUnregister(self.address)
        del self._anchor
        self._map.close()
        if self.file is not None:
            os.close(self.file)


def make(runtime: Runtime, device: int, size: int, *, is_shared: bool = True) -> HostMemory:
    """Zeroed memory of this rank, near its GPU. Raises UnavailableError if the GPU uses other
    addresses for it than the CPUs.
    """
    if not runtime.deviceGetAttribute(_CAN_USE_HOST_POINTER, device):
        raise UnavailableError(
            f"GPU {device} accesses host memory at other addresses than the CPUs",
            "use --transport p2p",
        )
    file = os.memfd_create("collbench", os.MFD_CLOEXEC) if is_shared else None
    if file is not None:
        os.truncate(file, size)
    return HostMemory(runtime, size, file, node=_numa_node(runtime.deviceGetPCIBusId(device)))


def reach(runtime: Runtime, handle: Handle) -> HostMemory | None:
    """Another rank's memory; None if it belongs to this process, where its address is valid. Raises
    UnavailableError.
    """
    process, file, size, _ = handle
    if process == os.getpid():
        return None
    try:
        return HostMemory(runtime, size, os.open(f"/proc/{process}/fd/{file}", os.O_RDWR))
    except OSError as error:
        raise UnavailableError(
            f"the memory of process {process} cannot be opened: {error.strerror}",
            "start all ranks of a host in one container",
        ) from error


def _numa_node(bus_id: str) -> int:
    """The NUMA node of a PCI device; -1 if the host has only one or does not report it."""
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    try:
        return (
            int(Path(f"/sys/bus/pci/devices/{bus_id.lower()}/numa_node").read_text())
            if nodes > 1
            else -1
        )
    except (OSError, ValueError):
        return -1
