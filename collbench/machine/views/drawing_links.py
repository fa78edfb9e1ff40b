"""The links of a drawing: PCIe from above, NVLinks between GPUs or to a switch, sockets."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from collbench.core.web.svg import Rect, arc, line, text_at
from collbench.machine.topology.model import GPU_LINKS, Link, Topology
from collbench.machine.views.drawing_layout import Bar, HostLayout, arc_height, further_links

NVLINK, XGMI, C2C = "#2f9e44", "#e03131", "#0b9a9a"
SOCKET, NETWORK, UNKNOWN_COLOUR = "#d9480f", "#862e9c", "#868e96"
COLOURS = {"nvlink": NVLINK, "xgmi": XGMI, "c2c": C2C, "socket": SOCKET, "network": NETWORK}
_PCIE_COLOURS = ("#1864ab", "#4dabf7", "#7048e8", "#a61e4d")  # the fastest first
_DASHES = ("", "", "6 3", "6 3", "2 3")
_FEW = 4  # NVLinks of a pair that are drawn one by one; more are a bundle with their number
_STEP = 5.0  # between lines side by side
_BUS_H = 14.0  # above CPUs, of the line that joins all of them
_MOST_SPREAD = 2.4
_TAP = 8.0  # below a GPU's upper edge, where its line from above comes in


class Colours:
    """A colour and a dash for each kind of link, the same in the drawing and in its legend."""

    def __init__(self, links: Sequence[Link]) -> None:
        generations = {
            (link.generation, link.count)
            for link in links
            if link.kind == "pcie" and link.generation
        }
        order = sorted(
            generations,
            key=lambda one: next(
                -(link.usable_gbs or 0)
                for link in links
                if (link.generation, link.count) == one and link.kind == "pcie"
            ),
        )
        self._pcie = {
            one: (_PCIE_COLOURS[place % len(_PCIE_COLOURS)], _DASHES[place % len(_DASHES)])
            for place, one in enumerate(order)
        }

    def of(self, link: Link) -> tuple[str, str]:
        """Colour and dash."""
        if link.kind == "pcie":
            return self._pcie.get((link.generation, link.count), (UNKNOWN_COLOUR, "4 3"))
        return COLOURS[link.kind], ""


def is_few(link: Link) -> bool:
    """Whether every bonded link gets a line."""
    return link.count <= _FEW


def is_between_gpus(one: Topology, link: Link) -> bool:
    """Whether it is an NVLink or xGMI from a GPU to a GPU."""
    return link.kind in GPU_LINKS and all(one.by_id[end].kind == "gpu" for end in (link.a, link.b))


def from_above(layout: HostLayout, colours: Colours) -> Iterator[str]:
    """PCIe and C2C lines: straight between bars, and to GPUs through the lane beside them."""
    yield from _between_bars(layout, layout.bars, colours)
    for name, (link, bar) in layout.feeds.items():
        if bar not in layout.places or name not in layout.places:
            continue
        colour, dash = colours.of(link)
        start, end = layout.places[bar].bottom, layout.places[name]
        if name not in layout.lanes:
            yield line([(end.middle, start), (end.middle, end.y)], colour, 2, dash)
        elif layout.is_mesh:
            x, tap = layout.lanes[name], end.y + _TAP
            yield line([(x, start), (x, tap), (end.x, tap)], colour, 2, dash)
        else:
            x = _entry(layout, end)
            yield line([(x, start), (x, end.y)], colour, 2, dash)


def _entry(layout: HostLayout, gpu: Rect) -> float:
    """Where the line from above enters a GPU: in the middle, or beside the NICs above it."""
    nics = [
        rect
        for name, rect in layout.places.items()
        if name not in layout.rows and name in layout.feeds
    ]
    if any(gpu.x < rect.right and rect.x < gpu.right for rect in nics):
        return gpu.x + 10
    return gpu.middle


def _between_bars(layout: HostLayout, bars: Sequence[Bar], colours: Colours) -> Iterator[str]:
    for bar in bars:
        for inner in bar.bars:
            if inner.above is not None and bar.node:
                colour, dash = colours.of(inner.above)
                rect = layout.places[inner.node]
                yield line(
                    [(rect.middle, layout.places[bar.node].bottom), (rect.middle, rect.y)],
                    colour,
                    2.4,
                    dash,
                )
        yield from _between_bars(layout, bar.bars, colours)


def mesh(one: Topology, layout: HostLayout) -> Iterator[str]:
    """NVLinks or xGMI between GPUs, each bonded link a line."""
    links = [link for link in one.links if is_between_gpus(one, link)]
    ports = _Ports(layout, links)
    marks: list[str] = []
    for link in links:
        a, b = sorted(
            (link.a, link.b), key=lambda end: (layout.places[end].x, layout.places[end].y)
        )
        (x1, y1), (x2, y2) = ports.of(a, link), ports.of(b, link)
        count = (link.count or 1) if is_few(link) else 3
        if layout.rows[a] == layout.rows[b] and not ports.is_beside(a, b):
            columns = ports.columns_between(a, b)
            height = arc_height(columns) * (1 if layout.rows[a] == 0 else -1)
            for shift in _shifts(count):
                inward = shift if x1 < x2 else -shift
                yield arc(
                    (x1 - inward, y1),
                    (x2 + inward, y2),
                    height + (shift if height > 0 else -shift),
                    COLOURS[link.kind],
                )
            if not is_few(link):
                marks.append(_count_mark((x1 + x2) / 2, y1 - height, link))
            continue
        is_level = layout.rows[a] == layout.rows[b]
        # Lines end on the edge that they leave from; slanting ones lie nearer to each other than
        # their ends, so these go further apart.
        needed = (
            1.0 if is_level else ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 / max(abs(y2 - y1), 1.0)
        )
        spread = min(needed, _MOST_SPREAD)
        for shift in _shifts(count):
            dx, dy = (0.0, shift) if is_level else (shift * spread, 0.0)
            yield line([(x1 + dx, y1 + dy), (x2 + dx, y2 + dy)], COLOURS[link.kind])
        if not is_few(link) or (needed > _MOST_SPREAD and count > 1):
            share = 0.5 if y1 == y2 else 0.28
            marks.append(_count_mark(x1 + (x2 - x1) * share, y1 + (y2 - y1) * share, link))
    yield from marks


def _count_mark(x: float, y: float, link: Link) -> str:
    """The number of bonded links, on their lines."""
    count, colour = f"x{link.count or '?'}", COLOURS[link.kind]
    return text_at(x, y + 4, count, 11, has_halo=True, colour=colour, is_bold=True)


def _shifts(count: int) -> list[float]:
    """Distances from the middle of so many lines side by side."""
    return [(place - (count - 1) / 2) * _STEP for place in range(count)]


class _Ports:
    """Where on the edge of its box each link ends, so that no two share a point."""

    def __init__(self, layout: HostLayout, links: Sequence[Link]) -> None:
        self._layout = layout
        self._at: dict[tuple[str, str], list[Link]] = {}
        for link in links:
            for end in (link.a, link.b):
                self._at.setdefault((end, self._side(end, link.other(end))), []).append(link)
        for (end, _), links in self._at.items():
            links.sort(key=lambda link: (layout.places[link.other(end)].x, link.a, link.b))

    def is_beside(self, a: str, b: str) -> bool:
        """Whether no GPU of the same row stands between."""
        return self.columns_between(a, b) == 0

    def columns_between(self, a: str, b: str) -> int:
        """GPUs of the same row between two."""
        places, rows = self._layout.places, self._layout.rows
        low, high = sorted((places[a].x, places[b].x))
        return sum(rows[name] == rows[a] and low < places[name].x < high for name in rows)

    def _side(self, end: str, other: str) -> str:
        places, rows = self._layout.places, self._layout.rows
        if rows[end] != rows[other]:
            return "bottom" if rows[end] == 0 else "top"
        if self.is_beside(end, other):
            return "right" if places[end].x < places[other].x else "left"
        return "top" if rows[end] == 0 else "bottom"

    def of(self, end: str, link: Link) -> tuple[float, float]:
        """The point of one link at one end."""
        side = self._side(end, link.other(end))
        rect, links = self._layout.places[end], self._at[(end, side)]
        share = (links.index(link) + 1) / (len(links) + 1)
        if side in ("left", "right"):
            return (rect.x if side == "left" else rect.right), rect.y + _TAP + (
                rect.h - _TAP
            ) * share
        return rect.x + 6 + (rect.w - 12) * share, (rect.y if side == "top" else rect.bottom)


def to_switch(one: Topology, layout: HostLayout, bar: Rect) -> Iterator[str]:
    """The links of every GPU down to the bar of the NVSwitches, with their number."""
    for gpu, link in switch_bundles(one).items():
        rect, count = layout.places[gpu], link.count
        for shift in _shifts(min(max(count, 1), 3)):
            x = rect.middle - 8 + shift
            yield line([(x, rect.bottom), (x, bar.y)], COLOURS[link.kind], 2.4)
        x, y = rect.middle + 4, (rect.bottom + bar.y) / 2 + 4
        yield text_at(
            x, y, f"x{count or '?'}", 12, anchor="start", colour=COLOURS[link.kind], is_bold=True
        )


def to_cpus(one: Topology, layout: HostLayout, colours: Colours) -> Iterator[str]:
    """Further links of GPUs to CPUs, such as NVLinks of POWER or C2C beside PCIe: down through the
    lane at the right of the GPU.
    """
    for link in cpu_links(one, layout):
        above, rect = _ends(one, layout, link)
        x, y = rect.right + layout.tail / 2, rect.y + _TAP + 8
        colour, dash = colours.of(link)
        yield line([(x, above.bottom), (x, y), (rect.right, y)], colour, 2.4, dash)
        if link.kind != "pcie" and link.count > 1:
            yield _count_mark(x, rect.y - 8, link)


def cpu_links(one: Topology, layout: HostLayout) -> list[Link]:
    """Links between a GPU and the CPU above it that are not what the GPU hangs at."""
    links = []
    for link in further_links(one):
        if {link.a, link.b} <= layout.places.keys():
            above, rect = _ends(one, layout, link)
            is_below = above.x <= rect.right + layout.tail / 2 <= above.right
            if is_below and not any(link is feed for feed, _ in layout.feeds.values()):
                links.append(link)
    return links


def _ends(one: Topology, layout: HostLayout, link: Link) -> tuple[Rect, Rect]:
    """The places of a link's CPU and GPU."""
    cpu, gpu = sorted((link.a, link.b), key=lambda end: one.by_id[end].kind)
    return layout.places[cpu], layout.places[gpu]


