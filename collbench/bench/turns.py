"""Whose turn it is: in which order the repeats of points are measured, and which points need more
of them because one repeat could turn an answer.
"""

from collections.abc import Iterator, Sequence

from collbench.bench.points import SweepPoint
from collbench.core.peers import is_peer
from collbench.core.verdict import may_move, middle

STRIDE = 24  # points between two repeats of one point, in a sweep long enough
# The seconds between them that suffice to see drift: slow points need fewer others in between, and
# their rows come sooner.
SPREAD_S = 5.0


def order(points: int, repeats: int, stride: int = STRIDE) -> Iterator[tuple[int, int]]:
    """(point, repeat) in the order of measurement: each repeat of a point follows `stride` points
    after the one before.

    >>> list(order(3, 2))
    [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    """
    stride = max(1, min(stride, points))
    for turn in range(points + stride * (repeats - 1)):
        for repeat in range(repeats):
            point = turn - repeat * stride
            if 0 <= point < points:
                yield point, repeat


def matters(point: SweepPoint, live: Sequence[SweepPoint]) -> bool:
    """Whether one repeat could move the time of a point, and that an answer: it is the tool's own
    choice, or may be the fastest of its problem, of ours or of its library.
    """
    times = _times_of(point)
    if any(samples.wrong for samples in point.repeats) or not may_move(times):
        return False
    rivals = [one for one in live if one.repeats and _contest(one) == _contest(point)]
    least = min(middle(_times_of(one)) for one in rivals)
    return point.is_choice or sorted(times)[len(times) // 2 - 1] <= least


def _times_of(point: SweepPoint) -> list[float]:
    return [max(samples.seconds) for samples in point.repeats]


def _contest(point: SweepPoint) -> tuple[object, ...]:
    """What points have in common of which one is the fastest."""
    case = point.case
    backend = case.backend if is_peer(case.backend) else ""
    return (
        backend,
        case.op,
        case.size_bytes,
        case.ranks,
        case.dtype,
        case.redop,
        case.root,
        (case.placement, case.skew, case.groups, case.mix),
    )
