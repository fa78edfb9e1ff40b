"""Machines that are not what they show."""

from tests.support.evidence import machine, planted, with_system

PLANTS = [
    planted("a flat virtual machine", machine("h200_vm")).finds(
        "this host", "a hypervisor shows a flat PCIe tree and 1 NUMA node", "remark"
    ),
    planted("WSL", with_system(machine("pcie_box"), is_wsl=True)).finds(
        "this host", "Windows Subsystem for Linux", "remark"
    ),
]
