"""A topology as NCCL's topology XML, or RCCL's of AMD's GPUs, good enough for NCCL_TOPO_FILE. What
is unknown is left out: NCCL asks the machine for it.

Only links that NCCL models are written; a host bridge (kind root) has no element: what hangs below
it hangs below its CPU.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from xml.sax.saxutils import quoteattr

from collbench.core.errors import UsageError
from collbench.machine.formats._build import cpus_mask
from collbench.machine.formats._nccl_attributes import (
    CPU_ATTRIBUTES,
    GPU_ATTRIBUTES,
    NET_ATTRIBUTES,
    NO_BUS,
    PCI_ATTRIBUTES,
    bus_key,
)
from collbench.machine.topology.gpu_models import AMD
from collbench.machine.topology.model import Link, Node, NodeKind, Topology
from collbench.machine.topology.rates import pcie_speed
from collbench.machine.topology.unnamed import is_amd, library

_WHAT_HAS_ALL = "give NCCL's topology XML, or a file of collbench topo --record"
_PCI_CLASSES: dict[NodeKind, str] = {"gpu": "0x030200", "nic": "0x020000", "pci": "0x060400"}


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
    """One file: the tree of PCIe links below the CPUs, with the other links at their GPUs."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.order = {node.id: place for place, node in enumerate(topology.nodes)}
        self.seen = {node.id for node in topology.of_kind("cpu")}
        self.invented = 0
        for gpu in topology.gpus:
            if bus_key(gpu.address) is None:
                raise UsageError(
                    f"{topology.name} tells no PCI address of {gpu.id}, by which"
                    f" {library(topology.gpus)} would know"
                    " it: no topology XML can be written",
                    _WHAT_HAS_ALL,
                )
        if len(topology.hosts) > 1 and not all(
            cpu.fact("host_hash") for cpu in topology.of_kind("cpu")
        ):
            raise UsageError(
                f"{topology.name} is of {len(topology.hosts)} hosts: NCCL reads one file on each",
                "write it on each host",
            )

    def lines(self) -> list[str]:
        cpus = [line for cpu in self.topology.of_kind("cpu") for line in self.cpu(cpu)]
        lost = [gpu.id for gpu in self.topology.gpus if gpu.id not in self.seen]
        if lost or not cpus:
            what = f"{', '.join(lost)} hang below no CPU" if lost else "there is no CPU"
            raise UsageError(
                f"{self.topology.name}: {what}: no topology XML can be written", _WHAT_HAS_ALL
            )
        version = 2 if any(is_amd(gpu) for gpu in self.topology.gpus) else 1
        return _element("system", {"version": version}, cpus)

    def cpu(self, cpu: Node) -> list[str]:
        attributes = _attributes(cpu, CPU_ATTRIBUTES, "xml:")
        derived = {"numaid": cpu.index, "affinity": cpus_mask(cpu.affinity)}
        return _element("cpu", _missing(derived, attributes) | attributes, self.children(cpu))

    def below(self, node: Node) -> list[tuple[Node, Link]]:
        """Nodes one PCIe link below, host bridges passed over, in the topology's order."""
        children: list[tuple[Node, Link]] = []
        again: list[str] = []
        for link in self.topology.links_of[node.id]:
            far = self.topology.by_id[link.other(node.id)]
            if link.kind != "pcie":
                continue
            # A NIC may hang at several CPUs; all else has one place.
            is_again = far.id in self.seen
            if is_again and (far.kind != "nic" or node.kind != "cpu"):
                continue
            again += [far.id] if is_again else []
            self.seen.add(far.id)
            children += self.below(far) if far.kind == "root" else [(far, link)]
        return sorted(children, key=lambda one: (one[0].id in again, self.order[one[0].id]))

    def children(self, node: Node) -> list[str]:
        elements: list[str] = []
        # Nodes with one address are ports of one card, or parts of one GPU.
        for _, group in groupby(
            self.below(node),
            key=lambda entry: (entry[0].kind, bus_key(entry[0].address) or entry[0].id),
        ):
            entries = list(group)
            first, link = entries[0]
            # NCCL refuses a PCI device without speed and width. It puts a NIC whose speed and width
            # it cannot find out itself, as in a VM, below the CPU.
            is_unknown = not (link.generation or link.count or first.fact("class"))
            is_bare = bus_key(first.address) is None or (node.kind == "cpu" and is_unknown)
            if first.kind == "nic" and is_bare:
                elements += self.nets([entry[0] for entry in entries])
            elif first.kind in _PCI_CLASSES:
                elements += self.pci([entry[0] for entry in entries], link)
        return elements

    def pci(self, nodes: list[Node], link: Link) -> list[str]:
        first = nodes[0]
        if first.kind == "gpu":
            inner = [line for gpu in nodes for line in self.gpu(gpu)]
        elif first.kind == "nic":
            inner = self.nets(nodes)
        else:
            inner = self.children(first)
        # A device of unknown class stays a device: NCCL finds its class.
        derived = {
            "class": self.class_of(first) if inner or first.kind != "pci" else "",
            "link_speed": pcie_speed(link.generation),
            "link_width": link.count or "",
        }
        attributes = _attributes(first, PCI_ATTRIBUTES, "xml-pci:")
        missing = _missing(derived, attributes)
        return _element("pci", {"busid": self.address(first)} | attributes | missing, inner)

    def class_of(self, node: Node) -> str:
        is_accelerator = node.kind == "gpu" and node.fact("vendor") == AMD
        implied = "0x120000" if is_accelerator else _PCI_CLASSES[node.kind]
        return node.fact("class") or implied

    def address(self, node: Node) -> str:
        """A PCI address as the kernel writes it; one that no machine has for a switch that has
        none, as cloud providers' files do.
        """
        key = bus_key(node.address)
        if key is None:
            self.invented += 1
            return f"ffff:{255 - (self.invented >> 5):02x}:{self.invented & 31:02x}.0"
        return node.address if len(node.address) < 13 else "{:04x}:{:02x}:{:02x}.{:x}".format(*key)

    def gpu(self, gpu: Node) -> list[str]:
        links = self.topology.links_of[gpu.id]
        inner = self.bundles(gpu)
        inner += [line for link in links if link.kind == "c2c" for line in self.c2c(link)]
        if gpu.fact("numbered") and not inner:  # not by CUDA: better no number than a wrong one
            return []
        attributes = _attributes(gpu, GPU_ATTRIBUTES, "xml:")
        return _element("gpu", _missing({"dev": gpu.index}, attributes) | attributes, inner)

    def c2c(self, link: Link) -> list[str]:
        mbs = round(link.raw_gbs * 1000 / link.count) if link.raw_gbs and link.count else 0
        return _element("c2c", {"bw": mbs, "count": link.count}) if mbs else []

    def bundles(self, gpu: Node) -> list[str]:
        """Links to peers, one element for each bundle."""
        bundles = [link for link in self.topology.bundles(gpu.id) if link.count]
        return [line for link in bundles for line in self.bundle(gpu, link)]

    def bundle(self, gpu: Node, link: Link) -> list[str]:
        far = self.topology.by_id[link.other(gpu.id)]
        target, class_ = f"{NO_BUS}:ff.0", "0x068000"
        if far.kind == "gpu":
            target, class_ = self.address(far), self.class_of(far)
        elif far.kind == "cpu":
            class_ = "0x068001"
        tag = "xgmi" if link.kind == "xgmi" else "nvlink"
        return _element(tag, {"target": target, "count": link.count, "tclass": class_})

    def nets(self, nics: list[Node]) -> list[str]:
        nets = []
        for nic in nics:
            if nic.name:
                attributes = _attributes(nic, NET_ATTRIBUTES, "xml:")
                nets += _element("net", _missing({"name": nic.name}, attributes) | attributes)
        return _element("nic", {}, nets) if nets else []


def _attributes(node: Node, known: tuple[str, ...], prefix: str) -> dict[str, object]:
    """Facts that are attributes, in the order of their source."""
    return {
        key.removeprefix(prefix): value
        for key, value in node.facts
        if (key in known or key.startswith(prefix))
        and re.fullmatch(r"[A-Za-z_][\w.-]*", key.removeprefix(prefix), re.ASCII)
    }


def _missing(derived: Mapping[str, object], attributes: Mapping[str, object]) -> dict[str, object]:
    """Those of the derived attributes that are known and that the source does not have."""
    return {key: one for key, one in derived.items() if one != "" and key not in attributes}


def _element(tag: str, attributes: Mapping[str, object], inner: Iterable[str] = ()) -> list[str]:
    """The lines of an element."""
    pairs = (f" {key}={quoteattr(str(value))}" for key, value in attributes.items())
    start = "".join([f"<{tag}", *pairs])
    lines = [f"  {line}" for line in inner]
    return [f"{start}>", *lines, f"</{tag}>"] if lines else [f"{start}/>"]
