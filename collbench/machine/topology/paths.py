"""Ways between nodes: which links, of which class, and which hop limits them.

Classes, near to far, as nvidia-smi, NCCL and RCCL name them: NVL by NVLink (through a switch or
not), XGMI by AMD's, NVB by either through another GPU, C2C, PIX through one PCIe switch, PXB
through several, PHB through a host bridge, NODE through host bridges of one NUMA node, SYS between
NUMA nodes, NET between hosts. Functions of one device are PIX, whatever is above them. The best
way is that of the nearest class, then the highest rate, then the fewest hops.
"""

import heapq
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Literal, get_args

from collbench.machine.topology.model import GPU_LINKS, Link, Topology
from collbench.machine.topology.unnamed import is_unnamed

PathClass = Literal[
    "LOC", "NVL", "XGMI", "NVB", "C2C", "PIX", "PXB", "PHB", "NODE", "SYS", "NET", "DIS"
]
_MOST_KEPT = 8192  # nodes whose ways are kept
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
    return _paths_from(topology, a)[b]


def joined(topology: Topology, one: Path, other: Path) -> Path:
    """The way to a shared node and back from it along another; no way where one of them is none."""
    if not one.links or not other.links:
        return Path(a=one.a, b=other.a, nodes=(), links=(), kind="DIS")
    nodes = (*one.nodes, *reversed(other.nodes[:-1]))
    links = (*one.links, *reversed(other.links))
    return Path(a=one.a, b=other.a, nodes=nodes, links=links, kind=_class(topology, nodes, links))


def path_to_cpu(topology: Topology, gpu: str) -> Path | None:
    """The best way from a GPU to the CPU that is nearest; None if there is none."""
    ways = [way for cpu in topology.of_kind("cpu") if (way := path(topology, gpu, cpu.id)).links]
    return min(ways, key=Path.order, default=None)


@lru_cache(maxsize=_MOST_KEPT)
def _paths_from(topology: Topology, start: str) -> dict[str, Path]:
    """The best way from a node to every other: Dijkstra over (class, -rate, hops), none of which a
    further hop can better.
    """
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
        way = best[here]
        for link in topology.links_of[here]:
            there, rate = link.other(here), max(slowest, -(link.usable_gbs or 0.0))
            # no class is nearer than that of the way so far: most links end here
            least = CLASS_ORDER[way.kind], rate, len(nodes)
            is_worse = there in orders and least > orders[there][:3]
            if there in done or is_worse or not _may_pass(topology, way, link):
                continue
            links, passed = (*way.links, link), (*nodes, there)
            kind = _class(topology, passed, links)
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
