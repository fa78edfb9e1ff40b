"""Described machines, from profiles/machines/*.toml: their links, each with its source.
Not what was measured on them.

A profile's [topology] says how one host is wired. Rates come from collbench.machine.topology.rates
by generation and width; a profile states one only where a document states it of that very link. No
profile holds what collectives reach there: that is what the links are compared with. Every table
needs a `source`; keys other than these are refused:

    [topology]          title (required); hosts = 1 (that many, all alike);
                        notes = ["what a reader must know", ...];
                        board = "hgx-h200" (the machine of which this is one maker's or cloud's)
    [topology.gpu]      count (of a host); name; sm = 70 (compute capability), or of AMD
                        gfx = "gfx942"
    [topology.cpu]      name; vendor, family, model (as CPUID says; vendor is ARM or IBM
                        elsewhere); affinity = {cpu0 = "0-19,40-59"}
    [topology.nic]      name; gbits (of a port)
    [topology.pcie]     generation; lanes = 16;
                        tree = ["cpu0 > root0 > pci0 > gpu0 gpu1 nic0", "cpu0 > gpu2:3x8"]
                        From parent to children; :3x8 is generation and lanes of the link above
                        where they differ; pci: a switch, root: a host bridge, needed only where
                        a CPU has several.
    [topology.nvlink]   generation; pairs = ["0-1 0-3x2", ...] (GPU numbers, and how many links), or
                        switch_links = 18 (of each GPU to NVSwitches, drawn as one),
                        switch_name, joins_hosts = false (true: one domain);
                        cpu_pairs = ["gpu0-cpu0x2", ...] (POWER)
    [topology.xgmi]     AMD's links: pairs = ["0-1x4 0-2", ...], or mesh = true (one between every
                        two); rates are by gfx
    [topology.c2c]      pairs = ["gpu0-cpu0", ...]; raw_gbs, usable_gbs (per direction)
    [topology.socket]   pairs = ["cpu0-cpu1", ...], or mesh = true (every two); raw_gbs,
                        usable_gbs (otherwise by the CPU's vendor, family and model)
    [topology.p2p]      status = "NS" (what nvidia-smi topo -p2p prints of every pair)

Numbers of nodes count on from host to host: gpu4 is GPU 0 of the second of two hosts with 4 GPUs
each.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from collbench.core import catalog
from collbench.core.errors import UsageError
from collbench.machine.topology import rates
from collbench.machine.topology.gpu_models import AMD
from collbench.machine.topology.model import (
    P2P_ACCESS,
    Link,
    LinkKind,
    Node,
    NodeKind,
    Topology,
    facts_of,
)
from collbench.machine.topology.profile_table import ProfileTable

_TABLES = ("gpu", "cpu", "nic", "pcie", "nvlink", "xgmi", "c2c", "socket", "p2p")
_PLACE = re.compile(r"(cpu|root|pci|gpu|nic)(\d{1,4})(?::([1-6])x(1|2|4|8|12|16|32))?", re.ASCII)
_PAIR = re.compile(r"(gpu|cpu|)(\d{1,4})-(gpu|cpu|)(\d{1,4})(?:x([1-9]\d?))?", re.ASCII)
_MAY_HOLD = {
    "cpu": ("root", "pci", "gpu", "nic"),
    "root": ("pci", "gpu", "nic"),
    "pci": ("pci", "gpu", "nic"),
}
_ORDER: tuple[NodeKind, ...] = ("gpu", "nvswitch", "nic", "pci", "root", "cpu", "net")
_MOST_GPUS = 4096


def machine_topology(name: str) -> Topology:
    """The links of a machine: a shipped profile by its name, or any file by its path. Raises
    UsageError for what is missing or wrong in it.

    >>> machine = machine_topology("dgx-1v")
    >>> (
    ...     len(machine.gpus),
    ...     sum(link.count for link in machine.links_of["gpu0"] if link.kind == "nvlink"),
    ... )
    (8, 6)
    """
    profile = catalog.load("machines", name)
    label = Path(name).stem
    table = profile.get("topology")
    if table is None:
        raise UsageError(
            f"machine profile {label} has no [topology]: it does not say how the machine is wired",
            "choose another machine, or add the table",
        )
    if not isinstance(table, dict):
        raise UsageError(f"machine profile {label}: topology = {table!r} is not a table")
    top = ProfileTable(where=f"machine profile {label}: [topology]", values=table)
    top.only("title", "hosts", "notes", "board", "source", *_TABLES)
    tables = {key: top.table(key) for key in _TABLES}
    host = _host(tables)
    hosts = top.whole("hosts", 1, _MOST_GPUS, 1)
    if hosts * len(host.of_kind("gpu")) > _MOST_GPUS:
        raise UsageError(f"{top.where} hosts = {hosts}: that makes more than {_MOST_GPUS} GPUs")
    top.text("board", "")
    title, notes = top.text("title"), top.texts("notes", ())
    copies = [_copy(host, number) for number in range(hosts)]
    nodes = [node for copy in copies for node in copy.nodes]
    links = [link for copy in copies for link in copy.links]
    nodes, links = _joined(nodes, links, tables, hosts)
    nodes.sort(key=lambda node: (_ORDER.index(node.kind), node.host, node.index))
    p2p = tables["p2p"]
    p2p.only("status", "source")
    gpus = [node.id for node in nodes if node.kind == "gpu"]
    status = p2p.text("status") if p2p.values else ""
    pairs = [(a, b) for a in gpus for b in gpus if a != b] if status else []
    statuses = {(a, b, what): status for a, b in pairs for what in P2P_ACCESS}
    return Topology(
        name=title,
        nodes=tuple(nodes),
        links=tuple(links),
        hosts=tuple(f"host{number}" for number in range(hosts)) if hosts > 1 else ("",),
        notes=notes,
        p2p=statuses,
    )


def _host(tables: dict[str, ProfileTable]) -> Topology:
    """One host: its nodes and the links inside it, NVSwitches and the network aside."""
    gpu, nvlink = tables["gpu"], tables["nvlink"]
    gpu.only("count", "name", "sm", "gfx", "source")
    count = gpu.whole("count", 1, 256)
    is_amd = "gfx" in gpu.values
    facts = facts_of(
        {"vendor": AMD, "gcn": gpu.text("gfx")} if is_amd else {"sm": gpu.whole("sm", 10, 999)}
    )
    nodes = {
        f"gpu{number}": Node(
            id=f"gpu{number}", kind="gpu", name=gpu.text("name"), index=number, facts=facts
        )
        for number in range(count)
    }
    tree = list(_tree(tables["pcie"], count))
    cpus = sorted({link.b for link in tree if link.b.startswith("cpu")}, key=_parts)
    links = [
        *tree,
        *_nvlinks(nvlink, count, cpus),
        *_xgmi(tables["xgmi"], count, gpu.text("gfx") if is_amd else ""),
        *_stated(tables, count, cpus),
    ]
    templates = {"cpu": _cpu_template(tables["cpu"]), "nic": _nic_template(tables["nic"])}
    linked = dict.fromkeys(end for link in links for end in (link.a, link.b))
    for end in linked:
        kind, number = _parts(end)
        if kind != "gpu":
            nodes[end] = replace(templates.get(kind, Node(id="", kind=kind)), id=end, index=number)
    affinity = tables["cpu"].mapping("affinity")
    if lost := sorted(set(affinity) - set(nodes)):
        raise UsageError(
            f"{tables['cpu'].where} affinity names {', '.join(lost)}, which the machine does not"
            " have"
        )
    lonely = [name for name in nodes if name not in linked]
    if lonely and "switch_links" not in nvlink.values:
        raise UsageError(f"{gpu.where} count = {count}: nothing is wired to {', '.join(lonely)}")
    for name in list(nodes):
        near = _cpu_of(links, name)
        nodes[name] = replace(nodes[name], affinity=affinity.get(near, ""))
    return Topology(name="host", nodes=tuple(nodes.values()), links=tuple(links))


def _cpu_of(links: list[Link], name: str) -> str:
    """The CPU above a node of the PCIe tree, or at the other end of its C2C or NVLinks; nothing if
    there is none. Links of a tree run from child to parent.
    """
    while name and not name.startswith("cpu"):
        name = next(
            (
                link.b
                for link in links
                if link.a == name and (link.kind in ("pcie", "c2c") or link.b.startswith("cpu"))
            ),
            "",
        )
    return name


def _cpu_template(table: ProfileTable) -> Node:
    """The properties that all CPUs share."""
    table.only("name", "vendor", "family", "model", "affinity", "source")
    if not table.values:
        return Node(id="", kind="cpu")
    facts = {"vendor": table.text("vendor", "")} | {
        f"{key}id": str(table.whole(key, 0, 1 << 16))
        for key in ("family", "model")
        if key in table.values
    }
    return Node(id="", kind="cpu", name=table.text("name"), facts=facts_of(facts))


def _nic_template(table: ProfileTable) -> Node:
    """The properties that all NICs share."""
    table.only("name", "gbits", "source")
    if not table.values:
        return Node(id="", kind="nic")
    facts = facts_of({"speed": table.whole("gbits", 1, 10_000) * 1000})
    return Node(id="", kind="nic", name=table.text("name"), facts=facts)


class _Above(NamedTuple):
    """The link above a node of the PCIe tree."""

    parent: str
    generation: int
    lanes: int


def _tree(table: ProfileTable, gpus: int) -> Iterator[Link]:
    """The links of the PCIe tree, each from child to parent."""
    table.only("generation", "lanes", "tree", "source")
    if not table.values:
        return
    generation, lanes = table.whole("generation", 1, 6), table.whole("lanes", 1, 32, 16)
    above: dict[str, _Above] = {}
    for line in table.texts("tree"):
        parent = ""
        levels = [level.split() for level in line.split(">")]
        for depth, level in enumerate(levels):
            is_last = depth == len(levels) - 1
            if not level or (len(level) > 1 and not is_last) or len(levels) < 2:
                raise UsageError(
                    f"{table.where} tree: '{line}' is not parent > ... > children",
                    "write it as in cpu0 > pci0 > gpu0 gpu1",
                )
            for text in level:
                match = _PLACE.fullmatch(text)
                if match is None:
                    raise UsageError(
                        f"{table.where} tree: '{text}' in '{line}' is no cpu, root, pci, gpu or nic"
                        " with a number",
                        "a width is written gpu0:3x8",
                    )
                kind, name = match[1], f"{match[1]}{int(match[2])}"
                if (
                    (kind == "cpu") != (not parent)
                    or (parent and kind not in _MAY_HOLD[_parts(parent)[0]])
                    or is_last != (kind in ("gpu", "nic"))
                ):
                    raise UsageError(
                        f"{table.where} tree: {name} cannot stand where it does in '{line}'",
                        "cpu > root > pci > gpu or nic",
                    )
                if kind == "gpu" and int(match[2]) >= gpus:
                    raise UsageError(
                        f"{table.where} tree: {name} in '{line}' is not one of {gpus} GPUs"
                    )
                known = above.get(name)
                if parent and known is not None and known.parent != parent:
                    raise UsageError(
                        f"{table.where} tree: {name} hangs below {known.parent} and below {parent}"
                    )
                if parent and (known is None or match[3]):
                    above[name] = _Above(
                        parent, int(match[3] or generation), int(match[4] or lanes)
                    )
            parent = name  # of a level that others follow: its only node
    for name, here in above.items():
        note = ""
        if _parts(name)[0] == "root":
            below = [one for one in above.values() if one.parent == name]
            generation = max(one.generation for one in below)
            here = _Above(here.parent, generation, sum(one.lanes for one in below))
            note = "inside the CPU: all lanes of its bridge"
        yield rates.pcie_link(name, here.parent, here.generation, here.lanes, note)


def _nvlinks(table: ProfileTable, gpus: int, cpus: list[str]) -> Iterator[Link]:
    """NVLinks from GPUs to GPUs and CPUs."""
    table.only(
        "generation", "pairs", "switch_links", "switch_name", "joins_hosts", "cpu_pairs", "source"
    )
    if not table.values:
        return
    generation = table.whole("generation", 1, 5)
    if ("pairs" in table.values) == ("switch_links" in table.values):
        raise UsageError(f"{table.where} must have either pairs or switch_links")
    for a, b, links in _pairs(table, gpus):
        yield rates.nvlink_link(a, b, generation, links)
    for a, b, links in _pairs(table, gpus, "cpu_pairs", ("gpu", "cpu")):
        if b not in cpus:
            raise UsageError(f"{table.where} cpu_pairs: {b} is no CPU of the tree")
        yield rates.nvlink_link(a, b, generation, links)


def _xgmi(table: ProfileTable, gpus: int, gfx: str) -> Iterator[Link]:
    """AMD's links from GPU to GPU."""
    table.only("pairs", "mesh", "source")
    if not table.values:
        return
    if not gfx or ("pairs" in table.values) == table.truth("mesh"):
        raise UsageError(f"{table.where} must have either pairs or mesh = true, and the GPUs a gfx")
    if table.truth("mesh"):
        for a, b in combinations(range(gpus), 2):
            yield rates.xgmi_link(f"gpu{a}", f"gpu{b}", gfx, 1)
    for one, other, links in _pairs(table, gpus):
        yield rates.xgmi_link(one, other, gfx, links)


