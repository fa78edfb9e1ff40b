"""hwloc's XML (`lstopo --of xml`, versions 2 and 3): NUMA nodes, PCIe bridges, GPUs, NICs, and the
matrix NVLinkBandwidth.

A PCIe switch is two levels of bridges, its upstream port and its downstream ports: one node here,
as for NCCL; a root port is part of its root. Link speeds are GB/s of what was negotiated when
lstopo ran, which a sleeping GPU lowers. Source: hwloc 2.9's topology-xml.c, pci-common.c,
topology-nvml.c.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from collbench.core import xml_tree
from collbench.core.errors import UsageError
from collbench.machine.formats._build import (
    ASSUMED,
    Ids,
    arch_of_name,
    limit_cpus,
    mask_bits,
    mask_cpus,
    number_of,
    renamed,
    socket_links,
)
from collbench.machine.formats._contradictions import checked, odd_lines
from collbench.machine.formats._hwloc_nvlinks import nvlinks
from collbench.machine.formats._nccl_attributes import bus_key
from collbench.machine.formats._nccl_links import SWITCH
from collbench.machine.topology import rates, unnamed
from collbench.machine.topology.gpu_models import gpu_model
from collbench.machine.topology.model import Facts, Link, Node, Topology, facts_of

_SOURCE = "hwloc's pci_link_speed"
_EFFICIENCY = rates.pcie(3, 16).usable_gbs / rates.pcie(3, 16).raw_gbs  # one for all generations
# osdev_type by the file's version: network and OpenFabrics, numbered in hwloc 2, bits in hwloc 3.
_NETWORKS = {"2": (("2", "3"), ("3",)), "3": (("16", "32", "48"), ("32", "48"))}
_NVIDIA_ID, _AMD_ID = "10de", "1002"
_CPU_FACTS = (
    ("vendor", "CPUVendor"),
    ("familyid", "CPUFamilyNumber"),
    ("modelid", "CPUModelNumber"),
)


def is_mine(text: str) -> bool:
    """Whether that is hwloc's XML."""
    return xml_tree.root_tag(text) == "topology"


def read(text: str, name: str) -> Topology:
    """The topology of a file. Raises UsageError with the line."""
    root = xml_tree.parse(text, name, may_be_cut=True)
    if root.tag != "topology":
        raise UsageError(f"{root.place}: the root is <{root.tag}>, not <topology>")
    if not re.match(r"[23]\.", root.get("version")):
        raise UsageError(
            f"{root.place}: version of <topology> is '{root.get('version')[:20]}', not 2 or 3 of"
            " hwloc",
            "lstopo --of xml of hwloc 2 writes it",
        )
    return _HwlocReader(name, root.get("version")[0]).topology(root)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Near:
    """Where an object stands: the CPUs and the package of the last object that has some."""

    cpus: int
    package: xml_tree.Element | None


