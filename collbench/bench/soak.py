"""Carry out a soak: the points of a sweep as configurations, bursts until the time is up, one line
for each configuration that failed.
"""

from collbench.bench.points import SweepPoint
from collbench.bench.runner import Measurement
from collbench.bench.stress import BACKENDS, LAUNCHES, stress
from collbench.core.errors import CollbenchError, UnavailableError, UsageError
from collbench.core.group import Group
from collbench.core.options import Settings
from collbench.core.screen import say
from collbench.core.units import format_duration, format_size


def run_stress(
    points: list[SweepPoint], group: Group, settings: Settings, seconds: float, seed: int
) -> int:
    """Soak our engines; returns the exit code: 1 if anything was wrong."""
    live = [point for point in points if not point.waived and point.case.backend in BACKENDS]
    if not live:
        raise _nothing_to_soak(points)
    measurement = Measurement(live, group, settings)
    launches = failures = 0
    seen: set[int] = set()
    try:
        measurement.open()
        waived, live = live, [point for point in live if not point.waived]
        if not live:
            raise _nothing_to_soak(waived)
        for burst in stress(live, measurement.sessions, seconds, seed):
            case = burst.point.case
            if burst.refused:
                say(
                    f"waived: {case.op} {case.algo} {case.proto} {format_size(case.size_bytes)}"
                    f" {case.channels} ch: {burst.refused}"
                )
                continue
            launches += LAUNCHES
            seen.add(id(burst.point))
            if burst.wrong:
                failures += 1
                first = burst.wrong[0]
                say(
                    f"wrong: {case.op} {case.algo} {case.proto} {format_size(case.size_bytes)}"
                    f" {case.channels} ch, pauses up to {burst.pause_ns} ns:"
                    f" {sum(wrong.count for wrong in burst.wrong)} elements, first on rank"
                    f" {first.rank} at {first.index}"
                )
    finally:
        measurement.close()
    say(
        f"soaked {format_duration(seconds)}: {launches} launches of {len(seen)} of {len(live)}"
        f" configurations, seed {seed}; {failures} bursts wrong"
    )
    return 1 if failures else 0


def _nothing_to_soak(points: list[SweepPoint]) -> CollbenchError:
    """Why no point can be soaked: the sweep has none of ours, or they cannot run here."""
    hint = f"give --backend {' or '.join(BACKENDS)}"
    reason = next(
        (point.waived for point in points if point.waived and point.case.backend in BACKENDS), ""
    )
    if reason:
        return UnavailableError(f"nothing to soak: {reason}", hint)
    return UsageError("--soak runs our own collectives, and no point of the sweep does", hint)
