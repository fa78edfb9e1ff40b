"""Pairwise selection: a few rows of a product in which every pair of values still occurs.

Most mistakes need two values together, seldom three. A product of many factors therefore shrinks to
little more than the product of its two longest ones.
"""

from collections.abc import Iterable
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

Row = TypeVar("Row", bound=tuple[object, ...])


def pairwise(rows: Iterable[Row]) -> list[Row]:
    """Rows that contain every pair of values which occurs in `rows`; always the same ones.

    Greedy: each row covers the most pairs that are still missing, and the first one wins a tie.

    >>> from itertools import product
    >>> pairwise(product("ab", "xy", (1, 2)))
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


def tiers(rows: Iterable[Row], few: Iterable[Row]) -> "list[ParameterSet]":
    """The rows as parameters of a test: all but a few are marked as exhaustive."""
    default = set(few)
    return [
        pytest.param(*row, marks=() if row in default else pytest.mark.exhaustive) for row in rows
    ]


def pairwise_tiers(rows: Iterable[Row]) -> "list[ParameterSet]":
    """The rows as parameters of a test: all but a pairwise selection are marked as exhaustive."""
    every = list(rows)
    return tiers(every, pairwise(every))
