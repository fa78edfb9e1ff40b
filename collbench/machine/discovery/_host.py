"""One host's part of the graph: GPUs as CUDA numbers them, PCIe tree, CPUs, NVLinks, NICs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from collbench.core.grouping import grouped
from collbench.machine.discovery import _nvlinks
from collbench.machine.discovery._tree import PcieTree, TreeHop
from collbench.machine.discovery.recording import CpuRecord, GpuRecord, NumaNode, Recording
from collbench.machine.topology.model import Facts, Link, Node, NodeKind, facts_of, numbered
from collbench.machine.topology.rates import pcie_link, socket


@dataclass(kw_only=True)
class Draft:
    """What a host adds to the graph. gpu_ids: node ids by NVML's numbers. cpus: node ids by NUMA
    node.
    """

    recording: Recording
    host: int
    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gpu_ids: dict[int, str] = field(default_factory=dict)
    cpus: dict[int, str] = field(default_factory=dict)
    # root ids by (host bridge, cpu)
    roots: dict[tuple[str, str], str] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)
    linked: set[tuple[str, str]] = field(default_factory=set)

    def note(self, text: str) -> None:
        """Add a note, unless it is there already."""
        if text not in self.notes:
            self.notes.append(text)

    def cpu_above(self, node: str) -> str:
        """The CPU above a node."""
        while not node.startswith("cpu"):
            node = next(link.a for link in self.links if link.b == node and link.kind == "pcie")
        return node


def draft_host(
    recording: Recording, host: int, first: Mapping[str, int], shared_switch: str
) -> Draft:
    """A host's nodes and links; first: the first free number of each kind; shared_switch: the
    NVLink switch of several hosts, if it has one.
    """
    draft = Draft(recording=recording, host=host)
    tree = PcieTree(recording)
    shown = _shown_gpus(draft)
    default_cpu = _add_cpus(draft, first["cpu"])
    gpus = [_gpu_node(draft, tree, gpu, number, first["gpu"]) for number, gpu in enumerate(shown)]
    nics = _nic_nodes(draft, tree, first["nic"])
    draft.nodes += gpus
    for node in gpus + nics:
        _add_path_to_root(draft, tree, node, default_cpu, first["root"])
    draft.nodes += nics
    _link_roots(draft)
    _link_sockets(draft)
    if shared_switch:
        _link_nvlinks(draft, shown, shared_switch, -1)
    else:
        _link_nvlinks(draft, shown, f"nvswitch{first['nvswitch']}", host)
    _link_c2c(draft, shown)
    _note_hypervisor(draft, tree, shown)
    return draft


def _shown_gpus(draft: Draft) -> list[GpuRecord]:
    """GPUs that CUDA shows, in CUDA's order; notes on the others."""
    recording = draft.recording
    if not recording.has_driver:
        on_the_bus = recording.gpus_on_the_bus
        draft.note(
            "no NVIDIA driver was found"
            + (
                f", but {len(on_the_bus)} NVIDIA GPUs are on the PCI bus: {', '.join(on_the_bus)}"
                if on_the_bus
                else ""
            )
        )
        return []
    if "gpus" in recording.unknown:
        draft.note(f"the NVIDIA driver does not answer: {recording.unknown['gpus']}")
        return []
    if recording.cuda is None:
        draft.note(
            f"which GPUs CUDA shows is not known ({recording.unknown.get('cuda', 'nobody asked')}):"
            " they stand in NVML's order"
        )
        return recording.shown_gpus
    variable = (
        ""
        if recording.visible_devices is None
        else f"CUDA_VISIBLE_DEVICES is '{recording.visible_devices}'"
    )
    hidden = grouped(
        (gpu.unknown.get("handle") or variable, f"{gpu.index} ({gpu.address or 'address unknown'})")
        for gpu in recording.gpus
        if gpu.index not in recording.cuda
    )
    for reason, some in hidden.items():
        draft.note(
            f"left out, as CUDA does not show it: NVML's GPU {', '.join(some)}"
            + (f": {reason}" if reason else "")
        )
    return recording.shown_gpus


