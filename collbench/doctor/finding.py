"""A finding: what was seen, why it matters, what it costs here, and what to change. Pure.

A finding costs if it is a fault by itself (a link at half its width), or if a paired experiment
shows that it slows this machine down by more than chance does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from collbench.bench.experiment import Cost

# fault: slower, or wrong, whatever an experiment says. risk: costs on some machines; an experiment
# decides. remark: worth knowing, costs nothing by itself.
Severity = Literal["fault", "risk", "remark"]
SEVERITIES: tuple[Severity, ...] = ("fault", "risk", "remark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """subject: what is affected, such as GPU 2, rank 3 or a host. seen: the value, and where it was
    read. why: what it does. change: a command or a setting; risk: what else that changes. check:
    its name, which checks/__init__.py fills in. costs: measured ones. unmeasured: why there are
    none. is_general: it says that something failed, and follows from what says why.
    """

    subject: str
    seen: str
    why: str
    change: str
    check: str = ""
    risk: str = ""
    severity: Severity = "risk"
    costs: tuple[Cost, ...] = ()
    unmeasured: str = ""
    is_general: bool = False

    @property
    def is_cost(self) -> bool:
        """Whether it costs speed, or results, here."""
        return self.severity == "fault" or any(cost.is_real for cost in self.costs)

    @property
    def is_cleared(self) -> bool:
        """Whether it was measured, and cost nothing at any size."""
        return bool(self.costs) and all(cost.is_none for cost in self.costs)

    @property
    def percent(self) -> float:
        """The largest measured cost in percent; 0 if none was measured that is real."""
        return max((100 * (one.ratio.median - 1) for one in self.costs if one.is_real), default=0.0)


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Worst first: what costs, what follows from others behind it, by its largest cost; then by
    severity; then as they came.

    >>> one = Finding(check="a", subject="x", seen="", why="", change="")
    >>> other = Finding(check="b", subject="y", seen="", why="", change="", severity="fault")
    >>> [finding.check for finding in ranked([one, other])]
    ['b', 'a']
    """
    return sorted(
        findings,
        key=lambda one: (
            not one.is_cost,
            one.is_cost and one.is_general,
            -one.percent,
            SEVERITIES.index(one.severity),
        ),
    )
