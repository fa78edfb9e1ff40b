"""What in a topology cannot be so: remarks, and no rate where it depends on it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from collbench.core.text import listed, some_of
from collbench.core.xml_tree import Element
from collbench.machine.formats._build import arch_of_name
from collbench.machine.formats._nccl_attributes import bus_key
from collbench.machine.topology.gpu_models import has_links
from collbench.machine.topology.model import Node, Topology
from collbench.machine.topology.rates import most_links
from collbench.machine.topology.unnamed import is_amd

_MOST_NAMES = 6


def checked(topology: Topology) -> Topology:
    """The topology with remarks on its contradictions. Links of a GPU that has more of them than
    there are have no rate.
    """
    crowded = dict(_crowded(topology))
    links = tuple(
        replace(link, usable_gbs=None, raw_gbs=None, source="")
        if link.kind == "nvlink" and {link.a, link.b} & crowded.keys()
        else link
        for link in topology.links
    )
    notes = [*_crowds(topology, crowded), *_unequal(topology), *_shared(topology)]
    return replace(topology, links=links, notes=(*topology.notes, *notes))


def names(nodes: Sequence[Node]) -> str:
    """What nodes are called in a remark, the first of many.

    >>> names([Node(id="gpu7", kind="gpu", index=3), Node(id="pci0", kind="pci")])
    'GPU3 and PCI0'
    """
    shown = [
        f"{node.kind.upper()}{node.index}" if node.index >= 0 else node.id.upper()
        for node in nodes[:_MOST_NAMES]
    ]
    left = len(nodes) - len(shown)
    return listed([*shown, f"{left} more"] if left else shown)


def _crowded(topology: Topology) -> Iterator[tuple[str, tuple[int, int]]]:
    """GPUs with more NVLinks than their generation has: how many, of how many."""
    for gpu in topology.gpus:
        text = gpu.fact("sm")
        arch = int(text) if text.isdecimal() else arch_of_name(gpu.name)
        total = sum(link.count for link in topology.bundles(gpu.id))
        most = most_links(arch)
        is_known = most or has_links(gpu.name, text, None) == "never"
        if is_known and total > most and not is_amd(gpu):
            yield gpu.id, (total, most)


def _crowds(topology: Topology, crowded: dict[str, tuple[int, int]]) -> Iterator[str]:
    for numbers in dict.fromkeys(crowded.values()):
        gpus = [topology.by_id[id_] for id_, own in crowded.items() if own == numbers]
        yield (
            f"{names(gpus)}: {numbers[0]} NVLinks, more than the {numbers[1]} that a GPU of this"
            " architecture has: their rate is unknown"
        )


def _unequal(topology: Topology) -> Iterator[str]:
    """GPUs of a host without links among others that have them, and unequal numbers of links."""
    for host, name in enumerate(topology.hosts):
        gpus = [gpu for gpu in topology.gpus if gpu.host == host]
        totals = {gpu.id: sum(link.count for link in topology.bundles(gpu.id)) for gpu in gpus}
        linked = {id_: count for id_, count in totals.items() if topology.bundles(id_)}
        lonely = [id_ for id_ in totals if id_ not in linked]
        where = f" on {name}" if len(topology.hosts) > 1 and name else ""
        if linked and lonely:
            whom = names([topology.by_id[id_] for id_ in lonely])
            yield f"{whom}{where}: no link to a peer, which the other GPUs have"
        counts = Counter(linked.values())
        if len(counts) > 1:
            usual = max(counts, key=lambda count: (counts[count], count))
            others = [
                f"{names([topology.by_id[id_]])} {count}"
                for id_, count in linked.items()
                if count != usual
            ]
            but = some_of(others, _MOST_NAMES)
            yield f"unequal numbers of links to peers{where}: {usual}, but {but}"


def _shared(topology: Topology) -> Iterator[str]:
    """GPUs that have the number or the PCI address of another; parts of one GPU may."""
    whole = [gpu for gpu in topology.gpus if not gpu.fact("mlopart")]
    own = {gpu.id: {(gpu.host, gpu.index), (gpu.host, bus_key(gpu.address))} for gpu in whole}
    count = Counter(key for keys in own.values() for key in keys if key[1] not in (-1, None))
    shared = [gpu for gpu in whole if any(count[key] > 1 for key in own[gpu.id])]
    if shared:
        yield f"{names(shared)} share a number or a PCI address"


def odd_lines(odd: Iterable[tuple[Element, str]]) -> list[str]:
    """The remark on attributes of a file that have values that no machine has."""
    lines = dict.fromkeys((element.line, name) for element, name in odd)
    if not lines:
        return []
    where = some_of((f"{name} in line {line}" for line, name in sorted(lines)), _MOST_NAMES)
    return [f"left out, because no machine has it or the other lines do not bear it out: {where}"]
