"""The backends: one a file or package, found by its name. Listing the names imports none of
them.
"""

import importlib
import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

from collbench.util.registry import Family

if TYPE_CHECKING:
    from collbench.backends.base import Backend, Peer, TogetherOpener


class BackendFamily:
    """All backends."""

    def __init__(self) -> None:
        helpers = frozenset({"base", "gpu", "library", "net"})
        self._modules = Family(__name__, __path__, "backend", helpers=helpers)

    def names(self) -> tuple[str, ...]:
        """Names of all backends, sorted."""
        return self._modules.names()

    def load(self, name: str) -> "Backend | Peer":
        """The backend of that name. Raises UsageError if there is none."""
        backend: Backend | Peer = self._modules.load(name).BACKEND
        return backend

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


FAMILY = BackendFamily()


def together_of(name: str) -> "TogetherOpener | None":
    """What opens sessions of a backend for several collectives at once, or None: the object
    TOGETHER of its module `together`, where it has one.
    """
    module = f"{__name__}.{name}.together"
    is_package = hasattr(importlib.import_module(f"{__name__}.{name}"), "__path__")
    if not is_package or importlib.util.find_spec(module) is None:
        return None
    opener: TogetherOpener = importlib.import_module(module).TOGETHER
    return opener
