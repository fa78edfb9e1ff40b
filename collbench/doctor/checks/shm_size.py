"""Whether /dev/shm is large enough for libraries that put their buffers there."""

import errno
import os
from collections.abc import Iterable

from collbench.core.units import format_size
from collbench.doctor.check import Evidence, Finding, told

_FAULT_BYTES = 64 << 20
_PER_RANK_BYTES = 256 << 20


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, host, system in evidence.systems():
        needed = _PER_RANK_BYTES * max(len(host.processes), len(host.gpus), 1)
        size, free = system.shm_bytes, system.shm_free_bytes
        is_full = False
        if size is None or free is None:
            if system.unknown.get("shm_bytes") != os.strerror(errno.ENOENT):
                continue
            is_fault, seen = True, "there is no /dev/shm"
        else:
            is_fault = free < _FAULT_BYTES
            if not is_fault and free >= min(needed, size):
                continue
            is_full = size >= needed
            seen = (
                f"/dev/shm is {'in use' if is_full else 'small'}: {_whole_mib(free)} of"
                f" {_whole_mib(size)} are free"
            )
        row = "shm-full" if is_full else "shm-small"
        yield told(row, name, seen, severity="fault" if is_fault else "risk")


def _whole_mib(size_bytes: int) -> str:
    return format_size(size_bytes >> 20 << 20)
