"""Whether the clocks of the cores are held down to save power."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need

NEEDS: tuple[Need, ...] = ("system",)

_SLOW, _LAZY = {"powersave"}, {"ondemand", "schedutil", "conservative"}


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, _, system in evidence.systems():
        governors = set(system.governors)
        if not governors & (_SLOW | _LAZY):
            continue
        is_risk = bool(governors & _SLOW) or len(governors) > 1
        yield Finding(
            subject=name,
            seen=f"the governor{'s' * (len(governors) > 1)} of its cores:"
            f" {', '.join(sorted(governors))}",
            why="Bursts of microseconds are over before the clock rises: small messages take"
            " longer, and vary.",
            change="cpupower frequency-set -g performance, as root",
            risk="Idle cores then take more power.",
            severity="risk" if is_risk else "remark",
        )
