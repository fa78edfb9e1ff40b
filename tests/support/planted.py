"""Planted trees: which groups a described machine has, and which claims about them are false."""

import random
from dataclasses import dataclass

from collbench.analysis.tomography.model import Grouping, Inference
from collbench.analysis.tomography.search import FlowSearch
from collbench.machine.topology.hosts import part
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.topology.paths import path, path_to_cpu
from collbench.machine.topology.planted import Hop, PlantedFlows
from collbench.machine.topology.rates import nvlink_link, pcie_link

Group = tuple[str, frozenset[int]]  # kind, GPUs
CLAIMED = 0.95  # confidence from which on a grouping must be true
# Machines with GPUs whose links all have rates; of several hosts one.
MACHINES = (
    *("a100-pairs", "a3-ultra", "dgx-1", "dgx-1v", "dgx-2", "dgx-a100", "gn5-8xp100"),
    *("h200x4-vm", "hgx-b200", "hgx-h100", "hgx-h200", "k40x8", "l40s-8", "mi250x-8", "mi300x-8"),
    *("nd-h200-v5", "p5en", "pcie-2x2-switches", "pcie-2x2", "pcie-4-ib2", "pcie-4"),
    *("power8-s822lc", "power9-ac922", "rtx-pro-6000-8", "rtx4090x4", "rtx4090x8"),
)


def planted(name: str) -> Topology:
    """One host of a machine of the catalogue."""
    return part(machine_topology(name), 0)


class Redirected(PlantedFlows):
    """As access control in switches does: copies between GPUs go up to the host bridge."""

    def route(self, flow: tuple[int, int]) -> tuple[Hop, ...]:
        route = super().route(flow)
        if flow[1] < 0 or any(link.kind != "pcie" for _, _, link in route):
            return route
        ends = [self._gpus[end] for end in flow]
        up, down = (path_to_cpu(self._without, end) for end in ends)
        assert up is not None
        assert down is not None
        if up.b != down.b:
            return route
        there = [*zip(up.nodes, up.nodes[1:], up.links, strict=False)]
        back = [
            (b, a, link) for a, b, link in zip(down.nodes, down.nodes[1:], down.links, strict=False)
        ]
        return (*there, *reversed(back))


def infer(source: PlantedFlows) -> Inference:
    """What the measurements of a planted machine say, with as many as are wanted."""
    return FlowSearch(source, lambda: 0.0, 1.0).run()


@dataclass(frozen=True, slots=True)
class Truth:
    """The groups of a planted machine."""

    topology: Topology
    source: PlantedFlows

    def groups(self) -> set[Group]:
        """Every group of two GPUs or more that there is."""
        gpus = range(self.source.gpus)
        found = {("link", frozenset(one)) for one in self._linked()}
        cpus = {gpu: self._cpu(gpu) for gpu in gpus}
        if len(self.topology.of_kind("cpu")) > 1:
            found |= {
                ("socket", frozenset(gpu for gpu in gpus if cpus[gpu] == cpu))
                for cpu in cpus.values()
            }
        for bridge in self.topology.of_kind("pci", "root"):
            found.add(("uplink", frozenset(gpu for gpu in gpus if bridge.id in self._above(gpu))))
        return {group for group in found if len(group[1]) > 1}

    def is_true(self, one: Grouping, inference: Inference) -> bool:
        """Whether members have what a grouping says. Of an uplink: a link that all pass to that
        memory, and nobody else but those that are left open.
        """
        members = frozenset(one.gpus)
        most = members | set(one.open)
        if one.kind != "uplink":
            return any(
                kind == one.kind and members <= group <= most for kind, group in self.groups()
            )
        end = -1 - inference.places[one.place]
        users: dict[Hop, set[int]] = {}
        for gpu in range(self.source.gpus):
            for hop in self.source.route((gpu, end)):
                users.setdefault(hop, set()).add(gpu)
        return any(members <= some <= most for some in users.values())

    def false(self, inference: Inference) -> list[Grouping]:
        """Groupings that are claimed and not true."""
        return [
            one
            for one in inference.groupings
            if one.confidence >= CLAIMED and not self.is_true(one, inference)
        ]

    def _cpu(self, gpu: int) -> str:
        way = path_to_cpu(self.topology, self.topology.gpus[gpu].id)
        assert way is not None
        return way.b

    def _above(self, gpu: int) -> tuple[str, ...]:
        return path(self.topology, self.topology.gpus[gpu].id, self._cpu(gpu)).nodes

    def _linked(self) -> list[set[int]]:
        groups = [{gpu} for gpu in range(self.source.gpus)]
        for a, b in self.source.peers:
            if self.source._direct(*(self.topology.gpus[end].id for end in (a, b))):
                joined = [group for group in groups if group & {a, b}]
                groups = [group for group in groups if group not in joined]
                groups.append(set().union(*joined))
        return groups


def found(inference: Inference) -> set[Group]:
    """The groups that are claimed."""
    return {(one.kind, frozenset(one.gpus)) for one in inference.groupings}


def random_tree(seed: int) -> Topology:
    """A machine of one or two sockets whose GPUs hang below nested switches of random widths, some
    with NVLinks.
    """
    draw = random.Random(seed)
    cpus = [
        Node(id=f"cpu{number}", kind="cpu", index=number)
        for number in range(draw.choice((1, 2, 2)))
    ]
    nodes: list[Node] = [*cpus]
    links: list[Link] = []
    if len(cpus) > 1:
        rate = draw.choice((6.0, 10.0, 16.0, 22.0, 40.0, 90.0))
        links.append(Link(a="cpu0", b="cpu1", kind="socket", usable_gbs=rate))
    generation = draw.choice((3, 4, 5))
    parents = [cpu.id for cpu in cpus]
    for number in range(draw.randint(0, 5)):
        nodes.append(Node(id=f"pci{number}", kind="pci"))
        lanes = draw.choice((8, 16, 16, 16))
        links.append(pcie_link(f"pci{number}", draw.choice(parents), generation, lanes))
        parents.append(f"pci{number}")
    gpus = range(draw.randint(3, 8))
    for gpu in gpus:
        nodes.append(Node(id=f"gpu{gpu}", kind="gpu", index=gpu))
        links.append(
            pcie_link(f"gpu{gpu}", draw.choice(parents), generation, draw.choice((8, 16, 16, 16)))
        )
    if draw.random() < 0.3:
        links += [nvlink_link(f"gpu{a}", f"gpu{a + 1}", 3, 4) for a in gpus[:-1:2]]
    return Topology(name=f"tree {seed}", nodes=tuple(nodes), links=tuple(links))
