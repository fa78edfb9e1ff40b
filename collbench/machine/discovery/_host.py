"""One host's part of the graph: its GPUs as CUDA numbers them, its PCIe tree, CPUs, NVLinks
and NICs, with notes on what is odd.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from collbench.machine.discovery import _nvlinks
from collbench.machine.discovery._tree import Hop, PcieTree
from collbench.machine.discovery.recording import CpuRecord, GpuRecord, Nic, NumaNode, Recording
from collbench.machine.topology.model import Link, Node, NodeKind
from collbench.machine.topology.rates import pcie_link, socket

# NVML_TOPOLOGY_*, in nvidia-smi's words
_CLASS_OF_LEVEL = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
PCILINK = "pcilink"  # the note of a link beside the tree, which writers of NCCL's XML know by it
_ACTIVE = "4: ACTIVE"  # a port's state


@dataclass(kw_only=True)
class Draft:
    """What a host adds. gpu_ids: node ids by NVML's numbers. cpus: node ids by NUMA node."""

    recording: Recording
    host: int
    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gpu_ids: dict[int, str] = field(default_factory=dict)
    cpus: dict[int, str] = field(default_factory=dict)
    # PCIe links by the root at their upper end
    below_root: dict[str, list[Link]] = field(default_factory=dict)
    # root ids by (host bridge, cpu)
    roots: dict[tuple[str, str], str] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)
    wired: set[tuple[str, str]] = field(default_factory=set)

    def note(self, text: str) -> None:
        """Say something once."""
        if text not in self.notes:
            self.notes.append(text)


def draft(recording: Recording, host: int, first: Mapping[str, int], shared_switch: str) -> Draft:
    """A host's nodes and links; first: the first free number of each kind; shared_switch: the
    NVLink switch of several hosts, if it has one.
    """
    made = Draft(recording=recording, host=host)
    tree = PcieTree(recording)
    shown = _shown_gpus(made)
    near = _cpus(made, first["cpu"])
    gpus = [_gpu_node(made, tree, gpu, number, first["gpu"]) for number, gpu in enumerate(shown)]
    nics = _nic_nodes(made, tree, first["nic"])
    made.nodes += gpus
    for node in gpus + nics:
        _hang(made, tree, node, near, first["root"])
    made.nodes += nics
    _feed_roots(made)
    _split_switches(made)
    _sockets(made)
    _nvlink_links(
        made, shown, shared_switch or f"nvswitch{first['nvswitch']}", -1 if shared_switch else host
    )
    _c2c_links(made, shown)
    _say_what_is_odd(made, tree, shown)
    return made


def _shown_gpus(made: Draft) -> list[GpuRecord]:
    """GPUs that CUDA shows, in CUDA's order; notes on the others."""
    recording = made.recording
    if not recording.has_driver:
        on_the_bus = [
            device.address
            for device in recording.pci
            if device.vendor == "0x10de" and (device.pci_class or "").startswith("0x03")
        ]
        made.note(
            "no NVIDIA driver was found"
            + (
                f", but {len(on_the_bus)} NVIDIA GPUs are on the PCI bus: {', '.join(on_the_bus)}"
                if on_the_bus
                else ""
            )
        )
        return []
    if "gpus" in recording.unknown:
        made.note(f"the NVIDIA driver does not answer: {recording.unknown['gpus']}")
        return []
    if recording.cuda is None:
        made.note(
            f"which GPUs CUDA shows is not known ({recording.unknown.get('cuda', 'nobody asked')}):"
            " they stand in NVML's order"
        )
        return [gpu for gpu in recording.gpus if "handle" not in gpu.unknown]
    by_index = {gpu.index: gpu for gpu in recording.gpus}
    variable = (
        ""
        if recording.visible_devices is None
        else f"CUDA_VISIBLE_DEVICES is '{recording.visible_devices}'"
    )
    hidden: dict[str, list[str]] = {}
    for gpu in recording.gpus:
        if gpu.index not in recording.cuda:
            hidden.setdefault(gpu.unknown.get("handle") or variable, []).append(
                f"{gpu.index} ({gpu.address or 'address unknown'})"
            )
    for reason, some in hidden.items():
        made.note(
            f"left out, as CUDA does not show it: NVML's GPU {', '.join(some)}"
            + (f": {reason}" if reason else "")
        )
    return [by_index[index] for index in recording.cuda]


