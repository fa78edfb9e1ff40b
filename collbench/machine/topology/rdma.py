"""GPUDirect RDMA between a GPU and a NIC: whether it can be direct, whether NCCL will use it, and
why not. And which NIC serves which GPU. Pure; what nobody reports is unknown.

Source: NCCL's paths.cc (ncclTopoCheckGdr, ncclTopoGetLocalNet) and its documentation of
NCCL_NET_GDR_LEVEL.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from collbench.core.errors import UsageError
from collbench.machine.topology.hosts import port_gbs
from collbench.machine.topology.model import Node, Topology
from collbench.machine.topology.paths import CLASS_ORDER, Path, path
from collbench.machine.topology.unnamed import is_amd

DEFAULT_LEVEL = "PXB"  # where NCCL_NET_GDR_LEVEL is not set
_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")
_OLD_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS", "SYS")  # by number
_FIRST_READER = 80  # the compute capability from which NCCL lets NICs read without NVLinks


@dataclass(frozen=True, slots=True, kw_only=True)
class Rdma:
    """direct, used: yes, no, or what it depends on. used is by NCCL, at a level."""

    gpu: str
    nic: str
    way: Path
    direct: str
    used: str
    why: str


def level_of(text: str) -> str:
    """A value of NCCL_NET_GDR_LEVEL as a class; the default for nothing. Raises UsageError.

    >>> level_of(""), level_of("3"), level_of("sys")
    ('PXB', 'PHB', 'SYS')
    """
    if not text:
        return DEFAULT_LEVEL
    name = _OLD_LEVELS[int(text)] if text in tuple("012345") else text.upper()
    if name not in _LEVELS:
        raise UsageError(
            f"NCCL_NET_GDR_LEVEL is '{text[:20]}'", f"NCCL knows {', '.join(_LEVELS)} and 0 to 5"
        )
    return name


def rdma(topology: Topology, gpu: Node, nic: Node, level: str = DEFAULT_LEVEL) -> Rdma:
    """RDMA between a GPU and a NIC of one host.

    >>> from collbench.machine.topology.rates import pcie_link
    >>> nodes = (
    ...     Node(id="pci0", kind="pci"),
    ...     Node(id="gpu0", kind="gpu", facts=(("gdr", "1"),)),
    ...     Node(id="nic0", kind="nic", facts=(("gdr", "1"),)),
    ... )
    >>> links = tuple(pcie_link("pci0", end, 5, 16) for end in ("gpu0", "nic0"))
    >>> found = rdma(Topology(name="one", nodes=nodes, links=links), nodes[1], nodes[2])
    >>> found.direct, found.used
    ('yes', 'yes')
    """
    way, obstacle = path(topology, gpu.id, nic.id), _obstacle(gpu, nic)
    direct, why = _place(way)
    is_known = direct != "unknown"
    if is_known and gpu.fact("iommu") == "translated":
        direct, why = "unknown", f"{why}; the IOMMU translates, so it may go through the root"
    if obstacle:
        direct, used, why = "no", "no", obstacle
    elif not is_known:
        used, why = "unknown", "no way between them is known"
    elif not _is_within(way, level):
        used, why = "no", f"{why}; farther than {level}"
    else:
        is_told = gpu.fact("gdr") == nic.fact("gdr") == "1"
        has_module = "yes" in (gpu.fact("peermem"), gpu.fact("open_driver"))
        used = "yes" if is_told or has_module else "if supported"
        if _only_receives(topology, gpu):
            used, why = f"{used}, to receive", f"{why}; no sending before Ampere without NVLinks"
    return Rdma(gpu=gpu.id, nic=nic.id, way=way, direct=direct, used=used, why=why)


def _obstacle(gpu: Node, nic: Node) -> str:
    """Why RDMA cannot be, as far as the source tells."""
    if gpu.fact("gdr") == "0":
        return "the dump says that the GPU has no GPUDirect"
    if nic.fact("gdr") == "0":
        return "the dump says that the NIC has no GPUDirect"
    if nic.fact("rdma") == "no":
        return "the NIC has no RDMA device"
    if gpu.fact("peermem") == "no" and gpu.fact("open_driver") == "no":
        return "neither nvidia_peermem nor a driver with dma-buf is loaded"
    return ""


def _place(way: Path) -> tuple[str, str]:
    """Whether hardware can move data directly, and by what."""
    if any(link.kind == "c2c" for link in way.links) and way.kind != "SYS":
        return "yes", "over C2C and the CPU's root"
    return {
        "PIX": ("yes", "below one switch"),
        "PXB": ("yes", "below one host bridge"),
        "PHB": ("through the CPU", "through the CPU's host bridge"),
        "NODE": ("through the CPU", "through host bridges of one NUMA node"),
        "SYS": ("across sockets", "through the link between NUMA nodes"),
    }.get(way.kind, ("unknown", ""))


def _is_within(way: Path, level: str) -> bool:
    """Whether NCCL goes that far; over C2C up to the CPU's root by default (2.27 on)."""
    if any(link.kind == "c2c" for link in way.links) and way.kind != "SYS":
        return CLASS_ORDER[level] >= CLASS_ORDER["PXB"]
    kind = "PHB" if way.kind == "NODE" else way.kind  # NCCL has no class of its own for it
    return CLASS_ORDER[kind] <= CLASS_ORDER[level]


