"""What a message passes from rank to rank: every link in its direction, and how long a hop counts.

Within a host, and where NVSwitches join hosts, it takes the best way of the topology. To another
host it goes from the GPU to the NIC that serves it (rdma.rails), over the network, and from the NIC
that serves the other GPU; links on the way to a NIC that have no known rate are no limit. NICs with
the same number are one rail; what changes the rail passes switches above the rails too. Through
host memory it goes up to the CPU that is nearest to the target, and down.
"""

from functools import lru_cache
from typing import NamedTuple

from collbench.machine.topology.hosts import part
from collbench.machine.topology.model import Link, Topology
from collbench.machine.topology.paths import GPU_CLASSES, Path, path, path_to_cpu
from collbench.machine.topology.rates import link_label
from collbench.machine.topology.rdma import Rail, rails

NVLINK_PATHS, NETWORK_PATHS = (*GPU_CLASSES, "C2C"), ("NET",)  # all others are over PCIe
# What rates are named by: links of GPUs, inside a host, of NICs, and of switches above the rails.
NVLINK, PCIE, NIC, SPINE = "nvlink", "pcie", "nic", "spine"
RATES = (NVLINK, PCIE, NIC, SPINE)
_RATE_OF_LINK = {"nvlink": NVLINK, "xgmi": NVLINK, "network": NIC}
_MOST_KEPT = 1 << 16


class Hop(NamedTuple):
    """A link in one direction."""

    here: str
    there: str
    link: Link

    @property
    def rate(self) -> str:
        """One of RATES, whose changes it follows."""
        return _RATE_OF_LINK.get(self.link.kind, PCIE)


class Way(NamedTuple):
    """kind: one of constants.WAYS, which says how long a hop takes; times: how many hops it counts
    as, more than one through other GPUs and host memory. changes_rail: whether switches above the
    rails join it.
    """

    hops: tuple[Hop, ...]
    kind: str
    times: int = 1
    changes_rail: bool = False


@lru_cache(maxsize=_MOST_KEPT)
def way(topology: Topology, source: str, target: str, through_host: bool = False) -> Way | None:
    """The way from one GPU to another; None if there is none, or if a link has no known rate.

    >>> from collbench.machine.topology.machines import machine_topology
    >>> found = way(machine_topology("dgx-1"), "gpu3", "gpu4")
    >>> [hop.there for hop in found.hops], found.kind, found.times
    (['gpu0', 'gpu4'], 'nvlink', 2)
    """
    if through_host:
        near = path_to_cpu(topology, target)
        if near is None:
            return None
        parts: tuple[Path, ...] = path(topology, source, near.b), path(topology, near.b, target)
    elif _domain(topology, source) != _domain(topology, target):
        return _over_network(topology, source, target)
    else:
        parts = (_inside(topology, source, target),)
    if any(one.usable_gbs is None for one in parts):
        return None
    kinds = {one.kind for one in parts}
    kind = "nvlink" if kinds <= {*NVLINK_PATHS} else "net" if "NET" in kinds else "pcie"
    between = sum(topology.by_id[node].kind == "gpu" for node in parts[0].nodes[1:-1])
    times = len(parts) + between  # what waits in host memory is fetched by another hop
    return Way(tuple(hop for one in parts for hop in _hops(one)), kind, times)


@lru_cache(maxsize=_MOST_KEPT)
def _domain(topology: Topology, gpu: str) -> object:
    """What a message need not leave by the network: an NVSwitch of several hosts, or the host."""
    ends = (link.other(gpu) for link in topology.links_of[gpu])
    shared = (end for end in ends if topology.by_id[end].kind == "nvswitch")
    host = topology.by_id[gpu].host
    return next((end for end in shared if topology.by_id[end].host < 0), host)


@lru_cache(maxsize=_MOST_KEPT)
def _part(topology: Topology, host: int) -> Topology:
    return part(topology, host)


def _inside(topology: Topology, a: str, b: str) -> Path:
    """The way between two nodes of a domain, which is found sooner on one host."""
    host = topology.by_id[a].host
    is_one = len(topology.hosts) > 1 and topology.by_id[b].host == host
    return path(_part(topology, host) if is_one else topology, a, b)


def _over_network(topology: Topology, source: str, target: str) -> Way | None:
    """The way by the NICs that serve both GPUs."""
    up, down = rail_of(topology, source), rail_of(topology, target)
    if up is None or down is None:
        return None
    out, into = _to_network(topology, up.nic), _to_network(topology, down.nic)
    if out is None or into is None or out.usable_gbs is None or into.usable_gbs is None:
        return None
    net = out.other(up.nic)
    near, far = up.way, _inside(topology, down.nic, target)
    hops = [
        *(hop for hop in _hops(near) if hop.link.usable_gbs is not None),
        Hop(up.nic, net, out),
        Hop(net, down.nic, into),
        *(hop for hop in _hops(far) if hop.link.usable_gbs is not None),
    ]
    return Way(tuple(hops), "net", 1, _number(topology, up.nic) != _number(topology, down.nic))


def _hops(one: Path) -> list[Hop]:
    return [Hop(one.nodes[k], one.nodes[k + 1], link) for k, link in enumerate(one.links)]


def _to_network(topology: Topology, nic: str) -> Link | None:
    return next((link for link in topology.links_of[nic] if link.kind == "network"), None)


@lru_cache(maxsize=_MOST_KEPT)
def _number(topology: Topology, nic: str) -> int:
    """The place of a NIC among those of its host."""
    host = topology.by_id[nic].host
    same = [node.id for node in topology.of_kind("nic") if node.host == host]
    return same.index(nic)


def rail_of(topology: Topology, gpu: str) -> Rail | None:
    """The NIC that serves a GPU; None where no way leads to one."""
    return _rails(topology, topology.by_id[gpu].host).get(gpu)


@lru_cache(maxsize=_MOST_KEPT)
def _rails(topology: Topology, host: int) -> dict[str, Rail]:
    return {rail.gpu: rail for rail in rails(_part(topology, host))}


def unknown_links(topology: Topology) -> tuple[str, ...]:
    """The links between GPUs and their NICs that have no known rate, as people name them."""
    served = (rail_of(topology, gpu.id) for gpu in topology.gpus)
    links = [link for rail in served if rail is not None for link in rail.way.links]
    return tuple(dict.fromkeys(link_label(link) for link in links if link.usable_gbs is None))