def _cpus(made: Draft, first: int) -> str:
    """A node for each NUMA node that has cores, or one for all; returns where things go of which
    their place is unknown.
    """
    recording = made.recording
    numa = recording.numa or (NumaNode(index=0, cpulist=recording.cpus or ""),)
    for number, node in enumerate(numa):
        made.cpus[node.index] = f"cpu{first + number}"
        facts = (
            *_cpu_facts(recording.processor),
            *(() if node.package is None else (("package", str(node.package)),)),
        )
        name = recording.processor.name or ""
        made.nodes.append(
            Node(
                id=f"cpu{first + number}",
                kind="cpu",
                name=name,
                index=node.index,
                host=made.host,
                affinity=node.cpulist,
                facts=facts,
            )
        )
    return f"cpu{first}"


def _cpu_facts(processor: CpuRecord) -> tuple[tuple[str, str], ...]:
    """The attributes of a CPU in NCCL's topology XML, under NCCL's names."""
    arch = {"ARM": "arm64", "IBM": "ppc64"}.get(
        processor.vendor or "", "x86_64" if processor.vendor else None
    )
    x86 = processor if arch == "x86_64" else CpuRecord()
    facts = {"arch": arch, "vendor": x86.vendor, "familyid": x86.family, "modelid": x86.model}
    return tuple((key, str(value)) for key, value in facts.items() if value is not None)


def _gpu_node(made: Draft, tree: PcieTree, gpu: GpuRecord, number: int, first: int) -> Node:
    made.gpu_ids[gpu.index] = f"gpu{first + number}"
    fabric = gpu.fabric.state if gpu.fabric is not None else None
    facts = {
        "uuid": gpu.uuid,
        "nvml": str(gpu.index),
        "sm": None if gpu.arch is None else str(gpu.arch),
        "driver": made.recording.driver,
        "mig": "on" if gpu.has_mig else None,
        "memory_numa": None if gpu.numa_node is None or gpu.numa_node < 0 else str(gpu.numa_node),
        "fabric": {1: "not started", 2: "in progress", 3: "completed"}.get(fabric or 0),
    }
    if gpu.has_mig:
        made.note(f"GPU {number} is divided (MIG): no P2P from it or to it")
    return Node(
        id=f"gpu{first + number}",
        kind="gpu",
        name=gpu.name or "",
        index=number,
        address=gpu.address or "",
        host=made.host,
        affinity=gpu.cpu_affinity or "",
        facts=(
            *_identity(tree, gpu.address or ""),
            *((key, value) for key, value in facts.items() if value is not None),
        ),
    )


def _nic_nodes(made: Draft, tree: PcieTree, first: int) -> list[Node]:
    """One node for each PCI function that is a NIC: RDMA devices first, each with its network
    interfaces.
    """
    by_address: dict[str, list[Nic]] = {}
    for nic in sorted(made.recording.nics, key=lambda one: not one.is_rdma):
        if not nic.is_virtual:
            by_address.setdefault(nic.address, []).append(nic)
    nodes = []
    for number, (address, parts) in enumerate(by_address.items()):
        ports = [port for nic in parts for port in nic.ports]
        active = [port for port in ports if port.state == _ACTIVE]
        known_facts = (
            [_gbps(port.rate) for port in active]
            if ports
            else [_positive(nic.speed_mbps) for nic in parts if nic.operstate == "up"]
        )
        rate = sum(one for one in known_facts if one) if known_facts and all(known_facts) else None
        facts = {
            "interfaces": " ".join(nic.name for nic in parts if not nic.is_rdma),
            "layer": (active or ports)[0].link_layer or "" if ports else "Ethernet",
            "up": "yes" if known_facts else "no",
            "gbps": f"{rate:g}" if rate else "",
        }
        nodes.append(
            Node(
                id=f"nic{first + number}",
                kind="nic",
                name=parts[0].name,
                index=number,
                address=address,
                host=made.host,
                facts=(
                    *_identity(tree, address),
                    *((key, value) for key, value in facts.items() if value),
                ),
            )
        )
    return nodes


