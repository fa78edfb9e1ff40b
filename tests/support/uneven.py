"""Problems of unequal blocks to try: drawn counts, zeros and a hot rank among them."""

import random

from collbench.core.case import Problem
from collbench.core.collectives import UNEVEN_OPS, OpName
from collbench.core.dtypes import DtypeName, RedopName
from collbench.core.uneven import is_matrix
from collbench.planning.selection import algorithms_of

UNEVEN_PAIRS = [(op, algo) for op in UNEVEN_OPS for algo in algorithms_of(op)]


def drawn_counts(op: OpName, n: int, chance: random.Random, most: int = 150) -> tuple[int, ...]:
    """Counts with many zeros, some small ones, and one that needs many loops."""
    wanted = [
        chance.choice((0, 0, 1, 3, 15, 64, 101)) for _ in range(n * n if is_matrix(op) else n)
    ]
    wanted[chance.randrange(len(wanted))] = most
    return tuple(wanted)


def uneven_problem(
    op: OpName,
    n: int,
    counts: tuple[int, ...],
    *,
    dtype: DtypeName = "float32",
    redop: RedopName = "sum",
    in_place: bool = False,
) -> Problem:
    """The problem of those counts."""
    return Problem(
        op=op,
        n=n,
        root=0,
        block_count=max(counts),
        dtype=dtype,
        redop=redop,
        in_place=in_place,
        counts=counts,
    )
