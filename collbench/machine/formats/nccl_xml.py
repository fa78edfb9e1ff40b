"""NCCL's topology XML (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE): system > cpu > pci ... > gpu > nvlink
| c2c, and pci > nic > net.

An attribute becomes a fact of the node under the attribute's own name: class, link_speed,
link_width and so on of the PCI device, dev, sm, rank and gdr of the GPU, dev, speed and so on of
the NIC, arch, vendor, familyid and modelid of a CPU (_nccl_attributes has all). Unknown ones are
kept as xml:NAME, those of a pci element as xml-pci:NAME. Writing is the opposite (_nccl_write).
Source: NCCL's xml.cc and topo.cc, and dumps of 2.11 to 2.28.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from collbench.machine.formats import _xml
from collbench.machine.formats._build import (
    Ids,
    limit_cpus,
    mask_cpus,
    number_of,
    renamed,
    socket_links,
)
from collbench.machine.formats._nccl_attributes import (
    CPU_ATTRIBUTES,
    GPU_ATTRIBUTES,
    NET_ATTRIBUTES,
    NO_BUS,
    PCI_ATTRIBUTES,
    bus_key,
)
from collbench.machine.formats._nccl_write import write
from collbench.machine.topology import rates
from collbench.machine.topology.model import Facts, Link, Node, Topology
from collbench.util.errors import UsageError

__all__ = ["is_mine", "read", "write"]


def is_mine(text: str) -> bool:
    """Whether that is NCCL's topology XML."""
    return _xml.root_tag(text) == "system"


def read(text: str, name: str) -> Topology:
    """The topology of a file. Raises UsageError with the line.

    >>> pci = '<pci busid="0000:01:00.0" class="0x030200"/>'
    >>> text = f'<system version="1"><cpu numaid="0">{pci}</cpu></system>'
    >>> read(text, "a").gpus[0].address
    '0000:01:00.0'
    """
    system = _xml.parse(text, name)
    if system.tag != "system":
        raise UsageError(f"{system.place}: the root is <{system.tag}>, not <system>")
    if system.number("version", 1) != 1:
        raise system.wrong("version", "is not 1, the only one that NCCL knows")
    return _NcclReader(name).topology(system)


