"""The world of ranks: how many ranks, which one is the root, the host of each, and in which order
algorithms see them.

An algorithm numbers its ranks by position: position p of the ring, the tree, the chain. `order`
says which rank stands there, so that a schedule is written once for 0, 1, ..., n-1 and laid over
any order afterwards (passes.reorder). Hosts are numbers, not names: worlds of one shape are equal
wherever they are.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from collbench.core.errors import UsageError


def host_numbers(names: Sequence[Hashable]) -> tuple[int, ...]:
    """The host of every rank as a number, counted in the order of their first ranks; nothing if all
    are on one.

    >>> host_numbers(["b", "b", "a", "b"]), host_numbers(["a", "a"])
    ((0, 0, 1, 0), ())
    """
    known = list(dict.fromkeys(names))
    return tuple(known.index(name) for name in names) if len(known) > 1 else ()


def ranks_per_gpu(gpus: Sequence[int]) -> int:
    """The most ranks that share one of the GPUs that ranks were given; 1 if none were.

    >>> ranks_per_gpu([0, 0, 1]), ranks_per_gpu([])
    (2, 1)
    """
    return max(Counter(gpus).values(), default=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """n >= 2 ranks; `root` is a rank; `order[p]` is the rank at position p; `hosts[r]` is the host
    of rank r, or nothing if there is one.

    Raises UsageError for fewer than two ranks, a root outside, or an order that is no permutation.

    >>> World(n=4, root=2, order=(3, 2, 1, 0)).positions().root
    1
    """

    n: int
    root: int = 0
    order: tuple[int, ...] = ()
    hosts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.n < 2:
            raise UsageError(
                f"{self.n} rank: nothing travels", "a collective needs at least 2 ranks"
            )
        if not 0 <= self.root < self.n:
            raise UsageError(
                f"root {self.root} is not one of {self.n} ranks", f"choose 0 to {self.n - 1}"
            )
        if self.order and sorted(self.order) != list(range(self.n)):
            raise UsageError(
                f"the rank order {self.order} is not a permutation of 0 to {self.n - 1}"
            )
        if self.hosts and len(self.hosts) != self.n:
            raise UsageError(
                f"{len(self.hosts)} hosts for {self.n} ranks", "name the host of every rank"
            )

    def positions(self) -> "World":
        """The same world as an algorithm sees it: ranks are positions."""
        order = self.order or tuple(range(self.n))
        hosts = host_numbers([self.hosts[rank] for rank in order]) if self.hosts else ()
        return World(n=self.n, root=order.index(self.root), hosts=hosts)

    def members(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each host.

        >>> World(n=4, hosts=(0, 1, 0, 1)).members(), World(n=2).members()
        (((0, 2), (1, 3)), ((0, 1),))
        """
        by_host: dict[int, list[int]] = {}
        for rank, host in enumerate(self.hosts or (0,) * self.n):
            by_host.setdefault(host, []).append(rank)
        return tuple(map(tuple, by_host.values()))

    def together(self, *, ends_at_root: bool = False) -> tuple[int, ...]:
        """The order that keeps hosts together, so that neighbours join two hosts as rarely as can
        be; nothing if there is one host.

        It begins with the root, whose chain then leaves its host once; or the root is the last of
        its host, where chains end at it.

        >>> world = World(n=6, root=2, hosts=(0, 1, 0, 1, 0, 1))
        >>> world.together(), world.together(ends_at_root=True)
        ((2, 4, 0, 1, 3, 5), (4, 0, 2, 1, 3, 5))
        """
        if not self.hosts:
            return ()
        hosts = self.members()
        first = next(number for number, ranks in enumerate(hosts) if self.root in ranks)
        near, start = hosts[first], hosts[first].index(self.root) + ends_at_root
        return (
            *near[start:],
            *near[:start],
            *(rank for ranks in (*hosts[first + 1 :], *hosts[:first]) for rank in ranks),
        )
