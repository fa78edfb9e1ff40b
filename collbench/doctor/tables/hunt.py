"""What `hunt` shows: the rates of the pairs as a matrix, the bisection, and the verdicts with their
evidence and what to do next.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import median

from collbench import __version__
from collbench.core.pairwise import PairSample, PairWorld
from collbench.core.table import table, wrapped
from collbench.core.text import counted
from collbench.core.units import format_rate
from collbench.doctor.hunt.bandwidth import Bisection, bisection, matrix
from collbench.doctor.hunt.places import Place
from collbench.doctor.hunt.rounds import Pair
from collbench.doctor.hunt.verdicts import Analysis, Effect, Sharing, Verdict

_JSON_VERSION = 1
_SLOW = 0.8  # of the median, or of good pairs: such a cell is marked
_SHOWN = 12  # rows of the slowest, of more ranks or hosts than a matrix can show
_PAIRS = 4  # that a line names
_MUCH, _TOO_MUCH = 2.0, 100.0  # times as slow, which a host should not need to be to be seen
_NEXT: Mapping[str, str] = {
    "host": "compare its links, NIC, driver and BIOS with those of a good host; leave it out:"
    " everything else should be well.",
    "rank": "compare its GPU, NIC and binding with those of its neighbours on the host.",
    "rail": "look at the switch of that rail, and at what all its NICs have in common.",
    "path": "both ends are well with others: look at the switches, cables and routes between them.",
    "pair": "both ends are well with others: look at what only these two share.",
    "group": "each side is well within: look at the switches and uplinks between the two.",
    "all": "look at what all hosts share: driver, firmware, settings, the clocks of links.",
    "load": "the links are well one by one: look at the switches between the hosts, at their"
    " uplinks and at adaptive routing.",
}


def lines(
    analysis: Analysis,
    world: PairWorld,
    samples: Sequence[PairSample],
    columns: int,
    paint: Callable[[str, str], str] = lambda text, judgement: text,
) -> list[str]:
    """All that is shown. paint(text, judgement): the text in the colour of a judgement."""
    shown = _heat(samples, world, columns, paint, analysis.good_gbs)
    across = bisection(samples, world)
    if across is not None:
        shown += ["", *wrapped(_across(across), columns)]
    return [*shown, "", *verdict_lines(analysis, world, columns, paint)]


def verdict_lines(
    analysis: Analysis,
    world: PairWorld,
    columns: int,
    paint: Callable[[str, str], str] = lambda text, judgement: text,
) -> list[str]:
    """The verdicts, worst first, then what load adds."""
    shown: list[str] = []
    for verdict in analysis.verdicts:
        if verdict.is_layout:
            shown += wrapped(headline(verdict, world), columns)
            continue
        shown += _paragraph(headline(verdict, world), details(verdict, world), columns, paint)
    for sharing in analysis.sharing:
        text, more = _sharing(sharing)
        if sharing.is_slow:
            shown += _paragraph(text, more, columns, paint)
        else:
            shown += wrapped(f"{text}: {more[0]}", columns)
    if analysis.answer == "nothing slow":
        good = (
            f" Good pairs reach {format_rate(analysis.good_gbs)} GB/s." if analysis.good_gbs else ""
        )
        pairs = counted(world.n * (world.n - 1) // 2, "pair")
        shown += wrapped(
            f"Nothing is slow: {counted(analysis.tested, 'place')} tested by {analysis.measured} of"
            f" {pairs}; a host slower than {_times(analysis.least)}x would have been seen.{good}",
            columns,
        )
    elif open_points := _open_points(analysis, world):
        head = "" if analysis.answer == "slow" else "UNKNOWN  "
        first, *rest = wrapped(f"{head}{open_points[0]}", columns)
        shown += [paint(first, "cannot tell") if head else first, *rest]
        for text in open_points[1:]:
            shown += [f"  {line}" for line in wrapped(text, columns - 2)]
    return shown


def _open_points(analysis: Analysis, world: PairWorld) -> list[str]:
    """What could not be judged, and what to measure."""
    shown, count = [], len(analysis.below)
    if count:
        norm = "best pairs" if analysis.is_below_best else "median"
        lead = "Besides," if analysis.verdicts else "Nothing can be named, but"
        shown += [
            f"{lead} {count} pair{'s are' if count > 1 else ' is'} below 80 % of the {norm}, the"
            f" slowest {pair_names(analysis.below[:1], world)}.",
            "No host or group explains that. Measure each pair several times, on hosts without"
            " other work; what stays is a path.",
        ]
        if analysis.is_below_best:
            shown.append("If you know what a good pair reaches, give it by --rate.")
    if analysis.maybe:
        some = analysis.maybe[:_PAIRS]
        names = ", ".join(f"{place_name(place, world)} by {_times(x)}x" for place, x in some)
        shown.append(
            f"Maybe slow: {names}; chance is not excluded. Measure each pair several times."
        )
    if analysis.failed:
        shown.append(f"Not judged: {pair_names(analysis.failed, world)}, without a rate.")
    if analysis.unjudged:
        hosts = ", ".join(analysis.unjudged[:_PAIRS])
        more = len(analysis.unjudged) - _PAIRS
        hosts += f" and {more} more" if more > 0 else ""
        shown.append(f"Not judged: {hosts}. Measure pairs with hosts that are good.")
    if not analysis.verdicts and analysis.least > _MUCH:
        shown.append(
            "There are too few pairs to compare."
            if analysis.least > _TOO_MUCH
            else f"Only a host slower than {_times(analysis.least)}x would be seen."
            " Measure each pair several times."
        )
    return shown


def _paragraph(
    head: str, more: Iterable[str], columns: int, paint: Callable[[str, str], str]
) -> list[str]:
    first, *rest = wrapped(head, columns)
    shown = [paint(first, "worse"), *rest]
    for text in more:
        shown += [f"  {line}" for line in wrapped(text, columns - 2)]
    return shown


def headline(verdict: Verdict, world: PairWorld) -> str:
    """A verdict in a line: what is slow, how much, and on what evidence."""
    effect = verdict.effect
    only = ", only while all pairs are loaded" if _is_only_together(verdict) else ""
    names = " or ".join(place_name(place, world) for place in (verdict.place, *verdict.same))
    if verdict.is_layout:
        return (
            f"Between two groups, {names}: {_factor(effect)}, which may be how the host is built."
        )
    return f"SLOW  {names}: {_factor(effect)}{only}, {_evidence(verdict.place, effect)}"


def details(verdict: Verdict, world: PairWorld) -> list[str]:
    """What else is known of a verdict, and what to do next."""
    shown = []
    if verdict.is_inside and len(world.host_names) > 1:
        shown.append("Seen in transfers inside a host.")
    if len(verdict.effects) > 1:
        shown.append(
            "; ".join(f"{mode}: {_factor(verdict.effects[mode])}" for mode in verdict.effects) + "."
        )
    if verdict.missing:
        shown.append(f"To be sure, measure {pair_names(verdict.missing, world)}.")
    elif verdict.same:
        shown.append("Only another host or rank could tell them apart: start one more.")
    if not verdict.same:
        shown.append(f"Next: {_NEXT[verdict.place.kind]}")
    return shown


def _is_only_together(verdict: Verdict) -> bool:
    return "alone" not in verdict.effects and "alone" in verdict.modes


def _factor(effect: Effect) -> str:
    factor, low, high = map(_times, (effect.factor, effect.low, effect.high))
    reach = f" ({low} to {high})" if effect.low < effect.high else ""
    return f"slow by {factor}x{reach}"


def _times(factor: float) -> str:
    return f"{factor:.0f}" if factor >= 10 else f"{factor:.1f}" if factor >= 3 else f"{factor:.2f}"


def _evidence(place: Place, effect: Effect) -> str:
    what = "partner" if place.kind in ("host", "rank") else "measurement"
    return f"{effect.slow} of {counted(effect.of, what)} slow"


def place_name(place: Place, world: PairWorld) -> str:
    """A place as people name it.

    >>> two = PairWorld(("a", "a", "b", "b"), (0, 1, 0, 1))
    >>> place_name(Place("host", (1,), "out"), two), place_name(Place("rank", (3,)), two)
    ('host b, sending', 'rail 1 of b (rank 3)')
    >>> place_name(Place("path", (0, 1), "out"), two), place_name(Place("rail", (1,)), two)
    ('only the path a -> b', 'rail 1 of all hosts')
    """
    flow = {"out": ", sending", "in": ", receiving", "both": ""}[place.flow]
    joint = " -> " if place.flow == "out" else " - "
    if place.kind == "host":
        return f"host {world.host_names[place.key[0]]}{flow or ' as a host'}"
    if place.kind == "rank":
        return f"{_rank_name(place.key[0], world)}{flow}"
    if place.kind == "rail":
        return f"rail {place.key[0]} of all hosts"
    if place.kind == "path":
        return f"only the path {joint.join(world.host_names[host] for host in place.key)}"
    if place.kind == "pair":
        return f"only the pair {joint.join(_rank_name(rank, world) for rank in place.key)}"
    if place.kind == "group":
        is_host = len(world.host_names) > 1
        names = [world.host_names[one] if is_host else f"rank {one}" for one in place.key]
        more = f" and {len(names) - _PAIRS} more" if len(names) > _PAIRS else ""
        others = "hosts" if is_host else "ranks"
        return f"all between {', '.join(names[:_PAIRS])}{more} and the other {others}"
    return "all pairs, against the known rate"


def _rank_name(rank: int, world: PairWorld) -> str:
    if len(world.host_names) == 1:
        return f"rank {rank}"
    return f"rail {world.local[rank]} of {world.hosts[rank]} (rank {rank})"


def pair_names(pairs: Sequence[Pair], world: PairWorld) -> str:
    """Some pairs by the names of hosts, or by numbers where a host has several ranks."""
    names = world.hosts if world.is_one_rank_a_host else [f"rank {r}" for r in range(world.n)]
    more = f" and {len(pairs) - _PAIRS} more" if len(pairs) > _PAIRS else ""
    return ", ".join(f"{names[a]} - {names[b]}" for a, b in pairs[:_PAIRS]) + more


def _sharing(sharing: Sharing) -> tuple[str, list[str]]:
    factor = _factor(sharing.effect)
    if sharing.is_slow:
        return (
            f"SLOW  all well alone, slow together: {factor}, oversubscription",
            [
                f"{sharing.effect.slow} of {counted(sharing.effect.of, 'measurement')} slow, with"
                f" at most {counted(sharing.pairs, 'pair')} on a host's links at once.",
                f"Next: {_NEXT['load']}",
            ],
        )
    if sharing.is_inside:
        return "Inside a host", [f"{factor} together: pairs share its cores and memory."]
    return "Between hosts", [
        f"{factor} together: {counted(sharing.pairs, 'pair')} on the links of a host, which"
        " explains it."
    ]


def _across(across: Bisection) -> str:
    ways = " and back ".join(format_rate(rate) for rate in across.gbs)
    return (
        f"Bisection: {ways} GB/s by {counted(across.pairs, 'pair')} across the two halves at once."
    )


def _heat(
    samples: Sequence[PairSample],
    world: PairWorld,
    columns: int,
    paint: Callable[[str, str], str],
    good_gbs: float | None,
) -> list[str]:
    names, rates = matrix(samples, world)
    if not rates:
        return ["No pair was measured."]
    middle = median(rates.values())
    slow = _SLOW * max(middle, good_gbs or 0.0)
    lead = max(map(len, names))
    cells = {key: format_rate(rate) for key, rate in rates.items()}
    width = max(4, *map(len, cells.values())) + 1
    what = "Rows send, columns receive"
    if lead + len(names) * width <= columns:
        shown = [f"{what}, GB/s (median {format_rate(middle)}):"]
        heads = "".join(f"{_short(name, width - 1):>{width}}" for name in names)
        shown.append(" " * lead + heads)
        for a, name in enumerate(names):
            row = ""
            for b in range(len(names)):
                text = f"{cells.get((a, b), 'X' if a == b else '-'):>{width}}"
                row += paint(text, "worse") if rates.get((a, b), slow) < slow else text
            shown.append(f"{name:<{lead}}{row}".rstrip())
        return shown
    if lead + 1 + len(names) <= columns:
        shown = [
            *wrapped(
                f"{what}, tenths of the median of {format_rate(middle)} GB/s (9: 90 % or more, .:"
                " not measured):",
                columns,
            )
        ]
        for a, name in enumerate(names):
            row = "".join(_tenths(rates.get((a, b)), middle) for b in range(len(names)))
            shown.append(f"{name:<{lead}} {row}")
        return shown
    return _slowest(names, rates, middle)


def _short(name: str, width: int) -> str:
    """The end of a name, which tells it from others; of `rank 3` the number."""
    name = name.removeprefix("rank ")
    return name if len(name) <= width else name[-width:]


def _tenths(rate: float | None, middle: float) -> str:
    return "." if rate is None else str(min(9, int(10 * rate / middle)))


def _slowest(
    names: Sequence[str], rates: Mapping[tuple[int, int], float], middle: float
) -> list[str]:
    """The slowest of many, each by the median of what it sends or of what it receives, whichever is
    less.
    """
    sent: dict[int, list[float]] = {}
    received: dict[int, list[float]] = {}
    for (a, b), rate in rates.items():
        sent.setdefault(a, []).append(rate)
        received.setdefault(b, []).append(rate)
    ways = {"sends": sent, "receives": received}
    worst: dict[int, tuple[float, str]] = {}
    for way, of in ways.items():
        for end, some in of.items():
            rate, other = median(some), worst.get(end)
            if other is None or rate < other[0]:
                worst[end] = rate, way
            elif rate == other[0]:
                worst[end] = rate, "both"
    rows = [
        (names[end], way, format_rate(rate), f"{rate / middle:.0%}")
        for end, (rate, way) in sorted(worst.items(), key=lambda item: item[1][0])[:_SHOWN]
    ]
    return [
        f"The slowest of {len(names)}, median of each with its partners in its slower direction:",
        *table(("", "", "GB/s", "of median"), rows, right=(2, 3)),
    ]


def as_json(
    analysis: Analysis,
    world: PairWorld,
    samples: Sequence[PairSample],
    unmeasured: str,
    seconds: float,
) -> str:
    """The whole result as a JSON object."""
    across = bisection(samples, world)
    document = {
        "version": _JSON_VERSION,
        "collbench": __version__,
        "answer": analysis.answer,
        "is_clean": analysis.is_clean,
        "hosts": world.hosts,
        "local": world.local,
        "seconds": round(seconds, 3),
        "unmeasured": unmeasured,
        "tested": analysis.tested,
        "bisection_gbs": across.gbs if across is not None else None,
        "verdicts": [
            {
                "name": place_name(one.place, world),
                "kind": one.place.kind,
                "key": one.place.key,
                "flow": one.place.flow,
                "inside_a_host": one.is_inside,
                "only_together": _is_only_together(one),
                "effects": {mode: asdict(effect) for mode, effect in one.effects.items()},
                "is_certain": one.is_certain,
                "same": [place_name(place, world) for place in one.same],
                "missing": one.missing,
                "text": [headline(one, world), *details(one, world)],
            }
            for one in analysis.verdicts
        ],
        "maybe": [
            {"name": place_name(place, world), "factor": factor} for place, factor in analysis.maybe
        ],
        "below": analysis.below,
        "unjudged": analysis.unjudged,
        "failed": analysis.failed,
        "least_factor": round(analysis.least, 3) if analysis.least < _TOO_MUCH else None,
        "good_gbs": analysis.good_gbs,
        "sharing": [asdict(one) for one in analysis.sharing],
        "suspects": analysis.suspects,
        "samples": [asdict(one) for one in samples],
    }
    return json.dumps(document, indent=1) + "\n"
