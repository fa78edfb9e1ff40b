"""A machine as a graph: nodes, and links with their rates. Who makes one: discovery, formats and
machines.py.

Nodes have ids that are unique over all hosts, such as gpu0, nic1, cpu0; only gpu and nic ids are
fixed by rule: the kind, and the number that CUDA, nvidia-smi or a file counts it by. A rate that
no source gives is None, never a guess.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from collbench.core.errors import UsageError
from collbench.core.text import runs

# root: a PCIe host bridge; cpu: a NUMA node with its cores; pci: a PCIe switch; net: what NICs of
# several hosts are plugged into.
NodeKind = Literal["gpu", "nvswitch", "pci", "root", "cpu", "nic", "net"]
LinkKind = Literal["nvlink", "xgmi", "c2c", "pcie", "socket", "network"]
GPU_LINKS = ("nvlink", "xgmi")  # kinds of links from GPU to GPU: NVIDIA's, AMD's
# What statuses between two GPUs are about. prop: the last of nvidia-smi topo -p2p, which NVML calls
# PCI.
P2P_ACCESS = ("read", "write", "atomics", "nvlink")
P2P = (*P2P_ACCESS, "prop")
# May a GPU reach a peer, as nvidia-smi topo -p2p spells it, in the order of NVML_P2P_STATUS_*.
P2P_MEANINGS = {
    "OK": "allowed",
    "CNS": "the chipset does not support it",
    "GNS": "the GPU does not support it",
    "TNS": "the topology does not support it",
    "DR": "switched off by the driver's registry",
    "NS": "not supported",
    "U": "the driver does not say",
}


Facts = tuple[tuple[str, str], ...]  # by key, in a fixed order


def facts_of(values: Mapping[str, object]) -> Facts:
    """The facts that are known: those that are neither None nor empty.

    >>> facts_of({"sm": 90, "driver": None, "uuid": ""})
    (('sm', '90'),)
    """
    return tuple((key, str(value)) for key, value in values.items() if value not in (None, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One thing that links end at.

    index: what the kind is counted by: CUDA's number of a GPU, the NUMA node of a CPU. address:
    where it is: a PCI address. host: whose it is; a switch between hosts has host -1. affinity:
    CPUs, as in 0-15,32-47, that are near. facts: other properties from the source, for people.
    """

    id: str
    kind: NodeKind
    name: str = ""
    index: int = -1
    address: str = ""
    host: int = 0
    affinity: str = ""
    facts: Facts = ()

    def fact(self, key: str) -> str:
        """The fact of that key, or an empty text."""
        return dict(self.facts).get(key, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link between two nodes, both directions alike. Rates are GB/s per direction of the whole
    bundle; None: no source gives it.

    count: bonded links of a bundle (NVLink), or lanes (PCIe). generation: of NVLink or PCIe, 0:
    unknown. raw_gbs: what the link carries after its line code. usable_gbs: what kernels that store
    to a peer can move over it. source: where the rates come from.
    """

    a: str
    b: str
    kind: LinkKind
    count: int = 1
    generation: int = 0
    raw_gbs: float | None = None
    usable_gbs: float | None = None
    source: str = ""
    note: str = ""

    def other(self, node: str) -> str:
        """The far end."""
        return self.b if node == self.a else self.a


@dataclass(frozen=True, kw_only=True, eq=False)
class Topology:
    """Nodes and links. hosts: their names. notes: what a reader must know, such as that a
    hypervisor shows a flat tree.

    Raises UsageError for a link to a node that is not there, an id that comes twice, or a P2P
    status that there is not.
    """

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    hosts: tuple[str, ...] = ("",)
    notes: tuple[str, ...] = ()
    # (gpu, gpu, one of P2P) -> a code of P2P_MEANINGS
    p2p: Mapping[tuple[str, str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = [node.id for node in self.nodes]
        if len(set(ids)) < len(ids):
            twice = sorted(name for name, times in Counter(ids).items() if times > 1)
            raise UsageError(f"topology {self.name}: {', '.join(twice)} comes twice")
        lost = {end for link in self.links for end in (link.a, link.b)} - set(ids)
        if lost:
            raise UsageError(f"topology {self.name}: a link ends at {', '.join(sorted(lost))}")
        strange = next((status for status in self.p2p.values() if status not in P2P_MEANINGS), None)
        if strange is not None:
            raise UsageError(
                f"topology {self.name}: P2P status '{strange:.40}' is not one of"
                f" {', '.join(P2P_MEANINGS)}"
            )

    @cached_property
    def by_id(self) -> dict[str, Node]:
        """Nodes by their ids."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def links_of(self) -> dict[str, tuple[Link, ...]]:
        """Links by the nodes at their ends."""
        by_node: dict[str, list[Link]] = {node.id: [] for node in self.nodes}
        for link in self.links:
            for end in dict.fromkeys((link.a, link.b)):
                by_node[end].append(link)
        return {name: tuple(links) for name, links in by_node.items()}

    def bundles(self, gpu: str) -> tuple[Link, ...]:
        """The NVLinks or xGMI of a GPU."""
        return tuple(link for link in self.links_of[gpu] if link.kind in GPU_LINKS)

    def of_kind(self, *kinds: NodeKind) -> tuple[Node, ...]:
        """Nodes of some kinds, in the order in which they stand."""
        return tuple(node for node in self.nodes if node.kind in kinds)

    @property
    def gpus(self) -> tuple[Node, ...]:
        """GPUs by host and number: entry r is where rank r runs."""
        return tuple(sorted(self.of_kind("gpu"), key=lambda node: (node.host, node.index)))


_MOST_CPUS = 1 << 16  # of a span: a file may say anything


def spans(numbers: Iterable[int]) -> str:
    """CPUs as the kernel writes them.

    >>> spans([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs(numbers))


def numbered(what: str, numbers: Iterable[int]) -> str:
    """Several things of a kind by their numbers.

    >>> numbered("GPU", [2]), numbered("GPU", [0, 1, 2, 5])
    ('GPU 2', 'GPUs 0-2,5')
    """
    every = sorted(numbers)
    return f"{what}{'s' * (len(every) > 1)} {spans(every)}"


def members(text: str) -> list[int]:
    """CPUs of a list that the kernel wrote; what is no list has none.

    >>> members("0-2,5,7-8"), members(""), members("a-b")
    ([0, 1, 2, 5, 7, 8], [], [])
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            numbers += range(int(first), min(int(last or first), int(first) + _MOST_CPUS) + 1)
    return numbers
