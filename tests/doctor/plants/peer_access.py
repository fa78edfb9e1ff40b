"""Pairs of GPUs without peer access."""

from collections.abc import Callable
from dataclasses import replace

from collbench.machine.discovery import Recording
from collbench.machine.discovery.recording import RdmaSupport
from tests.support.evidence import Plant, evidence, machine


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
    Plant(
        name="one pair below one switch",
        evidence=evidence(denied(A_CARD, lambda a, b: {a, b} == {0, 1})),
        subject="GPUs 0 and 1",
        words="no peer access (CNS: the chipset does not support it), where others that are as far",
        severity="fault",
    ),
    Plant(
        name="of a status that nobody knows",
        severity="fault",
        evidence=evidence(denied(A_CARD, lambda a, b: {a, b} == {0, 1}, -7)),
        subject="GPUs 0 and 1",
        words="no peer access (U: ",
    ),
    Plant(
        name="one GPU",
        evidence=evidence(denied(machine("hgx_h100"), lambda a, b: 3 in (a, b), 4)),
        subject="GPU 3",
        words="none of its pairs has peer access (DR: switched off by the driver's registry)",
        severity="fault",
    ),
    Plant(
        name="across sockets",
        evidence=evidence(denied(A_CARD, lambda a, b: a // 4 != b // 4, 3)),
        subject="16 pairs of GPUs 0-7",
        words="nearer ones have it; in the way may be the link between sockets",
    ),
    Plant(
        name="all, behind an IOMMU",
        evidence=evidence(
            replace(denied(A_CARD, lambda a, b: True), rdma=RdmaSupport(iommu="translated"))
        ),
        subject="GPUs 0-7",
        words="no pair has peer access (CNS: the chipset does not support it); in the way may be"
        " an IOMMU",
    ),
    Plant(
        name="a virtual machine",
        evidence=evidence(denied(machine("h200_vm"), lambda a, b: True, 5)),
        subject="GPUs 0-3",
        words="no pair has peer access (NS: not supported); in the way may be a virtual machine",
    ),
    Plant(
        name="GeForce",
        evidence=evidence(machine("pcie_box")),
        subject="GPUs 0-7",
        words="NVIDIA's policy for GeForce cards",
        severity="remark",
    ),
]
