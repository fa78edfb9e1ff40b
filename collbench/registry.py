"""Families of interchangeable parts: one part, one file of a package. Listing the names imports none of them.

Command-line choices, help and test batteries read the names from here, so a new part is one new file.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from collbench.errors import UsageError


class Family:
    """The modules of one package; those whose name starts with an underscore are helpers, not members."""

    def __init__(self, package: str, path: list[str], what: str) -> None:
        self._package, self._path, self._what = package, path, what

    def names(self) -> tuple[str, ...]:
        """Names of all members, sorted."""
        return tuple(sorted(info.name for info in pkgutil.iter_modules(self._path) if not info.name.startswith("_")))

    def load(self, name: str) -> ModuleType:
        """The member's module. Raises UsageError if there is none of that name."""
        if name not in self.names():
            raise UsageError(f"there is no {self._what} '{name}'", f"choose from: {', '.join(self.names())}")
        return importlib.import_module(f"{self._package}.{name}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())
