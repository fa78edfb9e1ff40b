"""Whether logind removes shared memory while a job still uses it."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, _, system in evidence.systems():
        if system.removes_ipc:
            yield told(
                "remove-ipc",
                name,
                "logind removes the user's shared memory at the log-out (RemoveIPC is on)",
            )
