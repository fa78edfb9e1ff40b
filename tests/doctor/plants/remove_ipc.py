"""Shared memory that logind removes."""

from tests.support.evidence import Plant, evidence, machine, with_system

PLANTS = [
    Plant(
        name="the default of systemd",
        evidence=evidence(with_system(machine("cpus"), removes_ipc=True)),
        words="RemoveIPC is on",
    )
]
