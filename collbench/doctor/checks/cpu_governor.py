"""Whether the clocks of the cores are held down to save power."""

from collections.abc import Iterable

from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen

NEEDS: tuple[Need, ...] = ("system",)

_SLOW, _LAZY = {"powersave"}, {"ondemand", "schedutil", "conservative"}


def find(evidence: Evidence) -> Iterable[Seen]:
    for name, _, system in evidence.systems():
        governors = set(system.governors)
        if not governors & (_SLOW | _LAZY):
            continue
        is_risk = bool(governors & _SLOW) or len(governors) > 1
        yield seen(
            "governor",
            name,
            "risk" if is_risk else "remark",
            s="s" * (len(governors) > 1),
            governors=", ".join(sorted(governors)),
        )
