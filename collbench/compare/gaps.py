"""The two questions to a file of results: how far from a library's best, and how far from what the
links allow? Of each workload and band of sizes the widest gap. Pure.
"""

from collections.abc import Mapping
from typing import NamedTuple

from collbench.compare.bands import BANDS, BEYOND, band_of
from collbench.compare.best import Best, Summary
from collbench.core.record import Record
from collbench.core.rows import Workload
from collbench.core.verdict import Verdict

LINKS_BOUND_BYTES = (
    1 << 20
)  # larger sizes are bound by the links, smaller ones by latency: see BANDS
BAND_NAMES = (*(name for _, name in BANDS), BEYOND)


class Gap(NamedTuple):
    """Where the distance is widest. value: how many times as fast as the peer, or the share of the
    ceiling that is reached; verdict: on the speedup over the peer. row: ours there; peer: a
    library's name, and the row of its own choice. sizes: how many were asked; behind: at how many
    of them we are slower than the peer; not_clear: at how many that cannot be told.
    """

    value: float
    verdict: Verdict
    size_bytes: int
    row: Record
    peer: str
    rival: Record | None
    sizes: int
    behind: int
    not_clear: int


Bands = Mapping[Workload, Mapping[str, Gap]]


def peer_gaps(summary: Summary, peer: str) -> Bands:
    """The lowest speedup over the fastest of a library's own choices."""
    return _gaps(summary, peer)


def wire_gaps(summary: Summary) -> Bands:
    """The lowest share of the ceiling; a band in which none is known is left out."""
    return _gaps(summary, "")


def _gaps(summary: Summary, peer: str) -> Bands:
    gaps: dict[Workload, dict[str, Gap]] = {}
    for workload, sizes in summary.best.items():
        for size, best in sizes.items():
            gap = _gap(best, size, peer)
            if gap is None:
                continue
            here = gaps.setdefault(workload, {})
            before = here.get(band_of(size))
            here[band_of(size)] = gap if before is None else _widest(before, gap)
    return gaps


def _gap(best: Best, size: int, peer: str) -> Gap | None:
    """The gap at one size; None where it is not known."""
    if not peer:
        if best.percent is None:
            return None
        return Gap(best.percent / 100, "cannot tell", size, best.row, "", None, 1, 0, 0)
    ratio = best.peers.get(peer)
    if ratio is None:
        return None
    verdict = best.verdict_of_peer(peer)
    return Gap(
        ratio.median,
        verdict,
        size,
        best.row,
        peer,
        best.rivals[peer],
        1,
        int(verdict == "worse"),
        int(verdict == "cannot tell"),
    )


def _widest(one: Gap, other: Gap) -> Gap:
    """The wider gap of two, with the counts of both."""
    return min(one, other, key=lambda gap: gap.value)._replace(
        sizes=one.sizes + other.sizes,
        behind=one.behind + other.behind,
        not_clear=one.not_clear + other.not_clear,
    )


def widest(gaps: Bands, least_bytes: int = 0) -> tuple[Workload, Gap] | None:
    """The widest gap of all, of sizes above least_bytes if there are any; None without any."""
    every = [(workload, gap) for workload, here in gaps.items() for gap in here.values()]
    large = [pair for pair in every if pair[1].size_bytes > least_bytes] or every
    return min(large, key=lambda pair: pair[1].value) if large else None
