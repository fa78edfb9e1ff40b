"""PCIe links that were trained down."""

from dataclasses import replace

from collbench.machine.discovery import Recording
from tests.support.evidence import Plant, evidence, machine, under_load, with_gpu


def with_narrow_nic(recording: Recording) -> Recording:
    """The first NIC's link has half of its lanes."""
    address = recording.nics[0].address
    return replace(
        recording,
        pci=tuple(
            replace(one, current_link_width=8, max_link_width=16) if one.address == address else one
            for one in recording.pci
        ),
    )


PLANTS = [
    Plant(
        name="half the lanes of a GPU",
        evidence=evidence(with_gpu(machine("hgx_h100"), 2, pcie_width=8)),
        subject="GPU 2",
        words="8 lanes of 16",
        severity="fault",
    ),
    Plant(
        name="a lower generation under load",
        evidence=under_load(
            machine("hgx_h100"), loaded=lambda one: with_gpu(one, 5, pcie_generation=3)
        ),
        subject="GPU 5",
        words="generation 3 of 5 under load",
        severity="fault",
    ),
    Plant(
        name="half the lanes of a NIC",
        evidence=evidence(with_narrow_nic(machine("hgx_h100"))),
        subject=machine("hgx_h100").nics[0].name,
        words="8 lanes of 16",
        severity="fault",
    ),
]
