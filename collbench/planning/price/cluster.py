"""Many hosts that are all alike, from the links of one: the machine that `predict` prices.

A domain is a host, or the hosts that an NVSwitch joins. Domains are on one network, of which each
NIC has its rate.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from collbench.core.errors import RefusedError
from collbench.machine.topology.hosts import part, repeated, without
from collbench.machine.topology.model import Link, Node, Topology
from collbench.planning.links import RankLinks
from collbench.planning.price.constants import WAYS, GpuCosts
from collbench.planning.price.gpus import Network
from collbench.planning.price.ways import RATES, SPINE, Hop, rail_of

LATENCIES = tuple(f"latency.{way}" for way in WAYS)
_MOST_KEPT = 64  # topologies of thousands of GPUs take megabytes
# What can be changed, and whose share in a price is asked for.
CONSTANTS = (*RATES, *LATENCIES, "launch", "cold", "messages", "cta", "memory")
_OF_KINDS = {  # fields of KindCosts
    "messages": ("step_us", "take_us", "post_us"),
    "cta": ("read_gbs", "write_gbs", "send_gbs"),
}
_OF_GPUS = {"launch": "launch_us", "cold": "cold_us", "memory": "memory_gbs"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Cluster:
    """domain: its links as they are. rates: of links, as factors by ways.RATES."""

    name: str
    domain: Topology
    costs: GpuCosts
    rates: Mapping[str, float] = field(default_factory=dict)
    network: Network = field(default_factory=Network)

    @property
    def hosts(self) -> int:
        """Hosts of a domain."""
        return len(self.domain.hosts)

    @cached_property
    def width(self) -> int:
        """Ranks of a domain."""
        return len(self.domain.gpus)

    @property
    def gpus_of_host(self) -> int:
        return len(self.domain.gpus) // self.hosts

    def with_gpus(self, number: int) -> "Cluster":
        """The same with so many of the GPUs of each host. Raises RefusedError for more than there
        are.
        """
        if number > self.gpus_of_host:
            raise RefusedError(
                f"a host of {self.name} has {self.gpus_of_host} GPUs, not {number}", "give fewer"
            )
        first: dict[int, int] = {}
        for gpu in self.domain.gpus:
            first.setdefault(gpu.host, gpu.index)
        domain = without(
            self.domain, lambda node: node.kind == "gpu" and node.index - first[node.host] >= number
        )
        return replace(self, domain=domain)

    def scaled(self, constant: str, factor: float) -> "Cluster":
        """The same with more or less of one of CONSTANTS, as a factor."""
        if constant == SPINE:
            more = self.network.oversubscription / factor
            return replace(self, network=replace(self.network, oversubscription=more))
        if constant in RATES:
            rates = {**self.rates, constant: self.rates.get(constant, 1.0) * factor}
            return replace(self, rates=rates)
        if constant in LATENCIES:
            way = constant.removeprefix("latency.")
            factors = {**self.network.factors, way: self.network.factors.get(way, 1.0) * factor}
            return replace(self, network=replace(self.network, factors=factors))
        costs = self.costs
        if constant in _OF_GPUS:
            name = _OF_GPUS[constant]
            return replace(self, costs=replace(costs, **{name: getattr(costs, name) * factor}))
        kinds = {
            kind: replace(
                own, **{name: getattr(own, name) * factor for name in _OF_KINDS[constant]}
            )
            for kind, own in costs.kinds.items()
        }
        return replace(self, costs=replace(costs, kinds=kinds))

    def on(self, hosts: int) -> "Cluster":
        """The same with a domain of fewer hosts where that many are less than one. Raises
        RefusedError if they are not whole domains.
        """
        if hosts >= self.hosts and hosts % self.hosts:
            raise RefusedError(
                f"{hosts} hosts of {self.name} are not whole NVLink domains of {self.hosts}",
                f"give fewer than {self.hosts}, or a multiple, such as {2 * self.hosts}",
            )
        if hosts >= self.hosts:
            return self
        return replace(self, domain=_first_hosts(self.domain, hosts))

    def narrow(self, width: int) -> "Cluster":
        """The same with only so many ranks in a domain."""
        return self if width == self.width else replace(self, domain=_narrow(self.domain, width))

    def nic_gbs(self) -> float:
        """The rate of the first GPU's NIC. Raises RefusedError if it has none of a known rate."""
        several = repeated(self.domain, 2)
        rail = rail_of(several, several.gpus[0].id)
        links = several.links_of[rail.nic] if rail is not None else ()
        gbs = next((link.usable_gbs for link in links if link.kind == "network"), None)
        if not gbs:
            raise RefusedError(
                f"{self.name} has no NIC of a known rate: it is no host of several",
                "give --hosts 1, or a machine file with [topology.nic]",
            )
        return gbs * self.rates.get("nic", 1.0)

    @cached_property
    def nics(self) -> int:
        """NICs of a domain that serve GPUs."""
        served = (rail_of(self.domain, gpu.id) for gpu in self.domain.gpus)
        return len({rail.nic for rail in served if rail is not None})

    def nvlink_gbs(self) -> float:
        """What a GPU sends by its NVLinks. Raises RefusedError if it has none of a known rate."""
        bundles = self.domain.bundles(self.domain.gpus[0].id)
        gbs = sum(link.usable_gbs or 0.0 for link in bundles) * self.rates.get("nvlink", 1.0)
        if not gbs:
            raise RefusedError(f"{self.name} has no NVLinks of a known rate", "set pcie or nic")
        return gbs

    def topology(self, domains: int) -> Topology:
        """The links of so many domains, at the rates that were changed."""
        return _topology(self.domain, domains, tuple(self.rates.get(rate, 1.0) for rate in RATES))

    @cached_property
    def _links(self) -> dict[int, RankLinks]:
        return {}

    def links(self, domains: int) -> RankLinks:
        """The links of the ranks of so many domains."""
        if domains not in self._links:
            topology = self.topology(domains)
            gpus = [gpu.id for gpu in topology.gpus]
            self._links[domains] = RankLinks(
                topology, gpus, self.costs, is_described=True, network=self.network
            )
        return self._links[domains]


