"""The top of the page: how far from a library's best, and how far from what the links allow, by
bands of sizes. Every number is a link to its curve.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from collbench.compare.bands import (
    BAND_NAMES,
    LINKS_BOUND_BYTES,
    Bands,
    Gap,
    peer_gaps,
    widest,
    wire_gaps,
)
from collbench.compare.best import Summary
from collbench.compare.page.data import Opening
from collbench.compare.tables.summary import fastest_text, form_heading, peer_name
from collbench.core.record import Record
from collbench.core.rows import Workload, configuration, label, own_form, titles, workload_of
from collbench.core.units import format_size
from collbench.core.web.html import HtmlCell, element, link, section, table

WORKLOADS_SHOWN = 60  # a page is to be read
_Words = Callable[[Gap], HtmlCell]


class Places(NamedTuple):
    """Where the curves of a summary are in the data of the page, by workload and configuration."""

    summary: Summary
    place_of: Mapping[tuple[object, ...], int]

    def of(self, row: Record) -> int:
        """The place of the curve of a row."""
        return self.place_of[workload_of(row), configuration(row, self.summary.knobs)]


def address(op: str, axis: str, curve: int, size_bytes: int) -> str:
    """The fragment that shows a point on its curve."""
    return f"#op={quote(op, safe='')}&axis={axis}&at={curve}.{size_bytes}"


def answers(summary: Summary, places: Places) -> tuple[str, Opening | None]:
    """The answers of one file to both questions, as HTML, and what the page opens on: None where
    neither has an answer.
    """
    parts, openings = [], []
    for peer in summary.peers:
        gaps = peer_gaps(summary, peer)
        found = widest(gaps)
        if found is not None:
            parts.append(_of_peer(gaps, *found, peer, summary, places))
            openings.append(_opening("peer", gaps, places))
    gaps = wire_gaps(summary)
    found = widest(gaps, LINKS_BOUND_BYTES)
    if found is not None:
        parts.append(_of_wire(gaps, *found, summary, places))
        openings.append(_opening("wire", gaps, places, LINKS_BOUND_BYTES))
    inner = "\n".join(f"<div>{part}</div>" for part in parts)
    pair = f'<div class="pair">{inner}</div>' if parts else ""
    return section("answers", "How far from the best", pair), next(iter(openings), None)


def _opening(axis: str, gaps: Bands, places: Places, least_bytes: int = 0) -> Opening:
    """The widest gap of allreduce, which most readers look for first, or else of all."""
    first = {of: here for of, here in gaps.items() if of.op == "allreduce"}
    found = widest(first or gaps, least_bytes)
    assert found is not None
    gap = found[1]
    return {"axis": axis, "curve": places.of(gap.row), "size": gap.size_bytes}


def _of_peer(
    gaps: Bands, workload: Workload, gap: Gap, peer: str, summary: Summary, places: Places
) -> str:
    """How far from a library's best."""
    name = peer_name(peer)
    told = Counter(best.verdict_of_peer(peer) for best in summary.every_best if peer in best.peers)
    verb = "slowest" if gap.value < 1 else "least ahead"
    tail = (
        f"; faster or level at {told['better'] + told['same']}, slower at {told['worse']}, cannot"
        f" tell at {told['cannot tell']} of {told.total()} points."
    )
    place = link(_where(workload, gap, summary), _address("peer", workload, gap, places))
    return _answer(
        f"From {name}'s best",
        f"<p><strong>{gap.value:.2f}x</strong> {verb}, {place}{element('span', tail)}</p>",
        f"The time of {name}'s own choice, {fastest_text(peer)}, over that of our best: the lowest"
        " of each band of sizes, and where; above 1 we are faster.",
        _grid(gaps, "peer", _peer_cell, f"From {name}'s best", places),
    )


def _of_wire(gaps: Bands, workload: Workload, gap: Gap, summary: Summary, places: Places) -> str:
    """How far from what the links allow."""
    is_above = gap.size_bytes > LINKS_BOUND_BYTES
    above = f" of sizes above {format_size(LINKS_BOUND_BYTES)}" if is_above else ""
    share = element("strong", f"{100 * gap.value:.0f}% of the ceiling")
    place = link(_where(workload, gap, summary), _address("wire", workload, gap, places))
    return _answer(
        "From the wire",
        f"<p>{share} at least{above}, {place}.</p>",
        "The bus bandwidth of our best over what the links allow its schedule: the lowest of each"
        " band. Small sizes are bound by latency, not by the links.",
        _grid(gaps, "wire", _wire_cell, "From the wire", places),
    )


def _answer(title: str, lead: str, hint: str, grid: str) -> str:
    return "\n".join([element("h3", title), lead, element("p", hint, class_="hint"), grid])


def _address(axis: str, workload: Workload, gap: Gap, places: Places) -> str:
    return address(workload.op, axis, places.of(gap.row), gap.size_bytes)


def _where(workload: Workload, gap: Gap, summary: Summary) -> str:
    against = "" if gap.rival is None else f" against {own_form(gap.rival)}"
    if gap.rival is not None and form_heading(gap.rival.backend) == "buffers":
        against += " buffers"
    title = titles(summary.best)[workload]
    return f"{title}, {format_size(gap.size_bytes)}, {label(gap.row, summary.knobs)}{against}"


def _grid(gaps: Bands, axis: str, words: _Words, name: str, places: Places) -> str:
    """Workloads by bands; the widest gaps first where there are too many."""
    bands = [band for band in BAND_NAMES if any(band in here for here in gaps.values())]
    named = titles(gaps)
    shown: Sequence[Workload] = list(gaps)
    cut = ""
    if len(gaps) > WORKLOADS_SHOWN:
        ordered = sorted(gaps, key=lambda one: min(gap.value for gap in gaps[one].values()))
        shown = ordered[:WORKLOADS_SHOWN]
        cut = element(
            "p",
            f"The {WORKLOADS_SHOWN} of {len(gaps)} with the widest gaps are shown.",
            class_="hint",
        )
    rows = [
        [
            named[workload],
            *[
                words(gap)._replace(href=_address(axis, workload, gap, places))
                if (gap := gaps[workload].get(band)) is not None
                else "-"
                for band in bands
            ],
        ]
        for workload in shown
    ]
    return cut + table(["what", *bands], rows, kinds=("tight", "num"), kind="grid", label=name)


def _peer_cell(gap: Gap) -> HtmlCell:
    text = f"{gap.value:.2f}x\nat {format_size(gap.size_bytes)}"
    return HtmlCell(text, kind=gap.verdict.replace(" ", "-"))


def _wire_cell(gap: Gap) -> HtmlCell:
    return HtmlCell(f"{100 * gap.value:.0f}%\nat {format_size(gap.size_bytes)}")