def _add_cpus(draft: Draft, first: int) -> str:
    """Add a node for each NUMA node that has cores, or one for all cores. Returns the node to which
    devices are linked whose place is unknown.
    """
    recording, processor = draft.recording, draft.recording.processor
    numa = recording.numa or (NumaNode(index=0, cpulist=recording.cpus or ""),)
    for number, node in enumerate(numa, first):
        draft.cpus[node.index] = f"cpu{number}"
        draft.nodes.append(
            Node(
                id=f"cpu{number}",
                kind="cpu",
                name=processor.name or "",
                index=node.index,
                host=draft.host,
                affinity=node.cpulist,
                facts=(*_cpu_facts(processor), *facts_of({"package": node.package})),
            )
        )
    return f"cpu{first}"


def _cpu_facts(processor: CpuRecord) -> Facts:
    """The attributes of a CPU in NCCL's topology XML, under NCCL's names."""
    arch = {"ARM": "arm64", "IBM": "ppc64"}.get(
        processor.vendor or "", "x86_64" if processor.vendor else None
    )
    x86 = processor if arch == "x86_64" else CpuRecord()
    return facts_of(
        {"arch": arch, "vendor": x86.vendor, "familyid": x86.family, "modelid": x86.model}
    )


def _gpu_node(draft: Draft, tree: PcieTree, gpu: GpuRecord, number: int, first: int) -> Node:
    draft.gpu_ids[gpu.index] = f"gpu{first + number}"
    fabric = gpu.fabric.state if gpu.fabric is not None else None
    rdma = draft.recording.rdma
    if gpu.has_mig:
        draft.note(f"GPU {number} is divided (MIG): no P2P from it or to it")
    facts = {
        "uuid": gpu.uuid,
        "nvml": gpu.index,
        "sm": gpu.arch,
        "driver": draft.recording.driver,
        "mig": "on" if gpu.has_mig else None,
        "memory_numa": None if gpu.numa_node is None or gpu.numa_node < 0 else gpu.numa_node,
        "peermem": _yes_or_no(rdma.has_peermem),
        "open_driver": _yes_or_no(rdma.has_open_driver),
        "iommu": rdma.iommu,
        "fabric": {1: "not started", 2: "in progress", 3: "completed"}.get(fabric or 0),
    }
    return Node(
        id=f"gpu{first + number}",
        kind="gpu",
        name=gpu.name or "",
        index=number,
        address=gpu.address or "",
        host=draft.host,
        affinity=gpu.cpu_affinity or "",
        facts=(*_identity(tree, gpu.address or ""), *facts_of(facts)),
    )


