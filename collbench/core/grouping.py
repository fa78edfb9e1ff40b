"""Things in groups, in the order in which their keys were first met."""

from collections.abc import Iterable
from typing import TypeVar

_Key = TypeVar("_Key")
_Thing = TypeVar("_Thing")


def grouped(pairs: Iterable[tuple[_Key, _Thing]]) -> dict[_Key, list[_Thing]]:
    """The things of each key.

    >>> grouped([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    groups: dict[_Key, list[_Thing]] = {}
    for key, thing in pairs:
        groups.setdefault(key, []).append(thing)
    return groups
