"""Interfaces that are not there, or lead nowhere."""

from dataclasses import replace

from collbench.machine.discovery import Recording
from tests.support.evidence import machine, planted, with_ranks, with_system


def _two(**environment: str) -> tuple[Recording, Recording]:
    """Two hosts with the interfaces of Docker, of which the first has the variables."""
    hosts = [
        with_system(machine("hgx_h100", name), interfaces=("docker0", "eth0", "lo"))
        for name in ("a", "b")
    ]
    return (with_ranks(hosts[0], 8, 0, 16, environment=environment), with_ranks(hosts[1], 8, 8, 16))


PLANTS = [
    *(
        planted(
            f"{name}={value}",
            with_ranks(replace(machine("hgx_h100")), 8, environment={name: value}),
        ).finds("ranks 0-7", words, severity)
        for name, value, words, severity in (
            ("NCCL_SOCKET_IFNAME", "ens", "there is no ens here (eth0, lo)", "fault"),
            ("NCCL_SOCKET_IFNAME", "=eth", "there is no eth here", "fault"),
            ("NCCL_SOCKET_IFNAME", "^eth,lo", "it leaves no interface", "fault"),
            ("GLOO_SOCKET_IFNAME", "eth", "there is no eth here", "fault"),
            ("GLOO_SOCKET_IFNAME", "eth0,ib0", "there is no ib0 here", "risk"),
            ("OMPI_MCA_btl_tcp_if_include", "10.0.0.0/8,ib0", "there is no ib0 here", "fault"),
            ("UCX_NET_DEVICES", "mlx5_9:1", "there is no mlx5_9 here", "fault"),
        )
    ),
    planted("the loop of one of two hosts", *_two(NCCL_SOCKET_IFNAME="lo")).finds(
        "ranks 0-7 of a", "lo cannot reach other hosts", "fault"
    ),
    planted("Docker's bridge", *_two(NCCL_SOCKET_IFNAME="docker")).finds(
        "ranks 0-7 of a", "docker0 cannot reach other hosts"
    ),
]
