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

from collbench.backends.cpu.flags import LINE_WORDS
from collbench.backends.cpu.trace import Event, RankTrace
from collbench.planning.lowering import TrackActions
from collbench.planning.plan import Plan

# Of the time: less is nobody's fault.
_LEAST_SHARE = 0.2
_OFTEN = 0.8  # of the launches must have it
_SURE = 0.9  # of the pairs of launches with and without a cause
# Ranks that are all well leave a barrier, and write their input, within less.
_SKEW_S = 3e-4
_LEAST_S = 1e-6  # what clocks tell apart
_UNLIKE = 1.5  # times the median of its like, above which a link or a rank is slow

Part = tuple[Literal["late", "work", "link"], tuple[int, ...]]
Span = tuple[int, int]  # a connection, and the number of a slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """What explains most of the excess time, or None. share: of the time of a launch; ratio: to the
    median of its like, of a link or of a rank's work; excess_s: what would be saved without it.
    total_s: of a launch, from the first arrival to the end; totals_s: of each. waits_s: what each
    rank waited for each other in a launch. shares: of every part of the path.
    """

    part: Part | None
    share: float
    ratio: float
    excess_s: float
    total_s: float
    totals_s: tuple[float, ...]
    waits_s: Mapping[tuple[int, int], float]
    shares: Mapping[Part, float]


@dataclass(slots=True)
class _Launch:
    """A launch with its events by what they sent and freed. arrivals: of every rank."""

    plan: Plan
    actors: Sequence[Sequence[TrackActions]]
    traces: Sequence[RankTrace]
    sent: dict[Span, tuple[int, int]]
    freed: dict[Span, tuple[int, int]]
    links: Sequence[tuple[int, int]]  # of every connection

    def event(self, at: tuple[int, int]) -> Event:
        return self.traces[at[0]].events[at[1]]

    def before(self, at: tuple[int, int]) -> float:
        """When the rank had done what it did before."""
        rank, number = at
        trace = self.traces[rank]
        return trace.events[number - 1].done if number else trace.arrived


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
        launch = _graph(plan, actors, traces)
        total, parts = _path(launch)
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
    # of launches without the part its share is none
    typical = {
        part: median([*values, *[0.0] * (n - len(values))]) for part, values in shares.items()
    }
    total_s = median(totals)
    like: dict[str, dict[tuple[int, ...], float]] = {
        "link": {key: median(values) for key, values in links.items()},
        "work": {(rank,): median(values) for rank, values in work.items()},
    }
    best: tuple[float, Part, float] | None = None
    for part, share in typical.items():
        ratio = _ratio(part, like)
        is_often = sum(value > _LEAST_SHARE / 2 for value in shares[part]) >= _OFTEN * n
        is_skew = part[0] == "late" and share * total_s < _SKEW_S
        if share >= _LEAST_SHARE and ratio >= _UNLIKE and is_often and not is_skew:
            best = max(best or (0.0, part, 1.0), (share * (1 - 1 / ratio), part, ratio))
    return Blame(
        part=best[1] if best else None,
        share=typical[best[1]] if best else 0.0,
        ratio=best[2] if best else 1.0,
        excess_s=best[0] * total_s if best else 0.0,
        total_s=total_s,
        totals_s=tuple(totals),
        waits_s={key: sum(values) / n for key, values in waits.items()},
        shares={part: sum(values) / n for part, values in shares.items()},
    )


def is_saved(with_it_s: Sequence[float], without_s: Sequence[float], excess_s: float) -> bool:
    """Whether launches without a cause are faster by half of what should be saved, and so surely
    that nine of ten pairs of launches show it.

    >>> is_saved([5.0, 6.0], [1.0, 2.0], 4.0), is_saved([5.0, 1.5], [1.0, 2.0], 4.0)
    (True, False)
    """
    pairs = [(slow, fast) for slow in with_it_s for fast in without_s]
    saved = median(with_it_s) - median(without_s)
    return saved > excess_s / 2 and sum(fast < slow for slow, fast in pairs) >= _SURE * len(pairs)


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


def _graph(
    plan: Plan, actors: Sequence[Sequence[TrackActions]], traces: Sequence[RankTrace]
) -> _Launch:
    sent: dict[Span, tuple[int, int]] = {}
    freed: dict[Span, tuple[int, int]] = {}
    for rank, trace in enumerate(traces):
        for number, event in enumerate(trace.events):
            actions = actors[rank][event.actor].actions
            if event.position < len(actions):
                action = actions[event.position]
                sent |= {(one.edge, one.number): (rank, number) for one in action.post}
                freed |= {(one.edge, one.number): (rank, number) for one in action.free}
    links = [(connection.src, connection.dst) for connection in plan.connections]
    return _Launch(plan, actors, traces, sent, freed, links)


def _path(launch: _Launch) -> tuple[float, dict[Part, float]]:
    """The time of the launch, and the parts of the path that ends last."""
    traces = launch.traces
    first = min(trace.arrived for trace in traces)
    rank = max(range(len(traces)), key=lambda rank: traces[rank].events[-1].done)
    at = rank, len(traces[rank].events) - 1
    total = launch.event(at).done - first
    parts: dict[Part, float] = defaultdict(float)
    for _ in range(sum(len(trace.events) for trace in traces)):
        event, rank = launch.event(at), at[0]
        parts["work", (rank,)] += event.done - event.ready
        cause = _cause(launch, at)
        if cause is not None:
            link, origin = cause
            parts["link", link] += max(0.0, event.ready - launch.event(origin).done)
            at = origin
            continue
        before = launch.before(at)
        parts["work", (rank,)] += max(0.0, event.ready - before)
        if at[1] == 0:
            parts["late", (rank,)] += traces[rank].arrived - first
            break
        at = rank, at[1] - 1
    return max(total, _LEAST_S), parts


def _cause(launch: _Launch, at: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The link for which an event waited, and the event that it waited for, if that ended after
    what its rank did before, or the data were on their way then.
    """
    event = launch.event(at)
    if event.word < 0:
        return None
    found = _awaited(launch, at)
    if found is None:
        return None
    link, origin = found
    # its own message, which left late, or a peer: never something later
    is_before = launch.event(origin).done <= event.ready
    return (link, origin) if is_before and origin != at else None


