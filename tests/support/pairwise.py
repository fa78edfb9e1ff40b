"""Pairwise selection: a few rows of a product in which every pair of values still occurs.

Most mistakes need two values together, seldom three. A product of many factors therefore shrinks to
little more than the product of its two longest ones.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

Row = TypeVar("Row", bound=tuple[object, ...])


def pairwise_of(rows: Iterable[Row]) -> list[Row]:
    """Rows that contain every pair of values which occurs in `rows`; always the same ones.

    Greedy: each row covers the most pairs that are still missing, and the first one wins a tie.

    >>> from itertools import product
    >>> pairwise_of(product("ab", "xy", (1, 2)))
    [('a', 'x', 1), ('a', 'y', 2), ('b', 'x', 2), ('b', 'y', 1)]
    """
    pairs_of = {row: set(combinations(enumerate(row), 2)) for row in rows}
    missing = set().union(*pairs_of.values())
    chosen = []
    while missing:
        best = max(pairs_of, key=lambda row: len(missing & pairs_of[row]))
        chosen.append(best)
        missing -= pairs_of[best]
    return chosen


def pairwise(*lists: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows of one value of each list; any two values of two lists stand together in some row. Any:
    the values are a test's parameters, which may have any type and need not be hashable.

    >>> len(pairwise("abc", "xy", "12", "pq")), 3 * 2 * 2 * 2
    (6, 24)
    """
    rows = pairwise_of(product(*(range(len(values)) for values in lists)))
    return [tuple(values[k] for values, k in zip(lists, row, strict=True)) for row in rows]


def tiers(rows: Iterable[Row], few: Iterable[Row]) -> "list[ParameterSet]":
    """The rows as parameters of a test: all but a few are marked as exhaustive."""
    default = set(few)
    return [
        pytest.param(*row, marks=() if row in default else pytest.mark.exhaustive) for row in rows
    ]


def pairwise_tiers(rows: Iterable[Row]) -> "list[ParameterSet]":
    """The rows as parameters of a test: all but a pairwise selection are marked as exhaustive."""
    every = list(rows)
    return tiers(every, pairwise_of(every))
