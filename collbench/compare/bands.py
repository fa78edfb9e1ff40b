"""Bands of sizes: the lowest ratio of a library's own choice to ours in each, on the user buffers
that the library is fastest with at each size. Pure.
"""

from collections.abc import Sequence
from typing import NamedTuple

from collbench.compare.best import Errors, fastest_own_choices
from collbench.core.peers import is_peer
from collbench.core.record import Record
from collbench.core.rows import Workload, by_workload, has_note
from collbench.core.verdict import Interval

# Largest size of a band and its name: where latency dominates, where protocols change, and where
# the links set the bound.
BANDS = (
    (64 << 10, "up to 64K"),
    (1 << 20, "128K-1M"),
    (16 << 20, "2-16M"),
    (64 << 20, "32-64M"),
    (1 << 30, "128M-1G"),
)


BEYOND = "above 1G"


def band_of(size_bytes: int) -> str:
    """The name of the band of a size.

    >>> band_of(8), band_of(65 << 10), band_of(2 << 30)
    ('up to 64K', '128K-1M', 'above 1G')
    """
    return next((name for last, name in BANDS if size_bytes <= last), BEYOND)


class Lowest(NamedTuple):
    """The lowest ratio of a band: at which size, and on which user buffers of the library's."""

    size_bytes: int
    buffers: str
    ratio: Interval


def bands(rows: Sequence[Record], peer: str = "nccl") -> dict[Workload, list[Lowest | None]]:
    """Of each workload and band, the lowest ratio of a peer's own choice to ours.

    Ours is the row marked auto, or the only one: in a sweep of `--algo auto --channels 24` the
    question is what is best with 24.
    """
    worst_of: dict[Workload, list[Lowest | None]] = {}
    errors = Errors(rows)
    for workload, sizes in by_workload(rows).items():
        worst: list[Lowest | None] = [None] * len(BANDS)
        for size, here in sizes.items():
            own = [row for row in here if not is_peer(row.backend)]
            ours = (
                own[0]
                if len(own) == 1
                else next((row for row in own if has_note(row, "auto")), None)
            )
            theirs = fastest_own_choices(here).get(peer)
            band = next((k for k, (last, _) in enumerate(BANDS) if size <= last), None)
            if ours is None or theirs is None or band is None:
                continue
            slowdown, so_far = errors.ratio(theirs, ours), worst[band]
            if so_far is None or slowdown.median < so_far.ratio.median:
                worst[band] = Lowest(size, theirs.buffers, slowdown)
        if any(worst):
            worst_of[workload] = worst
    return worst_of
