"""What Linux reports without root: CPUs, NUMA nodes, PCI functions and NICs. Only files of /sys
and /proc under a root.

Source: the kernel's Documentation/ABI (sysfs-bus-pci, sysfs-class-net, sysfs-class-infiniband,
stable/sysfs-devices-node).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from collbench.core.text import natural_key
from collbench.machine.discovery.recording import (
    DISPLAY_CLASSES,
    NVIDIA,
    CpuRecord,
    Nic,
    NumaNode,
    PciDevice,
    Port,
    RdmaSupport,
)

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# The maker of an Arm core (/proc/cpuinfo, CPU implementer) does not matter here: all of them have
# one name.
_ARM, _IBM = "ARM", "IBM"
# Counters that stand still on a network that is well. Source: the kernel's ABI/stable/
# sysfs-class-infiniband, NVIDIA's documentation of hw_counters.
_PORT_COUNTERS = {
    "counters": (
        "symbol_error",
        "link_error_recovery",
        "link_downed",
        "port_rcv_errors",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
        "port_xmit_discards",
    ),
    "hw_counters": (
        "packet_seq_err",
        "out_of_sequence",
        "local_ack_timeout_err",
        "rnr_nak_retry_err",
        "implied_nak_seq_err",
        "rx_icrc_encapsulated",
        "req_transport_retries_exceeded",
    ),
}
_INTERFACE_COUNTERS = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_missed_errors", "tx_dropped")


T = TypeVar("T")


class ValueReader:
    """Collects why values of one object are missing. errors: what a failing read raises."""

    def __init__(self, *errors: type[Exception]) -> None:
        self.errors = errors
        self.unknown: dict[str, str] = {}

    def read(self, name: str, function: Callable[..., T], *args: object) -> T | None:
        """What the function returns, or None."""
        try:
            return function(*args)
        except self.errors as error:
            self.unknown[name] = reason_of(error)
            return None


def _reader() -> ValueReader:
    return ValueReader(OSError, ValueError)


def text(file: Path) -> str:
    """A file's text in one line. Raises OSError, also for sysfs files that refuse to be read."""
    return file.read_text(errors="replace").strip()


def number(file: Path) -> int:
    """A file's number. Raises OSError or ValueError."""
    return int(text(file), 0)


def processor(root: Path) -> CpuRecord:
    """The first core of /proc/cpuinfo."""
    values = _reader()
    lines = (values.read("name", text, root / "proc/cpuinfo") or "").splitlines()
    facts: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name") or facts.get("cpu")
    if not name:
        values.unknown.setdefault("name", "/proc/cpuinfo does not name it")
    vendor = facts.get("vendor_id") or (
        _ARM if "CPU implementer" in facts else _IBM if "POWER" in facts.get("cpu", "") else None
    )
    return CpuRecord(
        vendor=vendor,
        family=_whole(facts.get("cpu family")),
        model=_whole(facts.get("model")),
        name=name,
        has_hypervisor="hypervisor" in facts["flags"].split() if "flags" in facts else None,
        unknown=values.unknown,
    )


def rdma_support(root: Path) -> RdmaSupport:
    """Modules of NVIDIA's driver, and what the IOMMU does (iommu_groups/N/type: identity passes
    addresses through).
    """
    values = _reader()
    modules = root / "sys/module"
    peers = (root / "sys/kernel/mm/memory_peers").glob("nv_mem*")
    has_peermem = (
        any((modules / name).is_dir() for name in ("nvidia_peermem", "nv_peer_mem")) or any(peers)
        if modules.is_dir()
        else None
    )
    version = values.read("version", text, root / "proc/driver/nvidia/version")
    types = {
        values.read("type", text, file)
        for file in sorted((root / "sys/kernel/iommu_groups").glob("*/type"))
    } - {None}
    iommu = None
    if (root / "sys/class/iommu").is_dir():
        has_iommu = any((root / "sys/class/iommu").iterdir())
        iommu = "off" if not has_iommu else "passthrough" if types == {"identity"} else "translated"
    return RdmaSupport(
        has_peermem=has_peermem,
        has_open_driver=None if version is None else "Open Kernel Module" in version,
        iommu=iommu if iommu != "translated" or types else None,
    )


def numa_nodes(root: Path) -> tuple[NumaNode, ...]:
    """NUMA nodes that have cores; none where the kernel knows no NUMA."""
    nodes = []
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    for folder in sorted(folders, key=lambda one: natural_key(one.name)):
        values = _reader()
        cpulist = values.read("cpulist", text, folder / "cpulist")
        if cpulist:
            first = re.match(r"\d+", cpulist)
            cpu = root / f"sys/devices/system/cpu/cpu{first[0] if first else 0}"
            nodes.append(
                NumaNode(
                    index=int(folder.name[4:]),
                    cpulist=cpulist,
                    package=values.read("package", number, cpu / "topology/physical_package_id"),
                    unknown=values.unknown,
                )
            )
    return tuple(nodes)


