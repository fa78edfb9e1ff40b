"""Whether the clocks of the cores are held down to save power."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told

_SLOW, _LAZY = {"powersave"}, {"ondemand", "schedutil", "conservative"}


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, _, system in evidence.systems():
        governors = set(system.governors)
        if not governors & (_SLOW | _LAZY):
            continue
        is_risk = bool(governors & _SLOW) or len(governors) > 1
        yield told(
            "cpu-governor",
            name,
            f"the governor{'s' * (len(governors) > 1)} of its cores:"
            f" {', '.join(sorted(governors))}",
            severity="risk" if is_risk else "remark",
        )
