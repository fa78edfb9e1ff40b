"""Where the parts of one host go in a drawing, and the lines between them: one rule for all
machines.

CPUs are bars at the top, bridges and switches bars below them, each as wide as what hangs at it, so
that no line to a child crosses another child. NICs and GPUs are rows at the foot, as they are
counted where the tree allows it. What links two of a row is an arc: above CPUs, below GPUs. What
links GPUs to NVSwitches leads down to one bar below all.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from collbench.core.web.svg import Rect
from collbench.machine.topology.model import GPU_LINKS, Link, Topology

GPU_W, GPU_H, NIC_W, NIC_H, BAR_H = 92.0, 44.0, 68.0, 36.0, 34.0
_LEAST_W = {"cpu": 150.0, "root": 104.0, "pci": 104.0}
_GAP, _NIC_GAP, _CPU_GAP = 14.0, 6.0, 48.0
_LEVEL_H = 28.0  # between a bar and what hangs at it
_SWITCH_H = 40.0  # of the lines down to the NVSwitches
_INSET = 24.0  # left of the NICs above a GPU, for the lines to it
_FIRST, _SECOND = 8.0, 17.0  # from a GPU's left edge: the line from above, and a further one
_DEEPEST = 12  # levels of switches that are drawn; real machines have two or three
# PCIe first: what has a second link to its CPU gets a second line. NVLinks are those of POWER.
_DOWN = ("pcie", "c2c", "nvlink", "xgmi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A node with what hangs at it by the links drawn; at a GPU the NICs that stand above it. No
    node: what hangs at nothing.
    """

    node: str = ""
    link: Link | None = None
    parts: tuple["Part", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A link from a point to a point; bend: how far it rises between them."""

    link: Link
    start: tuple[float, float]
    end: tuple[float, float]
    bend: float = 0.0

    @property
    def middle(self) -> tuple[float, float]:
        """Where its count stands."""
        (x1, y1), (x2, y2) = self.start, self.end
        return (x1 + x2) / 2, (y1 + y2) / 2 - self.bend


@dataclass(slots=True, kw_only=True)
class HostLayout:
    """Places of everything by node id, and the lines, the upper left corner at 0, 0. switch: the
    bar of all NVSwitches.
    """

    places: dict[str, Rect] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    switch: Rect | None = None
    width: float = 0.0
    height: float = 0.0


def lay_out(one: Topology) -> HostLayout:
    """Places for one host."""
    return _Placing(one).layout


def tree_of(one: Topology) -> list[Part]:
    """CPUs with what hangs at them, then what hangs at none."""
    seen = {node.id for node in one.of_kind("cpu")}
    tops: list[Part] = []
    for node in (*one.of_kind("cpu"), *one.of_kind("root", "pci")):
        if node.kind == "cpu" or node.id not in seen:
            seen.add(node.id)
            parts = _in_order(one, _below(one, node.id, seen))
            tops += [Part(node=node.id, parts=parts)] if parts or node.kind == "cpu" else []
    lost = [Part(node=node.id) for node in one.of_kind("gpu", "nic") if node.id not in seen]
    return [*tops, Part(parts=_in_order(one, lost))] if lost else tops


def _below(one: Topology, name: str, seen: set[str], level: int = 0) -> list[Part]:
    """What hangs at a node and was not seen before. Bridges that only pass one thing on, or all
    that a CPU has, are left out.
    """
    ahead = [
        (link.other(name), link)
        for kind in _DOWN
        for link in one.links_of[name]
        if link.kind == kind
    ]
    parts: list[Part] = []
    for there, link in ahead:  # which grows where the drawing ends before the machine does
        kind = one.by_id[there].kind
        if there in seen or kind not in ("root", "pci", "gpu", "nic"):
            continue
        seen.add(there)
        if kind in ("gpu", "nic"):
            parts.append(Part(node=there, link=link))
        elif level == _DEEPEST:
            ahead += [(further.other(there), further) for further in one.links_of[there]]
        elif inner := _below(one, there, seen, level + 1):
            is_passing = kind == "root" and len(inner) == 1
            here = Part(node=there, link=link, parts=_in_order(one, inner))
            parts += _without(link, inner) if is_passing else [here]
    if len(parts) == 1 and one.by_id[parts[0].node].kind == "root" and parts[0].link is not None:
        parts = _without(parts[0].link, parts[0].parts)
    return parts


def _without(above: Link, parts: Iterable[Part]) -> list[Part]:
    """Parts that hang one level higher, each by the slower of the two links."""

    def rate(link: Link) -> float:
        return float("inf") if link.usable_gbs is None else link.usable_gbs

    return [replace(part, link=min(part.link or above, above, key=rate)) for part in parts]


def _in_order(one: Topology, parts: Iterable[Part]) -> tuple[Part, ...]:
    """Parts by their first GPU, the NICs beside GPUs above these."""
    kinds: dict[str, list[Part]] = {"gpu": [], "nic": [], "pci": [], "root": []}
    for part in sorted(parts, key=lambda part: one.by_id[part.node].index):
        kinds[one.by_id[part.node].kind].append(part)
    gpus, nics = kinds["gpu"], kinds["nic"]
    if gpus and nics:
        each = -(-len(nics) // len(gpus))
        gpus = [
            replace(gpu, parts=tuple(nics[place * each : (place + 1) * each]))
            for place, gpu in enumerate(gpus)
        ]
        nics = []
    return tuple(
        sorted(
            (*gpus, *kinds["pci"], *kinds["root"], *nics), key=lambda part: _first_gpu(one, part)
        )
    )


def _first_gpu(one: Topology, part: Part) -> float:
    """The least number of the GPUs of a part; of those without any, it is the greatest."""
    if one.by_id[part.node].kind == "gpu":
        return one.by_id[part.node].index
    return min((_first_gpu(one, inner) for inner in part.parts), default=float("inf"))


class _Placing:
    """Assigns pixels, from the widths of the parts."""

    def __init__(self, one: Topology) -> None:
        self._one, self.layout = one, HostLayout()
        tops = tree_of(one)
        self._cpus = [node.id for node in one.of_kind("cpu")]
        self._sockets = [
            link
            for link in one.links
            if link.kind == "socket" and {link.a, link.b} <= {*self._cpus}
        ]
        self._cpu_y = self._room_above()
        depth = max((self._depth(part) for part in tops), default=0)
        self._nic_y = self._cpu_y + depth * (BAR_H + _LEVEL_H)
        self._gpu_y = self._nic_y + (NIC_H + 16) * bool(one.of_kind("nic"))
        x = 0.0
        for part in tops:
            self._place(part, x, None, 0)
            x += self._width(part) + _CPU_GAP
        arcs = [*self._between_gpus()]
        self.layout.width = max(x - _CPU_GAP, 0.0)
        self.layout.height = self._gpu_y + (GPU_H if one.gpus else 0)
        self.layout.height += 4 + max(-line.bend for line in arcs) if arcs else 0
        self.layout.lines += [*self._further(), *self._between_cpus(), *arcs]
        self._add_switches()

    def _kinds(self, link: Link) -> list[str]:
        """What a link joins, where it is no part of the tree."""
        if link.kind not in (*GPU_LINKS, "c2c"):
            return []
        return sorted(self._one.by_id[end].kind for end in (link.a, link.b))

    def _depth(self, part: Part) -> int:
        """Levels of bars."""
        if part.node and self._one.by_id[part.node].kind in ("gpu", "nic"):
            return 0
        return bool(part.node) + max(map(self._depth, part.parts), default=0)

    def _width(self, part: Part) -> float:
        kind = self._one.by_id[part.node].kind if part.node else ""
        nics = len(part.parts) * (NIC_W + _NIC_GAP) - _NIC_GAP
        if kind in ("gpu", "nic"):
            return max(GPU_W, _INSET + nics) if kind == "gpu" else NIC_W
        return max(self._inner(part), _LEAST_W.get(kind, 0.0))

    def _inner(self, part: Part) -> float:
        return sum(map(self._width, part.parts)) + _GAP * max(len(part.parts) - 1, 0)

    def _place(self, part: Part, x: float, above: Rect | None, level: int) -> None:
        kind = self._one.by_id[part.node].kind if part.node else ""
        if kind == "gpu":
            self._add(part, Rect(x=x, y=self._gpu_y, w=GPU_W, h=GPU_H), above)
            for place, nic in enumerate(part.parts):
                self._place(nic, x + _INSET + place * (NIC_W + _NIC_GAP), above, level)
            return
        if kind == "nic":
            self._add(part, Rect(x=x, y=self._nic_y, w=NIC_W, h=NIC_H), above)
            return
        if part.node:
            y = self._cpu_y + level * (BAR_H + _LEVEL_H)
            bar = Rect(x=x, y=y, w=self._width(part), h=BAR_H)
            self._add(part, bar, above)
            above, level = bar, level + 1
        x += (self._width(part) - self._inner(part)) / 2
        for inner in part.parts:
            self._place(inner, x, above, level)
            x += self._width(inner) + _GAP

    def _add(self, part: Part, rect: Rect, above: Rect | None) -> None:
        """A box, and the line from above to it."""
        self.layout.places[part.node] = rect
        if above is not None and part.link is not None:
            is_beside_nics = bool(part.parts) and rect.h == GPU_H
            x = rect.x + _FIRST if is_beside_nics else rect.middle
            self.layout.lines.append(Line(link=part.link, start=(x, above.bottom), end=(x, rect.y)))

    def _further(self) -> Iterator[Line]:
        """Links of GPUs to the CPU above them beside that by which they hang there."""
        drawn = {id(line.link) for line in self.layout.lines}
        for link in self._one.links:
            if self._kinds(link) == ["cpu", "gpu"] and id(link) not in drawn:
                ends = sorted((link.a, link.b), key=lambda end: self._one.by_id[end].kind)
                cpu, gpu = (self.layout.places[end] for end in ends)
                x = gpu.x + _SECOND
                if cpu.x <= x <= cpu.right:
                    yield Line(link=link, start=(x, cpu.bottom), end=(x, gpu.y))

    def _span(self, link: Link) -> int:
        """Of a link between CPUs."""
        return abs(self._cpus.index(link.a) - self._cpus.index(link.b))

    def _room_above(self) -> float:
        """Pixels above the CPUs that their arcs take."""
        most = max(map(self._span, self._sockets), default=0)
        return 12 + 8.0 * most if most > 1 else 0.0

    def _between_cpus(self) -> Iterator[Line]:
        """Straight lines between neighbours, arcs over what is between others."""
        for link in self._sockets:
            left, right = sorted(
                (self.layout.places[link.a], self.layout.places[link.b]), key=lambda rect: rect.x
            )
            span = self._span(link)
            if span == 1:
                y = left.y + BAR_H / 2
                yield Line(link=link, start=(left.right, y), end=(right.x, y))
            else:
                start, end = (left.right - 4 * span, left.y), (right.x + 4 * span, left.y)
                yield Line(link=link, start=start, end=end, bend=8 + 8.0 * span)

    def _between_gpus(self) -> Iterator[Line]:
        """Arcs below the GPUs, the deeper the more they pass. At each GPU those that go to the left
        come first, and of each side the ones outside stand inside, so that none cross here.
        """
        places = self.layout.places
        order = sorted((gpu.id for gpu in self._one.gpus), key=lambda gpu: places[gpu].x)
        rank = {gpu: place for place, gpu in enumerate(order)}
        ports: dict[tuple[str, int], float] = {}
        pairs = [link for link in self._one.links if self._kinds(link) == ["gpu", "gpu"]]
        for gpu in order:
            mine = [link for link in pairs if gpu in (link.a, link.b)]
            mine.sort(key=lambda link: (rank[link.other(gpu)] > rank[gpu], -rank[link.other(gpu)]))
            for place, link in enumerate(mine, 1):
                ports[gpu, id(link)] = places[gpu].x + GPU_W * place / (len(mine) + 1)
        for link in pairs:
            first, last = sorted((link.a, link.b), key=rank.__getitem__)
            y, span = places[first].bottom, rank[last] - rank[first]
            start, end = (ports[first, id(link)], y), (ports[last, id(link)], y)
            yield Line(link=link, start=start, end=end, bend=-6 - 13.0 * span)

    def _add_switches(self) -> None:
        bundles = switch_bundles(self._one)
        if not bundles:
            return
        layout = self.layout
        y = layout.height + _SWITCH_H
        layout.switch = Rect(x=0.0, y=y, w=layout.width, h=BAR_H)
        layout.height = y + BAR_H
        for gpu, link in bundles.items():
            rect = layout.places[gpu]
            layout.lines.append(
                Line(link=link, start=(rect.middle, rect.bottom), end=(rect.middle, y))
            )


def switch_bundles(one: Topology) -> dict[str, Link]:
    """NVLinks of each GPU to switches, those to several switches as one link."""
    bundles: dict[str, Link] = {}
    for link in one.links:
        kinds = {one.by_id[end].kind: end for end in (link.a, link.b)}
        if link.kind in GPU_LINKS and kinds.keys() == {"gpu", "nvswitch"}:
            known = bundles.get(kinds["gpu"])
            bundles[kinds["gpu"]] = link if known is None else _together(known, link)
    return bundles


def _together(one: Link, other: Link) -> Link:
    gbs = None
    if one.usable_gbs is not None and other.usable_gbs is not None:
        gbs = one.usable_gbs + other.usable_gbs
    return replace(one, count=one.count + other.count, usable_gbs=gbs)
