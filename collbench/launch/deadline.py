"""A hard end of work on this host: what this process waits for is left where it is."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OutOfTime(Exception):  # noqa: N818 - no fault: the time that was given is over
    """The time is over."""


@contextmanager
def ended_at(end_s: float) -> Iterator[None]:
    """Raise OutOfTime in the body at that time of the monotonic clock, by SIGALRM, also while it
    waits. Only the main thread can; elsewhere, and for math.inf, nothing happens.
    """
    if end_s == math.inf or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(1e-3, end_s - time.monotonic()))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
