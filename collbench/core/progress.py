"""What a user sees of work that takes long: a line that moves on a terminal, elsewhere a remark now
and then.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from collbench.core.screen import is_terminal, remark

FIRST_S, SHORTEST_S, LONGEST_S = 2.0, 10.0, 60.0  # until the first remark, and between others


class Remarks:
    """Remarks at growing intervals: `due` says whether it is time for one."""

    def __init__(self, first_s: float = SHORTEST_S) -> None:
        self._interval_s = SHORTEST_S
        self._next = time.monotonic() + first_s

    def due(self) -> bool:
        """Whether to make a remark now; the next is due later then."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._interval_s
        self._interval_s = min(2 * self._interval_s, LONGEST_S)
        return True


@contextmanager
def activity_shown(what: Callable[[], str]) -> Iterator[None]:
    """Show what is going on while the body runs, which may be one long call. Nothing may be forked
    meanwhile: a thread does it, which is over at the end.
    """
    is_over = Event()

    def show() -> None:
        if not is_terminal(sys.stderr):
            remarks = Remarks(FIRST_S)
            while not is_over.wait(0.2):
                if remarks.due():
                    remark(what())
            return
        if is_over.wait(FIRST_S):
            return
        from rich.console import Console

        with Console(stderr=True).status(what()) as status:
            while not is_over.wait(0.2):
                status.update(what())

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
