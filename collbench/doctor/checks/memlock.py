"""Whether processes may lock as much memory as an RDMA device needs."""

from collections.abc import Iterable

from collbench.core.units import format_size
from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._ranks import alike
from collbench.machine.discovery.recording import UNLIMITED, ProcessRecord

_FAULT_BYTES = 16 << 20
_ENOUGH_BYTES = 1 << 30
_INITIAL_USERS = "user:[4026531837]"  # the host's own user namespace (PROC_USER_INIT_INO)


def find(evidence: Evidence) -> Iterable[Finding]:
    for subject, host, _, limit in alike(evidence, _limit):
        devices = [nic.name for nic in host.nics if nic.is_rdma and not nic.is_virtual]
        if not devices or limit >= _ENOUGH_BYTES:
            continue
        yield told(
            "memlock",
            subject,
            f"may lock {format_size(limit)} of memory, and {devices[0]} is an RDMA device",
            severity="fault" if limit < _FAULT_BYTES else "risk",
        )


def _limit(process: ProcessRecord) -> int | None:
    """In bytes; None if there is none, or if it is unknown."""
    is_free = process.can_lock and process.namespaces.get("user", _INITIAL_USERS) == _INITIAL_USERS
    return None if is_free or process.memlock_bytes == UNLIMITED else process.memlock_bytes
