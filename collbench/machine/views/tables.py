"""What a topology allows, in tables: rates with the hop that limits each, permissions of peers,
links one by one, orders of ranks.

A rate without a source is `unknown`, and so is a permission.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from collbench.core.text import NARROW_COLUMNS, counted, table, titled
from collbench.machine.topology.model import P2P, P2P_ACCESS, P2P_MEANINGS, Link, LinkKind, Topology
from collbench.machine.topology.paths import Path, path
from collbench.machine.topology.rates import link_label
from collbench.machine.views.labels import (
    MOST_DEVICES,
    UNKNOWN,
    Alike,
    Paint,
    alike,
    by_host,
    class_label,
    ends,
    hop,
    label,
    labels,
    left_out,
    plain,
    rate_text,
)

if TYPE_CHECKING:
    from collbench.machine.discovery import LinkRow

_NO_SOURCE = "?"
_MEANINGS = {**P2P_MEANINGS, _NO_SOURCE: "unknown"}
_MANY = 6  # pairs; more that are all alike need no line each


def rates(topology: Topology, paint: Paint = plain, columns: int = NARROW_COLUMNS) -> list[str]:
    """Usable GB/s of every pair, one way, and the hop that limits it; pairs of GPUs, then GPUs with
    NICs.

    >>> from collbench.machine.topology.model import Node
    >>> from collbench.machine.topology.rates import nvlink_link
    >>> gpus = Node(id="gpu0", kind="gpu", index=0), Node(id="gpu1", kind="gpu", index=1)
    >>> two = Topology(name="two", nodes=gpus, links=(nvlink_link("gpu0", "gpu1", 4, 6),))
    >>> for line in rates(two):
    ...     print(line)
    pair         class   GB/s  limited by
    GPU0 - GPU1  NV6    121.5  GPU0 -> GPU1, NVLink 4 x6
    """
    lines = by_host(topology, lambda one: _rates_of(one, paint, columns))
    if len(topology.hosts) > 1:
        lines += _rates_between(topology, alike(topology), paint, columns)
    return lines


def _rates_of(one: Topology, paint: Paint, columns: int) -> list[str]:
    """Pairs of GPUs, in one line if many are alike; then every GPU with every NIC."""
    shown = ends(one)[:MOST_DEVICES]
    left = left_out(len(ends(one)) - len(shown), "device")
    nodes = [node for node in shown if node.kind == "gpu"]
    nics = [node for node in shown if node.kind == "nic"]
    gpus = [path(one, a.id, b.id) for a, b in combinations(nodes, 2)]
    if not gpus and not (nodes and nics):
        return ["There are no two devices of which one is a GPU."]
    others = [path(one, gpu.id, nic.id) for gpu in nodes for nic in nics]
    alike_ways = {(way.label, way.usable_gbs, way.limit and link_label(way.limit)) for way in gpus}
    if len(gpus) <= _MANY or len(alike_ways) > 1:
        return [*_rate_lines(one, [*gpus, *others], paint, columns), *left]
    a, b = gpus[0].a, gpus[0].b
    first = f"each of the {len(gpus)} pairs of GPUs is like {label(one, a)} - {label(one, b)}:"
    return [first, *_rate_lines(one, [gpus[0], *others], paint, columns), *left]


def _rates_between(
    topology: Topology, groups: Sequence[Alike], paint: Paint, columns: int
) -> list[str]:
    """One GPU of each kind of host, to the first GPU of the next host."""
    firsts = {node.host: node for node in reversed(topology.gpus)}
    ways: dict[tuple[str, str], Path] = {}
    for group in groups:
        here = group.hosts[0]
        others = [host for host in firsts if host != here]
        if here in firsts and others:
            there = min(others, key=lambda host: (host < here, host))
            a, b = (firsts[host].id for host in sorted((here, there)))
            ways.setdefault((a, b), path(topology, a, b))
    if not ways:
        return []
    lines = _rate_lines(topology, list(ways.values()), paint, columns)
    return ["", "Between hosts, for one GPU of each:", *lines]


def _rate_lines(topology: Topology, ways: Sequence[Path], paint: Paint, columns: int) -> list[str]:
    rows = [
        (
            f"{label(topology, way.a)} - {label(topology, way.b)}",
            paint(class_label(topology, way), way.kind),
            rate_text(way.usable_gbs),
            hop(topology, way),
        )
        for way in ways
    ]
    return table(("pair", "class", "GB/s", "limited by"), rows, (2,), columns)


def p2p(topology: Topology, paint: Paint = plain) -> list[str]:
    """May a GPU read, write and update a peer's memory, and is there an NVLink: a matrix each, then
    what the codes mean.

    >>> from collbench.machine.topology.model import Node
    >>> p2p(
    ...     Topology(
    ...         name="two",
    ...         nodes=(Node(id="gpu0", kind="gpu", index=0), Node(id="gpu1", kind="gpu", index=1)),
    ...         links=(),
    ...     )
    ... )
    ['Nothing is known of what GPUs may do with the memory of their peers.']
    """
    if not topology.p2p:
        return ["Nothing is known of what GPUs may do with the memory of their peers."]
    return by_host(topology, lambda one: _p2p_of(one, paint) if one.gpus else [])


def _p2p_of(one: Topology, paint: Paint) -> list[str]:
    kinds = [what for what in P2P if any(key[2] == what for key in one.p2p)]
    lines: list[str] = []
    shown: set[str] = set()
    for what in kinds:
        lines += [*_p2p_matrix(one, what, shown, paint), ""]
    lines += [f"{what}: unknown" for what in P2P_ACCESS if what not in kinds]
    return lines + [
        f"  {paint(f'{code:<4}', _p2p_colour(code))} {meaning}"
        for code, meaning in _MEANINGS.items()
        if code in shown
    ]


def _p2p_matrix(one: Topology, what: str, shown: set[str], paint: Paint) -> list[str]:
    names = [labels(one)[node.id] for node in one.gpus]
    known = {**one.p2p, **{(gpu.id, gpu.id, what): " X" for gpu in one.gpus}}
    cells = [[known.get((a.id, b.id, what), _NO_SOURCE) for b in one.gpus] for a in one.gpus]
    shown |= {cell for row in cells for cell in row}
    rows = [
        [name, *[paint(cell, _p2p_colour(cell.strip())) for cell in row]]
        for name, row in zip(names, cells, strict=True)
    ]
    return table((what, *names), rows)


def _p2p_colour(code: str) -> str:
    return code if code in ("OK", "X", _NO_SOURCE, "U") else "not OK"


def links(topology: Topology, without: Sequence[LinkKind] = (), columns: int = 80) -> list[str]:
    """Every link: its ends, its kind, its rates and their source. without: kinds left out."""
    sources: dict[str, int] = {}

    def links_of(one: Topology) -> list[str]:
        rows = [_link_row(one, link, sources) for link in one.links if link.kind not in without]
        heads = ("link", "what", "raw GB/s", "usable", "source")
        return table(heads, rows, (2, 3), columns) if rows else _told_links(one)

    lines = by_host(topology, links_of)
    parts = [(f"[{number}]", source) for source, number in sources.items()]
    sources_text = titled(parts, len(f"[{len(parts)}] "), max(columns, 40), lead=0)
    return [*lines, *([""] if sources else []), *sources_text]


def _told_links(one: Topology) -> list[str]:
    """NVLinks of which the ends are not known, by GPU."""
    rows = [
        (
            f"GPU {gpu.index}",
            gpu.fact("nvlinks"),
            gpu.fact("nvlinks_inactive") or "none",
            gpu.fact("nvlink_gbs"),
        )
        for gpu in one.gpus
        if gpu.fact("nvlinks")
    ]
    heads = ("GPU", "active NVLinks", "inactive links", "GB/s of one")
    return table(heads, rows, (1, 3)) if rows else ["No link is known."]


def _link_row(one: Topology, link: Link, sources: dict[str, int]) -> tuple[str, ...]:
    """A line of the table; where its rates come from gets a number."""
    source = "; ".join(text for text in (link.source, link.note) if text)
    number = f"[{sources.setdefault(source, len(sources) + 1)}]" if source else UNKNOWN
    return (
        f"{label(one, link.a)} - {label(one, link.b)}",
        link_label(link),
        rate_text(link.raw_gbs),
        rate_text(link.usable_gbs),
        number,
    )


def nvlinks(
    rows: Sequence["LinkRow"], paint: Paint = plain, columns: int = NARROW_COLUMNS
) -> list[str]:
    """NVLinks one by one, with their error counters; one that is down is painted."""
    if not rows:
        return ["No NVLink is known."]
    heads = ("GPU", "link", "active", "version", "to", "GB/s", "replay", "recovery", "CRC")
    cells = [
        (
            str(row.gpu),
            str(row.link),
            UNKNOWN if row.is_active is None else "yes" if row.is_active else "no",
            row.version or UNKNOWN,
            row.remote or UNKNOWN,
            rate_text(row.speed_gbs),
            *[UNKNOWN if n is None else str(n) for n in (row.replay, row.recovery, row.crc)],
        )
        for row in rows
    ]
    painted = [
        [paint(cell, "not OK") for cell in line] if row.is_active is False else line
        for line, row in zip(cells, rows, strict=True)
    ]
    return table(heads, painted, (0, 1, 5, 6, 7, 8), columns)


def rings(
    orders: Sequence[Sequence[int]],
    trees: Sequence[Sequence[int]],
    rate_gbs: float | None,
    columns: int = 80,
) -> list[str]:
    """Orders of ranks around rings, what these carry together, and the orders of chains and trees.

    >>> for line in rings([(0, 1, 3, 2), (0, 2, 3, 1)], [(0, 1, 2, 3)], 40.0):
    ...     print(line)
    2 rings, together 40.0 GB/s in one direction
      ring 0  0 1 3 2
      ring 1  0 2 3 1
    1 chain for trees
      chain 0  0 1 2 3
    """
    if not orders or len(orders[0]) < 2:
        return ["No ring: there are fewer than two GPUs."]
    carried = (
        "rate unknown"
        if rate_gbs is None
        else f"{'together ' if len(orders) > 1 else ''}{rate_text(rate_gbs)} GB/s in one direction"
    )
    lines = [f"{counted(len(orders), 'ring')}, {carried}", *_orders("ring", orders, columns)]
    if trees:
        return [
            *lines,
            f"{counted(len(trees), 'chain')} for trees",
            *_orders("chain", trees, columns),
        ]
    return lines


def _orders(name: str, orders: Sequence[Sequence[int]], columns: int) -> list[str]:
    wide = len(name) + len(str(len(orders) - 1)) + 3
    parts = [(f"{name} {k}", " ".join(map(str, order))) for k, order in enumerate(orders)]
    return titled(parts, wide, max(columns, 40))
