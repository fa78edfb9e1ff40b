"""A machine as NCCL sees it: one domain of GPUs that NVLinks, xGMI or PCIe join, and its NICs.

NCCL uses the NICs that are nearest to a GPU, all of them at once. Source: its search for rings
(graph/search.cc) and its tuning model (graph/tuning.cc).
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from collbench.core.errors import RefusedError
from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.topology.paths import CLASS_ORDER, path
from collbench.machine.topology.rdma import nic_gbs
from collbench.machine.topology.rings import ring_rate_gbs, rings
from collbench.machine.topology.unnamed import is_amd
from collbench.planning.price.cluster import Cluster
from collbench.planning.price.ways import NVLINK_PATHS

Fabric = Literal["ib", "roce", "efa", "efa1", "tcp"]
# From this compute capability on a GPU has tables of this name. AMD's have those of Hopper, which
# RCCL's are made from.
_ARCHS = ((100, "blackwell"), (90, "hopper"), (80, "ampere"), (0, "volta"))
_SM_OF_NVLINK = {1: 60, 2: 70, 3: 80, 4: 90, 5: 100}  # of a GPU that has it
_FIRST_NVLS = 90  # compute capability of sums in the switch
_LEAST_NVLS = 3  # GPUs
_FABRICS: tuple[tuple[str, Fabric], ...] = (
    (r"\bEFA\b", "efa"),
    (r"RoCE|Ethernet|BlueField|Pollara|Thor", "roce"),
    (r"TCP|gVNIC|\bENA\b", "tcp"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclMachine:
    """hosts, gpus: of a domain. near_gbs: what a ring carries between GPUs of a domain, by the
    usable rates of links; 0: unknown, or one GPU. network_gbs: what all NICs of a domain carry
    together; 0: none has a known rate.
    """

    name: str
    hosts: int
    gpus: int
    arch: str
    near: Literal["nvlink", "xgmi", "pcie"]
    near_gbs: float
    has_nvls: bool
    fabric: Fabric
    network_gbs: float

    def on(self, hosts: int) -> "tuple[NcclMachine, int]":
        """The machine with a domain of at most so many hosts, and how many domains they are.

        Raises RefusedError for what has no NICs of a known rate, or has one GPU altogether.
        """
        machine = self
        if hosts > self.hosts and hosts % self.hosts:
            raise RefusedError(
                f"{hosts} hosts of {self.name} are not whole NVLink domains of {self.hosts}",
                f"give fewer than {self.hosts}, or a multiple, such as {2 * self.hosts}",
            )
        if hosts < self.hosts:
            gpus = self.gpus // self.hosts * hosts
            machine = replace(self, hosts=hosts, gpus=gpus)
        domains = max(1, hosts // self.hosts)
        if domains * machine.gpus < 2:
            raise RefusedError(
                f"one host of {self.name} has one GPU: nothing travels", "give more --hosts"
            )
        if domains > 1 and not self.network_gbs:
            raise RefusedError(
                f"{self.name} has no NIC of a known rate: it is no host of several",
                "give --hosts 1, or --topo FILE with --nic 400G",
            )
        if machine.gpus > 1 and not self.near_gbs:
            raise RefusedError(
                f"the links between GPUs of {self.name} have no known rate",
                "give --topo FILE with --links nvlink4, or pcie5",
            )
        return machine, domains


def nccl_machine(cluster: Cluster) -> NcclMachine:
    """What NCCL sees of a cluster's domain, at the rates that were changed.

    >>> from collbench.machine.topology.machines import machine_topology
    >>> from collbench.planning.price.cluster import cluster_of
    >>> from collbench.planning.price.constants import gpu_costs
    >>> found = nccl_machine(cluster_of(machine_topology("hgx-h100"), "hgx-h100", gpu_costs()))
    >>> found.gpus, found.arch, found.near_gbs, found.has_nvls, found.fabric, found.network_gbs
    (8, 'hopper', 364.5, True, 'ib', 400.0)
    """
    domain = cluster.topology(1)
    gpu = domain.gpus[0]
    sm = _capability(domain, gpu)
    arch = next(name for least, name in _ARCHS if sm >= least)
    near, near_gbs = _near(domain)
    is_switched = any(node.kind == "nvswitch" for node in domain.nodes)
    nics = _used_nics(domain)
    return NcclMachine(
        name=cluster.name,
        hosts=cluster.hosts,
        gpus=cluster.width,
        arch=arch,
        near="pcie" if not near else "xgmi" if is_amd(gpu) else "nvlink",
        near_gbs=near_gbs,
        has_nvls=is_switched and sm >= _FIRST_NVLS and cluster.width >= _LEAST_NVLS,
        fabric=_fabric(nics, sm),
        network_gbs=_network_gbs(domain, nics, cluster.rates.get("nic", 1.0)),
    )


def _capability(domain: Topology, gpu: Node) -> int:
    """Of a GPU, as its source or its NVLinks tell it."""
    number = gpu.fact("sm")
    if number.isdecimal():
        return int(number)
    generation = max((link.generation for link in domain.bundles(gpu.id)), default=0)
    return _FIRST_NVLS if is_amd(gpu) else _SM_OF_NVLINK.get(generation, 0)


def _near(domain: Topology) -> tuple[bool, float]:
    """Whether GPUs are joined by links of their own, and what a ring of them carries in GB/s. PCIe
    and sockets without a known rate are no limit, as long as the links of GPUs have one.
    """
    gpus = domain.gpus
    if len(gpus) < 2:
        return True, 0.0
    own = [sum(link.usable_gbs or 0.0 for link in domain.bundles(gpu.id)) for gpu in gpus]
    if any(node.kind == "nvswitch" for node in domain.nodes):
        return True, min(own)
    orders = rings(domain)
    hops = zip(orders[0], orders[0][1:] + orders[0][:1], strict=True)
    kinds = {path(domain, gpus[a].id, gpus[b].id).kind for a, b in hops}
    rate = ring_rate_gbs(domain, orders)
    if kinds <= {*NVLINK_PATHS}:
        return True, min(rate or 0.0, *own)
    ports = [link.usable_gbs for gpu in gpus for link in _pcie(domain, gpu)]
    known = [gbs for gbs in ports if gbs is not None]
    return False, rate if rate is not None else min(known, default=0.0)


def _pcie(domain: Topology, node: Node) -> list[Link]:
    return [link for link in domain.links_of[node.id] if link.kind == "pcie"]


def _used_nics(domain: Topology) -> list[Node]:
    """The NICs behind one PCIe switch with a GPU, or all that reach one where there is none; of
    these the fast ones.
    """
    places: dict[str, int] = {}
    for nic in domain.of_kind("nic"):
        same = [gpu for gpu in domain.gpus if gpu.host == nic.host]
        ways = [way for gpu in same if (way := path(domain, gpu.id, nic.id)).links]
        if ways:
            places[nic.id] = min(CLASS_ORDER[way.kind] for way in ways)
    close = [nic for nic, place in places.items() if place <= CLASS_ORDER["PXB"]]
    nics = [domain.by_id[nic] for nic in close or places]
    rates = {nic.id: nic_gbs(domain, nic) or 0.0 for nic in nics}
    least = max(rates.values(), default=0.0) / 2
    return [nic for nic in nics if rates[nic.id] >= least]


def _network_gbs(domain: Topology, nics: list[Node], factor: float) -> float:
    """What all NICs carry, as far as their PCIe links and those of GPUs let them."""
    each = [_through([nic], domain, factor * (nic_gbs(domain, nic) or 0.0)) for nic in nics]
    return _through(list(domain.gpus), domain, sum(each))


def _through(nodes: list[Node], domain: Topology, gbs: float) -> float:
    """A rate, or what the PCIe links of the nodes pass on where they carry less than that."""
    links = [link for node in nodes for link in _pcie(domain, node)]
    raw = [link.raw_gbs for link in links if link.raw_gbs is not None]
    if len(links) < len(nodes) or len(raw) < len(links) or gbs <= sum(raw):
        return gbs
    return sum(link.usable_gbs or 0.0 for link in links)


def _fabric(nics: list[Node], sm: int) -> Fabric:
    """What joins hosts, by the names of NICs and what a record says of their ports."""
    layers = " ".join(nic.fact("layer") for nic in nics)
    text = layers + " ".join(nic.name for nic in nics)
    is_ib = "InfiniBand" in layers
    found = next((name for words, name in _FABRICS if re.search(words, text) and not is_ib), "ib")
    # EFA of the first generations (P3dn, P4d) has neither LL nor LL128.
    return "efa1" if found == "efa" and sm < _FIRST_NVLS else found  # type: ignore[return-value]