def switch_bundles(one: Topology) -> dict[str, Link]:
    """NVLinks of each GPU to switches, those to several switches as one link."""
    bundles: dict[str, Link] = {}
    for link in one.links:
        kinds = {one.by_id[end].kind: end for end in (link.a, link.b)}
        if link.kind in GPU_LINKS and "gpu" in kinds and "nvswitch" in kinds:
            known = bundles.get(kinds["gpu"])
            bundles[kinds["gpu"]] = link if known is None else _together(known, link)
    return bundles


def _together(one: Link, other: Link) -> Link:
    gbs = None
    if one.usable_gbs is not None and other.usable_gbs is not None:
        gbs = one.usable_gbs + other.usable_gbs
    return replace(one, count=one.count + other.count, usable_gbs=gbs)


def sockets(one: Topology, layout: HostLayout) -> Iterator[str]:
    """Links between CPUs: straight lines, arcs, or one line to all if every two are linked."""
    order = sorted(
        (node.id for node in one.of_kind("cpu") if node.id in layout.places),
        key=lambda name: layout.places[name].x,
    )
    if has_all_sockets(one):
        tops = [layout.places[name] for name in order]
        level = tops[0].y - _BUS_H
        yield line([(tops[0].middle, level), (tops[-1].middle, level)], SOCKET, 3.2)
        yield from (
            line([(rect.middle, level), (rect.middle, rect.y)], SOCKET, 3.2) for rect in tops
        )
        return
    near = set(pairwise(order)) | {(b, a) for a, b in pairwise(order)}
    for link in one.links:
        if link.kind != "socket" or not {link.a, link.b} <= set(order):
            continue
        a, b = sorted((link.a, link.b), key=order.index)
        left, right = layout.places[a], layout.places[b]
        if (a, b) in near:
            level = left.y + left.h / 2
            yield line([(left.right, level), (right.x, level)], SOCKET, 3.2)
        else:
            height = 8 + 7 * (order.index(b) - order.index(a))
            yield arc((left.right - 20, left.y), (right.x + 20, right.y), height, SOCKET, 2.4)


@lru_cache(maxsize=64)
def has_all_sockets(one: Topology) -> bool:
    """Whether there are more than two CPUs, and every two of them are linked alike."""
    sockets = [link for link in one.links if link.kind == "socket"]
    count = len(one.of_kind("cpu"))
    pairs = {frozenset((link.a, link.b)) for link in sockets}
    return (
        count > 2
        and len(pairs) == count * (count - 1) // 2
        and len({link.usable_gbs for link in sockets}) == 1
    )


def socket_room(one: Topology) -> float:
    """Pixels above the CPUs that their arcs take."""
    if has_all_sockets(one):
        return _BUS_H + 4
    order = {node.id: place for place, node in enumerate(one.of_kind("cpu"))}
    far = [
        abs(order[link.a] - order[link.b])
        for link in one.links
        if link.kind == "socket" and {link.a, link.b} <= order.keys()
    ]
    return 8 + 7.0 * max(far) if far and max(far) > 1 else 0.0
