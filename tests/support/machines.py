"""Machines written by hand, for the views: every wire of them can be counted on paper."""

from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.topology.rates import nvlink_link, pcie_link

# Links of a DGX-1V by GPU pairs: NVIDIA's DGX-1 system architecture whitepaper, and the public
# output of nvidia-smi topo -m there.
CUBE_MESH = {
    (0, 1): 1,
    (0, 2): 1,
    (0, 3): 2,
    (0, 4): 2,
    (1, 2): 2,
    (1, 3): 1,
    (1, 5): 2,
    (2, 3): 2,
    (2, 6): 1,
    (3, 7): 1,
    (4, 5): 1,
    (4, 6): 1,
    (4, 7): 2,
    (5, 6): 2,
    (5, 7): 1,
    (6, 7): 2,
}


def gpu(
    number: int,
    name: str,
    bus: int,
    affinity: str = "",
    host: int = 0,
    prefix: str = "",
    driver: str = "535.54",
) -> Node:
    return Node(
        id=f"{prefix}gpu{number}",
        kind="gpu",
        name=name,
        index=number,
        address=f"0000:{bus:02x}:00.0",
        affinity=affinity,
        host=host,
        facts=(("driver", driver),) if driver else (),
    )


def cpu(number: int, name: str, affinity: str, host: int = 0, prefix: str = "") -> Node:
    return Node(
        id=f"{prefix}cpu{number}", kind="cpu", name=name, index=number, affinity=affinity, host=host
    )


def plain(
    identity: str, kind: str, host: int = 0, name: str = "", index: int = -1, address: str = ""
) -> Node:
    return Node(id=identity, kind=kind, host=host, name=name, index=index, address=address)  # type: ignore[arg-type]


def socket(a: str, b: str, gbs: float | None = 10.0) -> Link:
    return Link(
        a=a, b=b, kind="socket", usable_gbs=gbs, source="NCCL's figure for Skylake" if gbs else ""
    )


def dgx1v() -> Topology:
    """8 x V100 in a hybrid cube mesh; at each of two sockets two PCIe switches, each with a root
    port above it, and behind it two GPUs and a NIC.
    """
    affinity = ("0-19,40-59", "20-39,60-79")
    nodes = [cpu(number, "Intel Xeon E5-2698 v4", affinity[number]) for number in range(2)]
    links = [socket("cpu0", "cpu1", 6.0)]
    for switch in range(4):
        home, bus = switch // 2, switch * 16
        nodes += [
            plain(f"root{switch}", "root", address=f"0000:{bus:02x}"),
            plain(f"pci{switch}", "pci", address=f"0000:{bus + 1:02x}:00.0"),
            plain(f"nic{switch}", "nic", 0, f"mlx5_{switch}", switch, f"0000:{bus + 12:02x}:00.0"),
        ]
        links += [pcie_link(f"cpu{home}", f"root{switch}", 3, 16)]
        links += [pcie_link(f"root{switch}", f"pci{switch}", 3, 16)]
        links += [pcie_link(f"pci{switch}", f"nic{switch}", 3, 16)]
        for number in (2 * switch, 2 * switch + 1):
            nodes.append(gpu(number, "Tesla V100-SXM2-16GB", bus + 4 + number % 2, affinity[home]))
            links.append(pcie_link(f"pci{switch}", f"gpu{number}", 3, 16))
    links += [nvlink_link(f"gpu{a}", f"gpu{b}", 2, count) for (a, b), count in CUBE_MESH.items()]
    return Topology(name="DGX-1V", nodes=tuple(nodes), links=tuple(links), hosts=("dgx",))


def two_hosts(driver: str = "535.54", hosts: int = 2) -> Topology:
    """Hosts of 2 GPUs with NVLink between them and one NIC each; ids carry the host."""
    nodes: list[Node] = [plain("net0", "net", host=-1)]
    links: list[Link] = []
    for host in range(hosts):
        prefix = f"h{host}." if host else ""
        nodes += [
            cpu(0, "AMD EPYC 7742", "0-63", host, prefix),
            plain(f"{prefix}root0", "root", host),
        ]
        nodes += [
            gpu(number, "NVIDIA A100-SXM4-40GB", 16 + number, "0-63", host, prefix, driver)
            for number in range(2)
        ]
        nodes += [plain(f"{prefix}nic0", "nic", host, "mlx5_0", 0)]
        links += [pcie_link(f"{prefix}cpu0", f"{prefix}root0", 4, 16)]
        links += [
            pcie_link(f"{prefix}root0", f"{prefix}{end}", 4, 16) for end in ("gpu0", "gpu1", "nic0")
        ]
        links += [nvlink_link(f"{prefix}gpu0", f"{prefix}gpu1", 3, 12)]
        links += [
            Link(
                a=f"{prefix}nic0",
                b="net0",
                kind="network",
                raw_gbs=25.0,
                usable_gbs=24.0,
                source="200 Gb/s",
            )
        ]
    return Topology(
        name="two",
        nodes=tuple(nodes),
        links=tuple(links),
        hosts=tuple(f"node{host + 1}" for host in range(hosts)),
    )


def laptop() -> Topology:
    """No GPU: a processor and a NIC."""
    nodes = (
        cpu(0, "Intel Core i7-1260P", "0-15"),
        plain("root0", "root"),
        plain("nic0", "nic", name="enp0s31f6", index=0),
    )
    links = (pcie_link("cpu0", "root0", 0, 0), pcie_link("root0", "nic0", 0, 0))
    return Topology(
        name="laptop",
        nodes=nodes,
        links=links,
        hosts=("laptop",),
        notes=("no NVIDIA driver was found",),
    )


def unknown_rates() -> Topology:
    """Two sockets of whose links nobody told a rate; the NUMA node of nothing is known."""
    nodes = (
        cpu(-1, "", ""),
        Node(id="cpu9", kind="cpu"),
        gpu(0, "", 1, driver=""),
        gpu(1, "", 2, driver=""),
    )
    links = (
        pcie_link("cpu-1", "gpu0", 0, 0),
        pcie_link("cpu9", "gpu1", 0, 0),
        socket("cpu-1", "cpu9", None),
    )
    return Topology(name="unknown <rates> & such", nodes=nodes, links=links)
