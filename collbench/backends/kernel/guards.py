"""Guard zones: what lies around a rank's input and output, where nobody may write."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from collbench.core.case import Case, Problem
from collbench.core.pattern import Wrong

MARGIN_BYTES = 512  # a multiple of what buffers on GPUs begin at
GUARD = 0xA5  # every byte of a zone


def guarded(case: Case) -> Problem:
    """What a case computes, on buffers between zones."""
    return replace(case.problem(), margin_bytes=MARGIN_BYTES)


def zones(problem: Problem, rank: int) -> list[range]:
    """Where the zones of a set of user buffers are, in bytes from its beginning.

    >>> of = {"root": 0, "dtype": "int8", "redop": "sum", "in_place": False, "margin_bytes": 512}
    >>> zones(Problem(op="broadcast", n=2, block_count=100, **of), 0)
    [range(0, 512), range(612, 1152), range(1252, 1764)]
    """
    at = problem.buffers(rank)
    buffers = sorted([(at.in_offset, at.in_bytes), (at.out_offset, at.out_bytes)])
    found, end = list[range](), 0
    for first, size in [*(one for one in buffers if one[1]), (at.total_bytes, 0)]:
        if first > end:
            found.append(range(end, first))
        end = max(end, first + size)
    return found


def stray(problem: Problem, rank: int, seen: Sequence[bytes]) -> Wrong | None:
    """What was written in the zones of a set, whose bytes are given."""
    at = problem.buffers(rank)
    for zone, data in zip(zones(problem, rank), seen, strict=True):
        written = np.flatnonzero(np.frombuffer(data, np.uint8) != GUARD)
        if not written.size:
            continue
        first, last = zone[written[0]], zone[written[-1]]
        behind, before = first - zone.start + 1, zone.stop - last
        is_behind = zone.start and (behind <= before or zone.stop == at.total_bytes)
        ends = (at.out_offset + at.out_bytes, at.out_offset)
        of = "output" if (zone.start if is_behind else zone.stop) in ends else "input"
        where = f"{behind} behind" if is_behind else f"{before} before"
        got = f"{written.size} bytes written, the nearest is byte {where} its {of}"
        return Wrong(rank=rank, count=int(written.size), got=got, wanted="none there")
    return None
