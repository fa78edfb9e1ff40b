"""Where a slowness can be (hosts, ranks, rails, paths, pairs), and which samples it would slow."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from collbench.core.pairwise import PairWorld

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
PlaceKind = Literal["host", "rank", "rail", "path", "pair", "group", "all"]
# of a host or a rank: what it sends, what it receives; of a path or a pair: from the first to the
# second of its key
Flow = Literal["both", "out", "in"]
SENDER, RECEIVER, BETWEEN = 0, 1, 2  # ends of a sample


@dataclass(frozen=True, slots=True)
class Place:
    """A possible cause. key: the number of the host, rank or rail, the two of a path or a pair, the
    hosts of a group that is slow with all others, or nothing of all pairs.
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
    each place begins, and the end. ends: beside each member, 0 if the place slows the sender's end
    of it, 1 the receiver's, 2 what is between, or both at once.
    """

    kind: PlaceKind
    flow: Flow
    members: Ints
    groups: Ints
    starts: Ints
    key_of: Callable[[int], tuple[int, ...]]
    ends: Ints

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
    """Every pair and direction of n ranks, or order in which samples of both at once name it."""
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
        np.concatenate((np.where(is_other, SENDER, BETWEEN), np.full(is_other.sum(), RECEIVER))),
    )
    if is_directed:
        one = np.ones_like(numbers)
        yield _family(kind, "out", numbers, a, lambda key: (key,), SENDER * one)
        yield _family(kind, "in", numbers, b, lambda key: (key,), RECEIVER * one)


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
    ends: Ints | None = None,
) -> Family:
    order = np.argsort(labels, kind="stable")
    keys, groups = np.unique(labels[order], return_inverse=True)
    starts = np.append(np.searchsorted(groups, np.arange(len(keys))), len(labels))
    if ends is None:
        ends = np.full_like(numbers, BETWEEN)
    return Family(
        kind,
        flow,
        numbers[order],
        groups,
        starts,
        lambda group: key_of(int(keys[group])),
        ends[order],
    )


def split(paths: Family, slow: Floats, least: float = 0.0) -> Iterator[Family]:
    """What is between two groups of hosts, or of ranks of one host.

    Each is whole by its good paths, and no path between them is one. paths: in both directions.
    slow: of its members; good is what is below the widest gap, which is `least` wide.

    >>> table = Table(np.array([0, 0, 0, 1, 1, 2]), np.array([1, 2, 3, 2, 3, 3]), np.zeros(6))
    >>> slow = np.array([0.0, 1.0, 1.1, 1.0, 1.1, 0.1])
    >>> world = PairWorld(("a", "b", "c", "d"), (0, 0, 0, 0))
    >>> (group,) = [g for one in families(table, world) for g in split(one, slow)]
    >>> group.place(0).key, group.members.tolist()
    ((0, 1), [1, 2, 3, 4])
    """
    if paths.kind not in ("path", "pair") or paths.flow != "both" or len(paths.starts) < 4:
        return
    in_order = np.sort(slow)
    gap = int(np.argmax(np.diff(in_order)))
    if in_order[gap + 1] - in_order[gap] < least:
        return
    is_slow = slow > (in_order[gap] + in_order[gap + 1]) / 2
    keys = [paths.key_of(group) for group in range(len(paths.starts) - 1)]
    head = {host: host for key in keys for host in key}
    if is_slow.sum() < 2 * (len(head) - 2) and len(keys) == len(head) * (len(head) - 1) // 2:
        return  # too few for the paths between two hosts and all others

    def root(host: int) -> int:
        while head[host] != host:
            host = head[host]
        return host

    for group, (a, b) in enumerate(keys):
        if not is_slow[paths.samples(group)].any():
            head[root(a)] = root(b)
    sides: dict[int, list[int]] = {}
    for host in sorted(head):
        sides.setdefault(root(host), []).append(host)
    if len(sides) != 2 or min(len(hosts) for hosts in sides.values()) < 2:
        return
    smaller: list[int] = min(sides.values(), key=lambda hosts: (len(hosts), hosts))
    side = tuple(smaller)
    crossing = [group for group, (a, b) in enumerate(keys) if root(a) != root(b)]
    rows = np.concatenate([paths.samples(group) for group in crossing])
    yield _family("group", "both", rows, np.zeros_like(rows), lambda _: side)
