"""A drawing of a machine for a report: CPUs, switches, NICs and GPUs as boxes, links in the
colours of their kinds, a legend with rates.

Pure: the same topology gives the same bytes. Hosts that are equal are drawn once. Nothing in it but
shapes and text on white: no script, no style sheet, no link.
"""

from collections.abc import Iterable, Iterator, Sequence

from collbench.core.web.svg import (
    FAINT,
    FONT,
    Rect,
    arc,
    box,
    clean,
    fitted,
    folded,
    line,
    number,
    text_at,
    width_of,
)
from collbench.machine.topology.model import GPU_LINKS, Link, Node, Topology
from collbench.machine.views.drawing_layout import HostLayout, lay_out
from collbench.machine.views.labels import Alike, alike, between, gpus_text, labels, link_text

_EDGE = 28.0  # of white around the drawing
_INSIDE = 16.0  # between a host's frame and its parts
_LEAST_W = 560.0
_FILL = {
    "cpu": ("#e7f0fa", "#1864ab"),
    "root": ("#f1f3f5", "#495057"),
    "pci": ("#f1f3f5", "#495057"),
    "gpu": ("#ebfbee", "#2b8a3e"),
    "nic": ("#f8f0fc", "#862e9c"),
    "nvswitch": ("#d3f9d8", "#2b8a3e"),
}
_FRAME = "#ced4da"
# of the kinds of links, from near to far
_COLOURS = {
    "nvlink": "#2f9e44",
    "xgmi": "#e03131",
    "c2c": "#0b9a9a",
    "pcie": "#868e96",  # of unknown generation
    "socket": "#d9480f",
    "network": "#862e9c",
}
# of kinds that come in several speeds, the fastest first: colour and dash
_BY_RATE = {
    "pcie": (("#1864ab", ""), ("#4dabf7", ""), ("#7048e8", "6 3"), ("#a61e4d", "6 3")),
    "nvlink": ((_COLOURS["nvlink"], ""), ("#a9b80f", ""), ("#0b7285", "6 3")),
}
_TITLE_SIZE, _TEXT_SIZE, _NAME_SIZE, _SMALL = 20.0, 13.0, 12.0, 10.0  # sizes of text
_ROW_H = 20.0  # of the legend
_BRIDGES = {"pci": "PCIe switch", "root": "host bridge"}


def svg(topology: Topology) -> str:
    """The drawing, as the text of an SVG file.

    >>> from collbench.machine.topology.rates import nvlink_link
    >>> gpus = Node(id="gpu0", kind="gpu", index=0), Node(id="gpu1", kind="gpu", index=1)
    >>> two = Topology(name="two", nodes=gpus, links=(nvlink_link("gpu0", "gpu1", 4, 6),))
    >>> svg(two)[:57]
    '<svg class="collbench" xmlns="http://www.w3.org/2000/svg"'
    """
    groups = alike(topology)
    layouts = [lay_out(group.part) for group in groups]
    wide = max(_LEAST_W, *(layout.width + 2 * _INSIDE for layout in layouts))
    name = topology.name or topology.hosts[0] or "machine"
    links = [link for pair in zip(groups, layouts, strict=True) for link in _explained(*pair)]
    colours = _Colours(links)
    y = _EDGE + _TITLE_SIZE
    title = fitted(name, wide, _TITLE_SIZE, is_bold=True)
    shapes = [text_at(_EDGE, y, title, _TITLE_SIZE, anchor="start", is_bold=True)]
    y += 8
    for group, layout in zip(groups, layouts, strict=True):
        for text in folded(_caption(group, topology), wide, _TEXT_SIZE):
            y += 18
            shapes.append(_words(y, text))
        frame = Rect(x=_EDGE, y=y + 10, w=wide, h=layout.height + 2 * _INSIDE)
        x = frame.x + (wide - layout.width) / 2
        shapes += [
            box(frame, "#ffffff", _FRAME),
            f'<g transform="translate({number(x)} {number(frame.y + _INSIDE)})">',
            *_host(group.part, layout, colours),
            "</g>",
        ]
        y = frame.bottom + 10
    for text in between(topology, groups):
        y += 18
        shapes.append(_words(y, fitted(text, wide, _TEXT_SIZE)))
    notes = [*_left_out(groups, layouts), *topology.notes]
    below, y = _legend(links, colours, y + 22, wide, notes)
    return _document(name, gpus_text(topology), [*shapes, *below], wide + 2 * _EDGE, y + _EDGE)


def _words(y: float, text: str) -> str:
    """A line of text at the left edge."""
    return text_at(_EDGE, y, text, _TEXT_SIZE, anchor="start", colour=FAINT)


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


class _Colours:
    """A colour and a dash for each kind of link, of PCIe and NVLink for each speed."""

    def __init__(self, links: Sequence[Link]) -> None:
        rated = [link for link in links if link.kind in _BY_RATE and link.generation]
        rated.sort(key=lambda link: -(link.usable_gbs or 0))
        self._of = {
            (kind, *speed): shown[place % len(shown)]
            for kind, shown in _BY_RATE.items()
            for place, speed in enumerate(
                dict.fromkeys((at.generation, at.count) for at in rated if at.kind == kind)
            )
        }

    def of(self, link: Link) -> tuple[str, str]:
        """Colour and dash."""
        unknown = _COLOURS[link.kind], "4 3" if link.kind == "pcie" else ""
        return self._of.get((link.kind, link.generation, link.count), unknown)


