"""A machine that has the classes of a matrix: devices that are PIX share a switch, those that are
PXB a tree of them, PHB a root, NODE a CPU.

The switches, roots and CPUs are invented, and their fact `hidden` says so; links have no rates,
because the text has none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from collbench.core.text import some_of
from collbench.machine.formats._build import Ids, limit_cpus, socket_links
from collbench.machine.topology.model import Link, Node, NodeKind, Topology, facts_of
from collbench.machine.topology.paths import path
from collbench.machine.topology.rates import nvlink_link, pcie_link

_HIDDEN_FACTS = (("hidden", "yes"),)
Cells = Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A row of the matrix, and the cells behind it. untold: ids of those whose class it lacks."""

    label: str
    id: str
    kind: NodeKind
    index: int
    name: str = ""
    affinity: str = ""
    numa: str = ""
    gpu_numa: str = ""
    untold: str = ""


def machine(
    devices: Sequence[Device],
    cells: Cells,
    place: str,
    name: str,
    lost: Sequence[str],
    doubtful: Cells,
) -> Topology:
    """The machine of a matrix of NV#, PIX, PXB, PHB, NODE and SYS. place: for messages.

    lost: labels of rows that the text lacks; a device of which no other row tells a class has no
    link of PCIe. doubtful: those whose mirror has another class.
    """
    told = cells.keys() - doubtful
    devices = [
        replace(a, untold=" ".join(b.id for b in devices if (a.label, b.label) not in told))
        for a in devices
    ]
    tree = _ClassTree(devices, cells, lost)
    cpus = [node for node in tree.nodes if node.kind == "cpu"]
    limit_cpus(cpus, place)
    bundles, notes = _bundles(devices, cells)
    nodes = list(tree.nodes)
    if any("nvs0" in (link.a, link.b) for link in bundles):
        nodes.append(Node(id="nvs0", kind="nvswitch", index=0, facts=_HIDDEN_FACTS))
    links = (*tree.links, *socket_links(cpus))
    plain = Topology(name=name, nodes=tuple(nodes), links=links)
    return replace(
        plain,
        links=(*links, *bundles),
        notes=(
            "nvidia-smi's matrix tells no widths and no speeds",
            *notes,
            *_lost(lost, tree.unplaced),
            *_mismatches(plain, devices, cells),
        ),
    )


class _ClassTree:
    """CPUs, roots, switches and devices with the PCIe links between them."""

    def __init__(self, devices: Sequence[Device], cells: Cells, lost: Sequence[str]) -> None:
        self.cells = cells
        # The devices of which more than NVLink and SYS is known.
        self.placed = {
            label for (label, _), cell in cells.items() if cell in ("PIX", "PXB", "PHB", "NODE")
        }
        self.ids = Ids()
        self.nodes: list[Node] = []
        self.links: list[Link] = []
        known = self.placed | {label for (label, _), cell in cells.items() if cell == "SYS"}
        self.unplaced = [label for label in lost if label not in known]
        for device in devices:
            if device.label in self.unplaced:
                self.nodes.append(_node(device))
        for cpu in self.sockets([one for one in devices if one.label not in self.unplaced]):
            numas = (device.numa for device in cpu)
            numa = next((int(one) for one in numas if one.isdecimal() and len(one) < 6), -1)
            node = Node(
                id=self.ids.take("cpu", numa),
                kind="cpu",
                index=numa,
                facts=_HIDDEN_FACTS,
                affinity=next((device.affinity for device in cpu if device.affinity), ""),
            )
            self.nodes.append(node)
            for root in self.groups(cpu, ("PIX", "PXB", "PHB")):
                self.root(root, node.id)
        place = {device.id: number for number, device in enumerate(devices)}
        self.nodes.sort(key=lambda node: place.get(node.id, -1))

    def groups(self, devices: Sequence[Device], classes: tuple[str, ...]) -> list[list[Device]]:
        return _groups(devices, lambda a, b: self.cells.get((a.label, b.label), "") in classes)

    def sockets(self, devices: Sequence[Device]) -> list[list[Device]]:
        """Devices by CPU: those that are not SYS, and where only NVLink is known, those with
        one NUMA node or affinity.
        """
        by_cpu: list[list[Device]] = []
        for group in self.groups(devices, ("PIX", "PXB", "PHB", "NODE")):
            near = _affinity(group)
            same = (
                other
                for other in by_cpu
                if near is not None
                and near == _affinity(other)
                and all(self.cells.get((a.label, b.label)) != "SYS" for a in group for b in other)
            )
            shared = next(same, None)
            if shared is None:
                by_cpu.append(list(group))
            else:
                shared += group
        return by_cpu

    def hidden(self, kind: NodeKind, above: str) -> str:
        node = Node(id=self.ids.take(kind), kind=kind, facts=_HIDDEN_FACTS)
        self.nodes.append(node)
        self.links.append(pcie_link(above, node.id, 0, 0))
        return node.id

    def root(self, devices: list[Device], cpu: str) -> None:
        # Others hang below their CPU directly: no bridge is known.
        root = self.hidden("root", cpu) if devices[0].label in self.placed else cpu
        for top in self.groups(devices, ("PIX", "PXB")):
            leaves = self.groups(top, ("PIX",))
            above = self.hidden("pci", root) if len(leaves) > 1 else root
            for leaf in leaves:
                switch = self.hidden("pci", above) if len(leaves) > 1 or len(leaf) > 1 else above
                for device in leaf:
                    self.nodes.append(_node(device))
                    self.links.append(pcie_link(switch, device.id, 0, 0))


