"""Which pairs to measure at once: rounds of disjoint pairs of n ranks, by the circle method.

All pairs of n ranks take n - 1 rounds if n is even and n rounds if it is odd. The first round pairs
every rank of the first half with one of the second, so its rates add up to the bisection bandwidth.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, zip_longest

from collbench.core.grouping import grouped
from collbench.core.pairwise import PairWorld, Where

Pair = tuple[int, int]
Round = tuple[Pair, ...]


def rounds(n: int) -> list[Round]:
    """All pairs of n ranks, in rounds of disjoint pairs.

    >>> rounds(4)
    [((0, 2), (1, 3)), ((1, 2), (0, 3)), ((2, 3), (0, 1))]
    >>> rounds(3)
    [((0, 1),), ((1, 2),), ((0, 2),)]
    """
    if n < 2:
        return []
    odd = n % 2
    rim = n + odd - 1  # a rank too many sits out
    turns = [
        [(turn, rim), *(((turn + k) % rim, (turn - k) % rim) for k in range(1, rim // 2 + 1))]
        for turn in range(rim)
    ]
    # names that make the first turn the one across the halves
    a, b = zip(*turns[0], strict=True)
    in_order = [*a[odd:], *b[odd:], *a[:odd], *b[:odd]]
    name = {rank: place for place, rank in enumerate(in_order)}
    named = [[sorted((name[a], name[b])) for a, b in turn] for turn in turns]
    return [tuple((a, b) for a, b in turn if b < n) for turn in named]


def quick(n: int, width: int = 1) -> list[Round]:
    """Few rounds that give every rank two different partners: two, or three for an odd n.

    width: ranks of a host, which stand together in the order.

    >>> quick(6)
    [((0, 3), (1, 4), (2, 5)), ((0, 4), (1, 5), (2, 3))]
    """
    if n % 2 or n < 4:
        return rounds(n)[:3]
    half = n // 2
    shift = width if half > width else 1
    return [
        tuple((rank, half + rank) for rank in range(half)),
        tuple((rank, half + (rank + shift) % half) for rank in range(half)),
    ]


def groups(world: PairWorld, *, rails: bool = False, where: Where = "both") -> list[list[int]]:
    """The ranks to pair with each other, host by host, in groups that are measured at once.

    rails: only ranks of the same number on different hosts. where: of the network, one rank of
    every host, or with rails all of them; inside, the ranks of each host.
    """
    hosts = world.host_numbers
    order = sorted(range(world.n), key=lambda rank: (hosts[rank], world.local[rank]))
    if where == "inside":
        return [] if rails else _by(hosts, order)
    if rails:
        return _by(world.local, order)
    if where == "network":
        return [[world.hosts.index(host) for host in world.host_names]]
    return [order]


def _by(number: Sequence[int], ranks: Sequence[int]) -> list[list[int]]:
    """Ranks of the same number together."""
    return [*grouped((number[rank], rank) for rank in ranks).values()]


def planned(
    world: PairWorld, choice: str, *, rails: bool = False, where: Where = "both"
) -> list[Round]:
    """The rounds of each group, all groups at once: of all pairs, or else the quick ones.

    >>> ranks = PairWorld(("a", "a", "b", "b"), (0, 1, 0, 1))
    >>> planned(ranks, "all", where="network"), planned(ranks, "all", where="inside")
    ([((0, 2),)], [((0, 1), (2, 3))])
    """
    of_each = []
    for ranks in groups(world, rails=rails, where=where):
        width = max(1, len(ranks) // len({world.hosts[rank] for rank in ranks}))
        turns = rounds(len(ranks)) if choice == "all" else quick(len(ranks), width)
        of_each.append([tuple((ranks[a], ranks[b]) for a, b in turn) for turn in turns])
    return [tuple(chain(*turns)) for turns in zip_longest(*of_each, fillvalue=())]


def squares(around: Iterable[Pair], world: PairWorld, bad: Collection[int] = ()) -> list[Pair]:
    """The edges of a square around each pair (nccl#325): three good edges acquit both of its ranks.
    The other corners are on other hosts, where there are some, or on that of both ranks; and are
    no bad ranks.

    >>> squares([(0, 1)], PairWorld(("a", "b", "c", "d"), (0, 0, 0, 0)))
    [(0, 1), (2, 3), (0, 2), (1, 3)]
    """
    edges: list[Pair] = []
    (order,) = groups(world)
    for a, b in around:
        hosts = world.hosts[a], world.hosts[b]
        rest = [rank for rank in order if rank not in (a, b) and rank not in bad]
        is_inside = hosts[0] == hosts[1]
        others = [rank for rank in rest if (world.hosts[rank] in hosts) == is_inside] or rest
        edges.append((a, b))
        if others:
            c, d = others[0], others[-1]
            edges += [(c, d), (a, c), (b, d)] if c != d else [(a, c), (b, c)]
    return list(dict.fromkeys((min(edge), max(edge)) for edge in edges))


def packed(pairs: Iterable[Pair]) -> list[Round]:
    """Some pairs, each once, in few rounds of disjoint ones: each goes into the first that has
    room.

    >>> packed([(0, 1), (1, 2), (2, 3), (1, 0)])
    [((0, 1), (2, 3)), ((1, 2),)]
    """
    turns: list[dict[int, Pair]] = []
    for a, b in dict.fromkeys((min(pair), max(pair)) for pair in pairs):
        room = next((turn for turn in turns if a not in turn and b not in turn), None)
        if room is None:
            turns.append(room := {})
        room |= {a: (a, b), b: (a, b)}
    return [tuple(dict.fromkeys(turn.values())) for turn in turns]
