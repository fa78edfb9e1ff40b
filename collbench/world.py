"""Who takes part: how many ranks, which one is the root, and in which order algorithms see them.

An algorithm numbers its ranks by position: position p of the ring, the tree, the chain. `order` says which rank stands there, so that
a schedule is written once for 0, 1, ..., n-1 and laid over any order afterwards (passes.reorder).
"""

from dataclasses import dataclass

from collbench.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """n >= 2 ranks; `root` is a rank; `order[p]` is the rank at position p.

    Raises UsageError for fewer than two ranks, a root outside, or an order that is no permutation.

    >>> World(n=4, root=2, order=(3, 2, 1, 0)).positions().root
    1
    """

    n: int
    root: int = 0
    order: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.n < 2:
            raise UsageError(f"{self.n} rank: nothing travels", "a collective needs at least 2 ranks")
        if not 0 <= self.root < self.n:
            raise UsageError(f"root {self.root} is not one of {self.n} ranks", f"choose 0 to {self.n - 1}")
        if self.order and sorted(self.order) != list(range(self.n)):
            raise UsageError(f"the rank order {self.order} is not a permutation of 0 to {self.n - 1}")

    def positions(self) -> "World":
        """The same world as an algorithm sees it: ranks are positions."""
        order = self.order or tuple(range(self.n))
        return World(n=self.n, root=order.index(self.root))
