"""The bound that links set: which of them the traffic of a schedule loads most, and the rate at
which that one is full. Nothing is faster: prices are at least the time of their bound, and rows are
compared with it as their ceiling.

No table of algorithms: bytes from rank to rank come from the schedule (passes.pair_traffic), the
way of each pair from the links (ways.py), and every link is loaded in each direction by all pairs
that pass it. What a GPU sends and receives altogether is counted at the links that leave it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import lcm

from collbench.machine.topology.model import Link, Topology
from collbench.machine.topology.rates import Engine, best_gbs, link_label
from collbench.planning.price.ways import Hop, way
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules.ir import MAX_KEPT, Schedule
from collbench.schedules.passes import pair_traffic

_SLOT_BYTES = 1 << 20  # large enough for whole lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """gbs: S over the time in which the fullest link carries its share, in GB/s, before a
    protocol's own bytes. limit: that link in words. engine: what moves the bytes, if that is known.
    """

    gbs: float
    limit: str
    engine: Engine | None = None

    @property
    def text(self) -> str:
        """What a row is held against, in words.

        >>> Bound(gbs=375.7, limit="GPU0 -> GPU1, NVLink 4 x18", engine="stores").text
        'stores over GPU0 -> GPU1, NVLink 4 x18'
        """
        return self.limit if self.engine is None else f"{self.engine} over {self.limit}"


def bound(
    topology: Topology,
    gpus: Sequence[str],
    traffic: Mapping[tuple[int, int], Fraction],
    *,
    through_host: bool = False,
    engine: Engine | None = None,
) -> Bound | None:
    """The bound of traffic between ranks, of which rank r runs on gpus[r]; None if a link on the
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
    >>> found = bound(switch, ("gpu0", "gpu1"), {(0, 1): Fraction(1), (1, 0): Fraction(1)})
    >>> round(found.gbs, 1), found.limit
    (12.0, 'GPU0 -> GPU1, PCIe 3.0 x16')
    """
    parts = lcm(*(share.denominator for share in traffic.values()))
    loads: dict[Hop, int] = {}  # in so many parts of S
    users: dict[Hop, tuple[int, int]] = {}
    for (source, target), share in traffic.items():
        found = way(topology, gpus[source], gpus[target], through_host)
        if found is None:
            return None
        load = share.numerator * (parts // share.denominator)
        for hop in found.hops:
            loads[hop] = loads.get(hop, 0) + load
            users.setdefault(hop, (source, target))
    if not loads:
        return None
    fullest = max(loads, key=lambda hop: loads[hop] / parts / _rate(hop.link, engine))
    here, there, link = fullest
    # a link of switches or CPUs: say for whom it matters
    if not all(topology.by_id[node].kind == "gpu" for node in (here, there)):
        source, target = users[fullest]
        here, there = gpus[source], gpus[target]
    return Bound(
        gbs=_rate(link, engine) / (loads[fullest] / parts),
        limit=f"{here.upper()} -> {there.upper()}, {link_label(link)}",
        engine=engine,
    )


def _rate(link: Link, engine: Engine | None) -> float:
    return (link.usable_gbs if engine is None else best_gbs(link, engine)) or 0.0


@lru_cache(maxsize=MAX_KEPT)
def bound_of(
    schedule: Schedule,
    topology: Topology,
    gpus: tuple[str, ...],
    through_host: bool,
    engine: Engine | None,
) -> Bound | None:
    """The bound of a schedule."""
    traffic = pair_traffic(schedule)
    return bound(topology, gpus, traffic, through_host=through_host, engine=engine)


def efficiency(proto: str) -> float:
    """The payload of a slot over the bytes that the slot takes on a link.

    >>> efficiency("ll"), efficiency("ll128"), efficiency("simple")
    (0.5, 0.9375, 1.0)
    """
    return float(PROTOCOLS.load(proto).payload_bytes(_SLOT_BYTES)) / _SLOT_BYTES
