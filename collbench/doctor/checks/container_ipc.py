"""Whether the ranks of a host can share memory across the containers that they run in."""

from collections.abc import Iterable
from itertools import combinations

from collbench.core.grouping import grouped
from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._ranks import alike


def find(evidence: Evidence) -> Iterable[Finding]:
    for kind in ("ipc", "pid", "user", "net"):
        every = alike(evidence, lambda one, k=kind: one.namespaces.get(k))  # type: ignore[misc]
        apart = grouped((id(host), subject) for subject, host, _, _ in every)
        for host in evidence.hosts:
            subjects = apart.get(id(host), [])
            if len(subjects) > 1:
                yield told(
                    f"namespaces-{kind}",
                    evidence.name(host),
                    f"its ranks are in {len(subjects)} {kind} namespaces:"
                    f" {', '.join(subjects[:4])}{', ...' * (len(subjects) > 4)}",
                )
    for one, other in combinations(evidence.hosts, 2):
        if one.boot_id and one.boot_id == other.boot_id and one.hostname != other.hostname:
            yield told(
                "host-of-two-names",
                f"{evidence.name(one)} and {evidence.name(other)}",
                f"are one machine under two names (boot id {one.boot_id})",
            )
