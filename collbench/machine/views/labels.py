"""What the views of a topology share: what its parts are called, which hosts are alike, and the
colours of classes and links.

Views are pure: a topology in, lines out. What is painted goes through a function of the text and a
class or kind, which the command line makes from COLOURS where colour is on, and which otherwise
returns the text.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from collbench.core.units import format_rate
from collbench.machine.topology.hosts import equal_hosts, part
from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.topology.paths import Path, path
from collbench.machine.topology.rates import link_label

Paint = Callable[[str, str], str]
UNKNOWN = "unknown"
# Of classes of paths and kinds of links, as terminals name them: green is near, red is far.
COLOURS = {
    "NVL": "bright_green",
    "XGMI": "bright_green",
    "NVB": "green",
    "C2C": "bright_cyan",
    "PIX": "cyan",
    "PXB": "bright_blue",
    "PHB": "blue",
    "NODE": "yellow",
    "SYS": "red",
    "NET": "magenta",
    "nvlink": "bright_green",
    "xgmi": "bright_green",
    "c2c": "bright_cyan",
    "pcie": "cyan",
    "socket": "red",
    "network": "magenta",
    "OK": "green",
    "not OK": "red",
}
UNTOLD = "?"
CLASSES = {
    "X": "the same device",
    "NV#": "# NVLinks bonded, directly or through NVSwitches",
    "NVL": "NVLinks, their number unknown",
    "XGMI": "AMD's links between GPUs (xGMI, Infinity Fabric)",
    "NVB": "NVLinks or xGMI through another GPU",
    "C2C": "NVLink-C2C between a GPU and its CPU",
    "PIX": "PCIe, one switch at most",
    "PXB": "PCIe, several switches, no host bridge",
    "PHB": "PCIe and one host bridge, typically the CPU",
    "NODE": "PCIe and several host bridges of one NUMA node",
    "SYS": "PCIe and the link between NUMA nodes",
    "NET": "NICs and the network between hosts",
    "DIS": "no way is known",
    UNTOLD: "assumed: no row tells this class, or two rows tell different ones",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Hosts wired alike: their numbers, their names, and the first one as a topology."""

    hosts: tuple[int, ...]
    names: tuple[str, ...]
    part: Topology


def plain(text: str, _kind: str) -> str:
    """The paint of a pipe."""
    return text


def label(topology: Topology, name: str) -> str:
    """What a node is called: as nvidia-smi does, with the host before it where several hosts have
    one of that name.

    >>> label(Topology(name="one", nodes=(Node(id="gpu3", kind="gpu", index=3),), links=()), "gpu3")
    'GPU3'
    """
    return labels(topology)[name]


def class_label(topology: Topology, way: Path) -> str:
    """The class of a way; with a mark where no row of a matrix told it."""
    is_untold = way.b in topology.by_id[way.a].fact("untold").split()
    return f"{way.label}{UNTOLD * (is_untold and way.label not in ('X', 'DIS'))}"


@lru_cache(maxsize=64)
def labels(topology: Topology) -> dict[str, str]:
    """What every node is called, by its id."""
    short = {node.id: _short(topology, node) for node in topology.nodes}
    count = Counter(short.values())
    hosts = topology.hosts
    prefix = {
        node.id: f"{hosts[node.host]} "
        for node in topology.nodes
        if len(hosts) > 1 and 0 <= node.host < len(hosts)
    }
    return {
        name: (prefix.get(name, "") if count[text] > 1 else "") + text
        for name, text in short.items()
    }


def _short(topology: Topology, node: Node) -> str:
    if node.kind in ("gpu", "nic", "cpu"):
        if node.index < 0:  # an id is the kind and a number then
            return node.id.upper() if node.id.removeprefix(node.kind).isdecimal() else node.id
        return f"{node.kind.upper()}{node.index}"
    if node.kind == "nvswitch":
        if len(topology.of_kind("nvswitch")) == 1:
            return "NVSwitch"
        return f"NVSwitch {node.index if node.index >= 0 else node.id.removeprefix('nvswitch')}"
    if node.kind == "net":
        return node.name or "network"
    return f"{'PCIe switch' if node.kind == 'pci' else 'host bridge'} {node.address or node.id}"


MOST_DEVICES = 256  # in views with a cell or a line for every pair


def left_out(count: int, what: str) -> list[str]:
    """What a view says of things that it does not show.

    >>> left_out(0, "device"), left_out(744, "device")
    ([], ['744 devices are left out: --json and --tree have all.'])
    """
    if not count:
        return []
    are = f"{what}s are" if count > 1 else f"{what} is"
    return [f"{count} {are} left out: --json and --tree have all."]


