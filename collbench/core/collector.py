"""Python's cyclic garbage collector, off for a while."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cyclic_gc_disabled() -> Iterator[None]:
    """Disable the cyclic GC: while files are compared, whose rows hold no cycles (a third of the
    time for 100,000 rows), and while launches are timed, many of which it may take longer than.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
