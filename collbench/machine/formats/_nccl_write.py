"""A topology as NCCL's topology XML, good enough for NCCL_TOPO_FILE. What is unknown is left out:
NCCL asks the machine for it.

Only links that NCCL models are written; a host bridge (kind root) has no element: what hangs below
it hangs below its CPU.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from xml.sax.saxutils import quoteattr

from collbench.machine.formats._build import cpus_mask
from collbench.machine.formats._nccl_attributes import CPU, GPU, NET, NO_BUS, PCI, bus_key
from collbench.machine.topology.model import Link, Node, NodeKind, Topology
from collbench.util.errors import UsageError

_SPEEDS = {
    1: "2.5 GT/s PCIe",
    2: "5.0 GT/s PCIe",
    3: "8.0 GT/s PCIe",
    4: "16.0 GT/s PCIe",
    5: "32.0 GT/s PCIe",
    6: "64.0 GT/s PCIe",
}
_PCI_CLASSES: dict[NodeKind, str] = {"gpu": "0x030200", "nic": "0x020000", "pci": "0x060400"}

Pairs = Iterable[tuple[str, str]]


def write(topology: Topology) -> str:
    """The file's text. Raises UsageError for a topology that NCCL could not use: a GPU without PCI
    address or CPU.

    >>> from collbench.machine.topology.rates import pcie_link
    >>> nodes = (
    ...     Node(id="cpu0", kind="cpu", index=0, affinity="0-3"),
    ...     Node(id="gpu0", kind="gpu", index=0, address="0000:01:00.0"),
    ... )
    >>> print(
    ...     write(Topology(name="small", nodes=nodes, links=(pcie_link("cpu0", "gpu0", 5, 16),))),
    ...     end="",
    ... )
    <system version="1">
      <cpu numaid="0" affinity="0000000f">
        <pci busid="0000:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
          <gpu dev="0"/>
        </pci>
      </cpu>
    </system>
    """
    return "".join(f"{line}\n" for line in _NcclWriter(topology).lines())


class _NcclWriter:
    """One file in the making: the tree of PCIe links below the CPUs, with the other links at
    their GPUs.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.order = {node.id: place for place, node in enumerate(topology.nodes)}
        self.seen = {node.id for node in topology.of_kind("cpu")}
        self.invented = 0
        for gpu in topology.gpus:
            if bus_key(gpu.address) is None:
                raise UsageError(
                    f"{topology.name} tells no PCI address of {gpu.id}, by which NCCL would know"
                    " it: no topology XML can be written"
                )
        if len(topology.hosts) > 1 and not all(
            cpu.fact("host_hash") for cpu in topology.of_kind("cpu")
        ):
            raise UsageError(
                f"{topology.name} is of {len(topology.hosts)} hosts: NCCL reads one file on each",
                "write it on each host",
            )

    def lines(self) -> Iterator[str]:
        cpus = [line for cpu in self.topology.of_kind("cpu") for line in self.cpu(cpu)]
        lost = [gpu.id for gpu in self.topology.gpus if gpu.id not in self.seen]
        if lost or not cpus:
            what = f"{', '.join(lost)} hang below no CPU" if lost else "there is no CPU"
            raise UsageError(f"{self.topology.name}: {what}: no topology XML can be written")
        return _element("system", [("version", "1")], cpus)

    def cpu(self, cpu: Node) -> Iterator[str]:
        attributes = _told(cpu, CPU, "xml:")
        more = [("numaid", str(cpu.index)), ("affinity", cpus_mask(cpu.affinity))]
        return _element("cpu", _with(attributes, more), self.children(cpu))

    def below(self, node: Node) -> list[tuple[Node, Link]]:
        """Nodes one PCIe link below, host bridges passed over, in the topology's order."""
        children: list[tuple[Node, Link]] = []
        for link in self.topology.links_of[node.id]:
            far = self.topology.by_id[link.other(node.id)]
            if link.kind != "pcie" or link.note == "pcilink" or far.id in self.seen:
                continue
            self.seen.add(far.id)
            children += self.below(far) if far.kind == "root" else [(far, link)]
        return sorted(children, key=lambda entry: self.order[entry[0].id])

    def children(self, node: Node) -> list[str]:
        elements: list[str] = []
        # Nodes with one address are ports of one card, or parts of one GPU.
        for _, group in groupby(
            self.below(node),
            key=lambda entry: (entry[0].kind, bus_key(entry[0].address) or entry[0].id),
        ):
            entries = list(group)
            first, link = entries[0]
            # NCCL refuses a PCI device without speed and width; a NIC of which it cannot tell them
            # itself, as in a VM, it hangs at the CPU.
            is_bare = bus_key(first.address) is None or (
                node.kind == "cpu" and not (link.generation or link.count)
            )
            if first.kind == "nic" and is_bare:
                elements += self.nets([first])
            elif first.kind in _PCI_CLASSES:
                elements += self.pci([entry[0] for entry in entries], link)
        return elements

    def pci(self, nodes: list[Node], link: Link) -> Iterator[str]:
        first = nodes[0]
        if first.kind == "gpu":
            inner = [line for gpu in nodes for line in self.gpu(gpu)]
        else:
            inner = (
                self.nets(nodes)
                if first.kind == "nic"
                else [*self.children(first), *self.pcilinks(first)]
            )
        # A device of unknown class stays a device: NCCL finds its class.
        class_ = "" if first.kind == "pci" and not inner else _PCI_CLASSES[first.kind]
        more = [
            ("class", class_),
            ("link_speed", _SPEEDS.get(link.generation, "")),
            ("link_width", str(link.count or "")),
        ]
        return _element(
            "pci",
            [
                ("busid", self.address(first)),
                *_with(_told(first, PCI, "xml-pci:"), more, behind=True),
            ],
            inner,
        )

    def address(self, node: Node) -> str:
        """A PCI address as the kernel writes it; one that no machine has for a switch that has
        none, as cloud providers' files do.
        """
        key = bus_key(node.address)
        if key is None:
            self.invented += 1
            return f"ffff:{255 - (self.invented >> 5):02x}:{self.invented & 31:02x}.0"
        return node.address if len(node.address) < 13 else "{:04x}:{:02x}:{:02x}.{:x}".format(*key)

    def gpu(self, gpu: Node) -> Iterator[str]:
        links = self.topology.links_of[gpu.id]
        inner = [
            line
            for kind in ("nvlink", "c2c")
            for link in links
            if link.kind == kind
            for line in self.link(gpu, link)
        ]
        if gpu.fact("numbered") and not inner:  # not by CUDA: better no number than a wrong one
            return iter(())
        return _element("gpu", _with(_told(gpu, GPU, "xml:"), [("dev", str(gpu.index))]), inner)

    def link(self, gpu: Node, link: Link) -> list[str]:
        far = self.topology.by_id[link.other(gpu.id)]
        if link.kind == "c2c":
            mbs = round(link.raw_gbs * 1000 / link.count) if link.raw_gbs and link.count else 0
            return (
                list(_element("c2c", [("bw", str(mbs)), ("count", str(link.count))], ()))
                if mbs
                else []
            )
        if not link.count:
            return []
        ends = [(f"{NO_BUS}:ff.0", link.count)]
        if far.kind == "gpu":
            ends = [(self.address(far), link.count)]
        elif far.kind == "nvswitch":
            attributes = [
                (target, int(count))
                for target, count in re.findall(
                    r"(\S{1,40})\*(\d{1,3})(?!\S)", gpu.fact("nvswitches")
                )
            ]
            ends = attributes if sum(count for _, count in attributes) == link.count else ends
        class_ = (
            far.fact("class") or _PCI_CLASSES["gpu"]
            if far.kind == "gpu"
            else "0x068001"
            if far.kind == "cpu"
            else "0x068000"
        )
        return [
            line
            for target, count in ends
            for line in _element(
                "nvlink", [("target", target), ("count", str(count)), ("tclass", class_)], ()
            )
        ]

    def nets(self, nics: list[Node]) -> list[str]:
        nets = [
            line
            for nic in nics
            if nic.name
            for line in _element("net", _with(_told(nic, NET, "xml:"), [("name", nic.name)]), ())
        ]
        return list(_element("nic", [], nets)) if nets else []

    def pcilinks(self, switch: Node) -> list[str]:
        far = [
            link.other(switch.id)
            for link in self.topology.links_of[switch.id]
            if link.note == "pcilink"
        ]
        return [
            line
            for id_ in far
            for line in _element("pcilink", [("target", self.topology.by_id[id_].address)], ())
        ]


def _told(node: Node, known: tuple[str, ...], prefix: str) -> list[tuple[str, str]]:
    """Facts that are attributes, in the order of their source."""
    named = [
        (key.removeprefix(prefix), value)
        for key, value in node.facts
        if key in known or key.startswith(prefix)
    ]
    return [
        (key, value) for key, value in named if re.fullmatch(r"[A-Za-z_][\w.-]*", key, re.ASCII)
    ]


def _with(
    given: list[tuple[str, str]], more: list[tuple[str, str]], behind: bool = False
) -> list[tuple[str, str]]:
    """The given attributes, and those of the others that are known and were not given."""
    keys = dict(given)
    added = [(key, value) for key, value in more if value and key not in keys]
    return [*given, *added] if behind else [*added, *given]


def _element(tag: str, attributes: Pairs, inner: Iterable[str]) -> Iterator[str]:
    start = "".join([f"<{tag}", *(f" {key}={quoteattr(value)}" for key, value in attributes)])
    lines = [f"  {line}" for line in inner]
    yield from [f"{start}>", *lines, f"</{tag}>"] if lines else [f"{start}/>"]
