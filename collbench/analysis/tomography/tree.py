"""An inference as a topology: bridges above the GPUs of a machine that shows none.

Sockets become CPUs, groups that share an uplink become PCIe switches. The rates of what is
inferred are those that copies reached; generation and width are those of the link that comes
nearest, because NCCL wants them of every PCI device.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count

from collbench.analysis.tomography.model import Inference
from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.topology.paths import path_to_cpu
from collbench.machine.topology.rates import pcie_link

FACT = "inferred"  # of a node; of a switch with the confidence
SOURCE = "inferred from copies alone and together"
_GENERATIONS, _WIDTHS = (3, 4, 5, 6), (4, 8, 16)


def inferred(flat: Topology, inference: Inference) -> Topology:
    """The machine with what was inferred between its GPUs and CPUs in place of what it shows."""
    gpus = [gpu.id for gpu in flat.gpus]
    uplinks = sorted(
        (one for one in inference.groupings if one.kind == "uplink"),
        key=lambda one: (-len(one.gpus), one.gpus),
    )
    shown = {
        link.a if link.a in gpus else link.b: link for link in flat.links if _is_gpus(link, gpus)
    }
    links = [link for link in flat.links if not _is_gpus(link, gpus)]
    nodes, links = _without_ends(flat.nodes, links)
    new = _Names({node.id for node in nodes})
    cpus, cpu_of = _cpus(flat, inference, new)
    links += _sockets(cpus, inference)
    above: dict[tuple[int, ...], str] = {}
    for one in uplinks:
        parent = _parent(one.gpus, above) or cpu_of[one.gpus[0]]
        above[one.gpus] = new.take("pci")
        facts = ((f"xml-pci:{FACT}", f"{one.confidence:.4f}"),)
        name = f"inferred, {one.confidence:.2%}"
        nodes.append(Node(id=above[one.gpus], kind="pci", name=name, facts=facts))
        links.append(_like_pcie(above[one.gpus], parent, sum(one.evidence.after)))
    for number, gpu in enumerate(gpus):
        parent, known = _parent((number,), above) or cpu_of[number], shown.get(gpu)
        links.append(
            replace(known, a=gpu, b=parent)
            if known is not None and known.usable_gbs is not None
            else _like_pcie(gpu, parent, _to_host(inference, number))
        )
    return replace(
        flat,
        nodes=(*nodes, *(cpu for cpu in cpus if cpu not in nodes)),
        links=tuple(links),
        notes=(*flat.notes, f"the tree above the GPUs is {SOURCE}"),
    )


@dataclass(slots=True)
class _Names:
    """Ids of new nodes."""

    used: set[str]

    def take(self, kind: str) -> str:
        """One that is free."""
        name = next(name for number in count() if (name := f"{kind}{number}") not in self.used)
        self.used.add(name)
        return name


def _is_gpus(link: Link, gpus: Sequence[str]) -> bool:
    return link.kind == "pcie" and (link.a in gpus or link.b in gpus)


def _without_ends(nodes: Sequence[Node], links: Sequence[Link]) -> tuple[list[Node], list[Link]]:
    """Without switches and host bridges below which nothing is any more."""
    while True:
        ends = Counter(end for link in links for end in (link.a, link.b))
        gone = {node.id for node in nodes if node.kind in ("pci", "root") and ends[node.id] < 2}
        if not gone:
            return list(nodes), list(links)
        nodes = [node for node in nodes if node.id not in gone]
        links = [link for link in links if link.a not in gone and link.b not in gone]


def _cpus(flat: Topology, inference: Inference, new: _Names) -> tuple[list[Node], list[str]]:
    """The CPUs, and the id of that above each GPU: those that are shown, unless more memories were
    found than one.
    """
    shown = list(flat.of_kind("cpu"))
    places = sorted({place for place in inference.near if place is not None})
    if not shown:
        shown = [Node(id=new.take("cpu"), kind="cpu", index=0)]
    if len(places) < 2 or len(shown) not in (1, len(places)):
        near = [path_to_cpu(flat, gpu.id) for gpu in flat.gpus]
        return shown, [shown[0].id if way is None else way.b for way in near]
    if len(shown) == 1:
        facts = (*shown[0].facts, (f"xml:{FACT}", "1"))
        shown += [
            replace(shown[0], id=new.take("cpu"), index=shown[0].index + number, facts=facts)
            for number in range(1, len(places))
        ]
    # a GPU of which nothing is known is put where the first one is
    return shown, [
        shown[places.index(place)].id if place is not None else shown[0].id
        for place in inference.near
    ]


def _parent(gpus: Sequence[int], above: dict[tuple[int, ...], str]) -> str:
    """The smallest switch above some GPUs that is there already, if there is one."""
    around = [one for one in above if set(gpus) < set(one)]
    return above[min(around, key=len)] if around else ""


def _sockets(cpus: Sequence[Node], inference: Inference) -> list[Link]:
    """Links between inferred CPUs, with the highest rate at which a GPU reached across."""
    far = [
        rate
        for gpu, place in enumerate(inference.near)
        for memory, rate in enumerate(inference.host_gbs[gpu] if place is not None else ())
        if memory != place
    ] or [sum(one.evidence.after) for one in inference.groupings if one.kind == "socket"]
    return [
        Link(a=a.id, b=b.id, kind="socket", usable_gbs=max(far), source=SOURCE)
        for a, b in combinations(cpus, 2)
        if b.fact(f"xml:{FACT}")
    ]


def _to_host(inference: Inference, gpu: int) -> float | None:
    """The highest rate of a GPU to a memory, if they were measured."""
    return max(inference.host_gbs[gpu]) if inference.host_gbs else None


def _like_pcie(a: str, b: str, gbs: float | None) -> Link:
    """A PCIe link of the rate that copies reached."""
    if gbs is None:
        return Link(a=a, b=b, kind="pcie", count=0)
    links = [pcie_link(a, b, of, lanes) for of in _GENERATIONS for lanes in reversed(_WIDTHS)]
    nearest = min(links, key=lambda link: round(abs(math.log((link.usable_gbs or 1.0) / gbs)), 2))
    return replace(nearest, usable_gbs=gbs, source=SOURCE, note=SOURCE)
