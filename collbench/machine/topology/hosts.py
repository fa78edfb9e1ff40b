"""The hosts of a topology: each as a topology of its own, and which of them are equal."""

from collections import Counter
from dataclasses import replace
from functools import lru_cache

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
    groups: dict[object, list[int]] = {}
    for number in range(len(topology.hosts)):
        groups.setdefault(_structure(part(topology, number)), []).append(number)
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
