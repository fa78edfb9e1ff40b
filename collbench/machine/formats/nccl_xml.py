"""NCCL's topology XML (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE): system > cpu > pci ... > gpu > nvlink
| c2c, and pci > nic > net. RCCL's is version 2: gpu > xgmi.

An attribute becomes a fact of the node under the attribute's own name: class, link_speed,
link_width and so on of the PCI device, dev, sm, rank and gdr of the GPU, dev, speed and so on of
the NIC, arch, vendor, familyid and modelid of a CPU (_nccl_attributes has all). Unknown ones are
kept as xml:NAME, those of a pci element as xml-pci:NAME. Writing is the opposite (_nccl_write).
Source: NCCL's and RCCL's xml.cc and topo.cc, and dumps of NCCL 2.11 to 2.28.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from collbench.core import xml_tree
from collbench.core.errors import UsageError
from collbench.machine.formats import _nccl_links
from collbench.machine.formats._build import (
    ASSUMED,
    Ids,
    limit_cpus,
    mask_cpus,
    renamed,
    socket_links,
)
from collbench.machine.formats._contradictions import checked, odd_lines
from collbench.machine.formats._nccl_attributes import (
    CPU_ATTRIBUTES,
    GPU_ATTRIBUTES,
    NET_ATTRIBUTES,
    NO_BUS,
    PCI_ATTRIBUTES,
    bus_key,
)
from collbench.machine.formats._nccl_links import SWITCH, Listed
from collbench.machine.formats._nccl_write import write
from collbench.machine.topology import rates, unnamed
from collbench.machine.topology.gpu_models import gpu_model
from collbench.machine.topology.model import Facts, Link, Node, Topology

__all__ = ["is_mine", "read", "write"]
_VERSIONS = (1, 2)  # the latter: RCCL's
_GPU_CLASSES = ("0x03", "0x12")  # display controllers; processing accelerators, as AMD's are


def is_mine(text: str) -> bool:
    """Whether that is NCCL's topology XML."""
    return xml_tree.root_tag(text) == "system"


def read(text: str, name: str) -> Topology:
    """The topology of a file. Raises UsageError with the line.

    >>> pci = '<pci busid="0000:01:00.0" class="0x030200"/>'
    >>> text = f'<system version="1"><cpu numaid="0">{pci}</cpu></system>'
    >>> read(text, "a").gpus[0].address
    '0000:01:00.0'
    """
    system = xml_tree.parse(text, name, may_be_cut=True)
    if system.tag != "system":
        raise UsageError(f"{system.place}: the root is <{system.tag}>, not <system>")
    if system.number("version", 1) not in _VERSIONS:
        raise system.wrong("version", "is neither NCCL's 1 nor RCCL's 2")
    return _NcclReader(name).topology(system)


