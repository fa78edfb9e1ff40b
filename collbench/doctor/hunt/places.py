"""Where a slowness can be (hosts, ranks, rails, paths, pairs, groups), and which pairs it slows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from collbench.core.limits import LEAST_SLOWNESS, MAD_TO_SD, PAIR_FLOOR
from collbench.core.pairwise import PairWorld
from collbench.core.verdict import median_variance, middle_of

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

    def pairs(self, numbers: Ints) -> list[tuple[int, int]]:
        """The pairs of some rows."""
        ends = zip(self.a[numbers].tolist(), self.b[numbers].tolist(), strict=True)
        return [(min(a, b), max(a, b)) for a, b in ends]

    def slow_of(self) -> dict[tuple[int, int], float]:
        """The slowness of each row, by its sender and its receiver."""
        ends = zip(self.a.tolist(), self.b.tolist(), strict=True)
        return dict(zip(ends, self.slow.tolist(), strict=True))


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
    # steps of one row share samples, so they have fewer degrees of freedom (von Neumann 1941)
    shared = int(np.maximum(3 * sizes - 4, 0).sum())
    return Rows(
        a=keys // n,
        b=keys % n,
        slow=(values[starts[:-1] + (sizes - 1) // 2] + values[starts[:-1] + sizes // 2]) / 2,
        values=values,
        starts=starts,
        variance=np.maximum(PAIR_FLOOR**2, noise),
        degrees=2 * len(steps) ** 2 // max(shared, 1),
        is_both=is_both,
    )


def _spread(values: Floats) -> float:
    """The standard deviation of values about 0, with hiccups clipped."""
    if not len(values):
        return 0.0
    typical = MAD_TO_SD * middle_of(np.abs(values))
    bound = _CLIP * typical if typical and len(values) >= _MANY else math.inf
    return math.sqrt(float(np.mean(np.minimum(np.abs(values), bound) ** 2)))


@dataclass(frozen=True, slots=True)
class Places:
    """All places that rows can tell of, by numbers, the simplest first.

    families: kinds and flows; family: that of each place; labels: beside each its key as one
    number, in base n if it has two, and of a rail its first rank; side: the key of the group. rows:
    that each slows, place by place; owners: beside each, its place; starts: where each place
    begins, and the end. ends: which end of the row it slows, or what is between, or both at once.
    """

    families: Sequence[tuple[PlaceKind, Flow]]
    family: Ints
    labels: Ints
    world: PairWorld
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
            return Place(kind, divmod(label, self.world.n), flow)
        number = self.world.local[label] if kind == "rail" else label
        return Place(kind, self.side if kind == "group" else (number,), flow)

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


def places_of(rows: Rows, world: PairWorld) -> Places:
    """The places of rows that are all between hosts, or all inside hosts.

    Of one host they are its ranks and pairs; where every host has one rank, hosts and paths stand
    for ranks and pairs.
    """
    n, every = world.n, np.arange(len(rows))
    families: dict[tuple[PlaceKind, Flow], int] = {}
    members: list[tuple[Ints, Ints, Ints]] = []  # labels, which begin with the family, rows, ends

    def add(kind: PlaceKind, flow: Flow, key: Ints, end: Ints | int, where: Ints = every) -> None:
        family = families.setdefault((kind, flow), len(families))
        members.append((family * n * n + key, where, np.broadcast_to(end, len(where))))

    def add_ends(kind: PlaceKind, of: Ints, *, is_directed: bool) -> None:
        a, b = of[rows.a], of[rows.b]
        add(kind, "both", a, np.where(a == b, BETWEEN, SENDER))
        add(kind, "both", b[a != b], RECEIVER, every[a != b])
        if is_directed and not rows.is_both:
            add(kind, "out", a, SENDER)
            add(kind, "in", b, RECEIVER)

    def add_paths(kind: PlaceKind, of: Ints) -> None:
        a, b = of[rows.a], of[rows.b]
        add(kind, "both", np.minimum(a, b) * n + np.maximum(a, b), BETWEEN)
        if not rows.is_both:
            add(kind, "out", a * n + b, BETWEEN)

    host, one = np.array(world.host_numbers), np.arange(n)
    is_between = bool((host[rows.a] != host[rows.b]).any())
    has_hosts, has_ranks = len(world.host_names) > 1, not world.is_one_rank_a_host
    if has_hosts:
        add_ends("host", host, is_directed=is_between)
    if has_ranks:
        add_ends("rank", one, is_directed=True)
    if is_between and max(world.local) > 0:
        first: dict[int, int] = {}  # rank of each rail
        rail = [first.setdefault(number, rank) for rank, number in enumerate(world.local)]
        add_ends("rail", np.array(rail), is_directed=False)
    if is_between:
        add_paths("path", host)
    if has_ranks:
        add_paths("pair", one)
    side: tuple[int, ...] = ()
    if is_between or not has_hosts:
        whole = host if is_between else one
        side, crossing = split(whole[rows.a], whole[rows.b], rows.slow)
        if side:
            add("group", "both", np.zeros_like(crossing), BETWEEN, crossing)
    labels, members_rows, members_ends = map(np.concatenate, zip(*members, strict=True))
    order = np.argsort(labels, kind="stable")
    keys, owners, sizes = np.unique(labels[order], return_inverse=True, return_counts=True)
    return Places(
        families=list(families),
        family=keys // n**2,
        labels=keys % n**2,
        world=world,
        side=side,
        rows=members_rows[order],
        owners=owners,
        starts=np.append(0, np.cumsum(sizes)),
        ends=members_ends[order],
    )


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
        group = group[group]  # else labels take a step along a ring of hosts in each turn
    present = np.unique((a, b))
    sides = [tuple(present[group[present] == one].tolist()) for one in np.unique(group[present])]
    crossing = np.flatnonzero(group[a] != group[b])
    if len(sides) != 2 or min(map(len, sides)) < 2 or not len(crossing):
        return none
    return min(sides, key=lambda hosts: (len(hosts), hosts)), crossing
