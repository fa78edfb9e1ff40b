"""What Linux reports without root: CPUs, NUMA nodes, PCI functions and NICs. Only files of /sys
and /proc under a root.

Source: the kernel's Documentation/ABI (sysfs-bus-pci, sysfs-class-net, sysfs-class-infiniband,
stable/sysfs-devices-node).
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from collbench.machine.discovery._ask import Asker
from collbench.machine.discovery.recording import (
    CpuRecord,
    Nic,
    NumaNode,
    PciDevice,
    Port,
    SwitchLink,
)

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ERRORS = (OSError, ValueError)
_NVIDIA, _DISPLAY = "0x10de", "0x03"  # vendor; what classes of GPUs begin with
# Who made an Arm core (/proc/cpuinfo, CPU implementer) does not matter here: one word for all of
# them, as for other makers.
_ARM, _IBM = "ARM", "IBM"


def text(file: Path) -> str:
    """A file's text in one line. Raises OSError, also for sysfs files that refuse to be read."""
    return file.read_text(errors="replace").strip()


def number(file: Path) -> int:
    """A file's number. Raises OSError or ValueError."""
    return int(text(file), 0)


def processor(root: Path) -> CpuRecord:
    """The first core of /proc/cpuinfo."""
    asker = Asker(_ERRORS)
    lines = (
        asker.ask("name", lambda: (root / "proc/cpuinfo").read_text(errors="replace").splitlines())
        or []
    )
    facts: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    vendor = facts.get("vendor_id") or (
        _ARM if "CPU implementer" in facts else _IBM if "POWER" in facts.get("cpu", "") else None
    )
    return CpuRecord(
        vendor=vendor,
        family=_whole(facts.get("cpu family")),
        model=_whole(facts.get("model")),
        name=facts.get("model name") or facts.get("cpu"),
        has_hypervisor="hypervisor" in facts["flags"].split() if "flags" in facts else None,
        unknown=asker.unknown
        | (
            {}
            if not lines or facts.get("model name") or facts.get("cpu")
            else {"name": "/proc/cpuinfo does not tell it"}
        ),
    )