def _pairs(
    table: ProfileTable, gpus: int, key: str = "pairs", kinds: tuple[str, str] = ("gpu", "gpu")
) -> Iterator[tuple[str, str, int]]:
    """Pairs of nodes, and how many links they have. A number alone is a GPU's."""
    seen: set[frozenset[str]] = set()
    for text in " ".join(table.texts(key, ())).split():
        match = _PAIR.fullmatch(text)
        ends = (
            [(match[1] or "gpu", int(match[2])), (match[3] or "gpu", int(match[4]))]
            if match
            else []
        )
        pair = frozenset(f"{kind}{number}" for kind, number in ends)
        is_there = all(kind == "cpu" or number < gpus for kind, number in ends)
        if not match or tuple(kind for kind, _ in ends) != kinds or len(pair) < 2 or not is_there:
            raise UsageError(
                f"{table.where} {key}: '{text}' does not join a {kinds[0]} and a {kinds[1]} of a"
                f" machine with {gpus} GPUs",
                "write 0-1 for two GPUs, 0-1x2 for two links of theirs, or gpu0-cpu0",
            )
        if pair in seen:
            raise UsageError(f"{table.where} {key}: '{text}' comes twice")
        seen.add(pair)
        (a, first), (b, last) = sorted(ends) if kinds == ("gpu", "gpu") else ends
        yield f"{a}{first}", f"{b}{last}", int(match[5] or 1)


