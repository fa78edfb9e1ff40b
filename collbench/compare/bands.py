"""Bands of sizes, and where in each of them a file is farthest from a library's best, and from what
the links allow. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from collbench.compare.best import Summary
from collbench.core.record import Record
from collbench.core.rows import Workload
from collbench.core.verdict import Interval, Verdict

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
BAND_NAMES = (*(name for _, name in BANDS), BEYOND)
# larger sizes are bound by the links, smaller ones by latency
LINKS_BOUND_BYTES = 1 << 20


def band_of(size_bytes: int) -> str:
    """The name of the band of a size.

    >>> band_of(8), band_of(65 << 10), band_of(2 << 30)
    ('up to 64K', '128K-1M', 'above 1G')
    """
    return next((name for last, name in BANDS if size_bytes <= last), BEYOND)


class Gap(NamedTuple):
    """Where the distance is widest. ratio: how many times as fast as a library, or the share of the
    ceiling that is reached. row: ours there; rival: the library's; verdict: on the speedup over it.
    """

    ratio: Interval
    size_bytes: int
    row: Record
    rival: Record | None = None
    verdict: Verdict = "cannot tell"

    @property
    def value(self) -> float:
        return self.ratio.median


Bands = Mapping[Workload, Mapping[str, Gap]]


def peer_gaps(summary: Summary, peer: str) -> Bands:
    """The lowest speedup over the fastest of a library's own choices."""
    return _widest_of_bands(
        (
            workload,
            Gap(best.peers[peer], size, best.row, best.rivals[peer], best.verdict_of_peer(peer)),
        )
        for workload, sizes in summary.best.items()
        for size, best in sizes.items()
        if peer in best.peers
    )


def wire_gaps(summary: Summary) -> Bands:
    """The lowest share of the ceiling; a band in which none is known is left out."""
    return _widest_of_bands(
        (workload, Gap(Interval(*[best.percent / 100] * 3), size, best.row))
        for workload, sizes in summary.best.items()
        for size, best in sizes.items()
        if best.percent is not None
    )


def _widest_of_bands(gaps: Iterable[tuple[Workload, Gap]]) -> Bands:
    found: dict[Workload, dict[str, Gap]] = {}
    for workload, gap in gaps:
        here, band = found.setdefault(workload, {}), band_of(gap.size_bytes)
        here[band] = min(here.get(band, gap), gap, key=lambda one: one.value)
    return found


def widest(gaps: Bands, least_bytes: int = 0) -> tuple[Workload, Gap] | None:
    """The widest gap of all, of sizes above least_bytes if there are any; None without any."""
    every = [(workload, gap) for workload, here in gaps.items() for gap in here.values()]
    large = [pair for pair in every if pair[1].size_bytes > least_bytes] or every
    return min(large, key=lambda pair: pair[1].value) if large else None
