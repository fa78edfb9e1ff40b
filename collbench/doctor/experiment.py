"""A paired experiment: the same collective with and without what was found, in processes of their
own, interleaved round by round.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from collbench.core.statistics import interval
from collbench.core.units import format_size
from collbench.doctor.finding import Cost


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