def _stated(tables: dict[str, ProfileTable], gpus: int, cpus: list[str]) -> Iterator[Link]:
    """C2C and links between sockets."""
    kinds: dict[LinkKind, tuple[str, str]] = {"c2c": ("gpu", "cpu"), "socket": ("cpu", "cpu")}
    for kind, ends in kinds.items():
        table = tables[kind]
        table.only(
            "pairs", "raw_gbs", "usable_gbs", "source", *(["mesh"] if kind == "socket" else [])
        )
        if not table.values:
            continue
        raw, usable, source = table.rate("raw_gbs"), table.rate("usable_gbs"), table.text("source")
        cpu = tables["cpu"]
        if kind == "socket" and usable is None and cpu.values.get("vendor"):
            known = rates.socket(
                cpu.text("vendor"),
                cpu.whole("family", -1, 1 << 16, -1),
                cpu.whole("model", -1, 1 << 16, -1),
            )
            usable, source = known if known else (None, source)
        if table.truth("mesh"):
            pairs = [(a, b, 1) for a, b in combinations(cpus, 2)]
        else:
            table.texts("pairs")  # it must have them
            pairs = list(_pairs(table, gpus, kinds=ends))
        for a, b, _ in pairs:
            yield Link(a=a, b=b, kind=kind, raw_gbs=raw, usable_gbs=usable, source=source)


