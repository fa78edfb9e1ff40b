"""Shared memory that logind removes."""

from tests.support.evidence import machine, planted, with_system

PLANTS = [
    planted("the default of systemd", with_system(machine("cpus"), removes_ipc=True)).finds(
        "this host", "RemoveIPC is on"
    )
]