class _HwlocReader:
    """Nodes and links of one file, in its order."""

    def __init__(self, name: str, version: str) -> None:
        self.name = name
        self.networks, self.fabrics = _NETWORKS[version]
        self.ids = Ids()
        self.nodes: list[Node] = []
        self.links: list[Link] = []
        self.cpus: list[tuple[str, int]] = []  # node, its CPUs
        self.by_object: dict[str, str] = {}  # nodes by kind and gp_index, as matrices name them
        self.relevant: set[int] = set()  # elements, by identity, with a GPU or a NIC in them
        self.left_out: list[str] = []
        self.unplaced = 0
        self.is_switched = False
        self.assumed = False  # the numbers of GPUs
        self.memory: list[str] = []  # NUMA nodes without CPUs of their own
        self.odd: list[tuple[xml_tree.Element, str]] = []  # attributes that no machine has

    def topology(self, root: xml_tree.Element) -> Topology:
        machine = next(root.of("object"), None)
        if machine is None:
            raise UsageError(f"{root.place}: <topology> holds no <object>")
        objects = list(_objects(machine, _Near(cpus=0, package=None)))
        self.find_cpus(objects, root)
        self.mark_relevant(machine)
        for element, near in objects:
            if (
                element.get("type") in ("Bridge", "PCIDev", "OSDev")
                and id(element) in self.relevant
            ):
                self.io(element, near)
        self.number_gpus()
        links, notes = nvlinks(root, {node.id: node for node in self.nodes}, self.by_object)
        if any(SWITCH in (link.a, link.b) for link in links):
            self.nodes.append(Node(id=SWITCH, kind="nvswitch", index=0))
        cpus = [node for node in self.nodes if node.kind == "cpu"]
        host = _info(root, "HostName") or _info(machine, "HostName")
        topology = Topology(
            name=self.name.rpartition("/")[2],
            nodes=tuple(self.nodes),
            links=(*self.links, *links, *socket_links(cpus)),
            hosts=(host,),
            notes=(*notes, *self.remarks()),
        )
        return unnamed.marked(checked(topology), is_switched=self.is_switched)

    def find_cpus(
        self, objects: list[tuple[xml_tree.Element, _Near]], root: xml_tree.Element
    ) -> None:
        """NUMA nodes that have CPUs; packages where there are none."""
        for kind in ("NUMANode", "Package"):
            own = [pair for pair in objects if pair[0].get("type") == kind]
            covered = 0
            for element, near in sorted(own, key=lambda pair: pair[0].number("os_index", 0)):
                bits = mask_bits(element.get("cpuset"))
                if element.get("subtype") == "GPUMemory" or not bits:
                    continue
                if not bits & ~covered:
                    # memory beside that of the CPUs: HBM, persistent memory, CXL
                    self.memory.append(element.get("os_index"))
                    continue
                covered |= bits
                number = element.number("os_index", -1)
                package = near.package or element
                arch = _info(root, "Architecture") or _info(objects[0][0], "Architecture")
                facts = {key: _info(package, info_name) for key, info_name in _CPU_FACTS}
                node = Node(
                    id=self.ids.take("cpu", number),
                    kind="cpu",
                    index=max(number, -1),
                    name=_info(package, "CPUModel"),
                    affinity=mask_cpus(element.get("cpuset")) or "",
                    facts=facts_of({"arch": arch} | facts),
                )
                self.nodes.append(node)
                self.cpus.append((node.id, bits))
                self.by_object[f"{kind}:{element.get('gp_index')}"] = node.id
            if self.cpus:
                break
        else:
            raise UsageError(f"{objects[0][0].place}: no NUMA node and no package with CPUs")
        limit_cpus(self.nodes, self.name)
        for element, _ in objects:
            if element.get("type") == "Package":
                self.by_object.setdefault(
                    f"Package:{element.get('gp_index')}",
                    self.cpu_of(mask_bits(element.get("cpuset")) or 0)[0],
                )

    def mark_relevant(self, element: xml_tree.Element) -> bool:
        """Note NVSwitches and what is left out; whether the element holds a GPU or a NIC."""
        kind = (
            _kind(element, self.networks) if element.get("type") in ("PCIDev", "OSDev") else "other"
        )
        if kind == "nvswitch":
            self.by_object[f"PCIDev:{element.get('gp_index')}"] = SWITCH
            self.is_switched = True
        elif kind == "other" and element.get("pci_type").startswith("03"):
            self.left_out.append(element.get("pci_busid"))
        below = (
            [self.mark_relevant(child) for child in element.of("object")] if kind == "other" else []
        )
        if kind in ("gpu", "nic") or any(below):
            self.relevant.add(id(element))
        return id(element) in self.relevant

    def cpu_of(self, cpus: int) -> tuple[str, bool]:
        """The CPU that is near to those, and whether it is the only one."""
        inside = [id_ for id_, bits in self.cpus if bits & ~cpus == 0]
        around = [id_ for id_, bits in self.cpus if cpus and cpus & ~bits == 0]
        candidates = around or inside or [self.cpus[0][0]]
        return candidates[0], len(candidates) == 1

    def io(self, element: xml_tree.Element, near: _Near) -> None:
        """A host bridge with all below it; a device without one, as virtual machines show some."""
        cpu, is_sure = self.cpu_of(near.cpus)
        self.unplaced += not is_sure
        if element.get("type") != "Bridge":
            self.device(element, cpu, 0.0)
        elif element.get("bridge_type").startswith("0"):
            root = Node(id=self.ids.take("root"), kind="root", address=element.get("bridge_pci"))
            self.nodes.append(root)
            place = len(self.links)
            self.below(element, root.id)
            below = [link for link in self.links[place:] if link.a == root.id]
            self.links.insert(place, _root_link(cpu, root.id, below))
        else:
            self.bridge(element, cpu, None)

    def below(
        self, element: xml_tree.Element, above: str, port: xml_tree.Element | None = None
    ) -> None:
        for child in element.of("object"):
            if id(child) in self.relevant and child.get("type") == "Bridge":
                self.bridge(child, above, port)
            elif id(child) in self.relevant:
                self.device(child, above, 0.0 if port is None else self.speed(port))

    def bridge(self, bridge: xml_tree.Element, above: str, port: xml_tree.Element | None) -> None:
        """A bridge below a node, or below a port of it: the port's other end then, a switch."""
        inner = [
            child for child in bridge.of("object") if child.get("type") in ("Bridge", "PCIDev")
        ]
        slots = {child.get("pci_busid").rpartition(".")[0] for child in inner}
        if port is not None or len(slots) > 1:
            node = Node(
                id=self.ids.take("pci"),
                kind="pci",
                address=bridge.get("pci_busid"),
                facts=_ids(bridge),
            )
            self.nodes.append(node)
            self.link(
                above, node.id, [self.speed(bridge), 0.0 if port is None else self.speed(port)]
            )
            self.below(bridge, node.id)
            return
        self.below(bridge, above, bridge)

    def device(self, device: xml_tree.Element, above: str, port_gbs: float) -> None:
        """A GPU or a NIC, and its link."""
        address, systems = device.get("pci_busid"), _systems(device)
        names = [system.get("name") for system in systems]
        if _kind(device, self.networks) == "gpu":
            numbers = (
                re.fullmatch(rf"{prefix}(\d{{1,4}})", name)
                for prefix in ("nvml", "rsmi", "cuda")
                for name in names
            )
            model, uuid = (
                next((value for system in systems if (value := _info(system, key))), "")
                for key in ("GPUModel", "NVIDIAUUID")
            )
            ids = _ids(device)
            product = gpu_model(dict(ids).get("vendor", ""), dict(ids).get("device", ""))
            arch = str(arch_of_name(model) or (product.arch if product is not None else ""))
            key = "gcn" if arch.startswith("gfx") else "sm"
            facts = facts_of({"uuid": uuid, key: arch})
            node = Node(
                id=f"?{len(self.nodes)}",
                kind="gpu",
                name=model or (product.name if product is not None else ""),
                index=next((int(match[1]) for match in numbers if match), -1),
                address=address,
                facts=(*ids, *facts),
            )
        else:
            fabrics = [
                system.get("name") for system in systems if system.get("osdev_type") in self.fabrics
            ]
            id_ = self.ids.take("nic")
            name = (fabrics or names or [""])[0]
            others = tuple(("netdev", other) for other in names if other not in (name, *fabrics))
            node = Node(
                id=id_,
                kind="nic",
                name=name,
                index=number_of(id_),
                address=address,
                facts=(*_ids(device), *others[:1]),
            )
        cpu = self.cpu_above(above)
        affinity = next((node.affinity for node in self.nodes if node.id == cpu), "")
        self.nodes.append(replace(node, affinity=affinity))
        for element in (device, *systems):
            self.by_object[f"{element.get('type')}:{element.get('gp_index')}"] = node.id
        self.link(above, node.id, [self.speed(device), port_gbs])

    def cpu_above(self, node: str) -> str:
        parents = {link.b: link.a for link in self.links}
        while node in parents:
            node = parents[node]
        return node

    def link(self, above: str, below: str, speeds: list[float]) -> None:
        """Add a link, as fast as the slower of its ends; 0 is hwloc's unknown."""
        raw = min((speed for speed in speeds if speed > 0), default=None)
        self.links.append(
            Link(
                a=above,
                b=below,
                kind="pcie",
                count=0,
                raw_gbs=raw,
                usable_gbs=raw * _EFFICIENCY if raw else None,
                source=_SOURCE if raw else "",
            )
        )

    def speed(self, device: xml_tree.Element) -> float:
        """GB/s that the file gives; 0, hwloc's unknown, for what is no speed."""
        text = device.get("pci_link_speed").strip() or "0"
        if not re.fullmatch(r"\d{1,3}(\.\d{1,9})?", text):  # 32 lanes of PCIe 6: 236 GB/s
            self.odd.append((device, "pci_link_speed"))
            return 0.0
        return float(text)

    def number_gpus(self) -> None:
        """Give GPUs their ids: the number by which nvidia-smi, else CUDA, counts them; those that
        neither lists are counted by PCI address, as both do.
        """
        gpus = sorted(
            (node for node in self.nodes if node.kind == "gpu"),
            key=lambda node: (node.index < 0, bus_key(node.address) or ()),
        )
        self.assumed = any(gpu.index < 0 for gpu in gpus)
        ids = {node.id: self.ids.take("gpu", node.index) for node in gpus}
        self.nodes, self.links = renamed(self.nodes, self.links, ids)
        self.nodes = [
            replace(node, index=number_of(node.id)) if node.kind == "gpu" else node
            for node in self.nodes
        ]
        self.by_object = {key: ids.get(id_, id_) for key, id_ in self.by_object.items()}

    def remarks(self) -> Iterator[str]:
        unknown = [
            link.b
            for link in self.links
            if link.kind == "pcie" and link.raw_gbs is None and not link.note
        ]
        if unknown:
            yield f"the speed of {len(unknown)} PCIe links is unknown, as under a hypervisor"
        if self.assumed:
            yield ASSUMED
        yield from odd_lines(self.odd)
        if self.memory:
            yield f"NUMA nodes that are memory alone are left out: {', '.join(self.memory[:8])}"
        if self.unplaced:
            yield (
                f"{self.unplaced} host bridges are near to several NUMA nodes, or to none that the"
                " file names: they are drawn at the first"
            )
        if self.left_out:
            yield (
                "display adapters that are no GPUs to compute with are left out:"
                f" {', '.join(self.left_out[:4])}"
            )


