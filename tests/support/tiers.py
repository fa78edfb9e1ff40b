"""Tiers from one list of cases: some run with every `pytest`, others with `pytest -m exhaustive`.

Most mistakes need two values together, seldom three. A pairwise selection of a product keeps every
pair of values and shrinks it to little more than the product of its two longest factors.
"""

import random
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, TypeVar

import pytest
from _pytest.mark import ParameterSet

Row = TypeVar("Row", bound=tuple[object, ...])


def tiered(
    names: str | Sequence[str], cases: Iterable[Any], quick: int | Iterable[Any], ids: Any = None
) -> pytest.MarkDecorator:
    """As pytest.mark.parametrize. The first cases stay in the quick tier, or those that `quick`
    lists; all others have the marker exhaustive.

    Any: parameters and their names may have any type, as those of pytest.mark.parametrize.
    """
    every = list(cases)
    chosen = every[:quick] if isinstance(quick, int) else list(quick)
    rows = [ParameterSet.extract_from(case, force_tuple=isinstance(names, str)) for case in every]
    marks = [() if case in chosen else (pytest.mark.exhaustive,) for case in every]
    return pytest.mark.parametrize(
        names,
        [row._replace(marks=(*row.marks, *more)) for row, more in zip(rows, marks, strict=True)],
        ids=ids,
    )


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


def in_turns(rows: Iterable[Row]) -> list[Row]:
    """Rows of two values: each first one with one of its second ones, which take turns.

    >>> in_turns([(kind, arch) for kind in "abc" for arch in (70, 80, 90, 100)])
    [('a', 70), ('b', 80), ('c', 90)]
    """
    of_first: dict[object, list[Row]] = {}
    for row in rows:
        of_first.setdefault(row[0], []).append(row)
    return [same[number % len(same)] for number, same in enumerate(of_first.values())]


def drawn(values: Sequence[int], *about: object) -> int:
    """One of the values, drawn by a generator that is seeded with what the draw is about.

    Every run draws the same, and other tests draw others.
    """
    return random.Random(repr(about)).choice(values)
