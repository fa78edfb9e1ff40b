"""Where a slowness can be (hosts, ranks, rails, paths, pairs, groups), and which pairs it slows."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from collbench.results.pairwise import PairWorld
from collbench.results.verdict import median_variance
from collbench.util.limits import LEAST_SLOWNESS, MAD_TO_SD, PAIR_FLOOR

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
PlaceKind = Literal["host", "rank", "rail", "path", "pair", "group", "all"]
# of a host or a rank: what it sends, what it receives; of a path or a pair: from the first to the
# second of its key
Flow = Literal["both", "out", "in"]
SENDER, RECEIVER, BETWEEN = 0, 1, 2  # ends of a row
HUGE = 100_000  # rows, of which only plain steps are made, in seconds
_MANY = 20  # repeats, of which the median deviation tells hiccups
_CLIP = 3.0  # standard deviations of repeats, from which on one is a hiccup


@dataclass(frozen=True, slots=True)
class Place:
    """A possible cause. key: the number of the host, rank or rail, the two of a path or a pair, the
    hosts of a group that is slow with all others, or nothing of all pairs.
    """

    kind: PlaceKind
    key: tuple[int, ...]
    flow: Flow = "both"


@dataclass(frozen=True, slots=True)
class Rows:
    """Pairs and directions. slow: the median of the samples of each, in the logarithm of time.

    values: all samples, row by row, the fastest first; starts: where each row begins, and the end.
    variance: expected of each median. degrees: of freedom that repeats have for it. is_both: both
    directions at once, so that no row shows a direction.
    """

    a: Ints
    b: Ints
    slow: Floats
    values: Floats
    starts: Ints
    variance: Floats
    degrees: int
    is_both: bool

    def __len__(self) -> int:
        return len(self.slow)


def rows_of(a: Ints, b: Ints, slow: Floats, *, is_both: bool = False) -> Rows:
    """The rows of samples: their sender, their receiver and their slowness.

    >>> rows = rows_of(np.array([1, 0, 1]), np.array([0, 1, 0]), np.array([0.1, 0.0, 0.3]))
    >>> rows.a.tolist(), rows.slow.tolist(), rows.degrees
    ([0, 1], [0.0, 0.2], 1)
    """
    n = int(max(a.max(initial=0), b.max(initial=0))) + 1
    labels = a * n + b
    in_time = np.argsort(labels, kind="stable")
    steps = np.diff(slow[in_time])[np.diff(labels[in_time]) == 0] / math.sqrt(2)
    keys, sizes = np.unique(labels, return_counts=True)
    starts = np.append(0, np.cumsum(sizes))
    values = slow[np.lexsort((slow, labels))]
    noise = _spread(steps) ** 2 * median_variance(sizes.astype(float))
    return Rows(
        a=keys // n,
        b=keys % n,
        slow=(values[starts[:-1] + (sizes - 1) // 2] + values[starts[:-1] + sizes // 2]) / 2,
        values=values,
        starts=starts,
        variance=np.maximum(PAIR_FLOOR**2, noise),
        degrees=len(steps),
        is_both=is_both,
    )


def _spread(values: Floats) -> float:
    """The standard deviation of values about 0, with hiccups clipped."""
    if not len(values):
        return 0.0
    typical = MAD_TO_SD * float(np.median(np.abs(values)))
    bound = _CLIP * typical if typical and len(values) >= _MANY else math.inf
    return math.sqrt(float(np.mean(np.minimum(np.abs(values), bound) ** 2)))


@dataclass(frozen=True, slots=True)
class Places:
    """All places that rows can tell of, by numbers, the simplest first.

    families: kinds and flows; family: that of each place; labels: beside each its key as one
    number, in base n if it has two; side: the key of the group. rows: that each slows, place by
    place; owners: beside each, its place; starts: where each place begins, and the end. ends: which
    end of the row it slows, or what is between, or both at once.
    """

    families: Sequence[tuple[PlaceKind, Flow]]
    family: Ints
    labels: Ints
    n: int
    side: tuple[int, ...]
    rows: Ints
    owners: Ints
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.labels)

    def place(self, number: int) -> Place:
        """The place of a number."""
        kind, flow = self.families[self.family[number]]
        label = int(self.labels[number])
        if kind in ("path", "pair"):
            return Place(kind, divmod(label, self.n), flow)
        return Place(kind, self.side if kind == "group" else (label,), flow)

    def rows_of(self, number: int) -> Ints:
        """The rows that a place slows."""
        return self.rows[self.starts[number] : self.starts[number + 1]]

    def ends_of(self, number: int) -> Ints:
        """Beside each of them, the end."""
        return self.ends[self.starts[number] : self.starts[number + 1]]

    def are(self, *kinds: PlaceKind) -> Bools:
        """Which places are of some kinds."""
        are: Bools = np.array([kind in kinds for kind, _ in self.families], bool)[self.family]
        return are


_Family = tuple[PlaceKind, Flow, Ints, Ints, Ints]  # with the labels, rows and ends of members


def places_of(rows: Rows, world: PairWorld) -> Places:
    """The places of rows that are all between hosts, or all inside hosts.

    Of one host they are its ranks and pairs; where every host has one rank, hosts and paths stand
    for ranks and pairs.
    """
    host, rail = np.array(world.host_numbers), np.array(world.local)
    a, b = rows.a, rows.b
    host_a, host_b = host[a], host[b]
    is_between = bool((host_a != host_b).any())
    found: list[_Family] = []
    if len(world.host_names) > 1:
        found += _ends("host", host_a, host_b, is_directed=is_between and not rows.is_both)
    if not world.is_one_rank_a_host:
        found += _ends("rank", a, b, is_directed=not rows.is_both)
    if is_between and max(world.local) > 0:
        found += _ends("rail", rail[a], rail[b], is_directed=False)
    if is_between:
        found += _edges("path", host_a, host_b, world.n, rows.is_both)
    if not world.is_one_rank_a_host:
        found += _edges("pair", a, b, world.n, rows.is_both)
    side: tuple[int, ...] = ()
    if is_between or len(world.host_names) == 1:
        first, last = (host_a, host_b) if is_between else (a, b)
        side, crossing = split(first, last, rows.slow)
        if side:
            between = np.full_like(crossing, BETWEEN)
            found.append(("group", "both", np.zeros_like(crossing), crossing, between))
    return _joined(found, world.n, side)


def _joined(found: Sequence[_Family], n: int, side: tuple[int, ...]) -> Places:
    labels, owners, members, ends, sizes = [], [], [], [], [0]
    for _, _, of_members, rows, of_rows in found:
        order = np.argsort(of_members, kind="stable")
        keys, groups = np.unique(of_members[order], return_inverse=True)
        labels.append(keys)
        owners.append(groups + sum(sizes))
        members.append(rows[order])
        ends.append(of_rows[order])
        sizes.append(len(keys))
    owner = np.concatenate(owners)
    return Places(
        families=[family[:2] for family in found],
        family=np.repeat(np.arange(len(found)), sizes[1:]),
        labels=np.concatenate(labels),
        n=n,
        side=side,
        rows=np.concatenate(members),
        owners=owner,
        starts=np.searchsorted(owner, np.arange(sum(sizes) + 1)),
        ends=np.concatenate(ends),
    )


def _ends(kind: PlaceKind, a: Ints, b: Ints, *, is_directed: bool) -> Iterator[_Family]:
    """What both ends, the sender, or the receiver of a row belong to."""
    rows, is_other = np.arange(len(a)), a != b
    sent, received = np.full_like(rows, SENDER), np.full_like(rows, RECEIVER)
    yield (
        *(kind, "both", np.concatenate((a, b[is_other])), np.concatenate((rows, rows[is_other]))),
        np.concatenate((np.where(is_other, SENDER, BETWEEN), received[is_other])),
    )
    if is_directed:
        yield kind, "out", a, rows, sent
        yield kind, "in", b, rows, received


def _edges(kind: PlaceKind, a: Ints, b: Ints, n: int, is_both: bool) -> Iterator[_Family]:
    """The two ends of a row in any order, then from the first to the second."""
    rows = np.arange(len(a))
    between = np.full_like(rows, BETWEEN)
    yield kind, "both", np.minimum(a, b) * n + np.maximum(a, b), rows, between
    if not is_both:
        yield kind, "out", a * n + b, rows, between


def split(a: Ints, b: Ints, slow: Floats) -> tuple[tuple[int, ...], Ints]:
    """The smaller one of two groups of hosts, or of ranks of one host, and the rows between them.

    Each is whole by its good pairs, and no pair between them is one. slow: of each row from a to
    b; good is what is below the widest gap. Without two such groups it is empty.

    >>> ends = np.array([0, 0, 0, 1, 1, 2]), np.array([1, 2, 3, 2, 3, 3])
    >>> side, rows = split(*ends, np.array([0.0, 1.0, 1.1, 1.0, 1.1, 0.1]))
    >>> side, rows.tolist()
    ((0, 1), [1, 2, 3, 4])
    """
    none = (), np.arange(0)
    in_order = np.sort(slow)
    gaps = np.diff(in_order)
    if not 2 < len(slow) < HUGE or gaps.max() < LEAST_SLOWNESS:
        return none
    is_slow = slow > in_order[gaps.argmax()] + gaps.max() / 2
    n = int(max(a.max(), b.max())) + 1
    pairs = np.minimum(a, b) * n + np.maximum(a, b)
    is_good = ~np.isin(pairs, pairs[is_slow])
    group, before = np.arange(n), np.full(n, -1)
    while (group != before).any():
        before, least = group.copy(), np.minimum(group[a], group[b])[is_good]
        np.minimum.at(group, a[is_good], least)
        np.minimum.at(group, b[is_good], least)
    present = np.unique((a, b))
    sides = [tuple(present[group[present] == one].tolist()) for one in np.unique(group[present])]
    crossing = np.flatnonzero(group[a] != group[b])
    if len(sides) != 2 or min(map(len, sides)) < 2 or not len(crossing):
        return none
    return min(sides, key=lambda hosts: (len(hosts), hosts)), crossing
