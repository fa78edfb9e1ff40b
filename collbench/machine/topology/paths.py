"""Ways between nodes: which links, of which class, and which hop limits them.

Classes, near to far, as nvidia-smi, NCCL and RCCL name them: NVL by NVLink (through a switch or
not), XGMI by AMD's, NVB by either through another GPU, C2C, PIX through one PCIe switch, PXB
through several, PHB through a host bridge, NODE through host bridges of one NUMA node, SYS between
NUMA nodes, NET between hosts. Functions of one device are PIX, whatever is above them. The best
way is that of the nearest class, then the highest rate, then the fewest hops.
"""

import heapq
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Literal, get_args

from collbench.machine.topology.model import GPU_LINKS, Link, Topology
from collbench.machine.topology.unnamed import FACT, is_unnamed

PathClass = Literal[
    "LOC", "NVL", "XGMI", "NVB", "C2C", "PIX", "PXB", "PHB", "NODE", "SYS", "NET", "DIS"
]
# Hosts of a cluster, each a topology of its own, whose ways are kept.
_MOST_KEPT = 1024
GPU_CLASSES = ("NVL", "XGMI", "NVB")  # over NVLinks or xGMI alone
CLASS_ORDER: dict[str, int] = {name: place for place, name in enumerate(get_args(PathClass))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A way from `a` to `b`: the nodes on it, the links between them, its class. links is empty if
    there is none (DIS) or a is b (LOC). is_sure: no other links, which the source does not name,
    may carry what goes from a to b.
    """

    a: str
    b: str
    nodes: tuple[str, ...]
    links: tuple[Link, ...]
    kind: PathClass
    is_sure: bool = True

    @property
    def limit(self) -> Link | None:
        """The slowest link with a known rate; None if a link has none, if there is no link, or if
        the way is not sure.
        """
        if (
            not self.links
            or not self.is_sure
            or any(link.usable_gbs is None for link in self.links)
        ):
            return None
        return min(self.links, key=lambda link: link.usable_gbs or 0.0)

    @property
    def usable_gbs(self) -> float | None:
        """GB/s that the whole way can carry, if all its rates are known."""
        limit = self.limit
        return None if limit is None else limit.usable_gbs

    def order(self) -> tuple[int, float, int, tuple[str, ...]]:
        """The best of several ways is the least."""
        return CLASS_ORDER[self.kind], -(self.usable_gbs or 0.0), len(self.links), self.nodes

    @property
    def label(self) -> str:
        """As nvidia-smi topo -m writes it."""
        if self.kind == "LOC":
            return "X"
        count = min((link.count for link in self.links), default=0)
        return f"NV{count}" if self.kind == "NVL" and count else self.kind


def path(topology: Topology, a: str, b: str) -> Path:
    """The best way from one node to another.

    >>> from collbench.machine.topology.model import Node
    >>> from collbench.machine.topology.rates import nvlink_link
    >>> two = Topology(
    ...     name="two",
    ...     nodes=(Node(id="gpu0", kind="gpu"), Node(id="gpu1", kind="gpu")),
    ...     links=(nvlink_link("gpu0", "gpu1", 3, 4),),
    ... )
    >>> path(two, "gpu0", "gpu1").label, path(two, "gpu1", "gpu0").usable_gbs
    ('NV4', 80.0)
    """
    like = _like(topology)
    if a == b or not (a in like or b in like):
        return _paths_from(topology, a)[b]
    # the ways of GPUs and NICs that are linked alike differ by their names alone
    first = like.get(a, (a,))
    second = like.get(b, (b,))
    start, end = first[0], second[0] if first is not second else second[1]
    way = _paths_from(topology, start)[end]
    if (start, end) == (a, b):
        return way
    nodes = (a, *way.nodes[1:-1], b) if way.nodes else ()
    return Path(
        a=a,
        b=b,
        nodes=nodes,
        links=_ends_of(topology, way.links, nodes),
        kind=way.kind,
        is_sure=way.is_sure,
    )


def joined(topology: Topology, one: Path, other: Path) -> Path:
    """The way to a shared node and back from it along another; no way where one of them is none."""
    if not one.links or not other.links:
        return Path(a=one.a, b=other.a, nodes=(), links=(), kind="DIS")
    nodes = (*one.nodes, *reversed(other.nodes[:-1]))
    links = (*one.links, *reversed(other.links))
    return Path(a=one.a, b=other.a, nodes=nodes, links=links, kind=_class(topology, nodes, links))


def like(topology: Topology, name: str) -> str:
    """A GPU or NIC that stands for this one: the ways from both to any third node are alike."""
    return _like(topology).get(name, (name,))[0]


def path_to_cpu(topology: Topology, gpu: str) -> Path | None:
    """The best way from a GPU to the CPU that is nearest; None if there is none."""
    ways = [way for cpu in topology.of_kind("cpu") if (way := path(topology, gpu, cpu.id)).links]
    return min(ways, key=Path.order, default=None)


def _ends_of(
    topology: Topology, links: tuple[Link, ...], nodes: tuple[str, ...]
) -> tuple[Link, ...]:
    """The links of a way between other ends: the first and the last are of those."""
    if not links:
        return ()
    first = _between(topology, nodes[0], nodes[1], links[0])
    return (
        (first,)
        if len(links) == 1
        else (first, *links[1:-1], _between(topology, nodes[-1], nodes[-2], links[-1]))
    )


def _between(topology: Topology, end: str, inner: str, like: Link) -> Link:
    """The link of an end to an inner node that is as good as another one."""
    return next(
        link
        for link in topology.links_of[end]
        if link.other(end) == inner and _quality(link) == _quality(like)
    )


def _quality(link: Link) -> tuple[object, ...]:
    return link.kind, link.count, link.generation, link.raw_gbs, link.usable_gbs, link.note


@lru_cache(maxsize=_MOST_KEPT)
def _like(topology: Topology) -> dict[str, tuple[str, ...]]:
    """GPUs and NICs that have the same links to the same nodes, each with all that are like it, in
    their order: what is true of the way from one is true of the others. None where a way may go on
    through it, or where its address makes a difference.
    """
    groups: dict[object, list[str]] = {}
    devices = Counter(
        (node.host, node.address.rpartition(".")[0]) for node in topology.nodes if node.address
    )
    for node in topology.of_kind("gpu", "nic"):
        links = topology.links_of[node.id]
        ends = [topology.by_id[link.other(node.id)].kind for link in links]
        if "gpu" in ends or devices[node.host, node.address.rpartition(".")[0]] > 1:
            continue
        if node.kind == "nic" and len(links) > 1:
            continue
        key = (
            node.kind,
            node.host,
            node.fact(FACT),
            frozenset(Counter((link.other(node.id), *_quality(link)) for link in links).items()),
        )
        groups.setdefault(key, []).append(node.id)
    alike = [tuple(names) for names in groups.values() if len(names) > 1]
    return {name: names for names in alike for name in names}


@dataclass(frozen=True, slots=True)
class _Edges:
    """The links of a node: to other CPUs, and all others; each with the far end."""

    sockets: tuple[tuple[str, Link], ...]
    others: tuple[tuple[str, Link], ...]


@lru_cache(maxsize=_MOST_KEPT)
def _edges(topology: Topology) -> tuple[dict[str, _Edges], bool]:
    """Links by node; whether every two CPUs of each host are linked alike, so that no way is better
    for passing a third one.
    """
    edges = {
        name: _Edges(
            tuple((link.other(name), link) for link in links if link.kind == "socket"),
            tuple((link.other(name), link) for link in links if link.kind != "socket"),
        )
        for name, links in topology.links_of.items()
    }
    cpus = Counter(node.host for node in topology.of_kind("cpu"))
    is_mesh = all(
        len({there for there, _ in edges[node.id].sockets}) == cpus[node.host] - 1
        for node in topology.of_kind("cpu")
    )
    rates = {link.usable_gbs for link in topology.links if link.kind == "socket"}
    return edges, is_mesh and len(rates) < 2


@lru_cache(maxsize=8 * _MOST_KEPT)
def _paths_from(topology: Topology, start: str) -> dict[str, Path]:
    """The best way from a node to every other: Dijkstra over (class, -rate, hops), none of which a
    further hop can better.
    """
    edges, is_mesh = _edges(topology)
    best: dict[str, Path] = _Ways(start)
    best[start] = Path(a=start, b=start, nodes=(start,), links=(), kind="LOC")
    orders: dict[str, tuple[int, float, int, tuple[str, ...]]] = {}
    done: set[str] = set()
    queue: list[tuple[int, float, int, tuple[str, ...]]] = [(0, -inf, 0, (start,))]
    while queue:
        _, slowest, _, nodes = heapq.heappop(queue)
        here = nodes[-1]
        if here in done or nodes != best[here].nodes:
            continue
        done.add(here)
        way, own = best[here], edges[here]
        is_over = is_mesh and bool(way.links) and way.links[-1].kind == "socket"
        for there, link in own.others if is_over else (*own.sockets, *own.others):
            if there in done or not _may_pass(topology, way, link):
                continue
            links, passed = (*way.links, link), (*nodes, there)
            kind = _class(topology, passed, links)
            rate = max(slowest, -(link.usable_gbs or 0.0))
            order = CLASS_ORDER[kind], rate, len(links), passed  # as Path.order
            if there not in orders or order < orders[there]:
                best[there] = Path(a=start, b=there, nodes=passed, links=links, kind=kind)
                orders[there] = order
                heapq.heappush(queue, order)
    for there, way in best.items():
        if way.kind not in ("LOC", *GPU_CLASSES) and is_unnamed(topology, start, there):
            best[there] = Path(
                a=start, b=there, nodes=way.nodes, links=way.links, kind=way.kind, is_sure=False
            )
    return best


class _Ways(dict[str, Path]):
    """Ways from one node; where there is none, a way without links."""

    def __init__(self, start: str) -> None:
        super().__init__()
        self._start = start

    def __missing__(self, there: str) -> Path:
        return Path(a=self._start, b=there, nodes=(), links=(), kind="DIS")


def _may_pass(topology: Topology, way: Path, link: Link) -> bool:
    """Whether traffic can go on over that link: a NIC and a GPU end a way, but for one GPU in the
    middle of two NVLinks.
    """
    here = topology.by_id[way.nodes[-1]]
    if len(way.nodes) == 1:
        return True
    if here.kind == "nic":
        return "network" in (link.kind, way.links[-1].kind)
    if here.kind != "gpu":
        return True
    between = [topology.by_id[node].kind for node in way.nodes[1:]]
    return link.kind in GPU_LINKS and between == ["gpu"] and way.links[-1].kind == link.kind


def _class(topology: Topology, nodes: tuple[str, ...], links: tuple[Link, ...]) -> PathClass:
    kinds = {link.kind for link in links}
    inner = [topology.by_id[node].kind for node in nodes[1:-1]]
    if "network" in kinds:
        return "NET"
    if len(kinds) == 1 and kinds < set(GPU_LINKS) and "cpu" not in inner:  # POWER CPUs have NVLinks
        if "gpu" in inner:
            return "NVB"
        return "NVL" if kinds == {"nvlink"} else "XGMI"
    if "socket" in kinds:
        return "SYS"
    if kinds == {"pcie"} and _is_one_device(topology, nodes[0], nodes[-1]):
        return "PIX"
    roots = sum(topology.by_id[node].kind == "root" for node in nodes)
    if "cpu" in inner:
        return "NODE" if roots > 1 else "PHB"
    if roots or topology.by_id[nodes[-1]].kind == "cpu" or topology.by_id[nodes[0]].kind == "cpu":
        return "C2C" if kinds == {"c2c"} else "PHB"
    return "PXB" if inner.count("pci") > 1 else "PIX"


def _is_one_device(topology: Topology, a: str, b: str) -> bool:
    """Whether two nodes are functions or ports of one PCI device: addresses alike to the dot."""
    one, other = topology.by_id[a], topology.by_id[b]
    device = one.address.lower().rpartition(".")[0]
    return (
        bool(device)
        and one.host == other.host
        and device == other.address.lower().rpartition(".")[0]
    )
