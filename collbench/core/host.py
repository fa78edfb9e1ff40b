"""Cores, caches, names and memory of this host, from Linux's files alone; unknown values have a
stated default. What the control groups of this process allow of them, of version 1 or 2: a group's
limit holds for the groups below it. And huge pages.
"""

import errno
import mmap
import os
import platform
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from collbench.core.errors import CollbenchError
from collbench.core.launcher import launcher
from collbench.core.text import counted
from collbench.core.units import parse_size

_PROCESSES = resource.RLIMIT_NPROC
# where sysfs has none: the last-level cache of a common server core complex
_DEFAULT_CACHE_BYTES = 32 << 20
_ROOT = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 62  # of bytes; version 1 writes a number of this order where it has none


def host_name() -> str:
    """What this host is called; under Slurm as it calls its nodes. An mpirun may have passed the
    variable on from another host: to several ranks it counts if it differs in the domain alone.
    """
    name, node = socket.gethostname(), os.environ.get("SLURMD_NODENAME", "")
    is_own = launcher() is None or node.partition(".")[0] == name.partition(".")[0]
    return node if node and is_own else name


def usable_cores() -> int:
    """How many cores this process may run on, or has the time of where a control group limits
    that.
    """
    cpus = _cpus()
    cores = len(own_cores())
    return cores if cpus is None else max(1, min(cores, int(cpus)))


@lru_cache(maxsize=1)
def _cpus() -> float | None:
    return group_cpus()


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
    name = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{name} ({counted(usable_cores(), 'core')})"


def boot_id(root: Path = Path("/")) -> str:
    """What hosts of one kernel, and so of one machine, have in common. Raises OSError."""
    return (root / "proc/sys/kernel/random/boot_id").read_text().strip()


def has_nvidia_gpus() -> bool:
    """Whether the NVIDIA driver of this host has a GPU."""
    return any(Path("/proc/driver/nvidia/gpus").glob("*"))


def memory_left_bytes() -> int:
    """Memory that may still be taken, by the kernel, or less by a control group."""
    available = 1 << 62
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    return min(available, group_memory_left_bytes())


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


def group_memory_left_bytes(root: Path = _ROOT, own: Path = Path("/proc/self/cgroup")) -> int:
    """The least memory that any group has left, cache included; beyond any without a limit."""
    left = _NO_LIMIT
    for folder, version in _folders("memory", root, own):
        limit, used, cache = (
            ("memory.max", "memory.current", "inactive_file")
            if version == 2
            else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        )
        most, taken = _number(folder / limit), _number(folder / used)
        if most is not None and taken is not None:
            left = min(left, max(0, most - taken + _statistic(folder / "memory.stat", cache)))
    return left


def group_cpus(root: Path = _ROOT, own: Path = Path("/proc/self/cgroup")) -> float | None:
    """The CPUs' worth of time that the tightest group may use at once; None without a limit."""
    shares = []
    for folder, version in _folders("cpu", root, own):
        if version == 2:
            quota, _, period = _text(folder / "cpu.max").partition(" ")
        else:
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period):
            shares.append(int(quota) / int(period))
    return min(shares, default=None)


def memory_limit_bytes(root: Path = _ROOT, own: Path = Path("/proc/self/cgroup")) -> int | None:
    """The least limit of memory of any group; None without a limit."""
    limits = [
        limit
        for folder, version in _folders("memory", root, own)
        if (limit := _number(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")))
        is not None
    ]
    least = min(limits, default=_NO_LIMIT)
    return least if least < _NO_LIMIT else None


def most_processes(root: Path = _ROOT, own: Path = Path("/proc/self/cgroup")) -> int | None:
    """The least number of processes and threads that any group allows; None without a limit."""
    numbers = (_number(folder / "pids.max") for folder, _ in _folders("pids", root, own))
    return min((one for one in numbers if one is not None), default=None)


def _folders(controller: str, root: Path, own: Path) -> Iterator[tuple[Path, int]]:
    """The folders of this process's groups, from its own up to the root, and their version."""
    for line in _text(own).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            top, version = root, 2
        elif controller in controllers.split(","):
            top, version = root / controller, 1
        else:
            continue
        below = Path(path.strip("/"))
        # in a container the path may be the host's, of which only the root is mounted
        for part in (below, *below.parents) if path.strip("/") else (below,):
            yield top / part, version


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text.isdecimal() else None


def _statistic(file: Path, name: str) -> int:
    fields = dict(line.partition(" ")[::2] for line in _text(file).splitlines())
    value = fields.get(name, "")
    return int(value) if value.isdecimal() else 0
