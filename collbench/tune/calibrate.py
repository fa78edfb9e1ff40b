"""Constants of a machine from measured points: least squares on the logarithms of times, in which
outliers count less, and what the points do not show stays near where it was.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from collbench.planning.price.constants import Costs, CpuCosts, GpuCosts

_OUTLIER = 0.15  # a residual from which on a point counts less
_LOOSE = 1.0  # the logarithm by which a constant may well be off before anything was measured
_STEP = 0.05  # of a logarithm, for slopes
_MOST_ROUNDS, _MOST_TRIES, _LEAST_GAIN = 12, 6, 1e-4

Values = np.ndarray


class CostFit(NamedTuple):
    """values: what fits best; errors: the standard error of each logarithm. residuals: logarithms
    of predicted over measured time.
    """

    values: tuple[float, ...]
    errors: tuple[float, ...]
    residuals: tuple[float, ...]


def fitted(
    start: Sequence[float],
    predict: Callable[[Sequence[float]], Sequence[float]],
    measured: Sequence[float],
) -> CostFit:
    """The positive numbers near `start` by which `predict` comes closest to what was measured."""
    log_measured = np.log(np.asarray(measured, dtype=float))

    def residuals(logs: Values) -> Values:
        return np.asarray(np.log(np.asarray(predict(np.exp(logs)))) - log_measured)

    def weights(rest: Values) -> Values:
        return np.asarray(1 / np.sqrt(1 + (rest / _OUTLIER) ** 2))

    def cost(rest: Values, logs: Values) -> float:
        robust = 2 * _OUTLIER**2 * np.sum(np.sqrt(1 + (rest / _OUTLIER) ** 2) - 1)
        return float(robust + stiffness * np.sum((logs - first) ** 2))

    first = np.log(np.asarray(start, dtype=float))
    stiffness = (_OUTLIER / _LOOSE) ** 2 / 2
    logs, rest = first.copy(), residuals(first)
    least, damping = cost(rest, logs), 1e-2
    for _ in range(_MOST_ROUNDS):
        slopes = _slopes(residuals, logs, rest)
        weighted = slopes * weights(rest)[:, None]
        normal = slopes.T @ weighted + stiffness * np.eye(len(logs))
        downhill = weighted.T @ rest + stiffness * (logs - first)
        for _ in range(_MOST_TRIES):
            damped = normal + damping * np.diag(np.diag(normal))
            tried = logs - np.clip(np.linalg.solve(damped, downhill), -1, 1)
            rest_there = residuals(tried)
            if (there := cost(rest_there, tried)) < least:
                break
            damping *= 4
        else:
            break
        gain, least, logs, rest = least - there, there, tried, rest_there
        damping = max(damping / 3, 1e-4)
        if gain < _LEAST_GAIN:
            break
    slopes = _slopes(residuals, logs, rest)
    spread = max(float(np.sum(weights(rest) * rest**2)) / max(1, len(rest) - 1), 1e-6)
    shown = slopes.T @ (slopes * weights(rest)[:, None]) / spread
    errors = np.sqrt(np.diag(np.linalg.inv(shown + np.eye(len(logs)) / _LOOSE**2)))
    return CostFit(tuple(np.exp(logs).tolist()), tuple(errors.tolist()), tuple(rest.tolist()))


def _slopes(residuals: Callable[[Values], Values], logs: Values, rest: Values) -> Values:
    """How residuals change with each logarithm."""
    slopes = np.empty((len(rest), len(logs)))
    for place in range(len(logs)):
        moved = logs.copy()
        moved[place] += _STEP
        slopes[:, place] = (residuals(moved) - rest) / _STEP
    return slopes


# ------------------------------------------------------------------------------------- of a machine

# Those that points on one host show.
_OF_GPUS = ("launch_us", "cta_us", "cold_us", "pdl_us", "pull_share", "memory_gbs")
_OF_CPUS = ("launch_us", "hop_us", "switch_us", "memory_gbs")
_LEAST = 1e-6  # a constant that is 0 has a logarithm from here


def values_of(costs: CpuCosts | GpuCosts, kinds: Sequence[str]) -> list[float]:
    """The constants of a machine, and of some of its kinds, as numbers for fitted()."""
    return [
        max(_LEAST, getattr(costs.kinds[kind] if kind else costs, name))
        for kind, name in _places(costs, kinds)
    ]


def with_values(costs: Costs, values: Sequence[float], kinds: Sequence[str]) -> Costs:
    """The constants with those numbers."""
    numbers: dict[str, dict[str, float]] = {kind: {} for kind in ("", *kinds)}
    for (kind, name), value in zip(_places(costs, kinds), values, strict=True):
        numbers[kind][name] = float(value)
    of_kinds = {kind: replace(costs.kinds[kind], **numbers[kind]) for kind in kinds}
    return replace(costs, **numbers[""], kinds={**costs.kinds, **of_kinds})  # type: ignore[arg-type,dict-item]  # of the same kinds


def names_of(costs: CpuCosts | GpuCosts, kinds: Sequence[str]) -> list[str]:
    """What values_of() gives, in its order."""
    return [f"{kind}.{name}" if kind else name for kind, name in _places(costs, kinds)]


def _places(costs: CpuCosts | GpuCosts, kinds: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The kind, empty for the machine itself, and the name of each of these constants."""
    yield from (("", name) for name in (_OF_CPUS if isinstance(costs, CpuCosts) else _OF_GPUS))
    for kind in kinds:
        yield from ((kind, field.name) for field in fields(costs.kinds[kind]))
