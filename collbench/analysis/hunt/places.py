"""Where a slowness can be (hosts, ranks, rails, paths, pairs), and which samples it would slow."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from collbench.results.pairwise import PairWorld

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
PlaceKind = Literal["host", "rank", "rail", "path", "pair", "load"]
# of a host or a rank: what it sends, what it receives; of a path or a pair: from the first to the
# second of its key
Flow = Literal["both", "out", "in"]


@dataclass(frozen=True, slots=True)
class Place:
    """A possible cause. key: the number of the host, rank or rail, the two of a path or a pair, or
    nothing of the load of all pairs at once.
    """

    kind: PlaceKind
    key: tuple[int, ...]
    flow: Flow = "both"


@dataclass(frozen=True, slots=True)
class Table:
    """Samples of one kind as columns: sender, receiver, and the logarithm of the slowness.

    is_both: both directions at once, so that no sample shows a direction.
    """

    a: Ints
    b: Ints
    slow: Floats
    is_both: bool = False

    def __len__(self) -> int:
        return len(self.slow)


@dataclass(frozen=True, slots=True)
class Family:
    """Places of one kind and flow that samples belong to.

    members: numbers of samples; groups: beside each, the place; both sorted by place. starts: where
    each place begins, and the end.
    """

    kind: PlaceKind
    flow: Flow
    members: Ints
    groups: Ints
    starts: Ints
    key_of: Callable[[int], tuple[int, ...]]

    def place(self, group: int) -> Place:
        """The place of a group."""
        return Place(self.kind, self.key_of(group), self.flow)

    def samples(self, group: int) -> Ints:
        """The numbers of the samples of a group."""
        return self.members[self.starts[group] : self.starts[group + 1]]


def families(table: Table, world: PairWorld) -> list[Family]:
    """All places that samples of one kind can tell of, the simplest first.

    Of one host they are its ranks and pairs; where every host has one rank, hosts and paths stand
    for ranks and pairs.
    """
    host = np.array(world.host_numbers, np.int64)
    rail = np.array(world.local, np.int64)
    a, b = table.a, table.b
    host_a, host_b = host[a], host[b]
    is_between = bool(len(table)) and bool((host_a != host_b).any())
    found: list[Family] = []
    if len(world.host_names) > 1:
        found += _ends("host", host_a, host_b, is_directed=is_between and not table.is_both)
    if not world.is_one_rank_a_host:
        found += _ends("rank", a, b, is_directed=not table.is_both)
    if is_between and max(world.local) > 0:
        found += _ends("rail", rail[a], rail[b], is_directed=False)
    if is_between:
        found += _edges("path", host_a, host_b, len(world.host_names), table.is_both)
    if not world.is_one_rank_a_host:
        found += _edges("pair", a, b, world.n, table.is_both)
    return found


def directed_pairs(table: Table, n: int) -> Family:
    """Every pair and direction of n ranks."""
    return _family(
        "pair", "out", np.arange(len(table)), table.a * n + table.b, lambda key: divmod(key, n)
    )


def _ends(kind: PlaceKind, a: Ints, b: Ints, *, is_directed: bool) -> Iterator[Family]:
    """What both ends, the sender, or the receiver of a sample belong to."""
    numbers = np.arange(len(a))
    is_other = a != b
    yield _family(
        kind,
        "both",
        np.concatenate((numbers, numbers[is_other])),
        np.concatenate((a, b[is_other])),
        lambda key: (key,),
    )
    if is_directed:
        yield _family(kind, "out", numbers, a, lambda key: (key,))
        yield _family(kind, "in", numbers, b, lambda key: (key,))


def _edges(kind: PlaceKind, a: Ints, b: Ints, n: int, is_both: bool) -> Iterator[Family]:
    """The two ends of a sample in any order, then from the first to the second."""
    numbers = np.arange(len(a))
    low, high = np.minimum(a, b), np.maximum(a, b)
    yield _family(kind, "both", numbers, low * n + high, lambda key: divmod(key, n))
    if not is_both:
        yield _family(kind, "out", numbers, a * n + b, lambda key: divmod(key, n))


def _family(
    kind: PlaceKind,
    flow: Flow,
    numbers: Ints,
    labels: Ints,
    key_of: Callable[[int], tuple[int, ...]],
) -> Family:
    order = np.argsort(labels, kind="stable")
    keys, groups = np.unique(labels[order], return_inverse=True)
    starts = np.append(np.searchsorted(groups, np.arange(len(keys))), len(labels))
    return Family(
        kind, flow, numbers[order], groups, starts, lambda group: key_of(int(keys[group]))
    )