class _NcclReader:
    """Nodes and links of one file, in its order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ids = Ids()
        self.nodes: list[Node] = []
        self.links: list[Link] = []
        self.hosts: list[str] = []
        self.gpus: list[tuple[str, _xml.Element]] = []  # node, its gpu element
        self.cpu_of: dict[str, str] = {}  # of GPUs
        self.no_width = self.no_class = self.unknown_targets = 0

    def topology(self, system: _xml.Element) -> Topology:
        for cpu in system.of("cpu"):
            self.cpu(cpu)
        if not self.nodes:
            raise UsageError(f"{system.place}: <system> holds no <cpu>")
        self.number_gpus()
        cpus = [node for node in self.nodes if node.kind == "cpu"]
        limit_cpus(cpus, self.name)
        notes = [*self.nvlinks(), *self.remarks()]
        self.links += self.pcilinks(system)
        hosts = tuple(self.hosts) if len(self.hosts) > 1 else ("",)
        return Topology(
            name=self.name.rpartition("/")[2],
            nodes=tuple(self.nodes),
            links=(*self.links, *socket_links(cpus)),
            hosts=hosts,
            notes=tuple(notes),
        )

    def cpu(self, cpu: _xml.Element) -> None:
        hash_ = cpu.get("host_hash")
        if hash_ not in self.hosts:
            self.hosts.append(hash_)
        numa = cpu.number("numaid", -1)
        mask = cpu.get("affinity")
        near = mask_cpus(mask)
        if near is None:
            raise cpu.wrong("affinity", "is no mask of CPUs")
        node = Node(
            id=self.ids.take("cpu", numa),
            kind="cpu",
            index=max(numa, -1),
            host=self.hosts.index(hash_),
            affinity=near,
            facts=_facts(cpu, CPU_ATTRIBUTES, "xml:"),
        )
        self.nodes.append(node)
        self.above = node
        self.children(cpu, node)

    def children(self, element: _xml.Element, parent: Node) -> None:
        for child in element.of("pci", "nic"):
            if child.tag == "pci":
                self.pci(child, parent)
            else:
                # a NIC that is on no PCI bus: virtual, or NCCL could not find the bus
                for net in child.of("net"):
                    self.nic(net, parent, Node(id="nic", kind="nic", host=parent.host), 0, 0)

    def pci(self, pci: _xml.Element, parent: Node) -> None:
        address = pci.get("busid")
        if bus_key(address) is None:
            raise pci.wrong("busid", "is no PCI address such as 0000:17:00.0")
        generation = rates.pcie_generation(pci.get("link_speed"))
        width = pci.number("link_width", 0)
        if not 0 <= width <= 32:
            raise pci.wrong("link_width", "is no number of lanes")
        self.no_width += not width and "class" in pci.attributes
        of_class = pci.get("class")
        gpus, nets = list(pci.of("gpu")), [net for nic in pci.of("nic") for net in nic.of("net")]
        common = Node(
            id="",
            kind="pci",
            address=address,
            host=parent.host,
            affinity=self.above.affinity,
            facts=_facts(pci, PCI_ATTRIBUTES, "xml-pci:"),
        )
        if not gpus and of_class.startswith("0x03"):
            implied = {"numbered": "by order of appearance"}
            gpus = [_xml.Element(tag="gpu", attributes=implied, file=pci.file, line=pci.line)]
        for gpu in gpus:
            # Numbered when all are known: those without a number get what is left.
            id_ = f"?{len(self.gpus)}"
            facts = (*common.facts, *_facts(gpu, (*GPU_ATTRIBUTES, "numbered"), "xml:"))
            self.nodes.append(replace(common, id=id_, kind="gpu", facts=facts))
            self.gpus.append((id_, gpu))
            self.cpu_of[id_] = self.above.id
            self.link(parent, id_, generation, width)
            self.c2c(gpu)
        for net in nets:
            self.nic(net, parent, replace(common, kind="nic"), generation, width)
        if gpus or nets:
            return
        if of_class.startswith("0x02"):
            id_ = self.ids.take("nic")
            node = replace(common, id=id_, kind="nic", index=number_of(id_))
        else:
            self.no_class += not of_class
            node = replace(common, id=self.ids.take("pci"), affinity="")
        self.nodes.append(node)
        self.link(parent, node.id, generation, width)
        self.children(pci, node)

    def nic(self, net: _xml.Element, parent: Node, node: Node, generation: int, width: int) -> None:
        dev = net.number("dev", -1)
        facts = *node.facts, *_facts(net, NET_ATTRIBUTES, "xml:")
        node = replace(
            node,
            id=self.ids.take("nic", dev),
            name=net.get("name"),
            index=dev,
            affinity=self.above.affinity,
            facts=facts,
        )
        self.nodes.append(node)
        self.link(parent, node.id, generation, width)

    def link(self, parent: Node, child: str, generation: int, width: int) -> None:
        self.links.append(rates.pcie_link(parent.id, child, generation, width))

    def c2c(self, gpu: _xml.Element) -> None:
        """A link to the CPU above: bw is MB/s of each of its parts (topo.cc)."""
        for c2c in gpu.of("c2c"):
            count, mbs = c2c.number("count", 1), c2c.number("bw", 0)
            if not 0 < count < 1000 or not 0 <= mbs < 10**9:
                raise c2c.wrong("count" if 0 <= mbs < 10**9 else "bw", "is out of range")
            gbs = mbs * count / 1000
            self.links.append(
                Link(
                    a=self.nodes[-1].id,
                    b=self.above.id,
                    kind="c2c",
                    count=count,
                    raw_gbs=gbs or None,
                    source="NCCL's dump" if gbs else "",
                )
            )

    def number_gpus(self) -> None:
        """Give GPUs their ids: the number by which CUDA counts them, the rank where two hosts use
        the same numbers, or a free one.
        """
        numbers = {id_: gpu.number("dev", -1) for id_, gpu in self.gpus}
        ids: dict[str, str] = {}
        for id_, gpu in sorted(self.gpus, key=lambda entry: numbers[entry[0]] < 0):
            wanted = numbers[id_] if len(self.hosts) < 2 else gpu.number("rank", -1)
            ids[id_] = self.ids.take("gpu", wanted)
            if numbers[id_] < 0:
                numbers[id_] = number_of(ids[id_])
        self.nodes = [replace(node, index=numbers.get(node.id, node.index)) for node in self.nodes]
        self.nodes, self.links = renamed(self.nodes, self.links, ids)
        self.cpu_of = {ids[id_]: cpu for id_, cpu in self.cpu_of.items()}
        self.gpus = [(ids[id_], gpu) for id_, gpu in self.gpus]

    def nvlinks(self) -> list[str]:
        """Add bundles, which both GPUs list; NVSwitches are one, as for NCCL. Returns remarks."""
        by_id = {node.id: node for node in self.nodes}
        by_bus = {
            (node.host, bus_key(node.address)): node.id
            for node in reversed(self.nodes)
            if node.kind == "gpu"
        }
        counts: Counter[tuple[str, str]] = Counter()
        switched: dict[str, list[str]] = {}
        for id_, gpu in self.gpus:
            for nvlink in gpu.of("nvlink"):
                count, target = nvlink.number("count", 1), "".join(nvlink.get("target").split())
                if not 0 < count < 1000:
                    raise nvlink.wrong("count", "is no number of links")
                far = by_bus.get((by_id[id_].host, bus_key(target))) or self.far(
                    nvlink.get("tclass"), target, id_
                )
                if far is None:
                    self.unknown_targets += 1
                    continue
                counts[id_, far] += count
                if far == "nvs0":
                    switched.setdefault(id_, []).append(f"{target}*{count}")
        self.nodes = [
            replace(node, facts=(*node.facts, ("nvswitches", " ".join(switched[node.id]))))
            if node.id in switched
            else node
            for node in self.nodes
        ]
        if switched:
            hosts = {by_id[id_].host for id_ in switched}
            host = hosts.pop() if len(hosts) == 1 else -1
            self.nodes.append(Node(id="nvs0", kind="nvswitch", index=0, host=host))
        remarks = [
            f"{a} and {b} tell different numbers of NVLinks between them: the smaller is taken"
            for (a, b), count in counts.items()
            if a < b and counts.get((b, a), count) != count
        ]
        # In the order of the file, so that it is written so.
        for a, b in dict.fromkeys(
            (b, a) if (b, a) in counts and b < a else (a, b) for a, b in counts
        ):
            fewer = min(counts[a, b], counts.get((b, a), counts[a, b]))
            generation = rates.nvlink_generation(_arch(by_id[a]))
            self.links.append(rates.nvlink_link(a, b, generation, fewer))
        if any(NO_BUS in target for targets in switched.values() for target in targets):
            remarks.append(
                "the far ends of the NVLinks are hidden, as under a hypervisor: taken as one"
                " NVSwitch, as NCCL takes them"
            )
        return remarks

    def far(self, class_: str, target: str, gpu: str) -> str | None:
        """The far end of an NVLink that is no GPU of the file: the NVSwitch, the CPU of a POWER
        machine, or None.
        """
        if class_.startswith("0x068001"):
            return self.cpu_of[gpu]
        is_hidden = not class_ and target.lower().startswith(NO_BUS)
        return "nvs0" if class_.startswith("0x0680") or is_hidden else None

    def pcilinks(self, system: _xml.Element) -> list[Link]:
        """Links between PCIe switches beside the tree, which both Broadcom switches list."""
        by_bus = {
            bus_key(node.address): node.id for node in reversed(self.nodes) if node.kind == "pci"
        }
        pairs: dict[tuple[str, str], None] = {}
        for pci in _below(system, "pci"):
            for link in pci.of("pcilink"):
                a = by_bus.get(bus_key(pci.get("busid")))
                b = by_bus.get(bus_key(link.get("target")))
                if a and b and a != b:
                    pairs[min(a, b), max(a, b)] = None
        ups = {link.b: link for link in self.links if link.kind == "pcie"}
        # Parts of one switch: the rate between them is unknown; the rate of the narrower uplink
        # stands for it.
        return [
            replace(
                min((ups[a], ups[b]), key=lambda link: link.usable_gbs or 0.0),
                a=a,
                b=b,
                note="pcilink",
            )
            for a, b in pairs
        ]

    def remarks(self) -> list[str]:
        notes = {
            f"link_width is 0 or missing for {self.no_width} PCI devices: their rates are unknown"
            " (NCCL counts 16 lanes)": self.no_width,
            f"{self.no_class} PCI devices have no class, so what they are is unknown: NCCL asks the"
            " machine that it runs on": self.no_class,
            f"{self.unknown_targets} NVLinks end at something that the file does not hold:"
            " left out": self.unknown_targets,
        }
        return [note for note, count in notes.items() if count]


def _facts(element: _xml.Element, known: tuple[str, ...], prefix: str) -> Facts:
    return tuple(
        (key if key in known else f"{prefix}{key}", value)
        for key, value in element.attributes.items()
        if key != "busid"
    )


def _arch(node: Node) -> int:
    text = node.fact("sm")
    return int(text) if text.isdecimal() and len(text) < 4 else 0


def _below(element: _xml.Element, tag: str) -> Iterator[_xml.Element]:
    for child in element.children:
        if child.tag == tag:
            yield child
        yield from _below(child, tag)
