"""Late or slow: what the time of a collective was spent on, from what each action of each rank
waited for. Pure.

A launch is a graph: an action follows the one that its rank did before, and the actions of peers
that sent its data or freed its slot. The path that ends last is walked back to where it began. Its
time, from the first arrival to the end, is the sum of three: that its first rank came late, that
ranks worked, and that data were on their way along links.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from collbench.backends.cpu.trace import RankTrace
from collbench.bench.trace.critical_path import critical_path
from collbench.bench.trace.graph import launch_graph
from collbench.core.limits import BLAME_OFTEN, BLAME_SHARE, BLAME_SKEW_S, BLAME_SURE, BLAME_UNLIKE
from collbench.core.trace import TracedLaunch
from collbench.planning.lowering import TrackActions
from collbench.planning.plan import Plan

_LEAST_S = 1e-6  # what clocks tell apart

Part = tuple[Literal["late", "work", "link"], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """What explains most of the excess time, or None. share: of the time of a launch; ratio: to the
    median of its like, of a link or of a rank's work; excess_s: what would be saved without it.
    total_s: of a launch, from the first arrival to the end; totals_s: of each. waits_s: what each
    rank waited for each other in a launch. shares: of every part of the path. What is of a launch
    is the median of all of them.
    """

    part: Part | None
    share: float
    ratio: float
    excess_s: float
    total_s: float
    totals_s: tuple[float, ...]
    waits_s: Mapping[tuple[int, int], float]
    shares: Mapping[Part, float]


def blame(
    plan: Plan, actors: Sequence[Sequence[TrackActions]], launches: Sequence[Sequence[RankTrace]]
) -> Blame:
    """What explains the time of some launches. actors: of every rank."""
    shares: dict[Part, list[float]] = defaultdict(list)
    waits: dict[tuple[int, int], list[float]] = defaultdict(list)
    links: dict[tuple[int, int], list[float]] = defaultdict(list)
    work: dict[int, list[float]] = defaultdict(list)
    totals = []
    for traces in launches:
        launch = launch_graph(plan, actors, traces)
        total, parts = max(launch.total_s, _LEAST_S), _parts(launch)
        totals.append(total)
        for part, seconds in parts.items():
            shares[part].append(seconds / total)
        for key, seconds in _waits(launch).items():
            waits[key].append(seconds)
        for link, seconds in _transits(launch).items():
            links[link].append(seconds)
        for rank, trace in enumerate(traces):
            # of an action: the schedule gives some ranks more of them
            times = [event.done - event.ready for event in trace.events]
            work[rank].append(sum(times) / len(times))
    n = len(launches)
    typical = {part: _typical(values, n) for part, values in shares.items()}
    total_s = median(totals)
    like: dict[str, dict[tuple[int, ...], float]] = {
        "link": {key: median(values) for key, values in links.items()},
        "work": {(rank,): median(values) for rank, values in work.items()},
    }
    best: tuple[float, Part, float] | None = None
    for part, share in typical.items():
        ratio = _ratio(part, like)
        is_often = sum(value > BLAME_SHARE / 2 for value in shares[part]) >= BLAME_OFTEN * n
        is_skew = part[0] == "late" and share * total_s < BLAME_SKEW_S
        if share >= BLAME_SHARE and ratio >= BLAME_UNLIKE and is_often and not is_skew:
            best = max(best or (0.0, part, 1.0), (share * (1 - 1 / ratio), part, ratio))
    return Blame(
        part=best[1] if best else None,
        share=typical[best[1]] if best else 0.0,
        ratio=best[2] if best else 1.0,
        excess_s=best[0] * total_s if best else 0.0,
        total_s=total_s,
        totals_s=tuple(totals),
        waits_s={key: _typical(values, n) for key, values in waits.items()},
        shares=typical,
    )


def _typical(values: Sequence[float], n: int) -> float:
    """The median of n launches, of which those without a value have none of it.

    >>> _typical([3.0, 5.0], 3), _typical([3.0], 3)
    (3.0, 0.0)
    """
    return median([*values, *[0.0] * (n - len(values))])


def is_saved(with_it_s: Sequence[float], without_s: Sequence[float], excess_s: float) -> bool:
    """Whether launches without a cause are faster by half of what should be saved, and so surely
    that nine of ten pairs of launches show it.

    >>> is_saved([5.0, 6.0], [1.0, 2.0], 4.0), is_saved([5.0, 1.5], [1.0, 2.0], 4.0)
    (True, False)
    """
    pairs = [(slow, fast) for slow in with_it_s for fast in without_s]
    saved = median(with_it_s) - median(without_s)
    return saved > excess_s / 2 and sum(fast < slow for slow, fast in pairs) >= BLAME_SURE * len(
        pairs
    )


def _ratio(part: Part, like: Mapping[str, Mapping[tuple[int, ...], float]]) -> float:
    """How many times as long as its like a part takes; of a late rank without a bound, because the
    others are not late at all.
    """
    kind, key = part
    if kind == "late":
        return float("inf")
    others = [value for other, value in like[kind].items() if other != key]
    if not others:
        return 1.0
    return like[kind].get(key, 0.0) / max(median(others), _LEAST_S)


def _parts(launch: TracedLaunch) -> dict[Part, float]:
    """The parts of the path that ends last."""
    parts: dict[Part, float] = defaultdict(float)
    for segment in critical_path(launch):
        if segment.link is not None:
            parts["link", segment.link] += segment.seconds
        else:
            is_late = segment.cause == "late"
            parts["late" if is_late else "work", (segment.rank,)] += segment.seconds
    return parts


def _waits(launch: TracedLaunch) -> dict[tuple[int, int], float]:
    """What each rank waited for each other."""
    found: dict[tuple[int, int], float] = defaultdict(float)
    for one in launch.actions:
        if one.wait is not None:
            before = one.before
            since_s = launch.actions[before].done_s if before >= 0 else launch.arrived_s[one.rank]
            found[one.rank, one.wait.peer] += max(0.0, one.ready_s - since_s)
    return found


def _transits(launch: TracedLaunch) -> dict[tuple[int, int], float]:
    """The median time of a slice from when its link could take it to its arrival, by link.

    A receiver that came to it later did not wait: that slice says nothing, and a link of which none
    says anything is left out.
    """
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    arrived: dict[tuple[int, int], float] = {}
    for one in launch.actions:
        if one.wait is not None and one.wait.origin >= 0 and one.wait.link[1] == one.rank:
            link = one.wait.link
            since_s = max(launch.actions[one.wait.origin].done_s, arrived.get(link, 0.0))
            found[link].append(max(0.0, one.ready_s - since_s))
            arrived[link] = one.ready_s
    return {link: median(times) for link, times in found.items()}
