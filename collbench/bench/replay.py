"""Measures the operations of a job within a budget of time, and proves what other settings save: a
step with them against the same step without them, in turns.

A step here is every operation as often as the job has it: each operation is launched back to back
in batches, as in a sweep, and the batches add up by the calls of a step.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collbench.backends import FAMILY
from collbench.bench.points import SweepPoint, estimate_s, plan_points
from collbench.bench.ranks import Ranks
from collbench.bench.runner import Measurement
from collbench.core.case import Case
from collbench.core.errors import UnavailableError
from collbench.core.group import Group
from collbench.core.options import Settings
from collbench.core.record import Record
from collbench.core.units import format_duration
from collbench.core.verdict import Interval, interval
from collbench.planning.price.constants import cpu_costs

LEAST_ROUNDS = 6  # the fewest that give an interval of 95 %
_MOST_ROUNDS = 25
_NARROW = 0.02  # of an interval in logarithms, that more rounds need not narrow


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where and how cases are measured."""

    group: Group
    settings: Settings
    where: Ranks

    def point(self, case: Case) -> SweepPoint:
        """A case, planned or waived."""
        (point,) = plan_points([case], self.group, self.settings.max_memory, self.where)
        return point


def measure(
    cases: Sequence[Case], bench: Bench, budget_s: float, partly: dict[Case, Record]
) -> dict[Case, Record]:
    """The records of the cases, the most important ones first, as far as the budget reaches; what
    can be planned is measured in turns. Raises the errors that end a sweep. partly: gets what is
    measured where the user ends it.
    """
    end_s = time.monotonic() + budget_s
    points: dict[tuple[Case, str], SweepPoint] = {}
    asked: dict[Case, tuple[Case, str]] = {}
    for case in cases:
        if points and time.monotonic() > end_s:
            break
        point = bench.point(case)
        asked[case] = point.case, point.waived
        points.setdefault(asked[case], point)
    measurement = Measurement(list(points.values()), bench.group, bench.settings)
    # before: a row that is waived later keeps its name
    names = {key: measurement.key_of(point) for key, point in points.items()}
    try:
        measurement.open()
        rows = {row.point: row for row in measurement.records_within(end_s)}
    except KeyboardInterrupt:
        rows = {row.point: row for row in measurement.records_so_far()}
        partly |= {case: rows[names[key]] for case, key in asked.items() if names[key] in rows}
        raise
    finally:
        measurement.close()
    return {case: rows[names[key]] for case, key in asked.items() if names[key] in rows}


def by_estimate(cases: Sequence[Case], bench: Bench, budget_s: float) -> list[Case]:
    """The cases that can run, those that should be fastest first, as far as so much time suffices
    to plan them.
    """
    end_s, machine = time.monotonic() + budget_s, cpu_costs()
    estimates: dict[Case, float] = {}
    for case in cases:
        if time.monotonic() > end_s:
            break
        point = bench.point(case)
        if not point.waived:
            estimates[case] = estimate_s(point, bench.settings, machine)
    return sorted(estimates, key=estimates.__getitem__)


# The proof

Part = tuple[Case, float]  # an operation as it is done, and its calls a step


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProof:
    """Seconds of a step without and with other settings, round by round. is_noisy: other processes
    were busy. is_modelled: nothing ran, and one round says all.
    """

    rounds: tuple[tuple[float, float], ...]
    is_noisy: bool = False
    is_modelled: bool = False

    @property
    def ratio(self) -> Interval:
        """How many times as long the step takes without the settings.

        >>> ReplayProof(rounds=((2.0, 1.0),)).ratio.median
        2.0
        """
        bounds = interval([math.log(before / after) for before, after in self.rounds])
        return Interval(*map(math.exp, bounds))

    @property
    def saved_s(self) -> Interval:
        """Seconds that the settings save a step."""
        return interval([before - after for before, after in self.rounds])

    @property
    def is_proven(self) -> bool:
        """Whether the interval shows that the settings save anything."""
        is_enough = self.is_modelled or len(self.rounds) >= LEAST_ROUNDS
        return is_enough and self.ratio.low > 1


