"""Whether logind removes shared memory while a job still uses it."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need

NEEDS: tuple[Need, ...] = ("system",)


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
