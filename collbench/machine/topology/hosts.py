"""The hosts of a topology: each as a topology of its own, and which of them are equal."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from collbench.core.grouping import grouped
from collbench.machine.topology.model import Link, Node, Topology


@lru_cache(maxsize=16)
def _by_host(topology: Topology) -> tuple[list[list[Node]], list[list[Link]]]:
    """Nodes and links of each host, the latter those with an end there."""
    nodes: list[list[Node]] = [[] for _ in topology.hosts]
    links: list[list[Link]] = [[] for _ in topology.hosts]
    for node in topology.nodes:
        if node.host >= 0:
            nodes[node.host].append(node)
    for link in topology.links:
        for host in {topology.by_id[link.a].host, topology.by_id[link.b].host} - {-1}:
            links[host].append(link)
    return nodes, links


def equal_hosts(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Hosts in groups of equal ones, in the order of their first: same parts and links, apart from
    addresses and serial numbers.
    """
    numbers = range(len(topology.hosts))
    groups = grouped((_structure(part(topology, number)), number) for number in numbers)
    return tuple(tuple(group) for group in groups.values())


def part(topology: Topology, host: int) -> Topology:
    """One host, and what of its surroundings its links end at."""
    if len(topology.hosts) == 1:
        return topology
    nodes_by_host, links_by_host = _by_host(topology)
    own = {node.id for node in nodes_by_host[host]}
    links = tuple(
        link
        for link in links_by_host[host]
        if all(end in own or topology.by_id[end].host < 0 for end in (link.a, link.b))
    )
    shared = dict.fromkeys(end for link in links for end in (link.a, link.b) if end not in own)
    nodes = tuple(
        replace(node, host=min(node.host, 0))
        for node in (*nodes_by_host[host], *(topology.by_id[end] for end in shared))
    )
    permissions = topology.p2p and {
        key: value for key, value in topology.p2p.items() if key[0] in own and key[1] in own
    }
    return Topology(
        name=topology.name, nodes=nodes, links=links, hosts=(topology.hosts[host],), p2p=permissions
    )


def without(topology: Topology, is_left_out: Callable[[Node], bool]) -> Topology:
    """The topology without some nodes, and without the links that end there."""
    kept = tuple(node for node in topology.nodes if not is_left_out(node))
    ids = {node.id for node in kept}
    hosts = max(1, 1 + max((node.host for node in kept), default=0))
    return replace(
        topology,
        nodes=kept,
        links=tuple(link for link in topology.links if {link.a, link.b} <= ids),
        hosts=topology.hosts[:hosts],
        p2p={key: value for key, value in topology.p2p.items() if {key[0], key[1]} <= ids},
    )


def repeated(topology: Topology, times: int) -> Topology:
    """So many of a host, or of hosts that an NVSwitch joins, on one network. Numbers of nodes count
    on from one to the next. NICs without a rate are on no network.
    """
    if times == 1:
        return topology
    net = next(iter(topology.of_kind("net")), Node(id="net0", kind="net", name="network", host=-1))
    known = {end for link in topology.links if link.kind == "network" for end in (link.a, link.b)}
    ports = [
        Link(a=nic.id, b=net.id, kind="network", raw_gbs=rate, usable_gbs=rate)
        for nic in topology.of_kind("nic")
        if nic.id not in known and (rate := port_gbs(nic))
    ]
    nodes, links = [net], list[Link]()
    p2p: dict[tuple[str, str, str], str] = {}
    for number in range(times):
        ids = {net.id: net.id}
        for kind in {node.kind for node in topology.nodes} - {"net"}:
            own = topology.of_kind(kind)
            for place, node in enumerate(sorted(own, key=lambda one: (one.host, one.index))):
                place += number * len(own)
                ids[node.id] = f"{kind}{place}"
                host = node.host + number * len(topology.hosts) if node.host >= 0 else -1
                nodes.append(replace(node, id=ids[node.id], host=host, address=""))
        links += [replace(link, a=ids[link.a], b=ids[link.b]) for link in (*topology.links, *ports)]
        p2p |= {(ids[a], ids[b], what): value for (a, b, what), value in topology.p2p.items()}
    hosts = tuple(f"host{number}" for number in range(times * len(topology.hosts)))
    return replace(topology, nodes=tuple(nodes), links=tuple(links), hosts=hosts, p2p=p2p)


def port_gbs(nic: Node) -> float:
    """GB/s of a NIC's port as its file tells, 0 if it does not."""
    for key, per_gb in (("speed", 8000.0), ("gbps", 8.0)):
        text = nic.fact(key)
        if text.replace(".", "", 1).isdecimal() and len(text) < 10 and float(text) > 0:
            return float(text) / per_gb
    return 0.0


def nodes_of(topology: Topology, host: int) -> tuple[Node, ...]:
    """The nodes of one host."""
    return tuple(_by_host(topology)[0][host])


def _structure(one: Topology) -> object:
    """What equal hosts share: parts, links, permissions; no ids, addresses, serial numbers."""
    seen: Counter[str] = Counter()
    place: dict[str, tuple[str, int]] = {}
    for node in sorted(one.nodes, key=lambda node: (node.kind, node.index)):
        place[node.id] = (node.kind, seen[node.kind])
        seen[node.kind] += 1
    named = ("gpu", "cpu", "nic", "net")  # kinds whose names and numbers count
    nodes = sorted(
        (
            *place[node.id],
            node.index if node.kind in named else -1,
            node.name if node.kind in named else "",
            node.affinity,
            node.fact("mig"),
        )
        for node in one.nodes
    )
    links = sorted(
        (
            *sorted((place[link.a], place[link.b])),
            link.kind,
            link.count,
            link.generation,
            str(link.usable_gbs),
        )
        for link in one.links
    )
    permissions = sorted(
        (place[a], place[b], what, value)
        for (a, b, what), value in one.p2p.items()
        if a in place and b in place
    )
    return tuple(nodes), tuple(links), tuple(permissions)
