"""A paired experiment: the same collective with and without what was found, in processes of their
own, interleaved round by round.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from collbench.core.limits import LEAST_COST, MOST_OF_NONE
from collbench.core.units import format_size
from collbench.core.verdict import Interval, interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side. environment: variables that are set, or with None unset, on top of this process's
    own. cpulist: the cores of its processes; empty: as they are.
    """

    environment: Mapping[str, str | None] = field(default_factory=dict)
    cpulist: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """found: with what was found; changed: with what is proposed. knobs: of the cases, by name."""

    backend: str
    ranks: int
    sizes: tuple[int, ...]
    found: Arm
    changed: Arm
    op: str = "allreduce"
    knobs: Mapping[str, str] = field(default_factory=dict)


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


def on_cores(experiment: Experiment, cpulist: str) -> Experiment:
    """The experiment with those cores for arms that ask for none."""
    found, changed = (
        replace(arm, cpulist=arm.cpulist or cpulist)
        for arm in (experiment.found, experiment.changed)
    )
    return replace(experiment, found=found, changed=changed)


def costs_of(
    experiment: Experiment,
    rounds: Sequence[tuple[Sequence[float], Sequence[float]]],
    *,
    is_noisy: bool = False,
) -> tuple[Cost, ...]:
    """The cost at each size, of rounds of seconds (found, changed).

    >>> one = Experiment(backend="cpu", ranks=2, sizes=(1024,), found=Arm(), changed=Arm())
    >>> costs_of(one, [([2.0], [1.0]), ([3.0], [1.5])])[0].ratio.median
    2.0
    """
    costs = []
    for place, size in enumerate(experiment.sizes):
        ratios = [math.log(found[place] / changed[place]) for found, changed in rounds]
        bounds = interval(ratios)
        costs.append(
            Cost(
                what=f"{experiment.op} of {format_size(size)}, {experiment.backend}"
                f" with {experiment.ranks} ranks",
                ratio=type(bounds)(*map(math.exp, bounds)),
                is_noisy=is_noisy,
            )
        )
    return tuple(costs)
