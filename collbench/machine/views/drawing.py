"""A drawing of a machine for a report: CPUs, switches, NICs and GPUs as boxes, links in the
colours of their kinds, a legend with rates.

Pure: the same topology gives the same bytes. Hosts that are equal are drawn once. Nothing in it but
shapes and text: no script, no style sheet, no link.
"""

from collections.abc import Iterator, Sequence

from collbench.core.web.svg import (
    FAINT,
    FONT,
    INK,
    Rect,
    box,
    clean,
    fitted,
    folded,
    line,
    number,
    text_at,
    width_of,
)
from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.views import drawing_links
from collbench.machine.views.drawing_layout import BAR_H, Bar, HostLayout, lay_out
from collbench.machine.views.labels import (
    Alike,
    alike,
    between,
    gpus_text,
    labels,
    link_text,
    rate_text,
)

_EDGE = 28.0  # of white around the drawing
_LEAST_W = 560.0
_FILL = {
    "cpu": ("#e7f0fa", "#1864ab"),
    "root": ("#f1f3f5", "#495057"),
    "pci": ("#f1f3f5", "#495057"),
    "gpu": ("#ebfbee", "#2b8a3e"),
    "nic": ("#f8f0fc", "#862e9c"),
    "nvswitch": ("#d3f9d8", "#2b8a3e"),
}
_TITLE_SIZE, _TEXT_SIZE, _NAME_SIZE, _SMALL = 20.0, 13.0, 13.0, 10.0  # sizes of text
_SWITCH_H = 40.0  # of the bundles' room above the NVSwitch bar
_ROW_H = 20.0  # of the legend


def svg(topology: Topology) -> str:
    """The drawing, as the text of an SVG file.

    >>> from collbench.machine.topology.rates import nvlink_link
    >>> gpus = Node(id="gpu0", kind="gpu", index=0), Node(id="gpu1", kind="gpu", index=1)
    >>> two = Topology(name="two", nodes=gpus, links=(nvlink_link("gpu0", "gpu1", 4, 6),))
    >>> svg(two)[:57]
    '<svg class="collbench" xmlns="http://www.w3.org/2000/svg"'
    """
    groups = alike(topology)
    panels = [_Panel(group) for group in groups]
    links = [link for panel in panels for link in panel.drawn]
    legend = _legend_entries(panels)
    wide = max(_LEAST_W, *(panel.width for panel in panels))
    name = topology.name or topology.hosts[0] or "machine"
    shapes: list[str] = [
        text_at(
            _EDGE,
            _EDGE + _TITLE_SIZE,
            fitted(name, wide, _TITLE_SIZE, is_bold=True),
            _TITLE_SIZE,
            anchor="start",
            is_bold=True,
        )
    ]
    y = _EDGE + _TITLE_SIZE + 8
    for group, panel in zip(groups, panels, strict=True):
        for text in folded(_caption(group, topology), wide, _TEXT_SIZE):
            y += 18
            shapes.append(text_at(_EDGE, y, text, _TEXT_SIZE, anchor="start", colour=FAINT))
        y += 20
        colours = drawing_links.Colours(links)
        shapes.append(
            f'<g transform="translate({number(_EDGE + (wide - panel.width) / 2)} {number(y)})">'
        )
        shapes += [*panel.shapes(colours), "</g>"]
        y += panel.height + 10
    for text in between(topology, groups):
        y += 18
        shapes.append(
            text_at(
                _EDGE, y, fitted(text, wide, _TEXT_SIZE), _TEXT_SIZE, anchor="start", colour=FAINT
            )
        )
    y += 14
    left_out = _left_out(
        sum(panel.links_left for panel in panels), sum(panel.switches_left for panel in panels)
    )
    if any(node.fact("hidden") for node in topology.nodes):
        left_out.append("Dashed: not in the source, made up from the classes that it tells.")
    below, height = _legend(
        legend, drawing_links.Colours(links), y, wide, [*left_out, *topology.notes]
    )
    shapes += below
    return _document(name, gpus_text(topology), shapes, wide + 2 * _EDGE, y + height + _EDGE)


def _caption(group: Alike, topology: Topology) -> str:
    """What stands above a host's drawing."""
    many = len(group.hosts)
    hosts = [name for name in group.names if name]
    which = hosts[0] if hosts and hosts[0] != topology.name else ""
    if many > 1:
        which = f"{many} such hosts, one of them drawn"
    return f"{which}: {gpus_text(group.part)}" if which else gpus_text(group.part)


def _document(name: str, what: str, shapes: Sequence[str], wide: float, high: float) -> str:
    size = (
        f'width="{number(wide)}" height="{number(high)}" viewBox="0 0 {number(wide)}'
        f' {number(high)}"'
    )
    head = (
        f'<svg class="collbench" xmlns="http://www.w3.org/2000/svg" {size}'
        f' font-family="{clean(FONT)}" role="img">'
    )
    about = [
        f"<title>{clean(name)}</title>",
        f"<desc>{clean(what)}</desc>",
        f'<rect width="{number(wide)}" height="{number(high)}" fill="#ffffff"/>',
    ]
    return "\n".join([head, *about, *shapes, "</svg>"]) + "\n"