def numa_nodes(root: Path) -> tuple[NumaNode, ...]:
    """NUMA nodes that have cores; none where the kernel knows no NUMA."""
    nodes = []
    for folder in sorted(
        (root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda one: _natural(one.name)
    ):
        asker = Asker(_ERRORS)
        cpulist = asker.ask("cpulist", text, folder / "cpulist")
        if cpulist:
            first = re.match(r"\d+", cpulist)
            cpu = root / f"sys/devices/system/cpu/cpu{first[0] if first else 0}"
            package = cpu / "topology/physical_package_id"
            package_id = asker.ask("package", number, package)
            nodes.append(
                NumaNode(
                    index=int(folder.name[4:]),
                    cpulist=cpulist,
                    package=package_id,
                    unknown=asker.unknown,
                )
            )
    return tuple(nodes)


def real_path(root: Path, link: Path) -> str:
    """Where a link of /sys leads, relative to /sys. Raises OSError if it leads nowhere, or out of
    /sys.
    """
    target, base = link.resolve(strict=True), (root / "sys").resolve()
    if not target.is_relative_to(base):
        raise FileNotFoundError(2, "it leads out of /sys")
    return target.relative_to(base).as_posix()


def addresses(path: str) -> list[str]:
    """The PCI functions on a path, from the root down.

    >>> addresses("devices/pci0000:00/0000:00:01.0/0000:01:00.0/virtio2")
    ['0000:00:01.0', '0000:01:00.0']
    """
    return [part for part in path.split("/") if _ADDRESS.fullmatch(part)]


def nvidia_gpus(root: Path) -> list[str]:
    """PCI addresses of NVIDIA's GPUs, whether a driver knows them or not."""
    addresses_of_gpus = []
    for folder in _entries(root / "sys/bus/pci/devices"):
        asker = Asker(_ERRORS)
        if asker.ask("vendor", text, folder / "vendor") == _NVIDIA and (
            asker.ask("class", text, folder / "class") or ""
        ).startswith(_DISPLAY):
            addresses_of_gpus.append(folder.name)
    return addresses_of_gpus


def pci_class(root: Path, address: str) -> str | None:
    """The class of a PCI function, if it is there."""
    return Asker(_ERRORS).ask("class", text, root / f"sys/bus/pci/devices/{address}/class")


def pci_devices(root: Path, ends: Iterable[str]) -> tuple[PciDevice, ...]:
    """These PCI functions and all bridges above them; what is not in sysfs is left out."""
    devices: dict[str, PciDevice] = {}
    for end in dict.fromkeys(ends):
        path = Asker(_ERRORS).ask("path", real_path, root, root / f"sys/bus/pci/devices/{end}")
        for place in addresses(path or ""):
            if place not in devices:
                devices[place] = _pci_device(root, place)
    return tuple(devices[place] for place in sorted(devices))


def _pci_device(root: Path, address: str) -> PciDevice:
    folder, asker = root / f"sys/bus/pci/devices/{address}", Asker(_ERRORS)
    return PciDevice(
        address=address,
        path=asker.ask("path", real_path, root, folder) or "",
        pci_class=asker.ask("pci_class", text, folder / "class"),
        vendor=asker.ask("vendor", text, folder / "vendor"),
        device=asker.ask("device", text, folder / "device"),
        subsystem_vendor=asker.ask("subsystem_vendor", text, folder / "subsystem_vendor"),
        subsystem_device=asker.ask("subsystem_device", text, folder / "subsystem_device"),
        current_link_speed=asker.ask("current_link_speed", text, folder / "current_link_speed"),
        current_link_width=asker.ask("current_link_width", number, folder / "current_link_width"),
        max_link_speed=asker.ask("max_link_speed", text, folder / "max_link_speed"),
        max_link_width=asker.ask("max_link_width", number, folder / "max_link_width"),
        numa_node=asker.ask("numa_node", number, folder / "numa_node"),
        local_cpulist=asker.ask("local_cpulist", text, folder / "local_cpulist"),
        unknown=asker.unknown,
    )


def nics(root: Path) -> tuple[Nic, ...]:
    """RDMA devices and network interfaces that are PCI functions, or parts of one (virtio)."""
    records = []
    for folder in _entries(root / "sys/class/infiniband"):
        address = _address_of(root, folder)
        if address:
            ports = tuple(_port(port) for port in _entries(folder / "ports") if port.name.isdigit())
            records.append(
                Nic(
                    name=folder.name,
                    address=address,
                    is_rdma=True,
                    is_virtual=(folder / "device/physfn").exists(),
                    ports=ports,
                )
            )
    for folder in _entries(root / "sys/class/net"):
        address = _address_of(root, folder)
        if address:
            asker = Asker(_ERRORS)
            speed = asker.ask("speed_mbps", _speed, folder / "speed")
            state = asker.ask("operstate", text, folder / "operstate")
            is_virtual = (folder / "device/physfn").exists()
            records.append(
                Nic(
                    name=folder.name,
                    address=address,
                    is_rdma=False,
                    is_virtual=is_virtual,
                    speed_mbps=speed,
                    operstate=state,
                    unknown=asker.unknown,
                )
            )
    return tuple(records)


def switch_links(root: Path) -> tuple[SwitchLink, ...]:
    """Links inside split switches, each once: reported by Broadcom's module, by addresses of
    upstream ports.
    """
    links = set()
    for folder in _entries(root / "sys/kernel/pci_switch_link/virtual_switch_links"):
        for peer in _entries(folder):
            if (
                _ADDRESS.fullmatch(folder.name)
                and _ADDRESS.fullmatch(peer.name)
                and folder.name != peer.name
            ):
                links.add((min(folder.name, peer.name), max(folder.name, peer.name)))
    return tuple(SwitchLink(a=a, b=b) for a, b in sorted(links))


def _address_of(root: Path, folder: Path) -> str:
    """The PCI function that a class device belongs to; nothing if it belongs to none."""
    path = Asker(_ERRORS).ask("path", real_path, root, folder / "device")
    return next(reversed(addresses(path or "")), "")


def _port(folder: Path) -> Port:
    asker = Asker(_ERRORS)
    values = {
        name: asker.ask(name, text, folder / name) for name in ("rate", "state", "link_layer")
    }
    return Port(number=int(folder.name), **values, unknown=asker.unknown)


def _speed(file: Path) -> int:
    """Mb/s of an interface; the kernel says -1 (or that as unsigned) where the device does not
    tell.
    """
    speed = number(file)
    if speed in (-1, 0xFFFFFFFF, 0):
        raise ValueError(f"the kernel says {speed}")
    return speed


def _entries(folder: Path) -> Iterator[Path]:
    """What a folder holds, mlx5_2 before mlx5_10; nothing if it is not there or closed."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        entries = []
    return iter(sorted(entries, key=lambda one: _natural(one.name)))


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _whole(value: str | None) -> int | None:
    """A decimal number, if it is one: /proc/cpuinfo of POWER has words there."""
    return int(value) if value is not None and value.isdigit() else None
