"""The rank's side of a worker group: receive a call, run it on the rank's part, answer.

This is the one place where the name of a method becomes a method again.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from collbench.core.errors import CollbenchError, UnavailableError
from collbench.core.group import Rank
from collbench.core.host import shortage

MethodCall = tuple[str, tuple[object, ...]]  # the name of a method, and its arguments


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a call: a result, or an error."""

    result: object = None
    error: CollbenchError | None = None


class Endpoint(Protocol):
    """The rank's end of its connection to the driver."""

    def recv(self) -> MethodCall | None: ...

    def send(self, obj: Reply, /) -> None: ...


def rank_name(rank: type[Rank]) -> str:
    """How a process that is started is told the class of its rank: `module:class`."""
    return f"{rank.__module__}:{rank.__qualname__}"


def rank_class(name: str) -> type[Rank]:
    """The class of that name. Raises CollbenchError if it is none of ranks."""
    module, _, kind = name.partition(":")
    member: object = vars(importlib.import_module(module)).get(kind)
    if not isinstance(member, type) or Rank not in member.__mro__:
        raise CollbenchError(f"{name} is no class of ranks")
    return cast("type[Rank]", member)


def _method(part: Rank, name: str) -> Callable[..., object]:
    """A public method of the part's class. Raises CollbenchError if there is none."""
    member: object = getattr(type(part), name, None)
    if name.startswith("_") or not callable(member):
        raise CollbenchError(f"{type(part).__name__} has no method {name}")
    return member


def perform(
    part: Rank, name: str, args: tuple[object, ...], fatal: tuple[type[Exception], ...] = ()
) -> Reply:
    """Run one call. Whatever it raises becomes an answer: this is the border of a process, past
    which an exception would be lost. fatal: what is raised all the same.
    """
    try:
        return Reply(_method(part, name)(part, *args))
    except fatal:
        raise
    except CollbenchError as error:
        return Reply(error=error)
    except (Exception, SystemExit) as error:
        return Reply(error=part.named(error) or _error(part, name, error))


def _error(part: Rank, name: str, error: BaseException) -> CollbenchError:
    """What was raised in a call, by its kind."""
    if isinstance(error, MemoryError):
        return UnavailableError(
            f"{name} failed: {str(error) or 'out of memory'}", "use smaller sizes or fewer ranks"
        )
    if isinstance(error, OSError):
        return UnavailableError(
            f"{name} failed: {shortage(error)}", "raise the limit, or use fewer ranks"
        )
    if isinstance(error, part.faults):
        return UnavailableError(
            f"{name} failed: {error}", "look for an Xid in dmesg, and at nvidia-smi"
        )
    return CollbenchError(
        f"{name} failed: {type(error).__name__}: {error}",
        "this looks like a mistake in collbench: please report it",
    )


def serve(endpoint: Endpoint, part: Rank, fatal: tuple[type[Exception], ...] = ()) -> None:
    """Answer calls until the driver says None or is gone. Raises what is fatal."""
    while True:
        try:
            message = endpoint.recv()
            if message is None:
                return
            endpoint.send(perform(part, *message, fatal))
        except (EOFError, ConnectionError):
            return
