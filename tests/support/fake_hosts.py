"""Hosts that do not exist: trees of /sys and /proc written into a folder, and the driver's library
that goes with each.

Links follow public descriptions (NVIDIA's DGX guides, public outputs of nvidia-smi topo -m);
addresses and cores are made up.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collbench.machine.discovery import Recording, record
from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import path as way
from tests.support.fake_nvml import FakeGpu, FakeLink, FakeNvml, driver
from tests.support.machines import CUBE_MESH
from tests.support.tables import cells_of

GPU, SWITCH_CHIP, BRIDGE, NIC, IB = "0x030200", "0x068000", "0x060400", "0x020000", "0x020700"
SPEED = {1: "2.5 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}
LEVELS = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
INTEL_BROADWELL, SAPPHIRE, ROME = (
    ("GenuineIntel", 6, 79),
    ("GenuineIntel", 6, 143),
    ("AuthenticAMD", 23, 49),
)


class Host:
    """A folder that looks like the root of a host."""

    def __init__(self, root: Path, name: str = "box") -> None:
        self.root = root
        self.put("proc/sys/kernel/hostname", name)
        self.put("proc/sys/kernel/random/boot_id", f"boot-of-{name}")
        self.put("proc/sys/kernel/osrelease", "6.8.0")
        self.put("sys/class/dmi/id/product_name", "Made up")

    def put(self, path: str, text: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def cpu(
        self,
        processor: tuple[str, int, int],
        nodes: Mapping[int, tuple[str, int]],
        flags: str = "fpu",
        name: str = "Some CPU",
    ) -> None:
        """nodes: cores and package by NUMA node."""
        vendor, family, model = processor
        self.put(
            "proc/cpuinfo",
            f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t:"
            f" {model}\nmodel name\t: {name}\nflags\t\t: {flags}",
        )
        self.put("sys/devices/system/cpu/online", ",".join(cores for cores, _ in nodes.values()))
        for node, (cores, package) in nodes.items():
            self.put(f"sys/devices/system/node/node{node}/cpulist", cores)
            if cores:
                self.put(
                    f"sys/devices/system/cpu/cpu{cores.partition('-')[0]}/topology/physical_package_id",
                    package,
                )

    def pci(
        self,
        path: str,
        kind: str = BRIDGE,
        generation: int = 5,
        width: int = 16,
        numa: int = -1,
        now: tuple[int, int] | None = None,
        vendor: str = "0x10de",
    ) -> str:
        """A function by its path below /sys/devices; bridges above it that are not there yet are
        made like it. Returns its address.
        """
        parent, _, address = path.rpartition("/")
        if parent.count(":") > 1 and not (self.root / "sys/devices" / parent / "class").exists():
            self.pci(parent, BRIDGE, generation, width, numa, vendor="0x1000")
        running = now or (generation, width)
        for name, value in {
            "class": kind,
            "vendor": vendor,
            "device": "0x1234",
            "subsystem_vendor": vendor,
            "subsystem_device": "0x0001",
            "numa_node": numa,
            "current_link_speed": SPEED[running[0]],
            "current_link_width": running[1],
            "max_link_speed": SPEED[generation],
            "max_link_width": width,
            "local_cpulist": "",
        }.items():
            self.put(f"sys/devices/{path}/{name}", value)
        link = self.root / f"sys/bus/pci/devices/{address}"
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(f"../../../devices/{path}")
        return address

    def card(
        self, path: str, name: str, arch: int, generation: int = 5, numa: int = -1, **more: Any
    ) -> FakeGpu:
        """A GPU with 16 lanes, as PCI and the driver show it. now: the generation it runs at."""
        now = more.pop("now", generation), 16
        address = self.pci(path, GPU, generation, 16, numa, now=now)
        return FakeGpu(name=name, address=address, arch=arch, pcie=(*now, generation, 16), **more)

    def rdma(
        self,
        name: str,
        path: str,
        rate: str = "400 Gb/sec (4X NDR)",
        state: str = "4: ACTIVE",
        layer: str = "InfiniBand",
    ) -> None:
        self._class(f"sys/class/infiniband/{name}", path)
        for key, value in (("rate", rate), ("state", state), ("link_layer", layer)):
            self.put(f"sys/class/infiniband/{name}/ports/1/{key}", value)

    def net(self, name: str, path: str, speed: int = 10000, state: str = "up") -> None:
        self._class(f"sys/class/net/{name}", path)
        self.put(f"sys/class/net/{name}/speed", speed)
        self.put(f"sys/class/net/{name}/operstate", state)
        self.put(f"sys/class/net/{name}/mtu", 1500)

    def _class(self, folder: str, path: str) -> None:
        (self.root / folder).mkdir(parents=True)
        (self.root / folder / "device").symlink_to(f"../../../devices/{path}")


def meet(levels: Sequence[str]) -> Callable[[int, int], int]:
    """NVML's common ancestor, out of lines like 'X PIX SYS'."""
    table = [line.split() for line in levels]
    return lambda a, b: LEVELS[table[a][b]]


