"""A described machine as a source of measurements: what copies at the same time reach over its
links, by max-min fairness, with seeded noise; and the same machine with its PCIe tree hidden, as a
hypervisor shows it.

A copy between two GPUs takes their own links (NVLink, xGMI) if they have some, through switches but
not through other GPUs, and else PCIe. A block of the host's memory lies at a CPU.
"""

import math
import random
from collections.abc import Hashable, Sequence
from dataclasses import replace

from collbench.machine.topology.model import GPU_LINKS, Link, Topology
from collbench.machine.topology.paths import Path, path
from collbench.util.errors import UsageError

BLOCKS = 8  # of the host's memory: as many as the NUMA nodes of the largest hosts
Hop = tuple[str, str, Link]  # a link in the direction in which it is passed


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
    """Measures flows of a described machine of one host. noise: the standard deviation of the
    logarithm of every rate. is_one_memory: all blocks lie at the first CPU, not at all of them.

    Raises UsageError where a link on a way has no known rate.
    """

    def __init__(
        self, topology: Topology, noise: float, seed: int = 0, *, is_one_memory: bool = False
    ) -> None:
        if len(topology.hosts) > 1:
            raise UsageError(
                f"{topology.name} has {len(topology.hosts)} hosts: trees are inferred of one",
                "give a machine of one host",
            )
        self._topology = topology
        between = [link for link in topology.links if not _is_between_gpus(topology, link)]
        self._without = replace(topology, links=tuple(between))
        self._gpus = [gpu.id for gpu in topology.gpus]
        self._cpus = [cpu.id for cpu in topology.of_kind("cpu")]
        if is_one_memory:
            self._cpus = self._cpus[:1]
        if len(self._gpus) < 2 or not self._cpus:
            gpus, cpus = len(self._gpus), len(self._cpus)
            raise UsageError(
                f"{topology.name} has {gpus} GPU{'s' * (gpus != 1)} and {cpus} CPU"
                f"{'s' * (cpus != 1)}: nothing is shared",
                "give a machine with two GPUs and a CPU",
            )
        self.own = own_links(topology)
        self._noise, self._random = noise, random.Random(seed)
        self.gpus, self.blocks = len(self._gpus), BLOCKS
        self.peers = frozenset(
            (a, b)
            for a in range(self.gpus)
            for b in range(self.gpus)
            if a != b and topology.p2p.get((self._gpus[a], self._gpus[b], "read"), "OK") == "OK"
        )

    def cpu_of(self, block: int) -> str:
        """The CPU at whose memory a block lies: blocks are spread over all."""
        return self._cpus[block * len(self._cpus) // self.blocks]

    def route(self, flow: tuple[int, int]) -> tuple[Hop, ...]:
        """The links that a flow passes."""
        source, target = (self._gpus[end] if end >= 0 else self.cpu_of(-1 - end) for end in flow)
        way = self._direct(source, target) or path(self._without, source, target)
        if not way.links or any(link.usable_gbs is None for link in way.links):
            raise UsageError(
                f"{self._topology.name} gives no rate of the way from {source} to {target}",
                "give a machine whose links all have rates",
            )
        return tuple(
            (way.nodes[hop], way.nodes[hop + 1], link) for hop, link in enumerate(way.links)
        )

    def rates(self, flows: Sequence[tuple[int, int]]) -> list[float]:
        """GB/s of each flow while all of them run, once."""
        routes = [self.route(flow) for flow in flows]
        capacity: dict[Hashable, float] = {
            hop: hop[2].usable_gbs or 0.0 for route in routes for hop in route
        }
        return [
            rate * math.exp(self._random.gauss(0.0, self._noise))
            for rate in fair_rates(routes, capacity)
        ]

    def _direct(self, source: str, target: str) -> Path | None:
        """The way over links between GPUs, unless it leads through a third one."""
        way = path(self._topology, source, target)
        return way if way.kind in ("NVL", "XGMI") else None


def own_links(topology: Topology) -> tuple[float | None, ...]:
    """GB/s after its line code of each GPU's own PCIe link; None where there is none, or it is not
    known.
    """
    return tuple(
        next((link.raw_gbs for link in topology.links_of[gpu.id] if link.kind == "pcie"), None)
        for gpu in topology.gpus
    )


def _is_between_gpus(topology: Topology, link: Link) -> bool:
    kinds = {topology.by_id[end].kind for end in (link.a, link.b)}
    return link.kind in GPU_LINKS and kinds <= {"gpu", "nvswitch"}


def hidden(topology: Topology) -> Topology:
    """One host as a hypervisor shows it: every GPU on one bus at one CPU, without NICs and bridges.
    Their own links stay, and those between GPUs: the driver shows them. Addresses are those of a
    flat bus.

    >>> from collbench.machine.topology.machines import machine_topology
    >>> flat = hidden(machine_topology("pcie-2x2-switches"))
    >>> [node.id for node in flat.nodes], flat.gpus[1].address
    (['gpu0', 'gpu1', 'gpu2', 'gpu3', 'cpu0'], '0000:00:02.0')
    """
    gpus = [
        replace(gpu, address=gpu.address or f"0000:00:{place + 1:02x}.0", affinity="")
        for place, gpu in enumerate(topology.gpus)
    ]
    cpu = next(iter(topology.of_kind("cpu")))
    kept = [link for link in topology.links if _is_between_gpus(topology, link)]
    own = [
        next((link for link in topology.links_of[gpu.id] if link.kind == "pcie"), None)
        for gpu in gpus
    ]
    above = [
        replace(link, a=gpu.id, b=cpu.id, note="")
        if link is not None
        else Link(a=gpu.id, b=cpu.id, kind="pcie", count=0)
        for gpu, link in zip(gpus, own, strict=True)
    ]
    return Topology(
        name=topology.name,
        nodes=(*gpus, *topology.of_kind("nvswitch"), replace(cpu, affinity="")),
        links=(*kept, *above),
        p2p=topology.p2p,
    )
