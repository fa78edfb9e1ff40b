"""PCIe links that were trained down."""

from dataclasses import replace

from collbench.machine.discovery import Recording
from tests.support.evidence import Plant, machine, planted, under_load, with_gpu


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
    planted("half the lanes of a GPU", with_gpu(machine("hgx_h100"), 2, pcie_width=8)).finds(
        "GPU 2", "8 lanes of 16", "fault"
    ),
    Plant(
        "a lower generation under load",
        under_load(machine("hgx_h100"), loaded=lambda one: with_gpu(one, 5, pcie_generation=3)),
    ).finds("GPU 5", "generation 3 of 5 under load", "fault"),
    planted("half the lanes of a NIC", with_narrow_nic(machine("hgx_h100"))).finds(
        machine("hgx_h100").nics[0].name, "8 lanes of 16", "fault"
    ),
]