def _affinity(group: Sequence[Device]) -> tuple[str, str] | None:
    """The CPUs and the NUMA node of the first device that has an affinity."""
    return next(((device.affinity, device.numa) for device in group if device.affinity), None)


def _node(device: Device) -> Node:
    return Node(
        id=device.id,
        kind=device.kind,
        name=device.name,
        index=device.index,
        affinity=device.affinity,
        facts=facts_of({"numa": device.numa, "gpu_numa": device.gpu_numa, "untold": device.untold}),
    )


def _groups(
    devices: Sequence[Device], is_near: Callable[[Device, Device], bool]
) -> list[list[Device]]:
    """Devices that are near each other, directly or through others, in their order."""
    left, groups = list(devices), []
    while left:
        group, left = [left[0]], left[1:]
        for device in group:
            near = [other for other in left if is_near(device, other)]
            group += near
            left = [other for other in left if other not in near]
        groups.append(group)
    return groups


def _bundles(devices: Sequence[Device], cells: Cells) -> tuple[list[Link], list[str]]:
    """NVLinks, and remarks. More to all others than the 18 of a GPU (H100) is a switch."""
    gpus = [device for device in devices if device.kind == "gpu"]
    counts = {
        (a.id, b.id): int(cell[2:])
        for a, b in combinations(gpus, 2)
        if (cell := cells.get((a.label, b.label), "")).startswith("NV")
    }
    unknown = sum((a.label, b.label) not in cells for a, b in combinations(gpus, 2))
    if not counts:
        return [], []
    notes = ["where NVLink joins two GPUs, their path over PCIe is not in the text"]
    first = next(iter(counts.values()))
    is_complete = len(counts) + unknown == len(gpus) * (len(gpus) - 1) // 2
    is_equal = is_complete and set(counts.values()) == {first}
    if len(gpus) > 2 and first > 4 and first * (len(gpus) - 1) > 18 and is_equal:
        notes.append(
            f"all GPUs have {first} NVLinks to all others: taken as an NVSwitch, which the text"
            " does not name"
        )
        return [nvlink_link(gpu.id, "nvs0", 0, first) for gpu in gpus], notes
    return [nvlink_link(a, b, 0, count) for (a, b), count in counts.items()], notes


def _lost(lost: Sequence[str], unplaced: Sequence[str]) -> list[str]:
    """Remarks on rows that the text lacks."""
    if not lost:
        return []
    shown = some_of(lost, 4)
    notes = [
        f"the rows or columns of {shown} are missing or cut: what others tell is taken, classes"
        " between two of them are assumed"
    ]
    if unplaced:
        shown = ", ".join(unplaced[:4]) + (" and more" if len(unplaced) > 4 else "")
        notes.append(f"no row tells where on PCIe {shown} are")
    return notes


def _mismatches(plain: Topology, devices: Sequence[Device], cells: Cells) -> list[str]:
    """A remark if the machine has other classes than the matrix, which then fits no tree."""
    wrong = []
    for a, b in combinations(devices, 2):
        cell, built = cells.get((a.label, b.label), ""), path(plain, a.id, b.id).label
        if cell and not cell.startswith("NV") and cell != built:
            wrong.append(f"{a.label} to {b.label} is {cell}, here {built}")
    if not wrong:
        return []
    return [f"the matrix is that of no tree: {len(wrong)} pairs differ here, such as {wrong[0]}"]
