"""Families of interchangeable parts: one part, one file of a package. Listing the names imports
none of them.

Command-line choices, help and test batteries read the names from here, so a new part is one new
file.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from collbench.core.errors import unknown


class Family:
    """The modules of one package; those whose name starts with an underscore, and those named as
    helpers, are not members.
    """

    def __init__(
        self, package: str, path: list[str], what: str, *, helpers: frozenset[str] = frozenset()
    ) -> None:
        self._package, self._path, self._what, self._helpers = package, path, what, helpers

    def names(self) -> tuple[str, ...]:
        """Names of all members, sorted."""
        return tuple(name for name in _modules(*self._path) if name not in self._helpers)

    def load(self, name: str) -> ModuleType:
        """The member's module. Raises UsageError if there is none of that name."""
        if name not in self.names():
            raise unknown(self._what, name, self.names())
        return load_member(self._package, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


@cache
def _modules(*folders: str) -> tuple[str, ...]:
    """The names of all public modules of some folders, sorted. The folders are listed once."""
    names = {module.name for module in pkgutil.iter_modules(folders)}
    return tuple(sorted(name for name in names if not name.startswith("_")))


@cache
def load_member(package: str, name: str) -> ModuleType:
    """The module of a member: the module of its name or, where that is a package, the package's
    module `backend`.
    """
    module = importlib.import_module(f"{package}.{name}")
    return (
        importlib.import_module(f"{module.__name__}.backend")
        if hasattr(module, "__path__")
        else module
    )
