"""Whether the ranks of a host can share memory across the containers that they run in."""

from collections.abc import Iterable
from itertools import combinations

from collbench.doctor.check import Evidence, Finding, Need, Severity
from collbench.doctor.checks._ranks import alike

NEEDS: tuple[Need, ...] = ("ranks",)

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
