"""Guard zones around user buffers, in problems with margins: nobody may write there."""

from collections.abc import Sequence

import numpy as np

from collbench.core.case import Problem
from collbench.core.pattern import Wrong

MARGIN_BYTES = 512  # a multiple of what buffers on GPUs begin at
GUARD = 0xA5  # every byte of a zone


def zones(problem: Problem, rank: int) -> list[range]:
    """Where the zones of a set of user buffers are, in bytes from its beginning.

    >>> of = {"root": 0, "dtype": "int8", "redop": "sum", "in_place": False, "margin_bytes": 512}
    >>> zones(Problem(op="broadcast", n=2, block_count=100, **of), 0)
    [range(0, 512), range(612, 1152), range(1252, 1764)]
    """
    at, end = problem.buffers(rank), 0
    buffers = sorted([(at.in_offset, at.in_bytes), (at.out_offset, at.out_bytes)])
    found = list[range]()
    for first, size in [*(one for one in buffers if one[1]), (at.total_bytes, 0)]:
        found += [range(end, first)] if first > end else []
        end = max(end, first + size)
    return found if problem.margin_bytes else []


def stray(problem: Problem, rank: int, seen: Sequence[bytes]) -> Wrong | None:
    """What was written in the zones of a set, whose bytes are given."""
    at = problem.buffers(rank)
    for zone, data in zip(zones(problem, rank), seen, strict=True):
        written = np.flatnonzero(np.frombuffer(data, np.uint8) != GUARD)
        if written.size:
            behind, before = int(written[0]) + 1, len(zone) - int(written[-1])
            is_behind = zone.start and (behind <= before or zone.stop == at.total_bytes)
            edge, far = (zone.start, behind) if is_behind else (zone.stop, before)
            of = "output" if edge in (at.out_offset, at.out_offset + at.out_bytes) else "input"
            got = f"{written.size} bytes written, the nearest is byte {far}"
            got += f" {'behind' if is_behind else 'before'} its {of}"
            return Wrong(rank=rank, count=written.size, got=got, wanted="none there")
    return None
