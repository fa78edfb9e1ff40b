"""What the control groups of this process allow, of version 1 or 2: memory and CPU time. A group's
limit holds for the groups below it.
"""

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 62  # of bytes; version 1 writes a number of this order where it has none


def memory_left_bytes(root: Path = _ROOT, own: Path = Path("/proc/self/cgroup")) -> int:
    """The least memory that any group has left; page cache that can be dropped counts as left.
    Without a limit: a number beyond any memory.
    """
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


def cpus(root: Path = _ROOT, own: Path = Path("/proc/self/cgroup")) -> float | None:
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
    """The folders of the groups that this process is in, from its own up to the root, and their
    version.
    """
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