def _objects(element: xml_tree.Element, near: _Near) -> Iterator[tuple[xml_tree.Element, _Near]]:
    """Objects that are no I/O, and the first I/O objects below them."""
    yield element, near
    if element.get("type") in ("Bridge", "PCIDev", "OSDev"):
        return
    bits = mask_bits(element.get("cpuset")) or near.cpus
    inner = _Near(cpus=bits, package=element if element.get("type") == "Package" else near.package)
    for child in element.of("object"):
        yield from _objects(child, inner)


def _root_link(cpu: str, root: str, below: list[Link]) -> Link:
    """The link of a host bridge to its CPU. No file gives its rate: we assume that it carries what
    is linked below it, so that it limits no path.
    """
    known = [link for link in below if link.raw_gbs is not None and link.usable_gbs is not None]
    return Link(
        a=cpu,
        b=root,
        kind="pcie",
        count=0,
        raw_gbs=sum(link.raw_gbs or 0.0 for link in known) or None,
        usable_gbs=sum(link.usable_gbs or 0.0 for link in known) or None,
        source=f"{len(known)} links below it" if known else "",
        note="a host bridge, taken for no limit",
    )


def _kind(device: xml_tree.Element, networks: tuple[str, ...]) -> str:
    class_, vendor = device.get("pci_type")[:4], device.get("pci_type")[6:10].lower()
    systems = _systems(device)
    if (
        any(re.fullmatch(r"(nvml|cuda|rsmi)\d+", system.get("name")) for system in systems)
        or class_ == "0302"
        or (class_[:2] == "03" and vendor == _NVIDIA_ID)
        or (class_ in ("0380", "1200") and vendor == _AMD_ID)
    ):
        return "gpu"
    if class_[:2] == "02" or any(system.get("osdev_type") in networks for system in systems):
        return "nic"
    is_nvswitch = device.get("subtype") == "NVSwitch" or (class_ == "0680" and vendor == _NVIDIA_ID)
    return "nvswitch" if is_nvswitch else "other"


def _systems(device: xml_tree.Element) -> list[xml_tree.Element]:
    """The operating system's devices of a device: objects below it, or itself."""
    if device.get("type") == "OSDev":
        return [device]
    return [child for child in device.of("object") if child.get("type") == "OSDev"]


def _ids(device: xml_tree.Element) -> Facts:
    """Class, vendor and device as NCCL writes them."""
    match = re.match(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]", device.get("pci_type"))
    if match is None:
        return ()
    return ("class", f"0x{match[1]}00"), ("vendor", f"0x{match[2]}"), ("device", f"0x{match[3]}")


def _info(element: xml_tree.Element, name: str) -> str:
    return next((info.get("value") for info in element.of("info") if info.get("name") == name), "")
