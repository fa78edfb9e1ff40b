"""Groups of things of which pairs belong together, each pair with a confidence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Component:
    """Members, in order, and the weakest of the pairs that hold them together."""

    members: tuple[int, ...]
    weakest: Edge
    confidence: float


def components(edges: Mapping[Edge, float], among: Iterable[int]) -> list[Component]:
    """Groups of two or more. The confidence of one is that of the weakest pair without which it
    would fall apart, where the surest pairs are joined first.

    >>> components({(0, 1): 0.99, (1, 2): 0.97, (0, 2): 0.96, (3, 4): 0.98}, range(5))
    [Component(members=(0, 1, 2), weakest=(1, 2), confidence=0.97), \
Component(members=(3, 4), weakest=(3, 4), confidence=0.98)]
    """
    group = {one: one for one in among}
    weakest: dict[int, tuple[Edge, float]] = {}
    for edge, sure in sorted(edges.items(), key=lambda item: (-item[1], item[0])):
        one, other = sorted(group[end] for end in edge)
        if one != other:
            group = {name: one if of == other else of for name, of in group.items()}
            weakest.pop(other, None)
            weakest[one] = edge, sure
    return [
        Component(tuple(sorted(name for name, of in group.items() if of == root)), edge, sure)
        for root, (edge, sure) in sorted(weakest.items())
    ]


def reached(members: Iterable[int], pairs: Iterable[Edge]) -> tuple[int, ...]:
    """Others to which pairs lead from members, over any number of pairs.

    >>> reached((0, 1), [(1, 2), (2, 5), (3, 4)])
    (2, 5)
    """
    left, inside = list(pairs), set(members)
    there = set(inside)
    while ways := [pair for pair in left if there & set(pair)]:
        there |= {end for pair in ways for end in pair}
        left = [pair for pair in left if pair not in ways]
    return tuple(sorted(there - inside))
