"""Our own JSON of a topology: every field of the model, in a stable order, so that equal topologies
are equal bytes.

An object with format, version, name, hosts, notes, nodes (the fields of Node, facts as an object),
links (the fields of Link) and p2p (a, b, what: read, write, atomics or nvlink, and status).
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_type_hints

from collbench.core.errors import UsageError
from collbench.core.reading import parse_json
from collbench.machine.formats._build import MAX_NODES
from collbench.machine.topology.model import P2P, Facts, Link, LinkKind, Node, NodeKind, Topology

FORMAT, VERSION = "collbench-topology", 1
_FORMAT_KEY = re.compile(rf'"format"\s{{0,99}}:\s{{0,99}}"{FORMAT}"')
_MAX_LINKS = 1 << 18
_MAX_JSON_CHARS = 48 << 20  # of as many nodes and links as are allowed
# Types of the model's fields that are others in JSON.
_JSON_TYPES: dict[object, type] = {NodeKind: str, LinkKind: str, float | None: float, Facts: dict}
_NODE_FIELDS = {key: _JSON_TYPES.get(hint, hint) for key, hint in get_type_hints(Node).items()}
_LINK_FIELDS = {key: _JSON_TYPES.get(hint, hint) for key, hint in get_type_hints(Link).items()}
_TOPOLOGY_FIELDS = {"format": str, "version": int, "name": str} | dict.fromkeys(
    ("hosts", "notes", "nodes", "links", "p2p"), list
)
_P2P_FIELDS = {"a": str, "b": str, "what": str, "status": str}
_JSON_TYPE_NAMES = {
    str: "a string",
    int: "a whole number",
    float: "a number, or null",
    dict: "an object of strings",
    list: "a list",
}


def is_mine(text: str) -> bool:
    """Whether that is our JSON of a topology."""
    return text.lstrip().startswith("{") and _FORMAT_KEY.search(text) is not None


def encoded(topology: Topology) -> dict[str, object]:
    """What the file has."""
    return json.loads(write(topology))  # type: ignore[no-any-return]


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
    value = {
        "format": FORMAT,
        "version": VERSION,
        "name": topology.name,
        "hosts": topology.hosts,
        "notes": topology.notes,
        "nodes": [
            {key: getattr(node, key) for key in _NODE_FIELDS} | {"facts": dict(node.facts)}
            for node in topology.nodes
        ],
        "links": [{key: getattr(link, key) for key in _LINK_FIELDS} for link in topology.links],
        "p2p": [
            {"a": a, "b": b, "what": what, "status": status}
            for (a, b, what), status in sorted(topology.p2p.items())
        ],
    }
    return json.dumps(value, indent=1) + "\n"


def read(text: str, name: str) -> Topology:
    """The topology of a file. Raises UsageError with line and column, or the path of the value,
    such as nodes[3].kind.
    """
    value = parse_json(text, name, _MAX_JSON_CHARS)
    if isinstance(value, dict) and "data" in value:  # as `topo --json` writes it
        value = value["data"]
    try:
        return _topology(value)
    except _WrongError as error:
        raise UsageError(f"{name}: {error}") from None


class _WrongError(Exception):
    """A value is not what it must be."""


def _topology(value: object) -> Topology:
    fields = _object(value, "", _TOPOLOGY_FIELDS)
    if fields["format"] != FORMAT or fields["version"] != VERSION:
        other = f"{fields['format']:.40} {fields['version']!s:.10}"
        raise _WrongError(f"format and version are {other}, not {FORMAT} {VERSION}")
    hosts, notes = _strings(fields["hosts"], "hosts"), _strings(fields["notes"], "notes")
    nodes = tuple(
        _node(node, f"nodes[{place}]", len(hosts))
        for place, node in enumerate(_bounded(fields["nodes"], "nodes", MAX_NODES))
    )
    links = tuple(
        _link(link, f"links[{place}]")
        for place, link in enumerate(_bounded(fields["links"], "links", _MAX_LINKS))
    )
    gpus = {node.id for node in nodes if node.kind == "gpu"}
    p2p = dict(
        _p2p(entry, f"p2p[{place}]", gpus)
        for place, entry in enumerate(_bounded(fields["p2p"], "p2p", _MAX_LINKS))
    )
    return Topology(
        name=fields["name"], nodes=nodes, links=links, hosts=hosts, notes=notes, p2p=p2p
    )


def _node(value: object, place: str, hosts: int) -> Node:
    fields = _object(value, place, _NODE_FIELDS)
    _check_choice(fields["kind"], f"{place}.kind", get_args(NodeKind))
    if not -1 <= fields["host"] < hosts:
        raise _WrongError(f"{place}.host is {fields['host']}, which is none of the {hosts} hosts")
    strings = _strings(list(fields["facts"].values()), f"{place}.facts")
    return Node(**{**fields, "facts": tuple(zip(fields["facts"], strings, strict=True))})


def _link(value: object, place: str) -> Link:
    fields = _object(value, place, _LINK_FIELDS)
    _check_choice(fields["kind"], f"{place}.kind", get_args(LinkKind))
    for key in ("count", "generation"):
        if fields[key] < 0:
            raise _WrongError(f"{place}.{key} is negative")
    rates = {key: _rate(fields[key], f"{place}.{key}") for key in ("raw_gbs", "usable_gbs")}
    return Link(**{**fields, **rates})


def _p2p(value: object, place: str, gpus: set[str]) -> tuple[tuple[str, str, str], str]:
    fields = _object(value, place, _P2P_FIELDS)
    for end in ("a", "b"):
        if fields[end] not in gpus:
            raise _WrongError(
                f"{place}.{end} is '{fields[end]:.40}', which is no GPU among the nodes"
            )
    _check_choice(fields["what"], f"{place}.what", P2P)
    return (fields["a"], fields["b"], fields["what"]), fields["status"]


def _check_choice(value: str, place: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise _WrongError(f"{place} is '{value:.40}', not one of {', '.join(choices)}")


# Any: values of JSON, each of the type that `types` names
def _object(value: object, place: str, types: Mapping[str, type]) -> dict[str, Any]:
    """An object with exactly those keys, each of its type (float: a number or null)."""
    if not isinstance(value, dict):
        raise _WrongError(f"{place or 'the file'} is no object")
    before = f"{place}." if place else ""
    for key, type_ in types.items():
        if key not in value:
            raise _WrongError(f"{before}{key} is missing")
        member = value[key]
        fits = (
            member is None or isinstance(member, int | float)
            if type_ is float
            else isinstance(member, type_)
        )
        if not fits or isinstance(member, bool):
            raise _WrongError(f"{before}{key} is not {_JSON_TYPE_NAMES[type_]}")
        if isinstance(member, str) and not member.isprintable():
            raise _WrongError(f"{before}{key} holds control characters")
    unknown = [str(key) for key in value if key not in types]
    if unknown:
        raise _WrongError(f"{before}{unknown[0]:.40} is unknown to version {VERSION}")
    return value


def _bounded(items: list[object], place: str, most: int) -> list[object]:
    if len(items) > most:
        raise _WrongError(f"{place} has more than {most} entries")
    return items


def _strings(items: list[object], place: str) -> tuple[str, ...]:
    for number, one in enumerate(_bounded(items, place, MAX_NODES)):
        if not isinstance(one, str) or not one.isprintable():
            raise _WrongError(f"{place}[{number}] is not a string without control characters")
    return tuple(map(str, items))


def _rate(value: float | None, place: str) -> float | None:
    # comparing is exact for whole numbers that are too large for a float
    if value is not None and not 0 < value < 1e9:
        raise _WrongError(f"{place} is {value!s:.20}, no rate in GB/s")
    return None if value is None else float(value)