def _yes_or_no(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "no"


def _nic_nodes(draft: Draft, tree: PcieTree, first: int) -> list[Node]:
    """One node for each PCI function that is a NIC: RDMA devices first, with their interfaces."""
    nics = sorted(draft.recording.nics, key=lambda one: not one.is_rdma)
    by_address = grouped((nic.address, nic) for nic in nics if not nic.is_virtual)
    nodes = []
    for number, (address, parts) in enumerate(by_address.items()):
        ports = [port for nic in parts for port in nic.ports]
        active = [port for port in ports if port.state_name == "ACTIVE"]
        rates = (
            [port.gbps for port in active]
            if ports
            else [max(nic.speed_mbps or 0, 0) / 1000 for nic in parts if nic.operstate == "up"]
        )
        rate = sum(one for one in rates if one) if rates and all(rates) else None
        facts = {
            "interfaces": " ".join(nic.name for nic in parts if not nic.is_rdma),
            "layer": (active or ports)[0].link_layer if ports else "Ethernet",
            "rdma": _yes_or_no(any(nic.is_rdma for nic in parts)),
            "up": "yes" if rates else "no",
            "gbps": f"{rate:g}" if rate else None,
        }
        nodes.append(
            Node(
                id=f"nic{first + number}",
                kind="nic",
                name=parts[0].name,
                index=number,
                address=address,
                host=draft.host,
                facts=(*_identity(tree, address), *facts_of(facts)),
            )
        )
    return nodes


def _add_path_to_root(
    draft: Draft, tree: PcieTree, node: Node, default_cpu: str, first_root: int
) -> None:
    """Add the links from a GPU or NIC up to its host bridge, switches included. A switch or bridge
    that several devices share is added once.
    """
    place, whose = tree.place(node.address), "GPUs" if node.kind == "gpu" else "NICs"
    numa = tree.numa_of(node.address)
    cpu = draft.cpus.get(numa if numa is not None else -1, default_cpu)
    if place is not None and (numa is None or numa not in draft.cpus):
        sources = (
            f"names no NUMA node for {whose} (numa_node -1)"
            if numa is None
            else f"says NUMA node {numa}, which has no cores, for {whose}"
        )
        draft.note(
            f"the kernel {sources}: drawn at the "
            + ("only one" if len(draft.cpus) == 1 else "first, though they may be elsewhere")
        )
    bridge = place.bridge if place is not None else "unknown"
    root = draft.roots.get((bridge, cpu))
    if root is None:
        root = draft.roots[bridge, cpu] = f"root{first_root + len(draft.roots)}"
        address = bridge.removeprefix("pci")
        draft.nodes.append(Node(id=root, kind="root", address=address, host=draft.host))
    if place is None:
        draft.note(
            f"not all {whose} are in the host's PCIe tree: the others are drawn at a host bridge,"
            " without rates"
        )
        _add_link(draft, pcie_link(root, node.id, 0, 0))
        return
    host = f"h{draft.host}." * (draft.host != 0)
    names = {"root": root, node.address: node.id}
    names |= {switch: f"{host}pci:{switch}" for switch in place.switches}
    for switch in place.switches:
        if names[switch] not in draft.switches:
            draft.switches.add(names[switch])
            draft.nodes.append(
                Node(
                    id=names[switch],
                    kind="pci",
                    address=switch,
                    host=draft.host,
                    facts=_identity(tree, switch),
                )
            )
    for hop in place.hops:
        above, below = names[hop.above], names[hop.below]
        note = _speed_note(hop, node.kind if hop.below == node.address else "pci")
        _add_link(draft, pcie_link(above, below, hop.most.generation, hop.most.lanes, note))


def _add_link(draft: Draft, link: Link) -> None:
    if (link.a, link.b) not in draft.linked:
        draft.linked.add((link.a, link.b))
        draft.links.append(link)


def _identity(tree: PcieTree, address: str) -> Facts:
    """How a PCI function identifies itself, under NCCL's names, which are the kernel's."""
    device = tree.devices.get(address)
    if device is None:
        return ()
    return facts_of(
        {
            "class": device.pci_class,
            "vendor": device.vendor,
            "device": device.device,
            "subsystem_vendor": device.subsystem_vendor,
            "subsystem_device": device.subsystem_device,
        }
    )


def _speed_note(hop: TreeHop, kind: NodeKind) -> str:
    """The speed at which a link runs, where that is less than it could."""
    fewer_lanes = 0 < hop.now.lanes < hop.most.lanes
    slower = 0 < hop.now.generation < hop.most.generation
    if not fewer_lanes and not slower:
        return ""
    if kind == "gpu" and not fewer_lanes:
        return f"now {hop.now}: a GPU saves power when idle"
    return f"trained at {hop.now}, could be {hop.most}"


def _link_roots(draft: Draft) -> None:
    """Add links from CPUs to host bridges. No source gives their rate: we assume that they carry
    what is linked below them, so that none limits a path.

    Functions of unknown rate, as virtual NICs, count for nothing there.
    """
    for (_, cpu), root in draft.roots.items():
        below = [link for link in draft.links if link.a == root]
        if len(below) == 1:
            draft.links.append(replace(below[0], a=cpu, b=root, note=""))
            continue
        known = any(link.usable_gbs is not None for link in below)
        draft.links.append(
            Link(
                a=cpu,
                b=root,
                kind="pcie",
                count=sum(link.count for link in below),
                generation=max(link.generation for link in below),
                raw_gbs=sum(link.raw_gbs or 0.0 for link in below) if known else None,
                usable_gbs=sum(link.usable_gbs or 0.0 for link in below) if known else None,
                source=f"{len(below)} links below it, together" if known else "",
                note="a host bridge, taken for no limit",
            )
        )


def _link_sockets(draft: Draft) -> None:
    """Add links between all NUMA nodes."""
    processor = draft.recording.processor
    rate = socket(processor.vendor or "", processor.family or 0, processor.model or 0)
    gbs, source = rate or (None, "")
    packages = {node.index: node.package for node in draft.recording.numa}
    for one, other in combinations(draft.cpus, 2):
        is_one_package = packages.get(one) is not None and packages[one] == packages.get(other)
        draft.links.append(
            Link(
                a=draft.cpus[one],
                b=draft.cpus[other],
                kind="socket",
                raw_gbs=gbs,
                usable_gbs=gbs,
                source=source,
                note=(
                    "NUMA nodes of one package, which NCCL counts like sockets"
                    if is_one_package
                    else ""
                ),
            )
        )


def _link_nvlinks(draft: Draft, shown: list[GpuRecord], switch: str, switch_host: int) -> None:
    """Add bundles of NVLinks to other GPUs, to the host's switch and to CPUs."""
    number_of = {gpu.address: number for number, gpu in enumerate(shown) if gpu.address}
    of_gpu = [_nvlinks.bundles(gpu, draft.recording) for gpu in shown]
    for number, gpu in enumerate(shown):
        id_ = draft.gpu_ids[gpu.index]
        ends = [end for end, bundle in of_gpu[number].items() if bundle.up and end]
        dead = set(_nvlinks.dead(gpu, draft.recording))
        if dead:
            draft.note(
                f"GPU {number}: {numbered('NVLink', dead)} down, though up on other GPUs of"
                " its kind"
            )
        elsewhere: list[int] = []
        for end, bundle in of_gpu[number].items():
            if not bundle.up:
                continue
            down = dead & set(bundle.down)
            # no other GPU could own the links without a known far end
            if ends == [end]:
                down |= dead & set(of_gpu[number].get("", _nvlinks.Bundle()).down)
            note = f"{numbered('NVLink', down)} of GPU {number} down" if down else ""
            other = number_of.get(end)
            if end == _nvlinks.FAR_SWITCH:
                if all(node.id != switch for node in draft.nodes):
                    draft.nodes.append(
                        Node(id=switch, kind="nvswitch", name="NVSwitch", host=switch_host)
                    )
                draft.links.append(_nvlinks.bundle_link(id_, switch, gpu, bundle.up, note))
            elif end == _nvlinks.FAR_CPU:  # coherent, and no path from GPU to GPU: as C2C
                cpu = draft.cpu_above(id_)
                link = _nvlinks.bundle_link(cpu, id_, gpu, bundle.up, note)
                draft.links.append(replace(link, kind="c2c"))
            elif not end:
                links = numbered("NVLink", [link.number for link in bundle.up])
                draft.note(f"GPU {number}: where its {links} lead is unknown")
            elif other is None:
                elsewhere += [link.number for link in bundle.up]
            elif other > number:
                back = of_gpu[other].get(gpu.address or "", _nvlinks.Bundle()).up
                if len(back) != len(bundle.up):
                    draft.note(
                        f"GPU {number} and GPU {other} count their NVLinks as {len(bundle.up)} and"
                        f" {len(back)}: the fewer count"
                    )
                fewer = min(bundle.up, back, key=len) or bundle.up
                far = draft.gpu_ids[shown[other].index]
                draft.links.append(_nvlinks.bundle_link(id_, far, gpu, fewer, note))
        if elsewhere:
            links = numbered("NVLink", elsewhere)
            draft.note(f"GPU {number}: {links} lead to GPUs that are left out")


def _link_c2c(draft: Draft, shown: list[GpuRecord]) -> None:
    for gpu in shown:
        speeds = [link.max_mbps for link in gpu.c2c if link.status == 1]
        if speeds:
            known = [speed for speed in speeds if speed is not None and speed > 0]
            rate = sum(known) / 1000 if len(known) == len(speeds) else None
            id_ = draft.gpu_ids[gpu.index]
            draft.links.append(
                Link(
                    a=draft.cpu_above(id_),
                    b=id_,
                    kind="c2c",
                    count=len(speeds),
                    raw_gbs=rate,
                    usable_gbs=rate,
                    source=(
                        "NVML's largest rate of its links, as NCCL's graph counts them"
                        if rate
                        else ""
                    ),
                )
            )


def _note_hypervisor(draft: Draft, tree: PcieTree, shown: list[GpuRecord]) -> None:
    recording = draft.recording
    places = [tree.place(gpu.address or "") for gpu in shown]
    if (
        recording.processor.has_hypervisor
        and shown
        and all(place is not None and not place.switches for place in places)
    ):
        product = f" ({recording.product})" if recording.product else ""
        hidden = "switches and sockets" if len(draft.cpus) == 1 else "switches"
        draft.note(
            f"a hypervisor{product} shows a flat PCIe tree: real {hidden}, and what GPUs share of"
            " them, are hidden"
        )
    if len(draft.roots) > len({bridge for bridge, _ in draft.roots}):
        draft.note("one PCIe bus has functions of several NUMA nodes: it is drawn once for each")
