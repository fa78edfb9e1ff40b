"""Which ranks do the same in a schedule, seen from where they are: one of them stands for all."""

from collections.abc import Callable
from functools import lru_cache

from collbench.schedules.ir import MAX_KEPT, Edge, Schedule

Moved = Callable[[int, int, int, int], int]  # (rank, origin, to, n)


def _shifted(rank: int, origin: int, to: int, n: int) -> int:
    """Where a rank is once a shift around the ring has brought `origin` to `to`."""
    return (rank - origin + to) % n


def _mirrored(rank: int, origin: int, to: int, n: int) -> int:
    """The same by mirrors of halves, of halves of halves, and so on."""
    return rank ^ origin ^ to


@lru_cache(maxsize=MAX_KEPT)
def symmetry(schedule: Schedule, every: int) -> Moved | None:
    """How the ranks can be moved to the first `every` so that programs and peers are the same
    there: rounds, and steps but for the chunks that these name. None if they cannot.

    >>> from collbench.schedules.algorithms import halving, ring, tree
    >>> from collbench.schedules.ir import build
    >>> from collbench.core.world import World
    >>> world = World(n=8, hosts=(0, 0, 0, 0, 1, 1, 1, 1))
    >>> for algo in (ring, halving, tree):
    ...     print(symmetry(build("allreduce", "any", algo.allreduce, world), 4) is not None)
    True
    True
    False
    """
    if schedule.is_symmetric:
        return _shifted
    return next((moved for moved in (_shifted, _mirrored) if _is_so(schedule, every, moved)), None)


def _is_so(schedule: Schedule, every: int, moved: Moved) -> bool:
    if moved is _mirrored and every & (every - 1):
        return False
    first = [_seen(schedule, rank, moved) for rank in range(every)]
    return all(
        _seen(schedule, rank, moved) == first[rank % every] for rank in range(every, schedule.n)
    )


def _seen(schedule: Schedule, rank: int, moved: Moved) -> tuple[object, ...]:
    """What the tracks of a rank do, moved to rank 0."""

    def far(edges: tuple[Edge, ...]) -> tuple[tuple[int, str], ...]:
        return tuple((moved(edge.peer, rank, 0, schedule.n), edge.port) for edge in edges)

    return tuple(
        tuple(
            tuple(
                (len(step.src), far(step.recv), step.dst is not None, far(step.send))
                for step in steps
            )
            for steps in track.rounds
        )
        for track in schedule.programs[rank]
    )
