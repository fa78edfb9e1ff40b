"""Where the parts of one host go in a drawing: CPUs above, what hangs at them below, GPUs at
the foot in one row or two.

GPUs that are wired to each other stand in two rows, so that a link is a straight line beside, below
or across, or an arc over what is between. Bars are as wide as what hangs at them, so that no line
to a child crosses another child.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from collbench.core.web.svg import Rect
from collbench.machine.topology.model import Link, Topology

GPU_W, GPU_H, NIC_W, NIC_H, BAR_H = 88.0, 42.0, 66.0, 32.0, 34.0
_LANE = 16.0  # beside GPUs in rows, for the line from their bar
_NIC_INSET = 22.0  # of NICs above a GPU, for the line to it
_COLUMN_GAP, _MESH_GAP, _BAR_GAP, _CPU_GAP = 14.0, 58.0, 20.0, 56.0
LEVEL_H = 30.0  # between a bar and what hangs at it
_MIDDLE_H = 92.0  # between two rows of GPUs
_MOST_ROUNDS = 16
_DEEPEST = 12  # levels of switches that are drawn; real machines have two or three
_DOWN = ("pcie", "c2c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A CPU, bridge or switch with what hangs at it; node is nothing for what hangs at
    nothing. Links are those to be drawn.
    """

    node: str = ""
    above: Link | None = None
    bars: tuple["Bar", ...] = ()
    gpus: tuple[str, ...] = ()
    nics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What stands above each other: a GPU for each row, or none there."""

    gpus: tuple[str | None, ...]
    nics: tuple[str, ...] = ()

    @property
    def width(self) -> float:
        """Pixels, without a lane beside it. NICs above a GPU leave room for the line to it."""
        if not any(self.gpus):
            return NIC_W
        return max(GPU_W, _NIC_INSET + len(self.nics) * (NIC_W + 6) - 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLayout:
    """Places of everything, by node id. rows: of each GPU. feeds: of each GPU and NIC the link
    above it and the bar that it hangs at.
    """

    places: Mapping[str, Rect]
    rows: Mapping[str, int]
    bars: tuple[Bar, ...]
    feeds: Mapping[str, tuple[Link, str]]
    is_mesh: bool
    width: float
    height: float
    lanes: Mapping[str, float] = field(default_factory=dict)
    tail: float = 0.0  # the lane at the right of GPUs, for further links to their CPUs


def further_links(one: Topology) -> list[Link]:
    """Links between a GPU and a CPU beside those of PCIe."""
    ends = {"gpu", "cpu"}
    return [
        link
        for link in one.links
        if link.kind != "pcie" and {one.by_id[link.a].kind, one.by_id[link.b].kind} == ends
    ]


def forest(one: Topology) -> tuple[tuple[Bar, ...], dict[str, tuple[Link, str]]]:
    """CPUs with what hangs at them, and for each GPU and NIC the link above it. Bridges that
    only pass one thing on are left out.
    """
    seen: set[str] = set()
    feeds: dict[str, tuple[Link, str]] = {}
    tops = [node.id for node in one.of_kind("cpu")]
    seen |= set(tops)
    bars = [_bar(one, top, None, seen, feeds) for top in tops]
    for node in one.of_kind("root", "pci"):  # what hangs at no known CPU
        if node.id not in seen:
            seen.add(node.id)
            bars.append(_bar(one, node.id, None, seen, feeds))
    bars = [bar for bar in bars if bar.bars or bar.gpus or bar.nics or bar.node in tops]
    lost = [node.id for node in one.of_kind("gpu", "nic") if node.id not in seen]
    if lost:
        gpus, nics = (
            tuple(name for name in lost if one.by_id[name].kind == kind) for kind in ("gpu", "nic")
        )
        bars.append(Bar(gpus=gpus, nics=nics))
    return tuple(bars), feeds


def _bar(
    one: Topology,
    name: str,
    above: Link | None,
    seen: set[str],
    feeds: dict[str, tuple[Link, str]],
    level: int = 0,
) -> Bar:
    bars: list[Bar] = []
    ends: list[str] = []
    # PCIe first: what has a second link to its CPU gets a second line
    below = [
        (link.other(name), link)
        for kind in _DOWN
        for link in one.links_of[name]
        if link.kind == kind
    ]
    if one.by_id[name].kind == "cpu":  # NVLinks of POWER, for GPUs that are nowhere on PCIe
        below += [(link.other(name), link) for link in one.bundles(name)]
    for there, link in below:  # which grows where the drawing ends before the machine does
        kind = one.by_id[there].kind
        if there in seen or kind not in ("root", "pci", "gpu", "nic"):
            continue
        seen.add(there)
        if kind in ("gpu", "nic"):
            ends.append(there)
            feeds[there] = (link, name)
        elif level < _DEEPEST:
            bars.append(_bar(one, there, link, seen, feeds, level + 1))
        else:
            below += [
                (further.other(there), further)
                for further in one.links_of[there]
                if further.kind in _DOWN
            ]
    bars = [bar for bar in bars if bar.bars or bar.gpus or bar.nics]
    kept: list[Bar] = []
    for bar in bars:
        count = len(bar.bars) + len(bar.gpus) + len(bar.nics)
        if one.by_id[bar.node].kind == "root" and (count == 1 or (len(bars) == 1 and not ends)):
            kept += [_under(inner, bar.above) for inner in bar.bars]
            for end in (*bar.gpus, *bar.nics):
                feeds[end] = (_slower(feeds[end][0], bar.above), name)
                ends.append(end)
        else:
            kept.append(bar)
    ends.sort(key=lambda end: one.by_id[end].index)
    gpus, nics = (
        tuple(end for end in ends if one.by_id[end].kind == kind) for kind in ("gpu", "nic")
    )
    return Bar(node=name, above=above, bars=tuple(kept), gpus=gpus, nics=nics)


def _under(bar: Bar, above: Link | None) -> Bar:
    return Bar(
        node=bar.node, above=_slower(bar.above, above), bars=bar.bars, gpus=bar.gpus, nics=bar.nics
    )


def _slower(link: Link | None, other: Link | None) -> Link:
    """The link that stands for two in a row."""
    both = [one for one in (link, other) if one is not None]
    return min(both, key=lambda one: one.usable_gbs if one.usable_gbs is not None else float("inf"))


def columns_of(bar: Bar, rows: int, flips: frozenset[str]) -> tuple[Column, ...]:
    """What hangs at this bar itself, in columns; `flips` holds GPUs whose column is upside down."""
    columns: list[Column] = []
    for first in range(0, len(bar.gpus), rows):
        gpus: tuple[str | None, ...] = bar.gpus[first : first + rows]
        gpus = (*gpus, *[None] * (rows - len(gpus)))
        columns.append(Column(gpus=tuple(reversed(gpus)) if bar.gpus[first] in flips else gpus))
    if not columns:
        return tuple(Column(gpus=(None,) * rows, nics=(nic,)) for nic in bar.nics)
    each = -(-len(bar.nics) // len(columns))
    return tuple(
        Column(gpus=column.gpus, nics=bar.nics[place * each : (place + 1) * each])
        for place, column in enumerate(columns)
    )


def order_of(bar: Bar, rows: int, flips: frozenset[str]) -> Iterator[Column | Bar]:
    """Columns of its own and bars below it, from left to right."""
    parts: list[Column | Bar] = [*columns_of(bar, rows, flips), *bar.bars]
    return reversed(parts) if bar.node in flips else iter(parts)


def _leaves(bars: tuple[Bar, ...], rows: int, flips: frozenset[str]) -> Iterator[Column]:
    for bar in bars:
        for item in order_of(bar, rows, flips):
            if isinstance(item, Bar):
                yield from _leaves((item,), rows, flips)
            else:
                yield item


def _gpu_places(
    bars: tuple[Bar, ...], rows: int, flips: frozenset[str]
) -> tuple[list[Column], dict[str, tuple[int, int]]]:
    """All columns from left to right, and the column and row of every GPU."""
    columns = list(_leaves(bars, rows, flips))
    return columns, {
        gpu: (place, row)
        for place, column in enumerate(columns)
        for row, gpu in enumerate(column.gpus)
        if gpu
    }


def best_flips(bars: tuple[Bar, ...], pairs: Mapping[tuple[str, str], int]) -> frozenset[str]:
    """Which bars to mirror and which columns to turn over, so that links between GPUs are short and
    pass over few others: by descent.
    """
    columns = list(_leaves(bars, 2, frozenset()))
    choices = [bar.node for bar in _all(bars) if bar.node] + [
        next(gpu for gpu in column.gpus if gpu) for column in columns if any(column.gpus)
    ]
    singles = [
        next(gpu for gpu in column.gpus if gpu)
        for column in columns
        if sum(gpu is not None for gpu in column.gpus) == 1
    ]
    flips = frozenset(singles[1::2])  # GPUs that have a bar each: to and fro
    # else as they are counted, the first above all
    weight = {name: (len(choices) - place) / 1000 for place, name in enumerate(choices)}

    def cost(flip: frozenset[str]) -> float:
        return _cost(bars, flip, pairs) + sum(weight.get(name, 0) for name in flip)

    for _ in range(_MOST_ROUNDS):
        best = min(
            (flips ^ set(some) for size in (1, 2) for some in combinations(choices, size)),
            key=cost,
            default=flips,
        )
        if cost(best) >= cost(flips):
            break
        flips = best
    return flips


def _all(bars: tuple[Bar, ...]) -> Iterator[Bar]:
    for bar in bars:
        yield bar
        yield from _all(bar.bars)


def _cost(
    bars: tuple[Bar, ...], flips: frozenset[str], pairs: Mapping[tuple[str, str], int]
) -> float:
    """The cost of an order: the lengths of the links, and more where a link crosses others."""
    columns, at = _gpu_places(bars, 2, flips)
    cost = 0.0
    for a, b in pairs:
        (one, row), (other, other_row) = at[a], at[b]
        far = abs(one - other)
        if row == other_row:
            between = range(min(one, other) + 1, max(one, other))
            cost += far + 10 * any(columns[place].gpus[row] for place in between)
        else:
            cost += far + 0.5 + 12 * (far > 1)  # it crosses whatever stands between the rows
    return cost


def lay_out(one: Topology, pairs: Mapping[tuple[str, str], int]) -> HostLayout:
    """Places for one host, of which `pairs` are the links between GPUs, bonded links counted."""
    bars, feeds = forest(one)
    has_switch = bool(one.of_kind("nvswitch"))
    rows = 2 if pairs and not has_switch and len(one.gpus) > 3 else 1
    flips = best_flips(bars, pairs) if rows == 2 else frozenset()
    return _Placing(one, bars, feeds, rows, flips, pairs).layout()


class _Placing:
    """Assigns pixels, from the widths of the parts."""

    def __init__(
        self,
        one: Topology,
        bars: tuple[Bar, ...],
        feeds: Mapping[str, tuple[Link, str]],
        rows: int,
        flips: frozenset[str],
        pairs: Mapping[tuple[str, str], int],
    ) -> None:
        self._one = one
        self._bars = bars
        self._feeds = feeds
        self._rows = rows
        self._flips = flips
        self._pairs = pairs
        self._is_mesh = is_mesh = bool(pairs)
        self._gap, self._lane = (_MESH_GAP, _LANE) if is_mesh else (_COLUMN_GAP, 0.0)
        feeds_of = [link for link, _ in feeds.values()]
        is_fed_twice = any(
            not any(link is feed for feed in feeds_of) for link in further_links(one)
        )
        self._tail = _LANE if is_fed_twice else 0.0
        self._places: dict[str, Rect] = {}
        self._row_of: dict[str, int] = {}
        self._lanes: dict[str, float] = {}
        depth = max((self._depth(bar) for bar in bars), default=0)
        has_nics = bool(one.of_kind("nic"))
        self._nic_y = depth * (BAR_H + LEVEL_H)
        above = self._nic_y + (NIC_H if has_nics else 0)
        arcs = self._arcs()
        self._gpu_y = [above + (16 if has_nics else 0) + arcs[0]]
        if rows == 2:
            self._gpu_y.append(self._gpu_y[0] + GPU_H + _MIDDLE_H)
        last = self._gpu_y[-1] + GPU_H if one.gpus else above
        self._height = last + arcs[1]

    def layout(self) -> HostLayout:
        """Everything placed, the upper left corner at 0, 0."""
        x = 0.0
        for bar in self._bars:
            wide = self._width(bar)
            self._place(bar, x, wide, 0)
            x += wide + _CPU_GAP
        return HostLayout(
            places=self._places,
            rows=self._row_of,
            bars=self._bars,
            feeds=self._feeds,
            is_mesh=self._is_mesh,
            width=max(x - _CPU_GAP, 0.0),
            height=self._height,
            lanes=self._lanes,
            tail=self._tail,
        )

    def _depth(self, bar: Bar) -> int:
        return bool(bar.node) + max((self._depth(inner) for inner in bar.bars), default=0)

    def _arcs(self) -> tuple[float, float]:
        """Room above the first row and below the last for arcs over GPUs between."""
        columns, at = _gpu_places(self._bars, self._rows, self._flips)
        most = [0, 0]
        for a, b in self._pairs:
            (one, row), (other, other_row) = sorted((at[a], at[b]))
            if row == other_row:
                most[row] = max(
                    most[row],
                    sum(columns[place].gpus[row] is not None for place in range(one + 1, other)),
                )
        above, below = (arc_height(count) + 10 if count else 0.0 for count in most)
        return above, below

    def _width(self, bar: Bar) -> float:
        inner = self._inner(bar)
        least = (150.0 if self._one.by_id[bar.node].kind == "cpu" else 104.0) if bar.node else 0.0
        return max(inner, least)

    def _inner(self, bar: Bar) -> float:
        items = list(order_of(bar, self._rows, self._flips))
        widths = [self._wide(item) for item in items]
        return sum(widths) + sum(self._between(a, b) for a, b in pairwise(items))

    def _wide(self, item: Column | Bar) -> float:
        if isinstance(item, Bar):
            return self._width(item)
        return item.width + (self._lane + self._tail if any(item.gpus) else 0)

    def _between(self, a: Column | Bar, b: Column | Bar) -> float:
        return max(self._gap, _BAR_GAP) if isinstance(a, Bar) or isinstance(b, Bar) else self._gap

    def _place(self, bar: Bar, x: float, wide: float, level: int) -> None:
        if bar.node:
            self._places[bar.node] = Rect(x=x, y=level * (BAR_H + LEVEL_H), w=wide, h=BAR_H)
        items = list(order_of(bar, self._rows, self._flips))
        x += (wide - self._inner(bar)) / 2
        for place, item in enumerate(items):
            if place:
                x += self._between(items[place - 1], item)
            size = self._wide(item)
            if isinstance(item, Bar):
                self._place(item, x, size, level + bool(bar.node))
            else:
                self._place_column(item, x)
            x += size

    def _place_column(self, column: Column, x: float) -> None:
        """GPUs at the right of their lane, NICs above them beside the line that comes down."""
        inside = x + (self._lane if any(column.gpus) else 0)
        for row, gpu in enumerate(column.gpus):
            if gpu is not None:
                self._places[gpu] = Rect(x=inside, y=self._gpu_y[row], w=GPU_W, h=GPU_H)
                self._row_of[gpu] = row
                self._lanes[gpu] = x + self._lane / 2
        for place, nic in enumerate(column.nics):
            self._places[nic] = Rect(
                x=inside + (_NIC_INSET if any(column.gpus) else 0) + place * (NIC_W + 6),
                y=self._nic_y,
                w=NIC_W,
                h=NIC_H,
            )


def arc_height(columns: int) -> float:
    """How far an arc rises over so many columns.

    >>> arc_height(2), arc_height(3)
    (26.0, 36.0)
    """
    return 6.0 + 10.0 * columns
