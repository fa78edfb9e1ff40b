"""A finding: what was seen, why it matters, what it costs here, and what to change. Pure.

A finding costs if it is a fault by itself (a link at half its width), or if a paired experiment
shows that it slows this machine down by more than chance does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from collbench.core.limits import LEAST_COST, MOST_OF_NONE
from collbench.core.statistics import Interval

# fault: slower, or wrong, whatever an experiment says. risk: costs on some machines; an experiment
# decides. remark: worth knowing, costs nothing by itself.
Severity = Literal["fault", "risk", "remark"]
SEVERITIES: tuple[Severity, ...] = ("fault", "risk", "remark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """How many times as long something takes with what was found as without: the median of paired
    rounds and its interval. what: the measured thing in words, such as allreduce of 16M. is_noisy:
    other processes had the cores meanwhile, so that it proves nothing.
    """

    what: str
    ratio: Interval
    is_noisy: bool = False

    @property
    def is_real(self) -> bool:
        """Whether the whole interval is a cost."""
        return self.ratio.low > LEAST_COST and not self.is_noisy

    @property
    def is_none(self) -> bool:
        """Whether the interval is narrow enough to say that there is no cost worth a change."""
        return not self.is_real and self.ratio.high < MOST_OF_NONE and not self.is_noisy


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """check: the name of the check. subject: what is affected, such as GPU 2, rank 3 or a host.
    seen: the value, and where it was read. why: what it does. change: a command or a setting; risk:
    what else that changes. costs: measured ones. unmeasured: why there are none.
    """

    check: str
    subject: str
    seen: str
    why: str
    change: str
    risk: str = ""
    severity: Severity = "risk"
    costs: tuple[Cost, ...] = ()
    unmeasured: str = ""

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
    """Worst first: what costs, by its largest cost; then by severity; then as they came.

    >>> one = Finding(check="a", subject="x", seen="", why="", change="")
    >>> other = Finding(check="b", subject="y", seen="", why="", change="", severity="fault")
    >>> [finding.check for finding in ranked([one, other])]
    ['b', 'a']
    """
    return sorted(
        findings, key=lambda one: (not one.is_cost, -one.percent, SEVERITIES.index(one.severity))
    )
