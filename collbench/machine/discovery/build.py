"""Recordings as a graph: GPUs in CUDA's order, switches, host bridges, NUMA nodes, NICs, and
links with rates. Pure: no system call is made here.

The PCIe tree decides how far things are apart. What a recording lacks is
left out, or has no rate.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from collbench.core.errors import UsageError
from collbench.core.grouping import grouped
from collbench.machine.discovery import _host
from collbench.machine.discovery.recording import Recording
from collbench.machine.topology.hosts import equal_hosts
from collbench.machine.topology.model import P2P_ACCESS, P2P_MEANINGS, Link, Node, Topology

_P2P_STATUSES = tuple(P2P_MEANINGS)


def topology_of(recordings: Sequence[Recording]) -> Topology:
    """One graph of all hosts, in the order given. Raises UsageError if there is none."""
    if not recordings:
        raise UsageError("there is no recording to make a topology of")
    nodes: list[Node] = []
    links: list[Link] = []
    notes: list[tuple[int, str]] = []
    p2p: dict[tuple[str, str, str], str] = {}
    names = tuple(
        recording.hostname or f"host{number}" for number, recording in enumerate(recordings)
    )
    fabrics = _shared_fabrics(recordings)
    for host, recording in enumerate(recordings):
        first = {
            kind: sum(node.kind == kind for node in nodes)
            for kind in ("gpu", "cpu", "root", "nic", "nvswitch")
        }
        draft = _host.draft_host(recording, host, first, fabrics.get(recording.domain, ""))
        known = {node.id for node in nodes}  # a switch that hosts share
        nodes += [node for node in draft.nodes if node.id not in known]
        links += draft.links
        notes += [(host, note) for note in draft.notes]
        p2p |= _p2p(recording, draft.gpu_ids)
    if len(recordings) > 1:
        _join(nodes, links, notes)
    topology = Topology(
        name=names[0] if len(names) == 1 else f"{len(names)} hosts",
        nodes=tuple(nodes),
        links=tuple(links),
        hosts=names,
        p2p=p2p,
    )
    return replace(topology, notes=tuple(_with_hosts(notes, names, equal_hosts(topology))))


def _with_hosts(
    notes: Sequence[tuple[int, str]], names: Sequence[str], equal: Sequence[Sequence[int]]
) -> Iterator[str]:
    """Notes with the hosts that they are about, each text once; then which hosts are equal."""
    for note, hosts in grouped((note, host) for host, note in notes).items():
        if len(names) == 1 or -1 in hosts:
            yield note
        elif len(hosts) == len(names):
            yield f"all hosts: {note}"
        else:
            yield f"{', '.join(names[host] for host in hosts)}: {note}"
    for group in equal:
        if len(group) > 1:
            hosts_text = ", ".join(names[host] for host in group)
            yield f"{hosts_text} are equal, apart from names and addresses"


def _join(nodes: list[Node], links: list[Link], notes: list[tuple[int, str]]) -> None:
    """Plug the NICs of several hosts that are up into one network for each kind of link."""
    networks: dict[str, str] = {}
    for node in [one for one in nodes if one.kind == "nic" and one.fact("up") == "yes"]:
        layer = node.fact("layer") or "Ethernet"
        if layer not in networks:
            networks[layer] = f"net{len(networks)}"
            nodes.append(Node(id=networks[layer], kind="net", name=layer, host=-1))
        rate = float(node.fact("gbps")) / 8 if node.fact("gbps") else None
        source = f"{node.fact('gbps')} Gb/s, as the kernel tells" if rate else ""
        links.append(
            Link(
                a=node.id,
                b=networks[layer],
                kind="network",
                raw_gbs=rate,
                usable_gbs=rate,
                source=source,
            )
        )
    if networks:
        note = (
            "what is between the hosts is not known: NICs of one kind that are up are drawn as one"
            " network"
        )
        notes.append((-1, note))


def _p2p(recording: Recording, gpu_ids: dict[int, str]) -> dict[tuple[str, str, str], str]:
    """P2P codes of all pairs that are in the graph; a divided GPU has no P2P."""
    divided = {gpu.index for gpu in recording.gpus if gpu.has_mig}
    statuses = {}
    for pair in recording.pairs:
        if pair.a in gpu_ids and pair.b in gpu_ids:
            for what in P2P_ACCESS:
                status: int | None = getattr(pair, what)
                is_known = status is not None and 0 <= status < len(_P2P_STATUSES)
                code = _P2P_STATUSES[status] if status is not None and is_known else "U"
                if code == "OK" and {pair.a, pair.b} & divided:
                    code = "NS"
                statuses[gpu_ids[pair.a], gpu_ids[pair.b], what] = code
    return statuses


def _shared_fabrics(recordings: Sequence[Recording]) -> dict[tuple[str, int] | None, str]:
    """Ids of the switches that several hosts hang on, by fabric."""
    hosts = Counter(recording.domain for recording in recordings if recording.domain)
    shared = [domain for domain, count in hosts.items() if count > 1]
    return {domain: f"fabric{number}" for number, domain in enumerate(shared)}
