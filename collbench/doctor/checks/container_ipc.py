"""Whether the ranks of a host can share memory across the containers that they run in."""

from collections.abc import Iterable
from itertools import combinations

from collbench.doctor.checks._ranks import alike
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen

NEEDS: tuple[Need, ...] = ("ranks",)


def find(evidence: Evidence) -> Iterable[Seen]:
    for kind in ("ipc", "pid", "user", "net"):
        apart: dict[int, list[str]] = {}
        for subject, host, _, _ in alike(evidence, lambda one, k=kind: one.namespaces.get(k)):  # type: ignore[misc]
            apart.setdefault(id(host), []).append(subject)
        for host in evidence.hosts:
            subjects = apart.get(id(host), [])
            if len(subjects) > 1:
                shown = f"{', '.join(subjects[:4])}{', ...' * (len(subjects) > 4)}"
                name, count = evidence.name(host), len(subjects)
                yield seen(kind, name, count=count, kind=kind, subjects=shown)
    for one, other in combinations(evidence.hosts, 2):
        if one.boot_id and one.boot_id == other.boot_id and one.hostname != other.hostname:
            subject = f"{evidence.name(one)} and {evidence.name(other)}"
            yield seen("one-machine", subject, boot_id=one.boot_id)
