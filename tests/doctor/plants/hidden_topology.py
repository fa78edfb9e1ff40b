"""Machines that are not what they show."""

from tests.support.evidence import Plant, evidence, machine, with_system

PLANTS = [
    Plant(
        name="a flat virtual machine",
        evidence=evidence(machine("h200_vm")),
        words="a hypervisor shows a flat PCIe tree and 1 NUMA node",
        severity="remark",
    ),
    Plant(
        name="WSL",
        evidence=evidence(with_system(machine("pcie_box"), is_wsl=True)),
        words="Windows Subsystem for Linux",
        severity="remark",
    ),
]
