"""Planted machines: what copies to the host's memory reach at once over the links of a described
machine, by max-min fairness, with seeded noise; and which GPUs share a path there.
"""

import math
import random
from collections.abc import Hashable, Sequence
from itertools import combinations

from collbench.machine.shared_paths import PLACES, Flow, FlowSearch, SharedPaths
from collbench.machine.topology.hosts import part
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.topology.paths import path
from collbench.machine.topology.rates import pcie_link

# Machines with GPUs whose links all have rates; of several hosts one.
MACHINES = (
    *("a100-pairs", "a3-ultra", "dgx-1", "dgx-1v", "dgx-2", "dgx-a100", "gn5-8xp100"),
    *("h200x4-vm", "hgx-b200", "hgx-h100", "hgx-h200", "k40x8", "l40s-8", "mi250x-8", "mi300x-8"),
    *("nd-h200-v5", "p5en", "pcie-2x2-switches", "pcie-2x2", "pcie-4-ib2", "pcie-4"),
    *("power8-s822lc", "power9-ac922", "rtx-pro-6000-8", "rtx4090x4", "rtx4090x8"),
)
Hop = tuple[str, str]  # a link in the direction in which it is passed


def planted(name: str) -> Topology:
    """One host of a machine of the catalogue."""
    return part(machine_topology(name), 0)


def fair_rates(
    routes: Sequence[Sequence[Hashable]], capacity: dict[Hashable, float]
) -> list[float]:
    """The max-min fair rates of flows: all grow alike until a link is full, which holds those that
    pass it; the others grow on.

    >>> fair_rates([["a", "c"], ["b", "c"], ["b"]], {"a": 2.0, "b": 9.0, "c": 6.0})
    [2.0, 4.0, 5.0]
    """
    rates = [0.0] * len(routes)
    free, growing = dict(capacity), set(range(len(routes)))
    while growing:
        users = {
            link: sum(link in routes[flow] for flow in growing)
            for link in dict.fromkeys(link for flow in sorted(growing) for link in routes[flow])
        }
        step = min(free[link] / count for link, count in users.items())
        for flow in growing:
            rates[flow] += step
        for link, count in users.items():
            free[link] -= step * count
        full = {link for link in users if free[link] <= 1e-9 * capacity[link]}
        growing = {flow for flow in growing if not full.intersection(routes[flow])}
    return rates


class PlantedFlows:
    """Copies of a described machine of one host, to memory at its first and its last CPU. noise:
    the standard deviation of the logarithm of every rate. is_one_memory: both are the first CPU's.
    """

    def __init__(
        self, topology: Topology, noise: float, seed: int = 0, *, is_one_memory: bool = False
    ) -> None:
        cpus = [cpu.id for cpu in topology.of_kind("cpu")]
        self._topology = topology
        self._gpus = [gpu.id for gpu in topology.gpus]
        self._cpus = [cpus[0], cpus[0] if is_one_memory else cpus[-1]]
        self._noise, self._random = noise, random.Random(seed)
        self.gpus = len(self._gpus)

    def route(self, flow: Flow) -> dict[Hashable, float]:
        """The links that a flow passes, and what they carry."""
        way = path(self._topology, self._gpus[flow[0]], self._cpus[flow[1]])
        hops = zip(way.nodes, way.nodes[1:], strict=False)
        return {hop: link.usable_gbs or 0.0 for hop, link in zip(hops, way.links, strict=True)}

    def rates(self, flows: Sequence[Flow]) -> list[float]:
        """GB/s of each flow while all of them run, once."""
        routes = [self.route(flow) for flow in flows]
        capacity = {hop: gbs for route in routes for hop, gbs in route.items()}
        return [
            rate * math.exp(self._random.gauss(0.0, self._noise))
            for rate in fair_rates([list(route) for route in routes], capacity)
        ]

    def is_shared(self, gpus: Sequence[int]) -> bool:
        """Whether some link is on the way of all of them, to both blocks of memory."""
        return all(
            set.intersection(*({*self.route((gpu, place))} for gpu in gpus))
            for place in range(PLACES)
        )

    def contend(self) -> set[tuple[int, int]]:
        """The pairs whose copies take from each other on the way to both."""
        found = set()
        for pair in combinations(range(self.gpus), 2):
            falls = []
            for place in range(PLACES):
                routes = [self.route((gpu, place)) for gpu in pair]
                alone = sum(min(route.values()) for route in routes)
                both = fair_rates([list(route) for route in routes], {**routes[0], **routes[1]})
                falls.append(alone / sum(both))
            if min(falls) > 1.2:
                found.add(pair)
        return found


def infer(source: PlantedFlows) -> SharedPaths:
    """What the measurements of a planted machine say, with as many as are wanted."""
    return FlowSearch(source, lambda: 0.0, 1.0).run()


def random_tree(seed: int) -> Topology:
    """A machine of one or two sockets whose GPUs hang below nested switches of random widths."""
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
    for gpu in range(draw.randint(3, 8)):
        nodes.append(Node(id=f"gpu{gpu}", kind="gpu", index=gpu))
        links.append(
            pcie_link(f"gpu{gpu}", draw.choice(parents), generation, draw.choice((8, 16, 16, 16)))
        )
    return Topology(name=f"tree {seed}", nodes=tuple(nodes), links=tuple(links))
