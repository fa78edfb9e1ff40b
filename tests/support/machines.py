"""Machines written by hand, for the views: machines.toml."""

import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.topology.rates import nvlink_link, pcie_link

FILE = tomllib.loads(Path(__file__).with_name("machines.toml").read_text())


def _node(line: str) -> Node:
    identity, kind, *words = shlex.split(line)
    values: dict[str, Any] = dict(word.split("=", 1) for word in words)
    facts = tuple((key, values.pop(key)) for key in ("driver",) if key in values)
    numbers = {key: int(values.pop(key)) for key in ("index", "host") if key in values}
    return Node(id=identity, kind=kind, facts=facts, **numbers, **values)  # type: ignore[arg-type]


def _link(line: str) -> Link:
    a, b, kind, *numbers = line.split()
    if kind == "pcie":
        return pcie_link(a, b, int(numbers[0]), int(numbers[1]))
    if kind == "nvlink":
        return nvlink_link(a, b, int(numbers[0]), int(numbers[1]))
    if kind == "network":
        raw, usable = map(float, numbers)
        return Link(a=a, b=b, kind="network", raw_gbs=raw, usable_gbs=usable, source="200 Gb/s")
    source = "NCCL's figure for Skylake" if numbers else ""
    gbs = float(numbers[0]) if numbers else None
    return Link(a=a, b=b, kind="socket", usable_gbs=gbs, source=source)


def _machine(name: str) -> Topology:
    told = FILE[name]
    return Topology(
        name=told["name"],
        nodes=tuple(map(_node, told["nodes"].splitlines())),
        links=tuple(map(_link, told["links"].splitlines())),
        hosts=tuple(told["hosts"]),
        notes=tuple(told["notes"]),
    )


def dgx1v() -> Topology:
    """8 x V100 in a hybrid cube mesh; at each of two sockets two PCIe switches, each with a root
    port above it, and behind it two GPUs and a NIC.
    """
    return _machine("dgx1v")


_LINKS = [link for link in dgx1v().links if link.kind == "nvlink"]
# how many by GPU pairs
CUBE_MESH = {(int(link.a[3:]), int(link.b[3:])): link.count for link in _LINKS}


def two_hosts(hosts: int = 2) -> Topology:
    """Hosts of 2 GPUs with NVLink between them and one NIC each; ids carry the host."""
    one, nodes, links = _machine("host"), list[Node](), list[Link]()
    for host in range(hosts):
        prefix = f"h{host}." if host else ""
        ids = {node.id: node.id if node.kind == "net" else prefix + node.id for node in one.nodes}
        own = [node for node in one.nodes if node.kind != "net" or not host]
        nodes += [replace(node, id=ids[node.id], host=min(node.host, 0) or host) for node in own]
        links += [replace(link, a=ids[link.a], b=ids[link.b]) for link in one.links]
    names = tuple(f"node{host + 1}" for host in range(hosts))
    return replace(one, nodes=tuple(nodes), links=tuple(links), hosts=names)


def laptop() -> Topology:
    """No GPU: a processor and a NIC."""
    return _machine("laptop")


def unknown_rates() -> Topology:
    """Two sockets of whose links nobody told a rate; the NUMA node of nothing is known."""
    return _machine("unknown_rates")