class _Panel:
    """One host: its layout, and what was drawn of it."""

    def __init__(self, group: Alike) -> None:
        self.one = group.part
        pairs = {
            (link.a, link.b): link.count
            for link in self.one.links
            if drawing_links.is_between_gpus(self.one, link)
        }
        self._layout: HostLayout = lay_out(self.one, pairs)
        self._above = drawing_links.socket_room(self.one)
        self._has_switch = bool(drawing_links.switch_bundles(self.one))
        self._labels = labels(self.one)
        self.width = self._layout.width
        self.height = (
            self._above + self._layout.height + (_SWITCH_H + BAR_H if self._has_switch else 0)
        )
        self.drawn = tuple(self._drawn())
        self.links_left = self._links_left()
        self.switches_left = sum(
            node.id not in self._layout.places for node in self.one.of_kind("pci")
        )

    def _drawn(self) -> Iterator[Link]:
        """The links that the legend explains: those with a line, and those to the network."""
        yield from (link for link, bar in self._layout.feeds.values() if bar)
        yield from _above_links(self._layout.bars)
        yield from drawing_links.cpu_links(self.one, self._layout)
        yield from drawing_links.switch_bundles(self.one).values()
        yield from (
            link
            for link in self.one.links
            if link.kind in ("socket", "network") or drawing_links.is_between_gpus(self.one, link)
        )

    def _links_left(self) -> int:
        """The number of links without a line, such as a second way of a GPU to its CPU."""
        places = self._layout.places
        pcie = [
            link
            for link in self.one.links
            if link.kind in ("pcie", "c2c") and {link.a, link.b} <= places.keys()
        ]
        drawn = {frozenset((name, bar)) for name, (_, bar) in self._layout.feeds.items()} | set(
            _above_pairs(self._layout.bars)
        )
        further = drawing_links.cpu_links(self.one, self._layout)
        pcie = [link for link in pcie if not any(link is one for one in further)]
        return sum(frozenset((link.a, link.b)) not in drawn for link in pcie)

    def shapes(self, colours: drawing_links.Colours) -> Iterator[str]:
        """Links first, boxes over them."""
        yield f'<g transform="translate(0 {number(self._above)})">'
        yield from drawing_links.sockets(self.one, self._layout)
        yield from drawing_links.from_above(self._layout, colours)
        yield from drawing_links.to_cpus(self.one, self._layout, colours)
        yield from drawing_links.mesh(self.one, self._layout)
        if self._has_switch:
            bar = Rect(x=0, y=self._layout.height + _SWITCH_H, w=self._layout.width, h=BAR_H)
            yield from drawing_links.to_switch(self.one, self._layout, bar)
            is_made_up = any(node.fact("hidden") for node in self.one.of_kind("nvswitch"))
            yield from self._bar(bar, "nvswitch", self._switch_text(), "", is_made_up)
        for name, rect in self._layout.places.items():
            yield from self._box(self.one.by_id[name], rect)
        yield "</g>"

    def _switch_text(self) -> str:
        switches = self.one.of_kind("nvswitch")
        text = (
            (switches[0].name or "NVSwitch")
            if len(switches) == 1
            else f"{len(switches)} NVSwitches"
        )
        return f"{text}, shared by the hosts" if any(node.host < 0 for node in switches) else text

    def _box(self, node: Node, rect: Rect) -> Iterator[str]:
        label = self._labels[node.id]
        if node.kind in ("gpu", "nic"):
            yield box(rect, *_FILL[node.kind])
            room = rect.w - 4
            below = self._gpu_text(node) if node.kind == "gpu" else node.name
            if width_of(below, _SMALL) > room and node.kind == "nic":
                below = below.split()[0]
            middle = rect.y + rect.h / 2
            yield _name(rect.middle, middle + (-2 if below else 5), label, room)
            if below:
                yield text_at(
                    rect.middle, middle + 12, fitted(below, room, _SMALL), _SMALL, colour=FAINT
                )
            return
        if node.kind == "cpu":
            parts = [node.name, f"CPUs {node.affinity}" if node.affinity else ""]
            text = ", ".join(part for part in parts if part)
            is_fitting = width_of(text, _SMALL) <= rect.w - 16 or not node.name
            shown = text if is_fitting else node.name
            yield from self._bar(rect, "cpu", label, shown, bool(node.fact("hidden")))
        else:
            name = "PCIe switch" if node.kind == "pci" else "host bridge"
            yield from self._bar(rect, node.kind, name, node.address, bool(node.fact("hidden")))

    def _gpu_text(self, node: Node) -> str:
        """Under a GPU's number: its model if the host has several, else where it is."""
        is_one_model = len({gpu.name for gpu in self.one.gpus}) == 1
        if is_one_model:
            return node.address.removeprefix("0000:")
        return node.name.removeprefix("NVIDIA ")

    def _bar(
        self, rect: Rect, kind: str, label: str, description: str, is_made_up: bool
    ) -> Iterator[str]:
        """A wide box: its name, and beside it or below it what it is, as far as there is room. What
        no source names, but what its classes imply, is dashed.
        """
        yield box(rect, *_FILL[kind], dash="5 3" if is_made_up else "")
        room = rect.w - 16
        beside = room - width_of(f"{label}  ", _NAME_SIZE, is_bold=True)
        if description and width_of(description, _SMALL + 1) > beside:
            yield _name(rect.middle, rect.y + 15, label, room + 6)
            yield text_at(
                rect.middle, rect.y + 28, fitted(description, room, _SMALL), _SMALL, colour=FAINT
            )
        elif description:
            text = (
                f'<tspan font-weight="bold">{clean(label)}</tspan><tspan dx="8"'
                f' font-size="{number(_SMALL + 1)}" fill="{FAINT}">{clean(description)}</tspan>'
            )
            yield (
                f'<text x="{number(rect.middle)}" y="{number(rect.y + rect.h / 2 + 5)}"'
                f' font-size="{number(_NAME_SIZE)}" text-anchor="middle" fill="{INK}">{text}</text>'
            )
        else:
            yield _name(rect.middle, rect.y + rect.h / 2 + 5, label, room + 6)


