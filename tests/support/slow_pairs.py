"""Rates of pairs of ranks with places that were made slow: log-normal noise, and 2 of 100 samples
30 % off, to either side.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from collbench.core.pairwise import PairWorld, world_of
from collbench.doctor.hunt.fit import Fit, fit
from collbench.doctor.hunt.places import Floats, Ints, Place, places_of, rows_of
from collbench.doctor.hunt.rounds import planned

WILD, WILD_FACTOR = 0.02, 1.3


@dataclass(frozen=True, slots=True)
class Table:
    """Samples: sender, receiver, and the logarithm of the slowness."""

    a: Ints
    b: Ints
    slow: Floats


def world(hosts: int, width: int = 1) -> PairWorld:
    """Hosts with so many ranks each."""
    return world_of([f"h{host}" for host in range(hosts) for _ in range(width)])


@cache
def _pairs(ranks: PairWorld, choice: str) -> Ints:
    pairs = np.array([pair for turn in planned(ranks, choice) for pair in turn])
    host = np.array(ranks.host_numbers)
    if len(ranks.host_names) > 1:
        pairs = pairs[host[pairs[:, 0]] != host[pairs[:, 1]]]
    return np.concatenate((pairs, pairs[:, ::-1]))


def draw(
    rng: np.random.Generator, ranks: PairWorld, choice: str, repeats: int, spread: float
) -> Table:
    """Samples of both directions between hosts, or between the ranks of one, with nothing slow."""
    pairs = np.repeat(_pairs(ranks, choice), repeats, axis=0)
    noise = rng.normal(0, spread, len(pairs))
    noise += (
        (rng.random(len(pairs)) < WILD) * math.log(WILD_FACTOR) * rng.choice([-1, 1], len(pairs))
    )
    return Table(pairs[:, 0].copy(), pairs[:, 1].copy(), noise)


def slow_down(
    table: Table, ranks: PairWorld, place: Place, factor: float, *, is_there: bool = True
) -> None:
    """Make every sample of a place slower. is_there: there must be some."""
    group = {"host": ranks.host_numbers, "path": ranks.host_numbers, "rail": ranks.local}.get(
        place.kind, tuple(range(ranks.n))
    )
    a, b = np.array(group)[table.a], np.array(group)[table.b]
    first, last = place.key[0], place.key[-1]
    if place.kind in ("path", "pair"):
        there, back = (a == first) & (b == last), (a == last) & (b == first)
        hit = there if place.flow == "out" else there | back
    else:
        sends, receives = a == first, b == first
        hit = {"out": sends, "in": receives, "both": sends | receives}[place.flow]
    assert hit.any() or not is_there
    table.slow[hit] += math.log(factor)


def fitted(table: Table, ranks: PairWorld) -> Fit:
    """What the fit makes of them."""
    rows = rows_of(table.a, table.b, table.slow)
    return fit(rows, places_of(rows, ranks))


def named(table: Table, ranks: PairWorld) -> Sequence[Place]:
    """The places that the fit names, in no order."""
    return sorted(
        (cause.place for cause in fitted(table, ranks).causes),
        key=lambda place: (place.kind, place.key, place.flow),
    )