def real_path(root: Path, link: Path) -> str:
    """The target of a link of /sys, relative to /sys. Raises OSError if it is not below /sys."""
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
    values = _reader()
    return [
        folder.name
        for folder in entries(root / "sys/bus/pci/devices")
        if values.read("vendor", text, folder / "vendor") == NVIDIA
        and (values.read("class", text, folder / "class") or "").startswith(DISPLAY_CLASSES)
    ]


def pci_class(root: Path, address: str) -> str | None:
    """The class of a PCI function, if it is there."""
    return _reader().read("class", text, root / f"sys/bus/pci/devices/{address}/class")


def pci_devices(root: Path, ends: Iterable[str]) -> tuple[PciDevice, ...]:
    """These PCI functions and all bridges above them; what is not in sysfs is left out."""
    devices: dict[str, PciDevice] = {}
    for end in dict.fromkeys(ends):
        path = _reader().read("path", real_path, root, root / f"sys/bus/pci/devices/{end}")
        for place in addresses(path or ""):
            if place not in devices:
                devices[place] = _pci_device(root, place)
    return tuple(devices[place] for place in sorted(devices))


def _pci_device(root: Path, address: str) -> PciDevice:
    folder, values = root / f"sys/bus/pci/devices/{address}", _reader()
    return PciDevice(
        address=address,
        path=values.read("path", real_path, root, folder) or "",
        pci_class=values.read("pci_class", text, folder / "class"),
        vendor=values.read("vendor", text, folder / "vendor"),
        device=values.read("device", text, folder / "device"),
        subsystem_vendor=values.read("subsystem_vendor", text, folder / "subsystem_vendor"),
        subsystem_device=values.read("subsystem_device", text, folder / "subsystem_device"),
        current_link_speed=values.read("current_link_speed", text, folder / "current_link_speed"),
        current_link_width=values.read("current_link_width", number, folder / "current_link_width"),
        max_link_speed=values.read("max_link_speed", text, folder / "max_link_speed"),
        max_link_width=values.read("max_link_width", number, folder / "max_link_width"),
        numa_node=values.read("numa_node", number, folder / "numa_node"),
        local_cpulist=values.read("local_cpulist", text, folder / "local_cpulist"),
        unknown=values.unknown,
    )


def nics(root: Path) -> tuple[Nic, ...]:
    """RDMA devices and network interfaces that are PCI functions, or parts of one (virtio)."""
    records = []
    for kind in ("infiniband", "net"):
        for folder in entries(root / f"sys/class/{kind}"):
            address = _address_of(root, folder)
            if address:
                nic = Nic(
                    name=folder.name,
                    address=address,
                    is_rdma=kind == "infiniband",
                    is_virtual=(folder / "device/physfn").exists(),
                )
                records.append(
                    _with_ports(nic, folder) if nic.is_rdma else _with_speed(nic, folder)
                )
    return tuple(records)


def _with_ports(nic: Nic, folder: Path) -> Nic:
    ports = [_port(port) for port in entries(folder / "ports") if port.name.isdigit()]
    return replace(nic, ports=tuple(ports))


def _with_speed(nic: Nic, folder: Path) -> Nic:
    values = _reader()
    speed = values.read("speed_mbps", _speed, folder / "speed")
    state = values.read("operstate", text, folder / "operstate")
    return replace(
        nic,
        speed_mbps=speed,
        operstate=state,
        mtu=values.read("mtu", number, folder / "mtu"),
        counters=_counters(folder, {"statistics": _INTERFACE_COUNTERS}),
        unknown=values.unknown,
    )


def _address_of(root: Path, folder: Path) -> str:
    """The PCI function that a class device belongs to; nothing if it belongs to none."""
    path = _reader().read("path", real_path, root, folder / "device")
    return next(reversed(addresses(path or "")), "")


def _port(folder: Path) -> Port:
    values = _reader()
    texts = {
        name: values.read(name, text, folder / name) for name in ("rate", "state", "link_layer")
    }
    counters = _counters(folder, _PORT_COUNTERS)
    return Port(number=int(folder.name), **texts, counters=counters, unknown=values.unknown)


def _counters(folder: Path, names: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Counters by name, of those that are there."""
    values = _reader()
    numbers = {
        name: values.read(name, number, folder / group / name)
        for group, some in names.items()
        for name in some
    }
    return {name: value for name, value in numbers.items() if value is not None}


def _speed(file: Path) -> int:
    """Mb/s of an interface. The kernel writes -1, signed or unsigned, for an unknown speed."""
    speed = number(file)
    if speed in (-1, 0xFFFFFFFF, 0):
        raise ValueError(f"the kernel says {speed}")
    return speed


def entries(folder: Path) -> Iterator[Path]:
    """What a folder holds, mlx5_2 before mlx5_10; nothing if it is not there or closed."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        entries = []
    return iter(sorted(entries, key=lambda one: natural_key(one.name)))


def _whole(value: str | None) -> int | None:
    """A decimal number, if it is one: /proc/cpuinfo of POWER has words there."""
    return int(value) if value is not None and value.isdigit() else None


def reason_of(error: Exception) -> str:
    """The reason of an error, without names of files."""
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