def _only_receives(topology: Topology, gpu: Node) -> bool:
    text = gpu.fact("sm")
    is_old = text.isdecimal() and int(text) < _FIRST_READER and not is_amd(gpu)
    return is_old and not topology.bundles(gpu.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rail:
    """The NICs that are nearest to a GPU, and the one of them that serves it: where several GPUs
    are equally near to several NICs, each has its own.
    """

    gpu: str
    near: tuple[str, ...]
    nic: str
    way: Path


def rails(topology: Topology) -> tuple[Rail, ...]:
    """The NIC of each GPU of one host as NCCL chooses it: the highest rate of way and port, then
    the nearest class. None where no way leads to a NIC.
    """
    nics = sorted(topology.of_kind("nic"), key=lambda node: node.index)
    served: list[Rail] = []
    for gpu in topology.gpus:
        ways = [way for nic in nics if (way := path(topology, gpu.id, nic.id)).links]
        if not ways:
            continue
        keys = {way.b: (-_gbs(topology, way), CLASS_ORDER[way.kind]) for way in ways}
        near = tuple(nic for nic, key in keys.items() if key == min(keys.values()))
        before = sum(rail.near == near for rail in served)
        nic = near[before % len(near)]
        way = next(way for way in ways if way.b == nic)
        served.append(Rail(gpu=gpu.id, near=near, nic=nic, way=way))
    return tuple(served)


def _gbs(topology: Topology, way: Path) -> float:
    """What a way to a NIC and its port carry, as far as it is known."""
    port = nic_gbs(topology, topology.by_id[way.b])
    return min((rate for rate in (way.usable_gbs, port) if rate is not None), default=0.0)


def nic_gbs(topology: Topology, nic: Node) -> float | None:
    """GB/s of a NIC's port in one direction, as its file or its link to a network tells."""
    for link in topology.links_of[nic.id]:
        if link.kind == "network" and link.raw_gbs is not None:
            return link.raw_gbs
    return port_gbs(nic) or None


def bisection_gbs(topology: Topology, hosts: Sequence[int]) -> float | None:
    """GB/s in one direction between two halves of hosts, if nothing between the NICs is a limit:
    what all NICs of the smaller half carry. None where a rate is unknown or there is no NIC.
    """
    half = set(hosts[: len(hosts) // 2])
    rates = [nic_gbs(topology, nic) for nic in topology.of_kind("nic") if nic.host in half]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known and len(known) == len(rates) else None