def _joined(
    nodes: list[Node], links: list[Link], tables: dict[str, ProfileTable], hosts: int
) -> tuple[list[Node], list[Link]]:
    """Hosts with their NVSwitches and, if they are several, the network between them."""
    nvlink, nic = tables["nvlink"], tables["nic"]
    if "switch_links" in nvlink.values:
        generation, count = nvlink.whole("generation", 1, 5), nvlink.whole("switch_links", 1, 64)
        is_one = nvlink.truth("joins_hosts")
        name = nvlink.text("switch_name", "NVSwitch")
        switches = [
            Node(
                id=f"nvswitch{one}",
                kind="nvswitch",
                name=name,
                index=one,
                host=-1 if is_one and hosts > 1 else one,
            )
            for one in range(1 if is_one else hosts)
        ]
        links = links + [
            rates.nvlink_link(node.id, switches[0 if is_one else node.host].id, generation, count)
            for node in nodes
            if node.kind == "gpu"
        ]
        nodes = nodes + switches
    elif {"switch_name", "joins_hosts"} & set(nvlink.values):
        raise UsageError(f"{nvlink.where} has switch_name or joins_hosts without switch_links")
    cards = [node for node in nodes if node.kind == "nic"]
    if cards and not nic.values:
        raise UsageError(f"{nic.where} is missing, and the tree has {cards[0].id}")
    if cards and hosts > 1:
        raw = nic.whole("gbits", 1, 10_000) / 8
        to_net = Link(
            a="", b="net0", kind="network", raw_gbs=raw, usable_gbs=raw, source=nic.text("source")
        )
        links = links + [replace(to_net, a=node.id) for node in cards]
        nodes = [*nodes, Node(id="net0", kind="net", name="network", index=0, host=-1)]
    return nodes, links


def _copy(host: Topology, number: int) -> Topology:
    """The host again, with numbers that count on."""
    size = {
        kind: max((node.index for node in host.of_kind(kind)), default=-1) + 1 for kind in _ORDER
    }
    new = {node.id: f"{node.kind}{node.index + number * size[node.kind]}" for node in host.nodes}
    return replace(
        host,
        nodes=tuple(replace(node, id=new[node.id], host=number) for node in host.nodes),
        links=tuple(replace(link, a=new[link.a], b=new[link.b]) for link in host.links),
    )


def _parts(name: str) -> tuple[NodeKind, int]:
    """The kind and the number of an id."""
    kind = next(kind for kind in _ORDER if name.rstrip("0123456789") == kind)
    return kind, int(name[len(kind) :])


def has_links(name: str) -> bool:
    """Whether a profile says how its GPUs are wired. Raises UsageError if there is no such profile.

    >>> has_links("dgx-1v"), has_links("cpu-2")
    (True, False)
    """
    return "topology" in catalog.load("machines", name)