def nvlinks() -> dict[str, Any]:
    """What the driver says of the NVLinks of a Hopper GPU at a hidden switch."""
    links = [FakeLink() for _ in range(18)]
    return {"links": links, "mig": 0, "link_mbps": 26562, "fabric_state": 3}


def dgx1v(root: Path) -> FakeNvml:
    """8 x V100 in a hybrid cube mesh; a switch for two GPUs and a NIC, two switches a socket."""
    host = Host(root, "dgx1")
    host.cpu(INTEL_BROADWELL, {0: ("0-19,40-59", 0), 1: ("20-39,60-79", 1)})
    cards: list[FakeGpu] = []
    for switch in range(4):
        numa, port, bus = switch // 2, 2 + switch % 2, 0x80 * (switch // 2) + 5 * (switch % 2)
        top = f"pci0000:{numa * 0x80:02x}/0000:{numa * 0x80:02x}:0{port}.0/0000:{bus + 4:02x}:00.0"
        for place in range(2):
            path = f"{top}/0000:{bus + 5:02x}:{8 + 8 * place:02x}.0/0000:{bus + 6 + place:02x}:00.0"
            more = {"affinity": range(20 * numa, 20 * numa + 20), "version": 2}
            cards.append(host.card(path, "Tesla V100-SXM2-16GB", 70, 3, numa, **more))
        path = f"{top}/0000:{bus + 5:02x}:18.0/0000:{bus + 8:02x}:00.0"
        host.pci(path, IB, 3, 16, numa, vendor="0x15b3")
        host.rdma(f"mlx5_{switch}", path, "100 Gb/sec (4X EDR)")
    host.net("enp1s0f0", "pci0000:00/0000:00:01.0/0000:01:00.0")
    host.pci("pci0000:00/0000:00:01.0/0000:01:00.0", NIC, 3, 8, 0)
    for (a, b), count in CUBE_MESH.items():
        for _ in range(count):
            cards[a].links.append(FakeLink(remote=cards[b].bus_id, remote_type=0))
            cards[b].links.append(FakeLink(remote=cards[a].bus_id, remote_type=0))
    return FakeNvml(cards, lambda a, b: 10 if a // 2 == b // 2 else 30 if a // 4 == b // 4 else 50)


def dgx_a100(root: Path) -> FakeNvml:
    """8 x A100 with 12 links to 6 NVSwitches; two GPUs a PCIe switch, four NUMA nodes a package."""
    host = Host(root, "dgxa100")
    host.cpu(ROME, {node: (f"{16 * node}-{16 * node + 15}", node // 4) for node in range(8)})
    chips = [
        host.pci(
            f"pci0000:{0xC0 + k:02x}/0000:{0xC0 + k:02x}:01.0/0000:{0xD0 + k:02x}:00.0",
            SWITCH_CHIP,
            3,
            4,
        )
        for k in range(6)
    ]
    cards = []
    for number in range(8):
        bus, numa = 0x10 * (number // 2) + 1, (3, 1, 7, 5)[number // 2]
        upstream = f"pci0000:{bus - 1:02x}/0000:{bus - 1:02x}:01.0/0000:{bus:02x}:00.0"
        downstream = f"0000:{bus + 1:02x}:0{number % 2}.0/0000:{bus + 2 + number % 2:02x}:00.0"
        path = f"{upstream}/{downstream}"
        links = [FakeLink(remote=f"0000{chips[k % 6].upper()}", remote_type=2) for k in range(12)]
        more = {"now": 1, "affinity": range(16 * numa, 16 * numa + 16), "mig": 0, "version": 5}
        cards.append(host.card(path, "NVIDIA A100-SXM4-40GB", 80, 4, numa, links=links, **more))
    return FakeNvml(cards, lambda a, b: 10 if a // 2 == b // 2 else 50)


def hgx_h100(root: Path, name: str = "hgx", first_bus: int = 0x10) -> FakeNvml:
    """8 x H100 with 18 links to a switch that PCIe does not show, a PCIe switch with a NIC for
    each.
    """
    host = Host(root, name)
    host.cpu(SAPPHIRE, {0: ("0-55", 0), 1: ("56-111", 1)})
    cards = []
    for number in range(8):
        bus, numa = first_bus + 0x10 * number, number // 4
        top = f"pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{bus + 1:02x}:00.0"
        path = f"{top}/0000:{bus + 2:02x}:00.0/0000:{bus + 3:02x}:00.0"
        nic = f"{top}/0000:{bus + 2:02x}:01.0/0000:{bus + 4:02x}:00.0"
        more = {"affinity": range(56 * numa, 56 * numa + 56), **nvlinks()}
        cards.append(host.card(path, "NVIDIA H100 80GB HBM3", 90, 5, numa, **more))
        host.pci(nic, IB, 5, 16, numa, vendor="0x15b3")
        host.rdma(f"mlx5_{number}", nic)
    return FakeNvml(cards, lambda a, b: 40 if a // 4 == b // 4 else 50)


def pcie_box(root: Path) -> FakeNvml:
    """8 x RTX 4090: four behind a switch and a switch beneath it; four at root ports of two host
    bridges of the other socket.
    """
    host = Host(root, "pcie")
    host.cpu(SAPPHIRE, {0: ("0-31", 0), 1: ("32-63", 1)})
    paths, levels = zip(*cells_of(__file__, "pcie-box.tsv"), strict=True)
    cards = []
    for number, path in enumerate(paths):
        numa = number // 4
        cores = range(32 * numa, 32 * numa + 32)
        cards.append(host.card(path, "NVIDIA GeForce RTX 4090", 89, 4, numa, affinity=cores))
    nic = paths[0].replace("18:00.0/0000:19", "18:09.0/0000:30")
    host.pci(nic, NIC, 4, 16, 0, now=(4, 8), vendor="0x15b3")
    host.rdma("mlx5_0", nic, "200 Gb/sec (4X HDR)", layer="Ethernet")
    host.net("ens1np0", nic, 200000)
    return FakeNvml(cards, meet(levels), lambda a, b, what: 1 if what < 2 else 5)


def h200_vm(root: Path) -> FakeNvml:
    """4 x H200 as a virtual machine shows them: one flat bus, no NUMA node named, the NVSwitch
    hidden.
    """
    host = Host(root, "vm")
    host.cpu(("GenuineIntel", 6, 207), {0: ("0-63", 0)}, flags="fpu hypervisor lm")
    paths = [f"pci0000:00/0000:00:0{6 + number}.0" for number in range(4)]
    cards = [host.card(path, "NVIDIA H200", 90, **nvlinks()) for path in paths]
    (root / "sys/class/infiniband").mkdir(parents=True)
    host.pci("pci0000:00/0000:00:03.0", NIC, vendor="0x1af4")
    (root / "sys/devices/pci0000:00/0000:00:03.0/virtio2").mkdir()
    host.net("eth0", "pci0000:00/0000:00:03.0/virtio2", -1)
    return FakeNvml(cards, lambda a, b: 30)


def mig_box(root: Path) -> FakeNvml:
    """2 x A100 behind one switch, the second divided: its links serve nobody."""
    host = Host(root, "mig")
    host.cpu(ROME, {0: ("0-63", 0)})
    cards = []
    for number in range(2):
        end = f"0000:02:0{number}.0/0000:0{3 + number}:00.0"
        path, more = f"pci0000:00/0000:00:01.0/0000:01:00.0/{end}", {"mig": number, "version": 5}
        cards.append(host.card(path, "NVIDIA A100-SXM4-40GB", 80, 4, 0, **more))
    for number, card in enumerate(cards):
        card.links = [
            FakeLink(remote=cards[1 - number].bus_id, remote_type=0, can_p2p=False)
            for _ in range(12)
        ]
    return FakeNvml(cards, lambda a, b: 10)


def asked(root: Path, nvml: FakeNvml | None, *, is_full: bool = False) -> Recording:
    """The recording of a machine with that driver, or with none."""
    with driver(nvml):
        return record(root, is_full=is_full)


def labels(topology: Topology) -> list[list[str]]:
    ids = [gpu.id for gpu in topology.gpus]
    return [[way(topology, a, b).label for b in ids] for a in ids]


def label(topology: Topology, a: str, b: str) -> str:
    return way(topology, a, b).label


def said(topology: Topology, words: str) -> list[str]:
    return [note for note in topology.notes if words in note]