def _positive(mbps: int | None) -> float | None:
    return mbps / 1000 if mbps is not None and mbps > 0 else None


def _gbps(rate: str | None) -> float | None:
    """400 Gb/sec (4X NDR) as a number."""
    match = re.match(r"\d{1,6}(\.\d{1,3})?", rate or "")
    return float(match[0]) if match else None


def _hang(made: Draft, tree: PcieTree, node: Node, somewhere: str, first_root: int) -> None:
    """Links from a GPU or NIC up to its host bridge, switches included; the same switch or bridge
    comes once.
    """
    place, whose = tree.place(node.address), "GPUs" if node.kind == "gpu" else "NICs"
    numa = tree.numa_of(node.address)
    cpu = made.cpus.get(numa if numa is not None else -1, somewhere)
    if place is not None and (numa is None or numa not in made.cpus):
        sources = (
            f"names no NUMA node for {whose} (numa_node -1)"
            if numa is None
            else f"says NUMA node {numa}, which has no cores, for {whose}"
        )
        made.note(
            f"the kernel {sources}: drawn at the "
            + ("only one" if len(made.cpus) == 1 else "first, though they may be elsewhere")
        )
    bridge = place.bridge if place is not None else "unknown"
    if (bridge, cpu) not in made.roots:
        made.roots[bridge, cpu] = f"root{first_root + len(made.roots)}"
        made.nodes.append(
            Node(
                id=made.roots[bridge, cpu],
                kind="root",
                address=bridge.removeprefix("pci"),
                host=made.host,
            )
        )
    root = made.roots[bridge, cpu]
    if place is None:
        made.note(
            f"not all {whose} are in the host's PCIe tree: the others are drawn at a host bridge,"
            " without rates"
        )
        _wire(made, pcie_link(root, node.id, 0, 0), is_below_root=True)
        return
    names = {"root": root, node.address: node.id} | {
        switch: _switch_id(made, switch) for switch in place.switches
    }
    for switch in place.switches:
        if names[switch] not in made.switches:
            made.switches.add(names[switch])
            made.nodes.append(
                Node(
                    id=names[switch],
                    kind="pci",
                    address=switch,
                    host=made.host,
                    facts=_identity(tree, switch),
                )
            )
    for hop in place.hops:
        note = _now(hop, node.kind if hop.below == node.address else "pci")
        _wire(
            made,
            pcie_link(
                names[hop.above], names[hop.below], hop.most.generation, hop.most.lanes, note
            ),
            is_below_root=hop.above == "root",
        )


def _wire(made: Draft, link: Link, is_below_root: bool) -> None:
    if (link.a, link.b) in made.wired:
        return
    made.wired.add((link.a, link.b))
    made.links.append(link)
    if is_below_root:
        made.below_root.setdefault(link.a, []).append(link)


def _switch_id(made: Draft, address: str) -> str:
    return f"pci:{address}" if made.host == 0 else f"h{made.host}.pci:{address}"


def _identity(tree: PcieTree, address: str) -> tuple[tuple[str, str], ...]:
    """What a function says it is, under NCCL's names, which are the kernel's."""
    device = tree.devices.get(address)
    if device is None:
        return ()
    facts = {
        "class": device.pci_class,
        "vendor": device.vendor,
        "device": device.device,
        "subsystem_vendor": device.subsystem_vendor,
        "subsystem_device": device.subsystem_device,
    }
    return tuple((key, value) for key, value in facts.items() if value)


def _now(hop: Hop, kind: NodeKind) -> str:
    """What a link runs at, where that is less than it could."""
    fewer_lanes = 0 < hop.now.lanes < hop.most.lanes
    slower = 0 < hop.now.generation < hop.most.generation
    if not fewer_lanes and not slower:
        return ""
    if kind == "gpu" and not fewer_lanes:
        return f"now {hop.now}: a GPU saves power when idle"
    return f"trained at {hop.now}, could be {hop.most}"


