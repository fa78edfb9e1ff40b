"""Whether /dev/shm is large enough for libraries that put their buffers there."""

import errno
import os
from collections.abc import Iterable

from collbench.core.units import format_size
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen

NEEDS: tuple[Need, ...] = ("system",)

_FAULT_BYTES = 64 << 20
_PER_RANK_BYTES = 256 << 20


def find(evidence: Evidence) -> Iterable[Seen]:
    for name, host, system in evidence.systems():
        needed = _PER_RANK_BYTES * max(len(host.processes), len(host.gpus), 1)
        size, free = system.shm_bytes, system.shm_free_bytes
        if size is None or free is None:
            if system.unknown.get("shm_bytes") == os.strerror(errno.ENOENT):
                yield seen("missing", name)
        elif free < max(_FAULT_BYTES, min(needed, size)):
            yield seen(
                "full" if size >= needed else "small",
                name,
                "fault" if free < _FAULT_BYTES else "risk",
                free=_whole_mib(free),
                size=_whole_mib(size),
            )


def _whole_mib(size_bytes: int) -> str:
    return format_size(size_bytes >> 20 << 20)