def prove(
    before: Sequence[Part], after: Sequence[Part], bench: Bench, budget_s: float
) -> ReplayProof:
    """Rounds of a step without and with other settings, in turns, until the interval is narrow or
    the time is over. Raises UnavailableError if a part cannot run, or if the time does not suffice
    for the fewest rounds.

    Ranks on CPUs are started twice, as for the experiments of `doctor`: where they and their memory
    are placed stays for as long as they live.
    """
    start_s, is_modelled = time.monotonic(), _is_modelled(before, after)
    starts = _starts(before, after)
    rounds: list[tuple[float, float]] = []
    is_noisy = False
    for number in range(starts):
        most = 1 if is_modelled else _MOST_ROUNDS
        least = 1 if is_modelled else -(-LEAST_ROUNDS // starts)
        ends_s = start_s + budget_s * (number + 1) / starts, start_s + budget_s
        is_noisy |= _rounds(before, after, bench, rounds, (least, most), ends_s)
    return ReplayProof(rounds=tuple(rounds), is_noisy=is_noisy, is_modelled=is_modelled)


def least_repeats(parts: Sequence[Part]) -> int:
    """Repeats of every part that a proof takes at least, with what is slow the first time."""
    return 0 if _is_modelled(parts) else 2 * (LEAST_ROUNDS + _starts(parts))


def _is_modelled(*arms: Sequence[Part]) -> bool:
    return all(FAMILY.load(case.backend).wants_machine for arm in arms for case, _ in arm)


def _starts(*arms: Sequence[Part]) -> int:
    """How often the ranks of a proof start."""
    is_on_gpus = any(FAMILY.load(case.backend).is_gpu for arm in arms for case, _ in arm)
    return 1 if is_on_gpus or _is_modelled(*arms) else 2


def _rounds(
    before: Sequence[Part],
    after: Sequence[Part],
    bench: Bench,
    rounds: list[tuple[float, float]],
    limits: tuple[int, int],
    ends_s: tuple[float, float],
) -> bool:
    """Add rounds of ranks that start for them; returns whether other processes were busy. ends_s:
    of the monotonic clock, for these ranks and for all rounds.
    """
    points = {case: bench.point(case) for case, _ in (*before, *after)}
    settings = replace(bench.settings, repeats=1)
    measurement = Measurement(list(points.values()), bench.group, settings)
    arms = [[(points[case], calls) for case, calls in arm] for arm in (before, after)]

    def once(arm: Sequence[tuple[SweepPoint, float]]) -> float:
        seconds = measurement.once([point for point, _ in arm])
        return sum(calls * one for (_, calls), one in zip(arm, seconds, strict=True))

    try:
        measurement.open()
        first, (least, most) = len(rounds), limits
        is_modelled = _is_modelled(before, after)
        if not is_modelled:
            for arm in arms:  # what is slow the first time
                once(arm)
        start_s = time.monotonic()
        while (done := len(rounds) - first) < most:
            # ABBA: drift falls on both alike
            if done % 2:
                second = once(arms[1])
                rounds.append((once(arms[0]), second))
            else:
                rounds.append((once(arms[0]), once(arms[1])))
            if not (is_modelled or first or done):
                _refuse_late(time.monotonic() - start_s, ends_s[1] - time.monotonic())
            ratio = ReplayProof(rounds=tuple(rounds)).ratio
            is_over = time.monotonic() > ends_s[0]
            if done + 1 >= least and (is_over or ratio.high / ratio.low < 1 + _NARROW):
                break
        return measurement.foreign_share > 0
    finally:
        measurement.close()


def _refuse_late(round_s: float, left_s: float) -> None:
    """Raise UnavailableError if the time that is left does not suffice for the other rounds."""
    least_s = (LEAST_ROUNDS - 1) * round_s
    if least_s > left_s:
        raise UnavailableError(
            f"{LEAST_ROUNDS - 1} more rounds take about {format_duration(least_s)}, and"
            f" {format_duration(max(0.0, left_s))} of the budget are left",
            "give more --budget",
        )