class _NcclReader:
    """Nodes and links of one file, in its order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ids = Ids()
        self.nodes: list[Node] = []
        self.links: list[Link] = []
        self.hosts: list[str] = []
        self.gpus: list[tuple[str, xml_tree.Element]] = []  # node, its gpu element
        self.cpu_of: dict[str, str] = {}  # of GPUs
        self.nics: dict[tuple[object, ...], str] = {}  # nodes, by what one NIC has alone
        self.no_width = self.no_class = 0
        self.odd: list[tuple[xml_tree.Element, str]] = []  # attributes that no machine has

    def topology(self, system: xml_tree.Element) -> Topology:
        self.devs = {_whole(net, "dev", -1) for net in _below(system, "net")}
        for cpu in system.of("cpu"):
            self.cpu(cpu)
        if not self.nodes:
            raise UsageError(f"{system.place}: <system> holds no <cpu>")
        notes = self.number_gpus()
        cpus = [node for node in self.nodes if node.kind == "cpu"]
        limit_cpus(cpus, self.name)
        notes += [*self.bundles(), *self.remarks()]
        hosts = tuple(self.hosts) if len(self.hosts) > 1 else ("",)
        topology = Topology(
            name=self.name.rpartition("/")[2],
            nodes=tuple(self.nodes),
            links=(*self.links, *socket_links(cpus)),
            hosts=hosts,
            notes=tuple(notes),
        )
        return unnamed.marked(checked(topology))

    def cpu(self, cpu: xml_tree.Element) -> None:
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

    def children(self, element: xml_tree.Element, parent: Node) -> None:
        for child in element.of("pci", "nic"):
            if child.tag == "pci":
                self.pci(child, parent)
            else:
                # a NIC that is on no PCI bus: virtual, or NCCL could not find the bus
                for net in child.of("net"):
                    self.nic(net, parent, Node(id="nic", kind="nic", host=parent.host), 0, 0)

    def pci(self, pci: xml_tree.Element, parent: Node) -> None:
        address = pci.get("busid")
        if bus_key(address) is None:
            raise pci.wrong("busid", "is no PCI address such as 0000:17:00.0")
        generation, width = self.speed(pci), self.width(pci)
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
        if not gpus and of_class.startswith(_GPU_CLASSES):
            gpus = [xml_tree.Element(tag="gpu", attributes={}, file=pci.file, line=pci.line)]
        for gpu in gpus:
            self.gpu(gpu, parent, common, generation, width)
        for net in nets:
            self.nic(net, parent, replace(common, kind="nic"), generation, width)
        if not gpus and not nets and of_class.startswith("0x02"):
            self.nic(pci, parent, replace(common, kind="nic"), generation, width)
        if gpus or nets or of_class.startswith("0x02"):
            for child in pci.of("pci"):  # inside a GPU or a NIC: beside it here
                self.pci(child, parent)
        else:
            self.no_class += not of_class
            node = replace(common, id=self.ids.take("pci"), affinity="")
            self.nodes.append(node)
            self.link(parent, node.id, generation, width)
            self.children(pci, node)

    def speed(self, pci: xml_tree.Element) -> int:
        """The generation of a device's link; 0 if its speed is unknown or impossible."""
        text = pci.get("link_speed")
        is_number = not text.lower().lstrip("+").startswith(("-", "nan", "inf"))
        generation = rates.pcie_generation(text) if is_number else 0
        self.odd += [(pci, "link_speed")] if text.strip() and not generation else []
        return generation

    def width(self, pci: xml_tree.Element) -> int:
        """The lanes of a device's link; 0 if their number is unknown or impossible."""
        width = pci.number("link_width", 0)
        if not 0 <= width <= 32:
            self.odd.append((pci, "link_width"))
            return 0
        self.no_width += not width and "class" in pci.attributes
        return width

    def gpu(
        self, gpu: xml_tree.Element, parent: Node, common: Node, generation: int, width: int
    ) -> None:
        # Numbered when all are known: those without a number get what is left.
        id_ = f"?{len(self.gpus)}"
        facts = (*common.facts, *_facts(gpu, GPU_ATTRIBUTES, "xml:"))
        node = replace(common, id=id_, kind="gpu", facts=facts)
        product = gpu_model(node.fact("vendor"), node.fact("device"))
        gfx = rates.gfx_name(node.fact("gcn"))
        name = product.name if product is not None else f"AMD {gfx}" if gfx else ""
        self.nodes.append(replace(node, name=name))
        self.gpus.append((id_, gpu))
        self.cpu_of[id_] = self.above.id
        self.link(parent, id_, generation, width)
        self.c2c(gpu)

    def nic(
        self, net: xml_tree.Element, parent: Node, node: Node, generation: int, width: int
    ) -> None:
        """A port of a NIC, or the device itself where the file names no port. The same one below
        another CPU is not another one.
        """
        is_port = net.tag == "net"
        key = (
            node.host,
            bus_key(node.address),
            *((net.get("name"), net.get("dev"), net.get("guid")) if is_port else ()),
        )
        if key in self.nics:
            if not any({link.a, link.b} == {parent.id, self.nics[key]} for link in self.links):
                self.link(parent, self.nics[key], generation, width)
            return
        if is_port:
            self.net_speed(net)
            dev = net.number("dev", -1)
            facts = *node.facts, *_facts(net, NET_ATTRIBUTES, "xml:")
            node = replace(
                node, id=self.ids.take("nic", dev), name=net.get("name"), index=dev, facts=facts
            )
        else:
            free = next(n for n in count() if n not in self.devs)
            self.devs.add(free)
            node = replace(node, id=self.ids.take("nic", free), index=free)
        self.nics[key] = node.id
        self.nodes.append(replace(node, affinity=self.above.affinity))
        self.link(parent, node.id, generation, width)

    def net_speed(self, net: xml_tree.Element) -> None:
        """Note a port's impossible speed; -1 is how some drivers say that they do not know it."""
        text = net.get("speed").strip().lower()
        if text != "-1" and text.startswith(("-", "nan", "inf", "+inf")):
            self.odd.append((net, "speed"))

    def link(self, parent: Node, child: str, generation: int, width: int) -> None:
        self.links.append(rates.pcie_link(parent.id, child, generation, width))

    def c2c(self, gpu: xml_tree.Element) -> None:
        """A link to the CPU above: bw is MB/s of each of its parts (topo.cc)."""
        for c2c in gpu.of("c2c"):
            count, mbs = _whole(c2c, "count", 1), _whole(c2c, "bw", 0)
            if not 0 < count < 1000 or not 0 <= mbs < 10**9:
                self.odd.append((c2c, "count or bw"))
                count, mbs = min(max(count, 1), 999), 0
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

    def number_gpus(self) -> list[str]:
        """Give GPUs their ids: the number by which CUDA counts them, the rank where two hosts use
        the same numbers. Those without a number are counted by PCI address, as CUDA and nvidia-smi
        count all. Returns remarks.
        """
        by_id = {node.id: node for node in self.nodes}
        given = {id_: gpu.number("dev", -1) for id_, gpu in self.gpus}
        numbers = {id_: number for id_, number in given.items() if number >= 0}
        used = {(by_id[id_].host, number) for id_, number in numbers.items()}
        assumed = sorted(
            set(given) - set(numbers), key=lambda id_: (bus_key(by_id[id_].address), id_)
        )
        for host in range(len(self.hosts)):
            free = (number for number in range(len(given)) if (host, number) not in used)
            here = [id_ for id_ in assumed if by_id[id_].host == host]
            numbers |= dict(zip(here, list(free), strict=False))
        ids: dict[str, str] = {}
        for id_, gpu in sorted(
            self.gpus, key=lambda entry: (entry[0] in assumed, numbers[entry[0]])
        ):
            wanted = numbers[id_] if len(self.hosts) < 2 else _whole(gpu, "rank", -1)
            ids[id_] = self.ids.take("gpu", wanted)
        self.nodes = [
            replace(node, facts=(*node.facts, ("numbered", "by PCI address")))
            if node.id in assumed
            else node
            for node in self.nodes
        ]
        self.nodes = [replace(node, index=numbers.get(node.id, node.index)) for node in self.nodes]
        self.nodes, self.links = renamed(self.nodes, self.links, ids)
        self.cpu_of = {ids[id_]: cpu for id_, cpu in self.cpu_of.items()}
        self.gpus = [(ids[id_], gpu) for id_, gpu in self.gpus]
        return [ASSUMED] if assumed else []

    def bundles(self) -> list[str]:
        """Add NVLinks and xGMI, which both GPUs list; NVSwitches are one, as for NCCL. Returns
        remarks.
        """
        by_id = {node.id: node for node in self.nodes}
        self.by_bus = {
            (node.host, bus_key(node.address)): node.id
            for node in reversed(self.nodes)
            if node.kind == "gpu"
        }
        counts: dict[tuple[str, str], int] = {}
        listed: dict[str, list[Listed]] = {}
        is_hidden = False
        for id_, gpu in self.gpus:
            host = by_id[id_].host
            own = list(self.listed(gpu))
            ends = {self.far(link, id_, host) for link in own}
            self.odd += [(gpu, "target")] if ends & {None, id_} else []
            totals = _nccl_links.totals(
                own,
                lambda link, id_=id_, host=host: self.far(link, id_, host),  # type: ignore[misc]
                lambda target, host=host: (host, bus_key(target)) in self.by_bus,  # type: ignore[misc]
            )
            totals.pop(id_, None)
            counts |= {(id_, far): count for far, count in totals.items()}
            is_hidden |= any(link.target.startswith(NO_BUS) for link in own if link.is_to_switch)
            if own:
                listed[id_] = own
        if hosts := {by_id[a].host for a, far in counts if far == SWITCH}:
            host = hosts.pop() if len(hosts) == 1 else -1
            self.nodes.append(Node(id=SWITCH, kind="nvswitch", index=0, host=host))
        self.add_bundles(counts, listed, by_id)
        elements = dict(self.gpus)
        self.odd += [
            (elements[a], "count")
            for (a, b), count in counts.items()
            if b in elements and counts.get((b, a)) != count
        ]
        hidden = (
            "the far ends of the NVLinks are hidden, as under a hypervisor: taken as one NVSwitch,"
            " as NCCL takes them"
        )
        return [hidden] if is_hidden else []

    def listed(self, gpu: xml_tree.Element) -> Iterator[Listed]:
        """The link elements of a GPU that count."""
        for element in gpu.of("nvlink", "xgmi"):
            count = element.number("count", 1)
            if not 0 < count < 1000:
                self.odd.append((element, "count"))
                continue
            yield Listed(
                target="".join(element.get("target").lower().split()),
                count=count,
                class_=element.get("tclass").strip().lower(),
                is_xgmi=element.tag == "xgmi",
            )

    def far(self, link: Listed, gpu: str, host: int) -> str | None:
        """The far end of a link: another GPU, the NVSwitch, the CPU of a POWER machine, or None."""
        if link.is_to_cpu:
            return self.cpu_of[gpu]
        return SWITCH if link.is_to_switch else self.by_bus.get((host, bus_key(link.target)))

    def add_bundles(
        self,
        counts: dict[tuple[str, str], int],
        listed: dict[str, list[Listed]],
        by_id: dict[str, Node],
    ) -> None:
        for a, b in dict.fromkeys(
            (b, a) if (b, a) in counts and b < a else (a, b) for a, b in counts
        ):
            fewer = min(counts[a, b], counts.get((b, a), counts[a, b]))
            own = listed.get(a) or listed[b]
            if any(link.is_xgmi for link in own):
                gfx = rates.gfx_name(by_id[a].fact("gcn")) or _arch_of_product(by_id[a])
                self.links.append(rates.xgmi_link(a, b, gfx, fewer))
            else:
                text = by_id[a].fact("sm") or _arch_of_product(by_id[a])
                arch = int(text) if text.isdecimal() and len(text) < 4 else 0
                generation = rates.nvlink_generation(arch)
                self.links.append(rates.nvlink_link(a, b, generation, fewer, arch=arch))

    def remarks(self) -> list[str]:
        name = unnamed.library(self.nodes)
        notes = {
            f"link_width is 0 or missing for {self.no_width} PCI devices: their rates are unknown"
            f" ({name} counts 16 lanes)": self.no_width,
            f"{self.no_class} PCI devices have no class, so what they are is unknown: {name} asks"
            " the machine that it runs on": self.no_class,
        }
        return [*[note for note, count in notes.items() if count], *odd_lines(self.odd)]


def _facts(element: xml_tree.Element, known: tuple[str, ...], prefix: str) -> Facts:
    return tuple(
        (key if key in known else f"{prefix}{key}", value)
        for key, value in element.attributes.items()
        if key != "busid"
    )


def _arch_of_product(node: Node) -> str:
    product = gpu_model(node.fact("vendor"), node.fact("device"))
    return product.arch if product is not None else ""


def _whole(element: xml_tree.Element, key: str, default: int) -> int:
    """An attribute that is a whole number; -1 for one that is none."""
    try:
        return element.number(key, default)
    except UsageError:
        return -1


def _below(element: xml_tree.Element, tag: str) -> Iterator[xml_tree.Element]:
    for child in element.children:
        if child.tag == tag:
            yield child
        yield from _below(child, tag)
