"""Every registered (collective, algorithm) and the problems to try it on; those of unequal blocks,
zeros and a hot rank among them.
"""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from collbench.backends.reference import ReferenceRun
from collbench.backends.repeat import verify_in_process
from collbench.core.case import Problem
from collbench.core.collectives import OPS, UNEVEN_OPS, OpName, collective
from collbench.core.dtypes import DtypeName, RedopName, dtype
from collbench.core.uneven import is_matrix
from collbench.core.world import World
from collbench.planning.layout import lay_out, registered
from collbench.planning.plan import Plan
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.selection import algorithms_of
from collbench.schedules.algorithms import FAMILY, needs_hosts
from tests.support.tiers import drawn

CPU_PROTOCOLS = tuple(
    name
    for name in PROTOCOLS.names()
    if not PROTOCOLS.load(name).CLEARS  # needs GPUs
)
PAIRS: list[tuple[OpName, str]] = [
    (op, algo) for op in OPS for algo in FAMILY if op in FAMILY.load(algo).SERVES
]

MANY_ROOTS = 5


def problem(
    op: OpName,
    n: int,
    *,
    root: int = 0,
    count: int = 37,
    dtype: DtypeName = "float32",
    redop: RedopName = "sum",
    in_place: bool = False,
    counts: tuple[int, ...] = (),
) -> Problem:
    return Problem(
        op=op,
        n=n,
        root=root,
        block_count=max(counts, default=count),
        dtype=dtype,
        redop=redop,
        in_place=in_place,
        counts=counts,
    )


def world_of(algo: str, n: int, root: int = 0, order: tuple[int, ...] = ()) -> World:
    """A world of that many ranks: on one host, or, for an algorithm that needs several, in turn on
    as few as have equal numbers of ranks, at most 8.
    """
    most = min(n - 1, 8)
    size = max(k for k in range(1, most + 1) if n % k == 0) if needs_hosts(algo) else n
    # a prime number of ranks: one host
    hosts = tuple(rank % (n // size) for rank in range(n)) if 1 < size < n else ()
    return World(n=n, root=root, order=order, hosts=hosts)


def plan_of(what: Problem, algo: str, **knobs: Any) -> Plan:
    """A plan of a registered algorithm; knobs: of lay_out."""
    schedule = registered(what.op, algo, world_of(algo, what.n, what.root))
    return lay_out(what, schedule, **{"slots": 4, "chunk_bytes": 64, **knobs})


def roots(op: OpName, n: int) -> Sequence[int]:
    return range(n) if collective(op).is_rooted else (0,)


def some_roots(op: OpName, n: int, *about: object) -> Sequence[int]:
    """All, or of many ranks one that is drawn for what the test is about."""
    every = roots(op, n)
    return every if len(every) <= MANY_ROOTS else (drawn(every, op, n, *about),)


def placements(op: OpName) -> Sequence[bool]:
    return (False, True) if collective(op).has_in_place else (False,)


def assert_right(plan: Plan) -> None:
    """The reference ends with what the collective's definition says."""
    machine = ReferenceRun(plan)
    assert verify_in_process(plan.problem, machine.buffer, machine.launch) == ()


def random_inputs(what: Problem, seed: int) -> list[np.ndarray]:
    """Inexact data: a change in the order of operations shows."""
    rng = np.random.default_rng(seed)
    kind = dtype(what.dtype).numpy()
    sizes = [what.buffers(rank).in_bytes // what.item_bytes for rank in range(what.n)]
    if dtype(what.dtype).is_float:
        return [(rng.standard_normal(size) * 3).astype(kind) for size in sizes]
    return [rng.integers(0, 100, size).astype(kind) for size in sizes]


UNEVEN_PAIRS = [(op, algo) for op in UNEVEN_OPS for algo in algorithms_of(op)]


def drawn_counts(op: OpName, n: int, chance: random.Random, most: int = 150) -> tuple[int, ...]:
    """Counts with many zeros, some small ones, and one that needs many loops."""
    wanted = [
        chance.choice((0, 0, 1, 3, 15, 64, 101)) for _ in range(n * n if is_matrix(op) else n)
    ]
    wanted[chance.randrange(len(wanted))] = most
    return tuple(wanted)


def uneven_problem(op: OpName, n: int, counts: tuple[int, ...], **more: Any) -> Problem:
    """The problem of those counts."""
    return problem(op, n, counts=counts, **more)
