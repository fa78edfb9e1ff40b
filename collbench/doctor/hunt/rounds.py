"""Which pairs to measure at once: rounds of disjoint pairs of n ranks, by the circle method.

All pairs of n ranks take n - 1 rounds if n is even and n rounds if it is odd. The first round pairs
every rank of the first half with one of the second, so its rates add up to the bisection bandwidth.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, zip_longest

from collbench.core.pairwise import PairWorld

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


def planned(world: PairWorld, choice: str, *, rails: bool = False) -> list[Round]:
    """The rounds over the ranks of a world, host by host: of all pairs, or else the quick ones.

    rails: only ranks of the same number on different hosts.
    """
    if rails:
        return _of_rails(world, choice)
    order = _host_by_host(world)
    if choice == "all":
        return _renamed(rounds(world.n), order)
    return _renamed(quick(world.n, max(1, world.n // len(world.host_names))), order)


def squares(around: Iterable[Pair], world: PairWorld, bad: Collection[int] = ()) -> list[Pair]:
    """The edges of a square around each pair (nccl#325): three good edges acquit both of its ranks.
    The other corners are on other hosts, where there are some, and are no bad ranks.

    >>> squares([(0, 1)], PairWorld(("a", "b", "c", "d"), (0, 0, 0, 0)))
    [(0, 1), (2, 3), (0, 2), (1, 3)]
    """
    edges: list[Pair] = []
    order = _host_by_host(world)
    for a, b in around:
        hosts = world.hosts[a], world.hosts[b]
        rest = [rank for rank in order if rank not in (a, b) and rank not in bad]
        others = [rank for rank in rest if world.hosts[rank] not in hosts] or rest
        edges.append((a, b))
        if others:
            c, d = others[0], others[-1]
            edges += [(c, d), (a, c), (b, d)] if c != d else [(a, c), (b, c)]
    return list(dict.fromkeys((min(edge), max(edge)) for edge in edges))


def _host_by_host(world: PairWorld) -> list[int]:
    return sorted(range(world.n), key=lambda rank: (world.host_numbers[rank], world.local[rank]))


def _of_rails(world: PairWorld, choice: str) -> list[Round]:
    """As planned(), for each rail among its hosts, all rails at once."""
    by_rail: dict[int, list[int]] = {}
    for rank in _host_by_host(world):
        by_rail.setdefault(world.local[rank], []).append(rank)
    of_each = [
        _renamed((rounds if choice == "all" else quick)(len(ranks)), ranks)
        for ranks in by_rail.values()
    ]
    return [tuple(chain(*turns)) for turns in zip_longest(*of_each, fillvalue=())]


def _renamed(turns: Iterable[Round], ranks: Sequence[int]) -> list[Round]:
    return [tuple((ranks[a], ranks[b]) for a, b in turn) for turn in turns]


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
