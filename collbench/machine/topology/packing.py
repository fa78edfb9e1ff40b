"""Rings and chains over links between ranks that share no link: a search over Hamiltonian cycles of
a multigraph. Pure; it knows no topology.

Steps are counted, not timed: the same links give the same answer on every computer, the
lexicographically smallest of those with as many rings.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

Order = tuple[int, ...]

# What one search may cost: a step looks at up to n * n links. Rings of DGX-1V and of all its parts
# are found in less than 0.05 s; the whole budget lasts about 0.3 s of one core.
LOOKS = 4_000_000
# The largest machines without a switch between their GPUs have 16; a cut takes the cube of it.
_MOST_RANKS = 64


@dataclass(slots=True)
class Budget:
    """Steps that a search has left."""

    steps: int

    def is_spent(self) -> bool:
        """Count one step; whether that was one too many."""
        self.steps -= 1
        return self.steps < 0


def packed_rings(links: list[list[int]]) -> tuple[Order, ...]:
    """As many rings as links between ranks allow (links[a][b] of them); nothing if they close no
    ring over all ranks.

    >>> packed_rings([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
    ((0, 1, 2, 3), (0, 3, 2, 1))
    """
    best, worth = tuple[Order, ...](), 0
    shares = _shares(links)
    if not shares or len(links) > _MOST_RANKS:
        return ()
    most = _cut(links)
    for share in shares:
        thin = [[count // share for count in row] for row in links]
        rings = _rings_of(thin, most // share)
        if len(rings) * share > worth:
            best, worth = rings, len(rings) * share
        if worth == most or not rings:
            break
    return best


def _rings_of(links: list[list[int]], most: int) -> tuple[Order, ...]:
    """Rings that share no link: cycles walked both ways or, where links are left, one way."""
    best: tuple[Order, ...] = ()
    for count in range(1, most // 2 + 1):
        rings = _search(links, count, is_directed=False)
        if not rings:
            break
        best = tuple(ring for cycle in rings for ring in (cycle, cycle[:1] + cycle[:0:-1]))
    for count in range(len(best) + 1, most + 1):
        rings = _search(links, count, is_directed=True)
        if not rings:
            break
        best = rings
    return best


def packed_chains(links: list[list[int]]) -> tuple[Order, ...]:
    """As many chains as links allow: rings through one more rank, wired to all the others, and cut
    there. Where the search ends before it has them all, zigzags.

    >>> packed_chains([[0, 1, 1], [1, 0, 0], [1, 0, 0]])
    ((1, 0, 2),)
    """
    n, best, worth = len(links), tuple[Order, ...](), 0
    if n > _MOST_RANKS:
        return ()
    most = min(sum(map(sum, links)) // 2 // (n - 1), *(sum(row) for row in links))
    for share in _shares(links):
        thin = [[count // share for count in row] for row in links]
        for chains in range(1, most // share + 1):
            orders = _search(
                [[0, *[2 * chains] * n], *[[2 * chains, *row] for row in thin]],
                chains,
                is_directed=False,
            )
            if not orders:
                break
            if chains * share > worth:
                best, worth = (
                    tuple(tuple(rank - 1 for rank in cycle[1:]) for cycle in orders),
                    chains * share,
                )
        if worth == most or not worth:
            break
    return best if worth == most else _zigzags(links) or best


def _zigzags(links: list[list[int]]) -> tuple[Order, ...]:
    """Chains that use every link where all ranks are linked alike and their number is even: of
    rank k the order k, k+1, k-1, k+2, k-2 and so on (Walecki); nothing elsewhere.

    >>> _zigzags([[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]])
    ((0, 1, 3, 2), (1, 2, 0, 3))
    """
    n = len(links)
    kinds = {links[a][b] for a in range(n) for b in range(n) if a != b}
    if n % 2 or len(kinds) != 1 or kinds == {0}:
        return ()
    steps = [(step + 1) // 2 * (1 if step % 2 else -1) for step in range(n)]
    return tuple(tuple((first + step) % n for step in steps) for first in range(n // 2))


def _shares(links: list[list[int]]) -> list[int]:
    """Into how many like channels all bundles can be cut, most first: 12 links between every two
    are one link in each of 12.
    """
    common = gcd(*(count for row in links for count in row))
    return [share for share in range(common, 0, -1) if common % share == 0]


def _cut(links: list[list[int]]) -> int:
    """The fewest links between one part of the ranks and the rest: no more rings than that. Stoer
    and Wagner 1997.
    """
    weights = [list(row) for row in links]
    left = list(range(len(links)))
    least = min(sum(row) for row in links)
    while len(left) > 1:
        order = [left[0]]
        pull = {rank: weights[left[0]][rank] for rank in left[1:]}
        while pull:
            nearest = max(pull, key=lambda rank: (pull[rank], -rank))
            last = pull.pop(nearest)
            order.append(nearest)
            for rank in pull:
                pull[rank] += weights[nearest][rank]
        least = min(least, last)
        into, gone = order[-2], order[-1]
        for rank in left:
            weights[into][rank] += weights[gone][rank]
            weights[rank][into] += weights[rank][gone]
        weights[into][into] = 0
        left.remove(gone)
    return least


def _search(links: list[list[int]], count: int, *, is_directed: bool) -> tuple[Order, ...]:
    """That many cycles over all ranks that share no link, the lexicographically smallest; nothing
    if there are none, or none was found in time.
    """
    free, budget = [list(row) for row in links], Budget(LOOKS // len(links) ** 2)

    def take(cycle: Order, by: int) -> None:
        for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            free[a][b] -= by
            if not is_directed:
                free[b][a] -= by

    def more(orders: tuple[Order, ...]) -> tuple[Order, ...]:
        left = count - len(orders)
        if not left:
            return orders
        if any(sum(row) < (left if is_directed else 2 * left) for row in free):
            return ()
        for cycle in _cycles(
            free, budget, is_directed=is_directed, least=orders[-1] if orders else ()
        ):
            take(cycle, 1)
            answer = more((*orders, cycle))
            take(cycle, -1)
            if answer:
                return answer
        return ()

    return more(())


def _cycles(
    free: list[list[int]], budget: Budget, *, is_directed: bool, least: Order
) -> Iterator[Order]:
    """Cycles over all ranks by free links, from rank 0, in lexicographic order, none before
    `least`; undirected ones one way round only.
    """
    n = len(free)
    walk, left = [0], (1 << n) - 2  # the ranks that are not on the walk, a bit each
    ahead = [sum((count > 0) << there for there, count in enumerate(row)) for row in free]
    home = sum((row[0] > 0) << rank for rank, row in enumerate(free))

    def extend() -> Iterator[Order]:
        nonlocal left
        here = walk[-1]
        if not left:
            is_first = is_directed or walk[1] < here or n < 3
            if home >> here & 1 and is_first and tuple(walk) >= least:
                yield tuple(walk)
            return
        for there in range(n):
            if not (left & ahead[here]) >> there & 1:
                continue
            if least and (*walk, there) < least[: len(walk) + 1]:
                continue
            if budget.is_spent():
                return
            walk.append(there)
            left ^= 1 << there
            if _is_open(ahead, home, left, there):
                yield from extend()
            left ^= 1 << there
            walk.pop()

    # A cycle is handed out while its links are still free here; the caller takes them and gives
    # them back before it asks for the next.
    yield from extend()


def _is_open(ahead: list[int], home: int, left: int, here: int) -> bool:
    """Whether all ranks that are left, and rank 0 again, can still be reached from here. ahead: to
    which ranks each has free links, a bit each; home: which have one to rank 0.
    """
    seen = reached = 1 << here
    while reached:
        rank = reached.bit_length() - 1
        new = ahead[rank] & left & ~seen
        seen |= new
        reached ^= 1 << rank | new
    return seen == left | 1 << here and bool(seen & home)
