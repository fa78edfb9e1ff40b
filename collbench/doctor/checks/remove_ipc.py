"""Whether logind removes shared memory while a job still uses it."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need

TITLE = "Shared memory that is removed at the log-out"
NEEDS: tuple[Need, ...] = ("system",)
NO_EXPERIMENT = "it decides whether programs run on after a log-out, not how fast they are"
EXPLANATION = """
When the last session of a user ends, systemd's logind removes the files of the user in `/dev/shm`
and all System V shared memory, if its setting `RemoveIPC` is on. A job in the background, in tmux
or of a batch system without a session of its own then loses the memory that its ranks are about to
open: NCCL and MPI say that a file in `/dev/shm` does not exist, at a moment that nobody can
explain, because it depends on when somebody closed another window.

The check reads `RemoveIPC` in `/etc/systemd/logind.conf` and `logind.conf.d`, which is on where it
is left out, on hosts that systemd runs. Users with numbers below 1000 are system users, whose files
stay, and so do those of users who linger (`/var/lib/systemd/linger`). Where systemd does not run,
as in containers, nothing is removed.

Set `RemoveIPC=no` in `/etc/systemd/logind.conf` and restart systemd-logind, as root. `loginctl
enable-linger` keeps the files of one user, and is often allowed without root. To be sure, place a
file in `/dev/shm` through a second connection, close both, and look for it from a third one.
"""


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
