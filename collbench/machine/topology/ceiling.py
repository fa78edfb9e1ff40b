"""The highest rate that links allow: which hop a schedule's own traffic loads most, and the bus
bandwidth at which that hop is full.

No table of algorithms: bytes from rank to rank come from the schedule (passes.pair_traffic), the
way of each pair from the links, and every link is loaded in each direction by all pairs that pass
over it. What a GPU sends and receives altogether is counted at the links that leave it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from collbench.machine.topology.model import Link, Topology
from collbench.machine.topology.paths import Path, path, path_to_cpu
from collbench.machine.topology.rates import Engine, best_gbs, link_label


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """gbs: S over the time (algorithm bandwidth) in which the fullest link carries its share,
    before a protocol's own bytes. limit: that hop in words. engine: what moves the bytes, if that
    is known.
    """

    gbs: float
    limit: str
    engine: Engine | None = None

    @property
    def text(self) -> str:
        """What a row is held against, in words.

        >>> Ceiling(gbs=375.7, limit="GPU0 -> GPU1, NVLink 4 x18", engine="stores").text
        'stores over GPU0 -> GPU1, NVLink 4 x18'
        """
        return self.limit if self.engine is None else f"{self.engine} over {self.limit}"


def ceiling(
    topology: Topology,
    gpus: Sequence[str],
    traffic: Mapping[tuple[int, int], Fraction],
    *,
    through_host: bool = False,
    engine: Engine | None = None,
) -> Ceiling | None:
    """The ceiling of traffic between ranks, of which rank r runs on gpus[r]; None if a link on the
    way has no known rate, or nothing travels.

    through_host: it is written to memory at the receiver's CPU, and read from there. engine: links
    carry the best rate that was measured by it; without one, what stores usually reach.

    >>> from collbench.machine.topology.model import Node
    >>> from collbench.machine.topology.rates import pcie_link
    >>> nodes = (
    ...     Node(id="pci", kind="pci"),
    ...     *(Node(id=f"gpu{k}", kind="gpu", index=k) for k in range(2)),
    ... )
    >>> switch = Topology(
    ...     name="switch",
    ...     nodes=nodes,
    ...     links=tuple(pcie_link("pci", f"gpu{k}", 3, 16) for k in range(2)),
    ... )
    >>> found = ceiling(switch, ("gpu0", "gpu1"), {(0, 1): Fraction(1), (1, 0): Fraction(1)})
    >>> round(found.gbs, 1), found.limit
    (12.0, 'GPU0 -> GPU1, PCIe 3.0 x16')
    """
    loads: dict[tuple[str, str, Link], Fraction] = {}
    ways: dict[tuple[str, str, Link], tuple[int, int]] = {}
    for (source, target), share in traffic.items():
        limits = (
            _through_host(topology, gpus[source], gpus[target])
            if through_host
            else (path(topology, gpus[source], gpus[target]),)
        )
        if not limits or any(way.usable_gbs is None for way in limits):
            return None
        for hop in (hop for way in limits for hop in _hops(way)):
            loads[hop] = loads.get(hop, Fraction(0)) + share
            ways.setdefault(hop, (source, target))
    if not loads:
        return None

    def rate(link: Link) -> float:
        gbs = link.usable_gbs if engine is None else best_gbs(link, engine)
        return gbs or 0.0

    fullest = max(loads, key=lambda hop: float(loads[hop]) / rate(hop[2]))
    here, there, link = fullest
    # a link of switches or CPUs: say for whom it matters
    if not all(topology.by_id[node].kind == "gpu" for node in (here, there)):
        source, target = ways[fullest]
        here, there = gpus[source], gpus[target]
    return Ceiling(
        gbs=rate(link) / float(loads[fullest]),
        limit=f"{here.upper()} -> {there.upper()}, {link_label(link)}",
    )


def _through_host(topology: Topology, source: str, target: str) -> tuple[Path, ...]:
    """Up to the CPU that is nearest to the target, and down; nothing if there is none."""
    near = path_to_cpu(topology, target)
    return () if near is None else (path(topology, source, near.b), path(topology, near.b, target))


def _hops(way: Path) -> list[tuple[str, str, Link]]:
    """Every link of a way in the direction in which it is passed."""
    return [(way.nodes[k], way.nodes[k + 1], link) for k, link in enumerate(way.links)]