def _name(x: float, y: float, label: str, room: float) -> str:
    """The name of a box, in bold letters."""
    size = _NAME_SIZE - 1
    return text_at(x, y, fitted(label, room, size, is_bold=True), size, is_bold=True)


def _above_links(bars: Sequence[Bar]) -> Iterator[Link]:
    for bar in bars:
        if bar.above is not None:
            yield bar.above
        yield from _above_links(bar.bars)


def _above_pairs(bars: Sequence[Bar]) -> Iterator[frozenset[str]]:
    for bar in bars:
        yield from (frozenset((bar.node, inner.node)) for inner in bar.bars)
        yield from _above_pairs(bar.bars)


def _legend_entries(panels: Sequence[_Panel]) -> list[tuple[Link, str]]:
    """One entry for each kind, generation, width and rate of link that is drawn, near to far."""
    order = ("nvlink", "xgmi", "c2c", "pcie", "socket", "network")
    entries: dict[str, Link] = {}
    drawn = [(link, panel.one) for panel in panels for link in panel.drawn]
    for link, one in sorted(
        drawn, key=lambda pair: (order.index(pair[0].kind), -(pair[0].usable_gbs or 0.0))
    ):
        entries.setdefault(_meaning(one, link), link)
    return [(link, text) for text, link in entries.items()]


def _meaning(topology: Topology, link: Link) -> str:
    if drawing_links.is_between_gpus(topology, link) and drawing_links.is_few(link):
        one = rate_text(None if link.usable_gbs is None else link.usable_gbs / max(link.count, 1))
        name = "XGMI" if link.kind == "xgmi" else f"NVLink {link.generation or '?'}"
        if one[0].isdigit():
            return f"one {name}, {one} GB/s"
        return f"one {name.removesuffix(' ?')}, rate unknown"
    if link.kind == "socket" and drawing_links.has_all_sockets(topology):
        return f"{link_text(link)}, every two CPUs"
    return link_text(link).replace("network,", "NIC to the network,")


def _left_out(links: int, switches: int) -> list[str]:
    """What the drawing does not show of the topology."""
    remarks = []
    if links:
        remarks.append(f"{links} further link{'s are' if links > 1 else ' is'} not drawn.")
    if switches:
        remarks.append(f"{switches} PCIe switch{'es are' if switches > 1 else ' is'} not drawn.")
    return remarks


def _legend(
    entries: Sequence[tuple[Link, str]],
    colours: drawing_links.Colours,
    y: float,
    wide: float,
    notes: Sequence[str],
) -> tuple[list[str], float]:
    """The meaning of the lines, then the notes: the shapes, and their height."""
    shapes = [line([(_EDGE, y), (_EDGE + wide, y)], "#ced4da", 1)]
    x, row = _EDGE, y + 22
    for link, text in entries:
        need = 44 + width_of(text, _TEXT_SIZE) + 18
        if x > _EDGE and x + need > _EDGE + wide:
            x, row = _EDGE, row + _ROW_H
        colour, dash = colours.of(link)
        shapes.append(line([(x, row - 4), (x + 34, row - 4)], colour, 3, dash))
        shapes.append(
            text_at(x + 42, row, fitted(text, wide - 44, _TEXT_SIZE), _TEXT_SIZE, anchor="start")
        )
        x += need
    for text in (*(["GB/s are decimal, usable, in each direction."] if entries else []), *notes):
        for part in folded(text, wide, _TEXT_SIZE - 1):
            row += _ROW_H
            shapes.append(text_at(_EDGE, row, part, _TEXT_SIZE - 1, anchor="start", colour=FAINT))
    return shapes, row - y + 6
