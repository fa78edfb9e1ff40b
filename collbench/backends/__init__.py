"""The backends: one a file or package, found by its name. Listing the names imports none of
them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from collbench.util.registry import Family

if TYPE_CHECKING:
    from collbench.backends.base import Backend, Peer


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
