"""Whether logind removes shared memory while a job still uses it."""

from collections.abc import Iterable

from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Finding

NEEDS: tuple[Need, ...] = ("system",)
NO_EXPERIMENT = "it decides whether programs run on after a log-out, not how fast they are"


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, _, system in evidence.systems():
        if system.removes_ipc:
            yield Finding(
                subject=name,
                seen="logind removes the user's shared memory at the log-out (RemoveIPC is on)",
                why="A job that still runs loses the files of /dev/shm that its ranks open.",
                change="loginctl enable-linger, or RemoveIPC=no in /etc/systemd/logind.conf",
                risk="Files that crashed programs leave in /dev/shm then stay.",
            )