# Clusters that differ in their costs alone share these, with all ways and orders found in them.


@lru_cache(maxsize=_MOST_KEPT)
def _topology(domain: Topology, domains: int, rates: tuple[float, ...]) -> Topology:
    """The links of so many domains. rates: factors, as RATES."""
    plain, factors = repeated(domain, domains), dict(zip(RATES, rates, strict=True))
    if set(rates) == {1.0}:
        return plain
    return replace(plain, links=tuple(_scaled(link, factors) for link in plain.links))


@lru_cache(maxsize=_MOST_KEPT)
def _first_hosts(domain: Topology, hosts: int) -> Topology:
    return without(domain, lambda node: node.host >= hosts)


@lru_cache(maxsize=_MOST_KEPT)
def _narrow(domain: Topology, width: int) -> Topology:
    """The domain with its first GPUs alone, and their hosts."""
    kept = {gpu.id for gpu in domain.gpus[:width]}
    used = {-1, *(domain.by_id[gpu].host for gpu in kept)}

    def is_other(node: Node) -> bool:
        return node.host not in used or (node.kind == "gpu" and node.id not in kept)

    return without(domain, is_other)


def _scaled(link: Link, factors: Mapping[str, float]) -> Link:
    factor = factors[Hop("", "", link).rate]
    if link.usable_gbs is None or factor == 1:
        return link
    raw = link.raw_gbs * factor if link.raw_gbs is not None else None
    return replace(link, usable_gbs=link.usable_gbs * factor, raw_gbs=raw)


def cluster_of(topology: Topology, name: str, costs: GpuCosts) -> Cluster:
    """The domain of a machine's first host. Raises RefusedError if it has no GPU."""
    if not topology.gpus:
        raise RefusedError(f"{name} has no GPU", "see collbench topo --machine for one that has")
    first = topology.gpus[0].id
    near = [topology.by_id[link.other(first)] for link in topology.links_of[first]]
    is_joined = any(node.kind == "nvswitch" and node.host < 0 for node in near)
    domain = topology if is_joined or len(topology.hosts) == 1 else part(topology, 0)
    return Cluster(name=name, domain=domain, costs=costs)