def _feed_roots(made: Draft) -> None:
    """Links from CPUs to host bridges. No source gives their rate: they are taken to carry what
    hangs below them, so that none limits a way.

    Functions of unknown rate, as virtual NICs, count for nothing there.
    """
    for (_, cpu), root in made.roots.items():
        below = made.below_root[root]
        if len(below) == 1:
            made.links.append(replace(below[0], a=cpu, b=root, note=""))
            continue
        known = any(link.usable_gbs is not None for link in below)
        source = f"{len(below)} links below it, together" if known else ""
        made.links.append(
            Link(
                a=cpu,
                b=root,
                kind="pcie",
                count=sum(link.count for link in below),
                generation=max(link.generation for link in below),
                raw_gbs=sum(link.raw_gbs or 0.0 for link in below) if known else None,
                usable_gbs=sum(link.usable_gbs or 0.0 for link in below) if known else None,
                source=source,
                note="a host bridge, taken for no limit",
            )
        )


def _split_switches(made: Draft) -> None:
    """Links inside split switches, if both parts are in the graph. No source gives their rate; the
    narrower way up stands for it.
    """
    for pair in made.recording.switch_links:
        ends = [_switch_id(made, address) for address in (pair.a, pair.b)]
        if ends[0] != ends[1] and set(ends) <= made.switches:
            ups = [link for end in ends for link in made.links if link.b == end]
            slower = min(ups, key=lambda link: link.usable_gbs or 0.0)
            source = (
                "inside one switch that is split; its rate is unknown; taken from its uplink:"
                f" {slower.source}"
            )
            made.links.append(replace(slower, a=ends[0], b=ends[1], source=source, note=PCILINK))


def _sockets(made: Draft) -> None:
    """Links between all NUMA nodes."""
    processor = made.recording.processor
    rate = socket(processor.vendor or "", processor.family or 0, processor.model or 0)
    packages = {node.index: node.package for node in made.recording.numa}
    numbers = list(made.cpus)
    for place, one in enumerate(numbers):
        for other in numbers[place + 1 :]:
            is_one_package = packages.get(one) is not None and packages.get(one) == packages.get(
                other
            )
            note = (
                "NUMA nodes of one package, which NCCL counts like sockets"
                if is_one_package
                else ""
            )
            a, b = made.cpus[one], made.cpus[other]
            if rate is None:
                made.links.append(Link(a=a, b=b, kind="socket", note=note))
            else:
                made.links.append(
                    Link(
                        a=a,
                        b=b,
                        kind="socket",
                        raw_gbs=rate[0],
                        usable_gbs=rate[0],
                        source=rate[1],
                        note=note,
                    )
                )


def _nvlink_links(made: Draft, shown: list[GpuRecord], switch: str, switch_host: int) -> None:
    """Bundles of NVLinks to other GPUs, to the host's switch and to CPUs."""
    number_of = {gpu.address: number for number, gpu in enumerate(shown) if gpu.address}
    of_gpu = [_nvlinks.bundles(gpu, made.recording) for gpu in shown]
    for number, gpu in enumerate(shown):
        me = made.gpu_ids[gpu.index]
        ends = [end for end, bundle in of_gpu[number].items() if bundle.up and end]
        dead = set(_nvlinks.dead(gpu, made.recording))
        if dead:
            made.note(
                f"GPU {number}: {_nvlinks.numbered(sorted(dead))} down, though up on other GPUs of"
                " its kind"
            )
        elsewhere: list[int] = []
        for end, bundle in of_gpu[number].items():
            down = sorted(dead & set(bundle.down))
            # no other GPU could own the links without a known far end
            if len(ends) == 1 and end == ends[0]:
                down = sorted(
                    dead & {*bundle.down, *of_gpu[number].get("", _nvlinks.Bundle()).down}
                )
            note = f"{_nvlinks.numbered(down)} of GPU {number} down" if down else ""
            other = number_of.get(end)
            if not bundle.up:
                continue
            if end == _nvlinks.SWITCH:
                if all(node.id != switch for node in made.nodes):
                    made.nodes.append(
                        Node(id=switch, kind="nvswitch", name="NVSwitch", host=switch_host)
                    )
                made.links.append(_nvlinks.bundle_link(me, switch, gpu, bundle.up, note))
            elif end == _nvlinks.CPU:  # coherent, and no way from GPU to GPU: as C2C
                made.links.append(
                    replace(
                        _nvlinks.bundle_link(_cpu_of(made, me), me, gpu, bundle.up, note),
                        kind="c2c",
                    )
                )
            elif not end:
                made.note(
                    f"GPU {number}: where its"
                    f" {_nvlinks.numbered([link.number for link in bundle.up])} lead is unknown"
                )
            elif other is None:
                elsewhere += [link.number for link in bundle.up]
            elif other > number:
                back = of_gpu[other].get(gpu.address or "", _nvlinks.Bundle()).up
                if len(back) != len(bundle.up):
                    made.note(
                        f"GPU {number} and GPU {other} count their NVLinks as {len(bundle.up)} and"
                        f" {len(back)}: the fewer count"
                    )
                fewer = min(bundle.up, back, key=len) or bundle.up
                made.links.append(
                    _nvlinks.bundle_link(me, made.gpu_ids[shown[other].index], gpu, fewer, note)
                )
        if elsewhere:
            made.note(
                f"GPU {number}: {_nvlinks.numbered(elsewhere)} lead to GPUs that are left out"
            )