def _host(one: Topology, layout: HostLayout, colours: _Colours) -> Iterator[str]:
    """The lines of a host, the boxes over them, and the counts of bonded links over all."""
    for at in layout.lines:
        colour, dash = colours.of(at.link)
        if at.bend:
            yield arc(at.start, at.end, at.bend, colour)
        else:
            yield line([at.start, at.end], colour, 2, dash)
    if layout.switch is not None:
        switches = one.of_kind("nvswitch")
        yield from _box(layout.switch, switches[0], _switch_text(switches), "")
    names, is_one_model = labels(one), len({gpu.name for gpu in one.gpus}) == 1
    for name, rect in layout.places.items():
        node = one.by_id[name]
        label = _BRIDGES.get(node.kind, names[name])
        yield from _box(rect, node, label, _detail(node, rect.w - 4, is_one_model))
    for at in layout.lines:
        if at.link.kind in GPU_LINKS and at.link.count != 1:
            (x, y), (colour, _) = at.middle, colours.of(at.link)
            count = f"x{at.link.count or '?'}"
            yield text_at(x, y + 4, count, 11, has_halo=True, colour=colour, is_bold=True)


def _box(rect: Rect, node: Node, label: str, detail: str) -> Iterator[str]:
    """A box with its name and below it what it is, as far as there is room. What no source names,
    but what its classes imply, is dashed.
    """
    fill, edge = _FILL[node.kind]
    yield box(rect, fill, edge, dash="5 3" if node.fact("hidden") else "")
    y = rect.y + rect.h / 2 + (-1 if detail else 4)
    name = fitted(label, rect.w - 4, _NAME_SIZE, is_bold=True)
    yield text_at(rect.middle, y, name, _NAME_SIZE, is_bold=True)
    if detail:
        text = fitted(detail, rect.w - 4, _SMALL)
        yield text_at(rect.middle, y + 12, text, _SMALL, colour=FAINT)


def _detail(node: Node, room: float, is_one_model: bool) -> str:
    """What stands below a name: of a GPU where it is, its model if the host has several."""
    if node.kind == "gpu":
        model = node.name.removeprefix("NVIDIA ")
        return node.address.removeprefix("0000:") if is_one_model else model
    whole = node.name
    if node.kind == "cpu" and node.affinity:
        whole = ", ".join(part for part in (node.name, f"CPUs {node.affinity}") if part)
    if node.kind in _BRIDGES:
        return node.address
    if width_of(whole, _SMALL) <= room or not node.name:
        return whole
    return node.name if node.kind == "cpu" else node.name.split()[0]


def _switch_text(switches: Sequence[Node]) -> str:
    one = switches[0].name or "NVSwitch"
    text = one if len(switches) == 1 else f"{len(switches)} NVSwitches"
    return f"{text}, shared by the hosts" if any(node.host < 0 for node in switches) else text


def _explained(group: Alike, layout: HostLayout) -> list[Link]:
    """The links that the legend explains: those with a line, and those to the network."""
    network = [link for link in group.part.links if link.kind == "network"]
    return [*(at.link for at in layout.lines), *network]


def _left_out(groups: Sequence[Alike], layouts: Sequence[HostLayout]) -> list[str]:
    """What the drawing does not show of the topology, and what it has that the source has not."""
    links = switches = 0
    for group, layout in zip(groups, layouts, strict=True):
        drawn = {id(at.link) for at in layout.lines}
        links += sum(
            id(link) not in drawn and {link.a, link.b} <= layout.places.keys()
            for link in group.part.links
        )
        switches += sum(node.id not in layout.places for node in group.part.of_kind("pci"))
    remarks = []
    if links:
        remarks.append(f"{links} further link{'s are' if links > 1 else ' is'} not drawn.")
    if switches:
        remarks.append(f"{switches} PCIe switch{'es are' if switches > 1 else ' is'} not drawn.")
    if any(node.fact("hidden") for group in groups for node in group.part.nodes):
        remarks.append("Dashed: not in the source, made up from the classes that it tells.")
    return remarks


def _legend(
    links: Sequence[Link], colours: _Colours, y: float, wide: float, notes: Iterable[str]
) -> tuple[list[str], float]:
    """One entry for each kind, generation, width and rate of link that is drawn, near to far; then
    the notes. The shapes, and where they end.
    """
    order = list(_COLOURS)
    links = sorted(links, key=lambda link: (order.index(link.kind), -(link.usable_gbs or 0.0)))
    entries: dict[str, tuple[str, str]] = {}
    for link in links:
        text = link_text(link).replace("network,", "NIC to the network,")
        entries.setdefault(text, colours.of(link))
    shapes, x = list[str](), _EDGE
    for text, (colour, dash) in entries.items():
        need = 44 + width_of(text, _TEXT_SIZE) + 18
        if x > _EDGE and x + need > _EDGE + wide:
            x, y = _EDGE, y + _ROW_H
        shapes.append(line([(x, y - 4), (x + 34, y - 4)], colour, 3, dash))
        shown = fitted(text, wide - 44, _TEXT_SIZE)
        shapes.append(text_at(x + 42, y, shown, _TEXT_SIZE, anchor="start"))
        x += need
    for text in (*(["GB/s are decimal, usable, in each direction."] if entries else []), *notes):
        for part in folded(text, wide, _TEXT_SIZE):
            y += _ROW_H
            shapes.append(_words(y, part))
    return shapes, y
