"""The constants of this machine for the model, from drawn configurations that are measured.

    found(points, links, cores) -> Calibration

They are kept as a machine file in the user's configuration folder, and price what `auto` and `tune`
price on this machine from then on.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles

from collbench.bench.runner import Measurement
from collbench.core.errors import UnavailableError
from collbench.core.text import table
from collbench.planning.links import RankLinks
from collbench.planning.plan import Plan
from collbench.planning.price.constants import CpuCosts, GpuCosts, costs_text, cpu_costs, gpu_costs
from collbench.planning.price.gpus import gpu_price
from collbench.planning.price.work import cpu_price
from collbench.planning.tuning import Machine
from collbench.tune.calibrate import CostFit, fitted, names_of, values_of, with_values

POINTS = 100  # that the constants are fitted to
CHECKED = 20  # more, that judge them
_ROUNDS = 3
_UNSEEN = 0.7  # the error of a logarithm from which on the constant before says as much


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """costs: the constants found. names, errors: of the numbers, with the standard error of their
    logarithm. before, after: how far prices of the points that judge were off, by the constants
    before and by these: median and ninth decile of |price/time - 1|.
    """

    costs: CpuCosts | GpuCosts
    names: tuple[str, ...]
    values: tuple[float, ...]
    errors: tuple[float, ...]
    points: int
    checked: int
    before: tuple[float, float]
    after: tuple[float, float]

    @property
    def is_better(self) -> bool:
        """Whether prices by these constants are nearer, half and nine of ten taken together."""
        return sum(self.after) <= sum(self.before)

    def text(self, machine: Machine, day: str) -> str:
        """The machine file."""
        half, most = self.after
        source = (
            f"collbench tune --model, {day}: fitted to {self.points} drawn configurations; of"
            f" {self.checked} others half are within {half:.0%}, nine of ten within {most:.0%}"
        )
        return (
            "# Written by `collbench tune --model`, which will write it anew.\n"
            f"# {machine.model or machine.kind}\n" + costs_text(self.costs, source)
        )


def measured(measurement: Measurement, tell: Callable[[str], None]) -> list[tuple[Plan, float]]:
    """The plans of the points that can run, with the least seconds of some rounds. tell(text): how
    far it has come.
    """
    live = [point for point in measurement.points if not point.waived]
    if len(live) < POINTS:
        reasons = (f": {point.waived}" for point in measurement.points if point.waived)
        raise UnavailableError(
            f"only {len(live)} of {len(measurement.points)} configurations run here"
            + next(reasons, ""),
            f"{POINTS} are needed",
        )
    measurement.points = live
    rounds: list[list[float]] = []
    for number in range(_ROUNDS):
        rounds.append([])
        for place, point in enumerate(live, 1):
            tell(f"round {number + 1} of {_ROUNDS}, configuration {place} of {len(live)}")
            rounds[-1] += measurement.once([point])
    return [
        (point.plan, min(seconds))
        for point, *seconds in zip(live, *rounds, strict=True)
        if point.plan is not None
    ]


def found(
    points: Sequence[tuple[Plan, float]],
    links: RankLinks | None,
    cores: int,
    cache_mib: float = 0.0,
) -> Calibration:
    """The constants that fit the first points best, judged by the others. links: those of
    the GPUs; None for CPU cores, of which there are so many. cache_mib: of a GPU's L2 cache, 0 if
    it is not known.
    """
    start: CpuCosts | GpuCosts = replace(cpu_costs(), cores=cores)
    if links is not None:
        gpus = gpu_costs()
        start = replace(gpus, cache_mib=cache_mib or gpus.cache_mib)
    fit, judges = points[: -CHECKED or None], points[-CHECKED:]
    kinds = [
        kind for kind in start.kinds if any(kind in (plan.proto, plan.transport) for plan, _ in fit)
    ]

    def price(plan: Plan, costs: CpuCosts | GpuCosts) -> float:
        if isinstance(costs, CpuCosts):
            return cpu_price(plan, costs)
        assert links is not None
        return gpu_price(plan, replace(links.site_of(plan.n), costs=costs))

    def predict(values: Sequence[float]) -> list[float]:
        costs = with_values(start, values, kinds)
        return [price(plan, costs) for plan, _ in fit]

    result: CostFit = fitted(values_of(start, kinds), predict, [seconds for _, seconds in fit])
    costs = with_values(start, result.values, kinds)

    def off(by: CpuCosts | GpuCosts) -> tuple[float, float]:
        apart = sorted(abs(price(plan, by) / seconds - 1) for plan, seconds in judges)
        return median(apart), quantiles(apart, n=10, method="inclusive")[-1]

    return Calibration(
        costs=costs,
        names=tuple(names_of(start, kinds)),
        values=result.values,
        errors=result.errors,
        points=len(fit),
        checked=len(judges),
        before=off(start),
        after=off(costs),
    )


def lines(calibration: Calibration) -> list[str]:
    """The constants with their errors, and how far prices are off."""
    numbers = zip(calibration.names, calibration.values, calibration.errors, strict=True)
    rows = [
        (
            name,
            f"{value:>9.4g}",
            f"+-{math.expm1(error):.0%}" if error < _UNSEEN else "these points do not show it",
        )
        for name, value, error in numbers
    ]
    (half, most), (half_before, most_before) = calibration.after, calibration.before
    return [
        *table(("",) * 3, rows),
        "",
        f"Prices of {calibration.checked} configurations that were not fitted:",
        f"  by these constants      half within {half:.0%}, nine of ten within {most:.0%}",
        f"  by the constants before half within {half_before:.0%}, nine of ten within"
        f" {most_before:.0%}",
    ]
