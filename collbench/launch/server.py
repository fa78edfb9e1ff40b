"""The rank's side of a crew: receive a call, run it on the rank's part of a backend, answer."""

import os
import signal
from typing import Any, Protocol

from collbench.launch.group import RankContext
from collbench.util.errors import CollbenchError, UnavailableError
from collbench.util.registry import load_member


class Endpoint(Protocol):
    """The rank's end of its connection to the driver."""

    def recv(self) -> Any: ...

    def send(self, obj: Any, /) -> None: ...


def make_part(backend: str, context: RankContext) -> Any:
    """The rank's part of a backend: its module's Rank."""
    return load_member("collbench.backends", backend).Rank(context)


def perform(part: Any, method: str, args: tuple[object, ...]) -> tuple[str, Any]:
    """Run one call. Whatever it raises becomes an answer: this is the border of a process, past
    which an exception would be lost.
    """
    try:
        return "ok", getattr(part, method)(*args)
    except CollbenchError as error:
        return "error", error
    except MemoryError as error:
        return "error", UnavailableError(
            f"{method} failed: {str(error) or 'out of memory'}", "use smaller sizes or fewer ranks"
        )
    except getattr(part, "faults", ()) as error:
        return "error", UnavailableError(
            f"{method} failed: {error}", "look for an Xid in dmesg, and at nvidia-smi"
        )
    except Exception as error:
        return "error", CollbenchError(
            f"{method} failed: {type(error).__name__}: {error}",
            "this looks like a mistake in collbench: please report it",
        )


def serve(endpoint: Endpoint, part: Any) -> None:
    """Answer calls until the driver says None or is gone."""
    while True:
        try:
            message = endpoint.recv()
            if message is None:
                return
            method, args = message
            endpoint.send(perform(part, method, args))
        except (EOFError, ConnectionError):
            return


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies."""
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(4)
