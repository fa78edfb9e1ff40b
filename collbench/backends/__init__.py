"""The backends: one a file or package, by its name. Listing the names imports none of them."""

import importlib
import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

from collbench.core.registry import Family

if TYPE_CHECKING:
    from collbench.backends.base import Backend, Peer, TogetherOpener
    from collbench.core.case import Case
    from collbench.planning.plan import Plan


class BackendFamily:
    """All backends."""

    def __init__(self) -> None:
        helpers = {"base", "blocking", "gpu", "kernel", "library", "net", "proof", "repeat"}
        self._modules = Family(__name__, __path__, "backend", helpers=frozenset(helpers))

    def names(self) -> tuple[str, ...]:
        """Names of all backends, sorted."""
        return self._modules.names()

    def load(self, name: str) -> "Backend | Peer":
        """The backend of that name. Raises UsageError if there is none."""
        if name not in self.names():  # but for what files hold
            from collbench.backends.kernel.backend import KERNELS
            from collbench.backends.nccl.release import RELEASES

            if found := KERNELS.get(name) or RELEASES.get(name):
                return found
        backend: Backend | Peer = self._modules.load(name).BACKEND
        return backend

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


FAMILY = BackendFamily()


def together_names() -> tuple[str, ...]:
    """Names of the backends that run several collectives at once, sorted. Imports no session."""
    return tuple(name for name in FAMILY if _has_together(name))


def together_of(name: str) -> "TogetherOpener[Plan | Case] | None":
    """What opens sessions of a backend for several collectives at once, or None: the object
    TOGETHER of its module `together`, where it has one. Of Plan and Case it takes what the backend
    does, which types cannot say.
    """
    if not _has_together(name):
        return None
    opener: TogetherOpener[Plan | Case] = importlib.import_module(_together_module(name)).TOGETHER
    return opener


def _together_module(name: str) -> str:
    return f"{__name__}.{name}.together"


def _has_together(name: str) -> bool:
    if name not in FAMILY.names():
        return False
    is_package = hasattr(importlib.import_module(f"{__name__}.{name}"), "__path__")
    return is_package and importlib.util.find_spec(_together_module(name)) is not None
