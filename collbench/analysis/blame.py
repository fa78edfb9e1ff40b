"""Whether a rank came late or a link is slow, from the stamps of traced launches. Pure.

The last action of a launch is followed back to its root: what released it, what released that, and
so on, until an action that waited for nobody. So every microsecond of a launch has one cause: a
rank that entered late, the work of a rank, or a hand-over from one rank to another.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple, TypeVar

from collbench.results.stamps import Hand, RankTrace, Stamp

Key = TypeVar("Key")
CauseKind = Literal["late", "work", "link"]
# The share of a launch from which on a cause is named, and how many times as long as its like it
# must take.
_SHARE, _FACTOR = 0.2, 2.0


class Cause(NamedTuple):
    """late: rank a entered late. work: rank a's own. link: from rank a to rank b."""

    kind: CauseKind
    a: int
    b: int = -1

    def __str__(self) -> str:
        return {
            "late": f"rank {self.a} came late",
            "work": f"rank {self.a} works slowly",
            "link": f"the link from rank {self.a} to rank {self.b} is slow",
        }[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The medians over launches. seconds: of a launch. path_s: what each cause has of the path to
    the root. excess_s: how much longer a cause takes than others of its kind. waits_s: by (waiting
    rank, awaited rank). root: the cause that stands out, or None.
    """

    seconds: float
    path_s: Mapping[Cause, float]
    excess_s: Mapping[Cause, float]
    waits_s: Mapping[tuple[int, int], float]
    root: Cause | None


def blame(launches: Sequence[Sequence[RankTrace]], ends: Sequence[tuple[int, int]]) -> Blame:
    """What launches show, each with a trace of every rank. ends: source and target of every edge.

    >>> def trace(entered):
    ...     return RankTrace(
    ...         entered_s=entered,
    ...         stamps=(Stamp(track=0, began_s=entered, ready_s=entered, done_s=entered + 1.0),),
    ...     )
    >>> str(blame([[trace(0.0), trace(0.0), trace(5.0)]], []).root)
    'rank 2 came late'
    """
    paths, waits = [], []
    alike: dict[Cause, list[float]] = defaultdict(list)
    for traces in launches:
        paths.append(_path(traces))
        waits.append(_waits(traces, ends))
        for cause, seconds in _every_cause(traces):
            alike[cause].append(seconds)
    seconds = median(
        max(stamp.done_s for trace in traces for stamp in trace.stamps)
        - min(trace.entered_s for trace in traces)
        for traces in launches
    )
    path = _medians(paths)
    excess = _excess({cause: median(some) for cause, some in alike.items()}, path)
    worst = max(excess, key=lambda cause: excess[cause], default=None)
    return Blame(
        seconds=seconds,
        path_s=path,
        excess_s=excess,
        waits_s=_medians(waits),
        root=worst if worst is not None and excess[worst] >= _SHARE * seconds else None,
    )


def _path(traces: Sequence[RankTrace]) -> dict[Cause, float]:
    """The causes on the way from the last action of a launch to its root, in seconds."""
    given = _given(traces)
    causes: dict[Cause, float] = defaultdict(float)
    rank, place = max(
        ((rank, place) for rank, trace in enumerate(traces) for place in range(len(trace.stamps))),
        key=lambda at: traces[at[0]].stamps[at[1]].done_s,
    )
    for _ in range(sum(len(trace.stamps) for trace in traces)):
        stamp = traces[rank].stamps[place]
        causes[Cause("work", rank)] += stamp.done_s - stamp.ready_s
        source = _source(stamp, given)
        if source is not None and stamp.ready_s > stamp.began_s:
            giver, giver_place = source
            gone = traces[giver].stamps[giver_place].done_s
            causes[Cause("link", giver, rank)] += stamp.ready_s - max(gone, stamp.began_s)
            if gone > stamp.began_s:
                rank, place = source
                continue
        before = _before(traces[rank].stamps, place)
        if before is None:
            break
        place = before
    causes[Cause("late", rank)] += traces[rank].entered_s - min(one.entered_s for one in traces)
    return dict(causes)


def _given(traces: Sequence[RankTrace]) -> dict[tuple[int, bool], list[tuple[int, int, int]]]:
    """Of every edge and kind, the (number, rank, place) of what was handed over, in order."""
    given: dict[tuple[int, bool], list[tuple[int, int, int]]] = defaultdict(list)
    for rank, trace in enumerate(traces):
        for place, stamp in enumerate(trace.stamps):
            for hand in stamp.given:
                given[hand.edge, hand.is_data].append((hand.number, rank, place))
    for some in given.values():
        some.sort()
    return given


def _source(
    stamp: Stamp, given: Mapping[tuple[int, bool], list[tuple[int, int, int]]]
) -> tuple[int, int] | None:
    """The rank and the place of the action that handed over what was awaited."""
    hand = stamp.awaited
    if hand is None:
        return None
    return next(
        (
            (rank, place)
            for number, rank, place in given.get((hand.edge, hand.is_data), ())
            if number >= hand.number
        ),
        None,
    )


def _before(stamps: Sequence[Stamp], place: int) -> int | None:
    """The action before one of the same track."""
    track = stamps[place].track
    return next((at for at in range(place - 1, -1, -1) if stamps[at].track == track), None)


def _every_cause(traces: Sequence[RankTrace]) -> Iterator[tuple[Cause, float]]:
    """What every rank and every hand-over took, whether it was on the path or not."""
    given = _given(traces)
    first = min(trace.entered_s for trace in traces)
    links: dict[Cause, list[float]] = defaultdict(list)
    for rank, trace in enumerate(traces):
        yield Cause("late", rank), trace.entered_s - first
        yield (Cause("work", rank), sum(stamp.done_s - stamp.ready_s for stamp in trace.stamps))
        for stamp in trace.stamps:
            source = _source(stamp, given)
            if source is not None:
                gone = traces[source[0]].stamps[source[1]].done_s
                taken = stamp.ready_s - max(gone, stamp.began_s)
                links[Cause("link", source[0], rank)].append(taken)
    for cause, some in links.items():
        yield cause, sum(some)


def _waits(
    traces: Sequence[RankTrace], ends: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], float]:
    """Seconds that each rank waited for each other one."""
    waits: dict[tuple[int, int], float] = defaultdict(float)
    for rank, trace in enumerate(traces):
        for stamp in trace.stamps:
            if stamp.awaited is not None:
                waits[rank, _peer(stamp.awaited, ends)] += stamp.ready_s - stamp.began_s
    return dict(waits)


def _peer(hand: Hand, ends: Sequence[tuple[int, int]]) -> int:
    """Who hands it over: the source gives data, the target gives slots back."""
    source, target = ends[hand.edge]
    return source if hand.is_data else target


def _medians(of_launches: Sequence[Mapping[Key, float]]) -> dict[Key, float]:
    """The median over launches; what a launch lacks took no time."""
    keys = dict.fromkeys(key for one in of_launches for key in one)
    return {key: median(one.get(key, 0.0) for one in of_launches) for key in keys}


def _excess(alike: Mapping[Cause, float], path: Mapping[Cause, float]) -> dict[Cause, float]:
    """What causes take beyond others of their kind, of those that are on the path to the root."""
    excess = {}
    for cause, seconds in alike.items():
        others = [other for one, other in alike.items() if one.kind == cause.kind and one != cause]
        usual = median(others) if others else 0.0
        if path.get(cause, 0.0) > 0 and seconds > _FACTOR * usual:
            excess[cause] = seconds - usual
    return excess
