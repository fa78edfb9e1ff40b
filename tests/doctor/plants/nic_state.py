"""NICs that are down, slow or far away."""

from dataclasses import replace
from typing import Any

from collbench.machine.discovery import Recording
from tests.support.evidence import machine, planted


def with_nic(recording: Recording, name: str, **values: Any) -> Recording:
    """A recording with values of a NIC changed; those of ports in its ports."""
    of_ports = {key: values.pop(key) for key in ("rate", "state", "link_layer") if key in values}
    nics = tuple(
        replace(one, ports=tuple(replace(port, **of_ports) for port in one.ports), **values)
        if one.name == name
        else one
        for one in recording.nics
    )
    return replace(recording, nics=nics)


def with_interfaces(recording: Recording) -> Recording:
    """Every RDMA device has an Ethernet interface."""
    for nic in recording.nics:
        if nic.is_rdma:
            recording = with_nic(recording, nic.name, link_layer="Ethernet")
    more = tuple(
        replace(
            nic,
            name=f"eth{place}",
            is_rdma=False,
            ports=(),
            speed_mbps=400_000,
            operstate="up",
            mtu=9000,
        )
        for place, nic in enumerate(recording.nics)
        if nic.is_rdma
    )
    return replace(recording, nics=(*recording.nics, *more))


def swapped(recording: Recording) -> Recording:
    """The NICs of GPUs 0 and 1 are at a root port of the other socket."""
    gone = {nic.address: bus for nic, bus in zip(recording.nics[:2], ("f0", "f1"), strict=True)}
    return replace(
        recording,
        pci=tuple(
            replace(one, path=f"devices/pci0000:{gone[one.address]}/{one.address}", numa_node=1)
            if one.address in gone
            else one
            for one in recording.pci
        ),
        nics=recording.nics[:2],
    )


HGX = machine("hgx_h100")
ROCE = with_interfaces(HGX)
BARE = replace(ROCE, nics=tuple(one for one in ROCE.nics if not one.is_rdma))
PLANTS = [
    planted("down", with_nic(HGX, "mlx5_3", state="1: DOWN")).finds(
        "mlx5_3 port 1", "the port is down (1: DOWN), where 7 other ports of its model are up"
    ),
    planted("no subnet manager", with_nic(HGX, "mlx5_3", state="2: INIT")).finds(
        "mlx5_3 port 1", "waits for a subnet manager", "fault"
    ),
    planted("half the rate", with_nic(HGX, "mlx5_6", rate="200 Gb/sec (4X HDR)")).finds(
        "mlx5_6 port 1", "it runs at 200 Gb/s, where 7 others of its model run at 400 Gb/s", "fault"
    ),
    planted(
        "one lane",
        *(
            with_nic(with_nic(one, "mlx5_0", rate="100 Gb/sec (1X NDR)"), "mlx5_1", rate=None)
            for one in [replace(HGX, nics=HGX.nics[:2])]
        ),
    ).finds("mlx5_0 port 1", "100 Gb/sec (1X NDR): one lane", "fault"),
    planted("the interface of RoCE is down", with_nic(ROCE, "eth4", operstate="down")).finds(
        "eth4", "the interface is down, while mlx5_4 port 1", "fault"
    ),
    planted("a smaller MTU", with_nic(ROCE, "eth5", mtu=1500)).finds(
        "eth5", "its MTU is 1500, where others of its model have 9000"
    ),
    planted("a slower Ethernet", with_nic(BARE, "eth1", speed_mbps=100_000)).finds(
        "eth1", "it runs at 100 Gb/s, where 7 others", "fault"
    ),
    planted(
        "two rates, as many of each",
        with_nic(replace(HGX, nics=HGX.nics[:2]), "mlx5_1", rate="200 Gb/sec (4X HDR)"),
    ).finds("mlx5_1 port 1", "where 1 other of its model runs at 400 Gb/s"),
    planted("on the other socket", swapped(HGX)).finds(
        "GPUs 0-3", "no RDMA device that is up is on the same NUMA node"
    ),
    planted("the only one, on the other socket", machine("pcie_box")).finds(
        "GPUs 4-7",
        "no RDMA device that is up is on the same NUMA node: the host has one only",
        "remark",
    ),
]