def _c2c_links(made: Draft, shown: list[GpuRecord]) -> None:
    for gpu in shown:
        active = [link for link in gpu.c2c if link.status == 1]
        if active:
            speeds = [link.max_mbps for link in active]
            rate = (
                sum(speed or 0 for speed in speeds) / 1000
                if all(speed and speed > 0 for speed in speeds)
                else None
            )
            source = "NVML's largest rate of its links, as NCCL's graph counts them" if rate else ""
            me = made.gpu_ids[gpu.index]
            made.links.append(
                Link(
                    a=_cpu_of(made, me),
                    b=me,
                    kind="c2c",
                    count=len(active),
                    raw_gbs=rate,
                    usable_gbs=rate,
                    source=source,
                )
            )


def _cpu_of(made: Draft, node: str) -> str:
    """The CPU above a node."""
    while not node.startswith("cpu"):
        node = next(link.a for link in made.links if link.b == node and link.kind == "pcie")
    return node


def _say_what_is_odd(made: Draft, tree: PcieTree, shown: list[GpuRecord]) -> None:
    recording = made.recording
    places = [tree.place(gpu.address or "") for gpu in shown]
    if (
        recording.processor.has_hypervisor
        and shown
        and all(place is not None and not place.switches for place in places)
    ):
        product = f" ({recording.product})" if recording.product else ""
        hidden = "switches and sockets" if len(made.cpus) == 1 else "switches"
        made.note(
            f"a hypervisor{product} shows a flat PCIe tree: real {hidden}, and what GPUs share of"
            " them, are hidden"
        )
    if len(made.roots) > len({bridge for bridge, _ in made.roots}):
        made.note("one PCIe bus has functions of several NUMA nodes: it is drawn once for each")
    numbers = {gpu.index: number for number, gpu in enumerate(shown)}
    odd: dict[tuple[str, str], list[str]] = {}
    for pair in recording.pairs:
        if (
            pair.a < pair.b
            and pair.a in numbers
            and pair.b in numbers
            and pair.ancestor is not None
        ):
            first, second = (shown[numbers[end]] for end in (pair.a, pair.b))
            level = tree.level(first.address or "", second.address or "")
            # 0: two GPUs of one board, which have a switch there
            if level is not None and level != max(pair.ancestor, 10):
                words = (
                    _CLASS_OF_LEVEL.get(pair.ancestor, str(pair.ancestor)),
                    _CLASS_OF_LEVEL[level],
                )
                odd.setdefault(words, []).append(f"GPU {numbers[pair.a]} and GPU {numbers[pair.b]}")
    for (nvml, ours), pairs in odd.items():
        more = f" and {len(pairs) - 1} other pairs" if len(pairs) > 1 else ""
        made.note(
            f"NVML says {nvml} of {pairs[0]}{more}, the PCIe tree says {ours}: rates follow the"
            " tree"
        )
