"""Two tiers from one list of cases: some run with every `pytest`, the others with `pytest -m
exhaustive`.
"""

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def tiered(
    cases: Iterable[tuple[Any, ...]], daily: Iterable[tuple[Any, ...]]
) -> list[ParameterSet]:
    """The parameters of a test, of which all but the daily ones have the marker exhaustive.

    Any: parameters may have any type, as those of pytest.mark.parametrize.
    """
    chosen = list(daily)
    return [
        pytest.param(*case, marks=() if case in chosen else pytest.mark.exhaustive)
        for case in cases
    ]


def drawn(values: Sequence[int], *about: object) -> int:
    """One of the values, drawn by a generator that is seeded with what the draw is about.

    Every run draws the same, and other tests draw others.
    """
    return random.Random(repr(about)).choice(values)
