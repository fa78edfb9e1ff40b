"""Fewer cases than a product has: every pair of values of any two lists occurs in one of them."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any


def pairwise(*lists: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows of one value of each list; any two values of two lists stand together in some row.

    Greedy and deterministic: every row is the first that has most of the pairs still missing. Any:
    the values are a test's parameters, which may have any type.

    >>> len(pairwise("abc", "xy", "12", "pq")), 3 * 2 * 2 * 2
    (6, 24)
    """
    rows = list(product(*(range(len(values)) for values in lists)))

    def pairs(row: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(combinations(enumerate(row), 2))

    missing = set[tuple[tuple[int, int], ...]]().union(*map(pairs, rows))
    chosen: list[tuple[int, ...]] = []
    while missing:
        chosen.append(max(rows, key=lambda row: len(pairs(row) & missing)))
        missing -= pairs(chosen[-1])
    return [tuple(values[k] for values, k in zip(lists, row, strict=True)) for row in chosen]
