"""Many hosts that are all alike, by the links of one: what a message from rank to rank passes.

A domain is a host, or the hosts that an NVSwitch joins. Between domains a message goes from a GPU
to its NIC, over the network, and from a NIC to the GPU. The NICs that serve GPUs with the same
number are one rail, whose switches never are a limit. A message between rails passes switches
above them, through which a NIC sends its rate divided by `oversubscription`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from collbench.machine.topology.gpu_models import multiprocessors
from collbench.machine.topology.hosts import part
from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import GPU_CLASSES, Path, like, path
from collbench.machine.topology.rates import link_label
from collbench.machine.topology.rdma import Rail, nic_gbs, rails
from collbench.util.errors import RefusedError

NVLINK_PATHS = (*GPU_CLASSES, "C2C")  # all others inside a host are over PCIe
# What rates are named by: links of GPUs, inside a host, of NICs, and of switches above the rails.
NVLINK, PCIE, NIC, SPINE = "nvlink", "pcie", "nic", "spine"
RATES = (NVLINK, PCIE, NIC, SPINE)
_RATE_OF_LINK = {"nvlink": NVLINK, "xgmi": NVLINK}


class Hop(NamedTuple):
    """A link in one direction. place: whose it is; rate: one of RATES, whose changes it follows."""

    place: tuple[object, ...]
    rate: str
    gbs: float


class Way(NamedTuple):
    """kind: "nvlink", "pcie" or "net", which says how long a hop takes, and how often it counts."""

    hops: tuple[Hop, ...]
    kind: str
    times: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Fabric:
    """topology: of one domain; hosts: that it is of; gpus_of_host: that have a rank."""

    name: str
    topology: Topology
    hosts: int
    gpus_of_host: int
    most: int | None = None  # ranks of a domain

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """The GPU of each rank of a domain."""
        by_host: dict[int, list[str]] = {}
        for gpu in self.topology.gpus:
            by_host.setdefault(gpu.host, []).append(gpu.id)
        gpus = [gpu for host in range(self.hosts) for gpu in by_host[host][: self.gpus_of_host]]
        return tuple(gpus[: self.most])

    def with_gpus(self, number: int) -> "Fabric":
        """The same with so many of the GPUs of each host. Raises RefusedError for more than there
        are.
        """
        most = len(self.topology.gpus) // len(self.topology.hosts)
        if number > most:
            raise RefusedError(f"a host of {self.name} has {most} GPUs, not {number}", "give fewer")
        return replace(self, gpus_of_host=number)

    @cached_property
    def nvlink_gbs(self) -> float:
        """What a GPU sends by its NVLinks. Raises RefusedError if it has none of a known rate."""
        gbs = sum(link.usable_gbs or 0.0 for link in self.topology.bundles(self.gpus[0]))
        if not gbs:
            raise RefusedError(f"{self.name} has no NVLinks of a known rate", "set pcie or nic")
        return gbs

    @cached_property
    def width(self) -> int:
        """Ranks of a domain."""
        return len(self.gpus)

    @cached_property
    def is_nvlink(self) -> bool:
        """Whether NVLinks join all GPUs of a domain."""
        kinds = {path(self.topology, self.gpus[0], other).kind for other in self.gpus[1:]}
        return kinds <= {*NVLINK_PATHS}

    @cached_property
    def is_uniform(self) -> bool:
        """Whether the links of a domain treat all of its GPUs alike."""
        return self.is_nvlink and len({like(self.topology, gpu) for gpu in self.gpus}) == 1

    def on(self, hosts: int) -> "Fabric":
        """The same with domains of fewer hosts where that many are less than a domain. Raises
        RefusedError if they are not whole domains.
        """
        if hosts >= self.hosts and hosts % self.hosts:
            raise RefusedError(
                f"{hosts} hosts of {self.name} are not whole NVLink domains of {self.hosts}",
                f"give fewer than {self.hosts}, or a multiple, such as {2 * self.hosts}",
            )
        return self if hosts >= self.hosts else replace(self, hosts=hosts)

    @cached_property
    def ctas(self) -> int:
        """CTAs that run at once on every GPU."""
        return min(multiprocessors(gpu.fact("sm") or gpu.fact("gcn")) for gpu in self.topology.gpus)

    @property
    def device(self) -> str:
        return self.topology.gpus[0].name

    @cached_property
    def rails(self) -> dict[int, Rail]:
        """The NIC of each rank of a domain."""
        numbers = {gpu: number for number, gpu in enumerate(self.gpus)}
        by_host = [part(self.topology, host) for host in range(self.hosts)]
        served = [rail for one in by_host for rail in rails(one)]
        return {numbers[rail.gpu]: rail for rail in served if rail.gpu in numbers}

    @cached_property
    def nics(self) -> int:
        """NICs of a domain that serve GPUs."""
        return len({rail.nic for rail in self.rails.values()})

    def nic_gbs(self, rank: int) -> float:
        """The rate of a rank's NIC. Raises RefusedError if it has none, or none that is known."""
        rail = self.rails.get(rank % self.width)
        gbs = rail and nic_gbs(self.topology, self.topology.by_id[rail.nic])
        if not gbs:
            raise RefusedError(
                f"{self.name} has no NIC of a known rate: it is no host of several",
                "give --hosts 1, or a machine file with [topology.nic]",
            )
        return gbs

    def way(self, source: int, target: int) -> Way:
        """What a message passes. Raises RefusedError if a link has no known rate."""
        domain, a = divmod(source, self.width)
        other, b = divmod(target, self.width)
        if domain == other:
            inside = path(self.topology, self.gpus[a], self.gpus[b])
            between = sum(self.topology.by_id[node].kind == "gpu" for node in inside.nodes[1:-1])
            kind = "nvlink" if inside.kind in NVLINK_PATHS else "pcie"
            return Way(tuple(self._hops(inside, domain)), kind, 1 + between)
        rates = self.nic_gbs(a), self.nic_gbs(b)
        up, down = self.rails[a], self.rails[b]
        hops = [
            *self._known(up.way, domain),
            Hop(("out", domain, up.nic), NIC, rates[0]),
            Hop(("in", other, down.nic), NIC, rates[1]),
            *self._known(path(self.topology, down.nic, down.gpu), other),
        ]
        if up.nic != down.nic:
            hops.append(Hop(("above", domain, up.nic), SPINE, rates[0]))
        return Way(tuple(hops), "net", 1)

    def _hops(self, inside: Path, domain: int) -> Iterable[Hop]:
        if not inside.links or inside.usable_gbs is None:
            raise RefusedError(
                f"{self.name}: a link between {inside.a} and {inside.b} has no known rate",
                "see collbench topo --rates",
            )
        return self._known(inside, domain)

    def _known(self, inside: Path, domain: int) -> Iterable[Hop]:
        """The links of a known rate: to a NIC, the others are taken to be no limit."""
        for k, link in enumerate(inside.links):
            if link.usable_gbs is not None:
                place = domain, inside.nodes[k], inside.nodes[k + 1], id(link)
                yield Hop(place, _RATE_OF_LINK.get(link.kind, PCIE), link.usable_gbs)

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """The links between GPUs and their NICs that have no known rate, as people name them."""
        links = [link for rail in self.rails.values() for link in rail.way.links]
        kinds = [link_label(link) for link in links if link.usable_gbs is None]
        return tuple(dict.fromkeys(kinds))


def fabric_of(topology: Topology, name: str) -> Fabric:
    """The domain of a machine's first host."""
    if not topology.gpus:
        raise RefusedError(f"{name} has no GPU", "see collbench topo --machine for one that has")
    near = [
        topology.by_id[link.other(topology.gpus[0].id)]
        for link in topology.links_of[topology.gpus[0].id]
    ]
    is_joined = any(node.kind == "nvswitch" and node.host < 0 for node in near)
    one = topology if is_joined else part(topology, 0)
    gpus = len(one.gpus) // len(one.hosts)
    return Fabric(name=name, topology=one, hosts=len(one.hosts), gpus_of_host=gpus)
