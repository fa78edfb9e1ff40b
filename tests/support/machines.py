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


def two_sockets(
    model: str,
    switches: int,
    each: int,
    nics: int,
    generation: int,
    cores: str,
    socket_gbs: float | None = 10.0,
) -> tuple[list[Node], list[Link]]:
    """Two sockets with `switches` PCIe switches each, `each` GPUs and `nics` NICs behind every one,
    a root port a switch.
    """
    affinity = ("0-19,40-59", "20-39,60-79")
    nodes = [cpu(number, cores, affinity[number]) for number in range(2)]
    links = [socket("cpu0", "cpu1", socket_gbs)]
    for switch in range(2 * switches):
        home = switch // switches
        nodes += [
            plain(f"root{switch}", "root", address=f"0000:{switch * 16:02x}"),
            plain(f"pci{switch}", "pci", address=f"0000:{switch * 16 + 1:02x}:00.0"),
        ]
        links += [
            pcie_link(f"cpu{home}", f"root{switch}", generation, 16),
            pcie_link(f"root{switch}", f"pci{switch}", generation, 16),
        ]
        for place in range(each):
            number = switch * each + place
            nodes.append(gpu(number, model, switch * 16 + 4 + place, affinity[home]))
            links.append(pcie_link(f"pci{switch}", f"gpu{number}", generation, 16))
        for place in range(nics):
            number = switch * nics + place
            nodes.append(
                plain(
                    f"nic{number}",
                    "nic",
                    name=f"mlx5_{number}",
                    index=number,
                    address=f"0000:{switch * 16 + 12 + place:02x}:00.0",
                )
            )
            links.append(pcie_link(f"pci{switch}", f"nic{number}", generation, 16))
    return nodes, links


def dgx1v() -> Topology:
    """8 x V100 in a hybrid cube mesh, a switch and a NIC for two GPUs."""
    nodes, links = two_sockets("Tesla V100-SXM2-16GB", 2, 2, 1, 3, "Intel Xeon E5-2698 v4", 6.0)
    links += [nvlink_link(f"gpu{a}", f"gpu{b}", 2, count) for (a, b), count in CUBE_MESH.items()]
    return Topology(name="DGX-1V", nodes=tuple(nodes), links=tuple(links), hosts=("dgx",))


def hgx_h100() -> Topology:
    """8 x H100 on an NVSwitch fabric, a switch and a NIC for each."""
    nodes, links = two_sockets(
        "NVIDIA H100 80GB HBM3", 4, 1, 1, 5, "Intel Xeon Platinum 8480C", 22.0
    )
    nodes += [plain("nvswitch0", "nvswitch", name="NVSwitch"), plain("net0", "net", host=-1)]
    links += [nvlink_link(f"gpu{number}", "nvswitch0", 4, 18) for number in range(8)]
    links += [
        Link(
            a=f"nic{number}",
            b="net0",
            kind="network",
            raw_gbs=50.0,
            usable_gbs=48.0,
            source="400 Gb/s",
        )
        for number in range(8)
    ]
    return Topology(name="HGX H100", nodes=tuple(nodes), links=tuple(links), hosts=("h100-01",))


def p100_pcie() -> Topology:
    """8 x P100 on PCIe, four a socket, two a switch."""
    nodes, links = two_sockets("Tesla P100-PCIE-16GB", 2, 2, 0, 3, "Intel Xeon E5-2682 v4", 6.0)
    return Topology(name="8 x P100, PCIe", nodes=tuple(nodes), links=tuple(links), hosts=("gn5",))


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


def nvl(hosts: int = 18) -> Topology:
    """Hosts of 4 GPUs, each beside a processor by C2C, all on one NVLink switch between the
    hosts.
    """
    nodes: list[Node] = [plain("nvswitch0", "nvswitch", host=-1)]
    links: list[Link] = []
    for host in range(hosts):
        nodes += [
            cpu(number, "Grace", f"{72 * number}-{72 * number + 71}", host, f"h{host}.")
            for number in range(2)
        ]
        links.append(socket(f"h{host}.cpu0", f"h{host}.cpu1", 32.0))
        for number in range(4):
            nodes.append(
                Node(
                    id=f"gpu{host * 4 + number}",
                    kind="gpu",
                    name="NVIDIA GB200",
                    index=number,
                    host=host,
                )
            )
            links.append(
                Link(
                    a=f"h{host}.cpu{number // 2}",
                    b=f"gpu{host * 4 + number}",
                    kind="c2c",
                    raw_gbs=450.0,
                    usable_gbs=360.0,
                )
            )
            links.append(nvlink_link(f"gpu{host * 4 + number}", "nvswitch0", 5, 18))
    return Topology(
        name="GB200 NVL72",
        nodes=tuple(nodes),
        links=tuple(links),
        hosts=tuple(f"tray{host:02}" for host in range(hosts)),
    )


def sixteen() -> Topology:
    """16 GPUs with a link to each of 6 NVSwitches."""
    nodes, links = two_sockets("Tesla V100-SXM3-32GB", 4, 2, 1, 3, "Intel Xeon Platinum 8168")
    nodes += [plain(f"nvswitch{number}", "nvswitch", index=number) for number in range(6)]
    links += [
        nvlink_link(f"gpu{number}", f"nvswitch{switch}", 2, 1)
        for number in range(16)
        for switch in range(6)
    ]
    return Topology(
        name="DGX-2",
        nodes=tuple(nodes),
        links=tuple(links),
        hosts=("dgx2",),
        notes=("a note that a reader must know",),
    )


def four_sockets() -> Topology:
    """4 GPUs, each with a processor of its own, every two joined by 4 NVLinks, every two processors
    linked.
    """
    nodes: list[Node] = []
    links: list[Link] = []
    for number in range(4):
        nodes += [
            cpu(number, "AMD EPYC 7742", f"{16 * number}-{16 * number + 15}"),
            plain(f"root{number}", "root"),
            gpu(number, "A100", 3 + number * 16),
        ]
        links += [
            pcie_link(f"cpu{number}", f"root{number}", 4, 16),
            pcie_link(f"root{number}", f"gpu{number}", 4, 16),
        ]
        for other in range(number):
            links += [
                socket(f"cpu{other}", f"cpu{number}", 16.0),
                nvlink_link(f"gpu{other}", f"gpu{number}", 3, 4),
            ]
    return Topology(name="four", nodes=tuple(nodes), links=tuple(links))


def nested() -> Topology:
    """Switches below a switch, and devices at every level, of several widths."""
    nodes = [cpu(0, "Intel Xeon Gold 6248", "0-19"), plain("root0", "root", address="0000:00")]
    nodes += [
        plain(f"pci{number}", "pci", address=f"0000:0{number + 1}:00.0") for number in range(3)
    ]
    links = [
        pcie_link("cpu0", "root0", 4, 16),
        pcie_link("root0", "pci0", 4, 16),
        pcie_link("pci0", "pci1", 4, 16),
        pcie_link("pci0", "pci2", 4, 16),
    ]
    for number, above in enumerate(("pci0", "pci1", "pci1", "pci1", "pci2", "root0")):
        nodes.append(gpu(number, "NVIDIA L40S", 32 + number))
        links.append(pcie_link(above, f"gpu{number}", 4, 16 if number < 4 else 8))
    for number, above in enumerate(("pci1", "pci1", "pci1", "pci1", "root0")):
        nodes.append(plain(f"nic{number}", "nic", name=f"mlx5_{number}", index=number))
        links.append(pcie_link(above, f"nic{number}", 3, 8))
    return Topology(name="nested", nodes=tuple(nodes), links=tuple(links), hosts=("box",))
