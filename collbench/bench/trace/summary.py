"""What a trace says of a launch: the launch that is typical, its critical path, its time by cause
beside what a machine's constants say of it, and who was late. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from collbench.bench.trace.chain_model import ChainCosts, chain_model
from collbench.bench.trace.critical_path import (
    CAUSES,
    Cause,
    Segment,
    critical_path,
    late_rank,
    sums,
)
from collbench.core.trace import Trace, TracedLaunch
from collbench.core.verdict import Interval, interval


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """number: of the typical launch, whose time is the median. path: its critical path. seconds:
    by cause; medians_s: of all launches; model_s: what the constants say of its path. late: the
    rank whose arrival the path begins with, and its delay. slowdown: of a launch by tracing it.
    """

    number: int
    launch: TracedLaunch
    path: tuple[Segment, ...]
    seconds: Mapping[Cause, float]
    medians_s: Mapping[Cause, float]
    model_s: Mapping[Cause, float]
    late: tuple[int, float] | None
    slowdown: Interval | None


def summary(trace: Trace, costs: ChainCosts) -> TraceSummary:
    """The summary of a trace that has a launch at least."""
    order = sorted(range(len(trace.launches)), key=lambda n: trace.launches[n].total_s)
    number = order[(len(order) - 1) // 2]
    launch = trace.launches[number]
    paths = [critical_path(one) for one in trace.launches]
    by_launch = [sums(path) for path in paths]
    return TraceSummary(
        number=number,
        launch=launch,
        path=tuple(paths[number]),
        seconds=by_launch[number],
        medians_s={cause: median(one.get(cause, 0.0) for one in by_launch) for cause in CAUSES},
        model_s=chain_model(launch, paths[number], costs),
        late=late_rank(launch, paths[number]),
        slowdown=interval(trace.slowdowns) if trace.slowdowns else None,
    )
