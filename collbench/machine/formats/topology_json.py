"""Our own JSON of a topology: every field of the model, in a stable order, so that equal topologies
are equal bytes.

An object with format, version, name, hosts, notes, nodes (the fields of Node, facts as an object),
links (the fields of Link) and p2p (a, b, what: read, write, atomics or nvlink, and status); of
`topo --measure --json` also the measured pairs, which are not read again.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from collbench.core.codec import decode, encode
from collbench.core.errors import UsageError
from collbench.core.reading import parse_json
from collbench.machine.formats._build import MAX_NODES
from collbench.machine.topology.model import P2P, Link, Node, Topology

FORMAT, VERSION = "collbench-topology", 1
_FORMAT_KEY = re.compile(rf'"format"\s{{0,99}}:\s{{0,99}}"{FORMAT}"')
_MAX_LINKS = 1 << 18
_MAX_JSON_CHARS = 48 << 20  # of as many nodes and links as are allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Status:
    """What a GPU may do with the memory of another."""

    a: str
    b: str
    what: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    """The file. Nodes are decoded apart: their facts are an object."""

    format: str
    version: int
    name: str
    hosts: tuple[str, ...]
    notes: tuple[str, ...]
    nodes: tuple[Mapping[str, object], ...]
    links: tuple[Link, ...]
    p2p: tuple[_Status, ...]


def is_mine(text: str) -> bool:
    """Whether that is our JSON of a topology."""
    return text.lstrip().startswith("{") and _FORMAT_KEY.search(text) is not None


def encoded(topology: Topology) -> dict[str, object]:
    """What the file has."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": topology.name,
        "hosts": topology.hosts,
        "notes": topology.notes,
        "nodes": [{**encode(node), "facts": dict(node.facts)} for node in topology.nodes],  # type: ignore[dict-item]
        "links": [encode(link) for link in topology.links],
        "p2p": [
            {"a": a, "b": b, "what": what, "status": status}
            for (a, b, what), status in sorted(topology.p2p.items())
        ],
    }


def write(topology: Topology) -> str:
    """The file's text.

    >>> print(write(Topology(name="none", nodes=(), links=())), end="")
    {
     "format": "collbench-topology",
     "version": 1,
     "name": "none",
     "hosts": [
      ""
     ],
     "notes": [],
     "nodes": [],
     "links": [],
     "p2p": []
    }
    """
    return json.dumps(encoded(topology), indent=1) + "\n"


def read(text: str, name: str) -> Topology:
    """The topology of a file. Raises UsageError with line and column, or the path of the value,
    such as nodes[3].kind.
    """
    value = parse_json(text, name, _MAX_JSON_CHARS)
    if isinstance(value, dict) and "data" in value:  # as `topo --json` writes it
        value = value["data"]
        if isinstance(value, dict):
            value.pop("pairs", None)
    _check_texts(value, name)
    document = decode(_Document, value, name)
    if (document.format, document.version) != (FORMAT, VERSION):
        other = f"{document.format:.40} {document.version}"
        raise UsageError(f"{name}: format and version are {other}, not {FORMAT} {VERSION}")
    for key, most in (("nodes", MAX_NODES), ("links", _MAX_LINKS), ("p2p", _MAX_LINKS)):
        if len(getattr(document, key)) > most:
            raise UsageError(f"{name}.{key} has more than {most} entries")
    nodes = tuple(
        _node(node, f"{name}.nodes[{place}]", len(document.hosts))
        for place, node in enumerate(document.nodes)
    )
    for place, link in enumerate(document.links):
        _check_link(link, f"{name}.links[{place}]")
    gpus = {node.id for node in nodes if node.kind == "gpu"}
    for place, one in enumerate(document.p2p):
        if not {one.a, one.b} <= gpus or one.what not in P2P:
            raise UsageError(
                f"{name}.p2p[{place}] is of {one.a:.40}, {one.b:.40} and {one.what:.40}, not of two"
                f" GPUs among the nodes and one of {', '.join(P2P)}"
            )
    return Topology(
        name=document.name,
        nodes=nodes,
        links=document.links,
        hosts=document.hosts,
        notes=document.notes,
        p2p={(one.a, one.b, one.what): one.status for one in document.p2p},
    )


def _check_texts(value: object, place: str) -> None:
    """Raises UsageError for a text that a terminal must not see."""
    if isinstance(value, str) and not value.isprintable():
        raise UsageError(f"{place} holds control characters")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_texts(key, f"a key of {place}")
            _check_texts(inner, f"{place}.{key}")
    if isinstance(value, list):
        for number, inner in enumerate(value):
            _check_texts(inner, f"{place}[{number}]")


def _node(value: Mapping[str, object], place: str, hosts: int) -> Node:
    facts = decode(Mapping[str, str], value.get("facts", {}), f"{place}.facts")  # type: ignore[type-abstract]
    node = decode(Node, {**value, "facts": []}, place)
    if not -1 <= node.host < hosts:
        raise UsageError(f"{place}.host is {node.host}, which is none of the {hosts} hosts")
    return replace(node, facts=tuple(facts.items()))


def _check_link(link: Link, place: str) -> None:
    for key in ("count", "generation"):
        if getattr(link, key) < 0:
            raise UsageError(f"{place}.{key} is negative")
    for key in ("raw_gbs", "usable_gbs"):
        rate: float | None = getattr(link, key)
        if rate is not None and not 0 < rate < 1e9:
            raise UsageError(f"{place}.{key} is {rate:g}, no rate in GB/s")
