"""Whether the ranks of a host can share memory across the containers that they run in."""

from collections.abc import Iterable
from itertools import combinations

from collbench.doctor.check import Evidence, Finding, Need, Severity
from collbench.doctor.checks._ranks import alike

TITLE = "Namespaces that keep the ranks of a host apart"
NEEDS: tuple[Need, ...] = ("ranks",)
NO_EXPERIMENT = "a running process cannot join the namespaces of another one"
EXPLANATION = """
The processes of a host reach each other's memory by shared memory, by CUDA IPC between GPUs, and by
copies between processes. A container has namespaces of its own: with another IPC or PID namespace
these ways are closed, although the processes run on the same machine. Libraries then send through
the network, or through copies in host memory, which is several times slower, or stop with an error
when they open the other's GPU memory.

The check compares `/proc/self/ns/ipc`, `pid`, `user` and `net` of all ranks of a host. It also
looks for recordings of one boot (`/proc/sys/kernel/random/boot_id`) under several names: these are
containers of one machine that libraries take for several hosts. Other user namespaces forbid copies
between processes, and other network namespaces need addresses of their own; both are remarks.

Run all ranks of a host in one container or one pod, or start the containers with `--ipc=host
--pid=host`, or with the namespace of the first one (`--ipc=container:NAME`). Where the names of
hosts differ, add `--uts=host`. To be sure, compare `readlink /proc/self/ns/ipc` in each container,
and look for `via P2P` or `via SHM` in the output of `NCCL_DEBUG=INFO`.
"""

_KINDS: dict[str, tuple[Severity, str]] = {
    "ipc": (
        "fault",
        "GPU memory and System V shared memory of the one cannot be opened by others:"
        " data goes through the network or through more copies.",
    ),
    "pid": (
        "risk",
        "Copies between processes, and GPU memory of other processes, need process ids"
        " that both know.",
    ),
    "user": ("remark", "The kernel allows no copies between processes of different users."),
    "net": (
        "remark",
        "Each has addresses and ports of its own, and must reach those of the others.",
    ),
}
_CHANGE = "run the ranks in one container, or docker run --ipc=host --pid=host"
_RISK = "The container then sees the host's shared memory and processes."


def find(evidence: Evidence) -> Iterable[Finding]:
    for kind, (severity, why) in _KINDS.items():
        apart: dict[int, list[str]] = {}
        for subject, host, _, _ in alike(evidence, lambda one, k=kind: one.namespaces.get(k)):  # type: ignore[misc]
            apart.setdefault(id(host), []).append(subject)
        for host in evidence.hosts:
            subjects = apart.get(id(host), [])
            if len(subjects) > 1:
                yield Finding(
                    subject=evidence.name(host),
                    seen=f"its ranks are in {len(subjects)} {kind} namespaces:"
                    f" {', '.join(subjects[:4])}{', ...' * (len(subjects) > 4)}",
                    why=why,
                    change=_CHANGE,
                    risk=_RISK,
                    severity=severity,
                )
    for one, other in combinations(evidence.hosts, 2):
        if one.boot_id and one.boot_id == other.boot_id and one.hostname != other.hostname:
            yield Finding(
                subject=f"{evidence.name(one)} and {evidence.name(other)}",
                seen=f"are one machine under two names (boot id {one.boot_id})",
                why="Libraries take them for two hosts, and send through the network.",
                change=f"{_CHANGE} --uts=host",
                risk=_RISK,
            )
