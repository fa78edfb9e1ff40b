"""The hosts of a topology: each as a topology of its own, and which of them are equal."""

from collections import Counter
from dataclasses import replace

from collbench.machine.topology.model import Topology


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
    own = {node.id for node in topology.nodes if node.host == host}
    shared = {node.id for node in topology.nodes if node.host < 0}
    links = tuple(
        link
        for link in topology.links
        if {link.a, link.b} <= own | shared and {link.a, link.b} & own
    )
    near = own | {end for link in links for end in (link.a, link.b)}
    nodes = tuple(
        replace(node, host=min(node.host, 0)) for node in topology.nodes if node.id in near
    )
    permissions = {
        key: value for key, value in topology.p2p.items() if key[0] in own and key[1] in own
    }
    return Topology(
        name=topology.name, nodes=nodes, links=links, hosts=(topology.hosts[host],), p2p=permissions
    )


def _structure(one: Topology) -> object:
    """What equal hosts share: parts, links, permissions; no ids, addresses, serial numbers."""
    seen: Counter[str] = Counter()
    place: dict[str, tuple[str, int]] = {}
    for node in sorted(one.nodes, key=lambda node: (node.kind, node.index)):
        place[node.id] = (node.kind, seen[node.kind])
        seen[node.kind] += 1
    named = ("gpu", "cpu", "nic", "net")
    nodes = sorted(
        (
            *place[node.id],
            node.index,
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