def ends(topology: Topology) -> tuple[Node, ...]:
    """What the matrix is about: GPUs, then NICs, by host and number."""
    nics = sorted(topology.of_kind("nic"), key=lambda node: (node.host, node.index))
    return (*topology.gpus, *nics)


def rate_text(gbs: float | None) -> str:
    """A rate, or the word for an unknown one.

    >>> rate_text(12.0), rate_text(364.5), rate_text(None)
    ('12.0', '364.5', 'unknown')
    """
    if gbs is None:
        return UNKNOWN
    return f"{gbs:.1f}" if 1 <= gbs < 1000 else format_rate(gbs)


def hop(topology: Topology, way: Path) -> str:
    """The link that limits a way, in its direction: `GPU2 -> GPU3, PCIe 4.0 x16`; `unknown` if a
    rate of the way is.
    """
    limit = way.limit
    if limit is None:
        return UNKNOWN
    place = next(number for number, link in enumerate(way.links) if link is limit)
    return (
        f"{label(topology, way.nodes[place])} -> {label(topology, way.nodes[place + 1])},"
        f" {link_label(limit)}"
    )


def alike(topology: Topology) -> tuple[Alike, ...]:
    """Hosts that are equal together, in the order of their first."""
    return tuple(
        Alike(
            hosts=group,
            names=tuple(topology.hosts[number] for number in group),
            part=part(topology, group[0]),
        )
        for group in equal_hosts(topology)
    )


def heading(group: Alike) -> str:
    """Which hosts these are, and what GPUs they have: one line."""
    names = [name for name in group.names if name]
    which = names[0] if names else group.part.name
    if len(group.hosts) > 1:
        which = f"{len(group.hosts)} hosts alike: {_short_list(names)}"
    return ": ".join(text for text in (which, gpus_text(group.part)) if text)


def by_host(topology: Topology, view: Callable[[Topology], list[str]]) -> list[str]:
    """A view of each kind of host, below which hosts these are where that needs saying."""
    groups, lines = alike(topology), list[str]()
    for group in groups:
        is_told = len(groups) > 1 or len(group.hosts) > 1
        lines += [*([""] if lines else []), *[heading(group)] * is_told, *view(group.part)]
    return lines


def gpus_text(topology: Topology) -> str:
    """What GPUs a host has, and its driver.

    >>> gpus_text(
    ...     Topology(
    ...         name="two",
    ...         nodes=tuple(Node(id=f"gpu{k}", kind="gpu", name="V100", index=k) for k in (0, 1)),
    ...         links=(),
    ...     )
    ... )
    '2 x V100'
    """
    counts = Counter(node.name or "GPU of unknown model" for node in topology.gpus)
    parts = [", ".join(f"{count} x {name}" for name, count in counts.items()) or "no GPU"]
    drivers = sorted({node.fact("driver") for node in topology.nodes if node.fact("driver")})
    parts += [f"driver {' and '.join(drivers)}"] if drivers else []
    return ", ".join(parts)


def _short_list(names: Sequence[str], most: int = 4) -> str:
    shown = names if len(names) <= most else [*names[: most - 1], "...", names[-1]]
    return ", ".join(shown)


def between(topology: Topology, groups: Iterable[Alike]) -> list[str]:
    """How GPUs of different hosts reach each other, one line for each way that there is."""
    texts: dict[str, None] = {}
    for group in groups:
        start = next((node for node in topology.gpus if node.host == group.hosts[0]), None)
        if start is None:
            continue
        for node in topology.gpus:
            if node.host != start.host:
                way = path(topology, start.id, node.id)
                rate = "rate unknown"
                if way.limit is not None:
                    rate = f"{rate_text(way.usable_gbs)} GB/s ({link_label(way.limit)})"
                text = f"Between hosts: {way.label}, {rate}"
                texts[text if way.links else "Between some hosts: DIS, no way is known"] = None
    return list(texts)


def link_text(link: Link) -> str:
    """A link in words with what it carries."""
    if link.usable_gbs is not None:
        return f"{link_label(link)}, {rate_text(link.usable_gbs)} GB/s"
    return f"{link_label(link)}, rate unknown"


def near_cpus(topology: Topology, name: str) -> tuple[Node, ...]:
    """The NUMA nodes nearest to a device: several if equally near, none if unknown."""
    ways = [path(topology, name, node.id) for node in topology.of_kind("cpu")]
    ways = [way for way in ways if way.kind not in ("DIS", "SYS", "NET")]
    least = min((len(way.links) for way in ways), default=0)
    return tuple(topology.by_id[way.b] for way in ways if len(way.links) == least)