def _awaited(
    launch: _Launch, at: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    rank, event = at[0], launch.event(at)
    actor = launch.actors[rank][event.actor]
    number, kind = divmod(event.word, 2 * LINE_WORDS)
    edge = number % len(launch.links)
    link = launch.links[edge]
    is_last = event.position >= len(actor.actions)
    action = None if is_last else actor.actions[event.position]
    if kind == 0 and action is not None:  # data of a peer
        slices = [one.number for one in action.take if one.edge == edge]
        origins = [launch.sent[edge, slice_] for slice_ in slices if (edge, slice_) in launch.sent]
    else:  # a slot, or the end of what a peer pulls
        room = [] if action is None else [one.number for one in action.room if one.edge == edge]
        back = [one.number for one in (actor.back if action is None else action.back)]
        wanted = [one - launch.plan.slots for one in room] + back
        origins = [
            source[edge, slice_]
            for slice_ in wanted
            for source in (launch.sent, launch.freed)
            if (edge, slice_) in source
        ]
    if not origins:
        return None
    ready = event.ready
    early = [one for one in origins if launch.event(one).done <= ready] or origins
    return link, max(early, key=lambda one: launch.event(one).done)


def _waits(launch: _Launch) -> dict[tuple[int, int], float]:
    """What each rank waited for each other."""
    found: dict[tuple[int, int], float] = defaultdict(float)
    for rank, trace in enumerate(launch.traces):
        for number, event in enumerate(trace.events):
            if event.word >= 0:
                ends = launch.links[event.word // (2 * LINE_WORDS) % len(launch.links)]
                peer = ends[0] if ends[1] == rank else ends[1]
                found[rank, peer] += max(0.0, event.ready - launch.before((rank, number)))
    return found


def _transits(launch: _Launch) -> dict[tuple[int, int], float]:
    """The median time of a slice from when its link could take it to its arrival, by link.

    A receiver that came to it later did not wait: that slice says nothing. Where none says
    anything, the link took no time.
    """
    found: dict[tuple[int, int], list[float]] = {link: [] for link in launch.links}
    arrived: dict[tuple[int, int], float] = {}
    for rank, trace in enumerate(launch.traces):
        for number, event in enumerate(trace.events):
            cause = _cause(launch, (rank, number))
            if cause is not None and cause[0][1] == rank:
                link, origin = cause
                since = max(launch.event(origin).done, arrived.get(link, 0.0))
                found[link].append(max(0.0, event.ready - since))
                arrived[link] = event.ready
    return {link: median(times) if times else 0.0 for link, times in found.items()}
