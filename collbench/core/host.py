"""Cores, caches, names and memory of this host, from Linux's files alone; unknown values have a
stated default. And its huge pages.
"""

import errno
import mmap
import os
import platform
import resource
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from collbench.core import cgroup
from collbench.core.errors import CollbenchError
from collbench.core.units import parse_size

_PROCESSES = resource.RLIMIT_NPROC
# where sysfs has none: the last-level cache of a common server core complex
_DEFAULT_CACHE_BYTES = 32 << 20


def usable_cores() -> int:
    """How many cores this process may run on, or has the time of where a control group limits
    that.
    """
    cpus = _cpus()
    cores = len(own_cores())
    return cores if cpus is None else max(1, min(cores, int(cpus)))


@lru_cache(maxsize=1)
def _cpus() -> float | None:
    return cgroup.cpus()


def own_cores() -> frozenset[int]:
    """The cores that this process may run on."""
    return frozenset(os.sched_getaffinity(0))


@lru_cache(maxsize=1)
def last_level_cache_bytes() -> int:
    """Size of the largest cache of the first core."""
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            sizes.append(parse_size(file.read_text()))
        except (OSError, CollbenchError):
            continue
    return max(sizes, default=_DEFAULT_CACHE_BYTES)


@lru_cache(maxsize=1)
def cpu_name() -> str:
    """The CPU's name as the kernel gives it, with the number of usable cores."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{name} ({usable_cores()} cores)"


def has_nvidia_gpus() -> bool:
    """Whether the NVIDIA driver of this host has a GPU."""
    return any(Path("/proc/driver/nvidia/gpus").glob("*"))


def memory_left_bytes() -> int:
    """Memory that may still be taken, private or shared: what the kernel calls available, or less
    where a control group says so.
    """
    available = 1 << 62
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    return min(available, cgroup.memory_left_bytes())


def shortage(error: OSError) -> str:
    """What this process or the system has no more of, where a call of the kernel failed for that;
    else the kernel's own words.
    """
    limits = {
        errno.EMFILE: ("open files", "ulimit -n", resource.RLIMIT_NOFILE),
        errno.EAGAIN: ("processes", "ulimit -u, or pids.max of a control group", _PROCESSES),
    }
    if error.errno not in limits:
        return error.strerror or str(error)
    what, name, number = limits[error.errno]
    limit, _ = resource.getrlimit(number)
    most = "no limit here" if limit == resource.RLIM_INFINITY else str(limit)
    return f"{(error.strerror or what).lower()}: {what} are limited ({name}: {most})"


def own_pages(size: int, flags: int = 0) -> mmap.mmap:
    """Memory of this process alone, zeroed, in huge pages: MPI copies between processes page by
    page. flags: of mmap, besides.

    >>> len(own_pages(8192))
    8192
    """
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
    with suppress(OSError):  # a kernel that was built without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
