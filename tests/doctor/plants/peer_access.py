"""Pairs of GPUs without peer access."""

from collections.abc import Callable
from dataclasses import replace

from collbench.machine.discovery import Recording
from collbench.machine.discovery.recording import RdmaSupport
from tests.support.evidence import machine, planted


def denied(recording: Recording, which: Callable[[int, int], bool], status: int = 1) -> Recording:
    """A recording in which some pairs have no peer access; the others have."""
    return replace(
        recording,
        pairs=tuple(
            replace(one, read=status, write=status)
            if which(one.a, one.b)
            else replace(one, read=0, write=0)
            for one in recording.pairs
        ),
    )


A_CARD = replace(
    machine("pcie_box"),
    gpus=tuple(replace(one, name="NVIDIA L40S") for one in machine("pcie_box").gpus),
)
PLANTS = [
    planted("one pair below one switch", denied(A_CARD, lambda a, b: {a, b} == {0, 1})).finds(
        "GPUs 0 and 1",
        "no peer access (CNS: the chipset does not support it), where others that are as far",
        "fault",
    ),
    planted(
        "of a status that nobody knows", denied(A_CARD, lambda a, b: {a, b} == {0, 1}, -7)
    ).finds("GPUs 0 and 1", "no peer access (U: ", "fault"),
    planted("one GPU", denied(machine("hgx_h100"), lambda a, b: 3 in (a, b), 4)).finds(
        "GPU 3",
        "none of its pairs has peer access (DR: switched off by the driver's registry)",
        "fault",
    ),
    planted("across sockets", denied(A_CARD, lambda a, b: a // 4 != b // 4, 3)).finds(
        "16 pairs of GPUs 0-7", "nearer ones have it; in the way may be the link between sockets"
    ),
    planted(
        "all, behind an IOMMU",
        replace(denied(A_CARD, lambda a, b: True), rdma=RdmaSupport(iommu="translated")),
    ).finds(
        "GPUs 0-7",
        "no pair has peer access (CNS: the chipset does not support it); in the way may be"
        " an IOMMU",
    ),
    planted("a virtual machine", denied(machine("h200_vm"), lambda a, b: True, 5)).finds(
        "GPUs 0-3",
        "no pair has peer access (NS: not supported); in the way may be a virtual machine",
    ),
    planted("GeForce", machine("pcie_box")).finds(
        "GPUs 0-7", "NVIDIA's policy for GeForce cards", "remark"
    ),
]
