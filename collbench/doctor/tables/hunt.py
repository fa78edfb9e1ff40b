"""What `hunt` shows: rates as a matrix, the bisection, and verdicts with what to do next."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import median

from collbench.core.assessment import AssessedLine, Assessment
from collbench.core.files import WholeVerdict, result_json
from collbench.core.grouping import grouped
from collbench.core.limits import MUST_FIND
from collbench.core.pairwise import PairSample, PairWorld, Where
from collbench.core.text import counted, some_of, table, wrapped
from collbench.core.units import format_rate
from collbench.doctor.hunt.places import Place
from collbench.doctor.hunt.rounds import Pair, planned
from collbench.doctor.hunt.verdicts import Analysis, Answer, Effect, Sharing, Verdict

_MATRIX_RANKS = 32  # from more ranks on, the matrix is one of hosts
_SLOW = 0.8  # of the median, or of good pairs: such a cell is marked
_SHOWN = 12  # rows of the slowest, of more ranks or hosts than a matrix can show
_PAIRS = 4  # that a line names
_LOAD = "all well alone, slow together"
_TOO_MUCH = 100.0  # times as slow, which a host should not need to be to be seen
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

_ASKED: Mapping[Where, str] = {
    "network": "Asked of the network: only pairs of ranks on different hosts were measured.",
    "inside": "Asked inside hosts: only pairs of ranks that share a host were measured.",
}
_VERDICTS: Mapping[Answer, WholeVerdict] = {
    "nothing slow": "PASS",
    "slow": "FAIL",
    "cannot tell": "UNKNOWN",
}

Paint = Callable[[str, str], str]  # a text in the colour of a judgement


def lines(
    analysis: Analysis,
    world: PairWorld,
    samples: Sequence[PairSample],
    columns: int,
    paint: Paint = lambda text, judgement: text,
) -> list[str]:
    """All that is shown: the matrix, the bisection, the verdicts, the worst first, what load adds,
    and what is open.
    """
    shown = _matrix_lines(samples, world, columns, paint, analysis.good_gbs)
    if gbs := bisection_gbs(samples, world):
        ways, pairs = " and back ".join(map(format_rate, gbs)), counted(world.n // 2, "pair")
        text = f"Bisection: {ways} GB/s by {pairs} across the two halves at once."
        shown += ["", *wrapped(text, columns)]
    if asked := _ASKED.get(_where(samples)):
        shown += ["", *wrapped(asked, columns)]
    shown.append("")
    told = [(headline(one, world), details(one, world)) for one in analysis.verdicts]
    loads = [_of_load(one) for one in analysis.sharing if not one.is_open]
    for head, more in [*told, *loads, *_open_points(analysis, world)]:
        first, *rest = wrapped(head, columns)
        judgement = {"SLOW": "worse", "UNKNOWN": "cannot tell"}.get(head.split()[0])
        shown += [paint(first, judgement) if judgement else first, *rest]
        shown += [f"  {line}" for text in more for line in wrapped(text, max(1, columns - 2))]
    return shown


def _where(samples: Sequence[PairSample]) -> Where:
    """Which pairs were asked for: both kinds, where some samples differ from others."""
    asked = {one.where for one in samples}
    return asked.pop() if len(asked) == 1 else "both"


def _open_points(analysis: Analysis, world: PairWorld) -> Iterator[tuple[str, list[str]]]:
    """That nothing is slow; or what could not be judged, and what to measure."""
    if analysis.answer == "nothing slow":
        pairs, good = counted(world.n * (world.n - 1) // 2, "pair"), analysis.good_gbs
        least = math.ceil(100 * analysis.least) / 100
        yield (
            f"Nothing is slow: {counted(analysis.tested, 'place')} tested by {analysis.measured} of"
            f" {pairs}; a host slower than {_times(least)}x would have been seen."
            + (f" Good pairs reach {format_rate(good)} GB/s." if good else ""),
            [],
        )
    elif points := [*_of_below(analysis, world), *_of_unjudged(analysis, world)]:
        head = "" if analysis.answer == "slow" else "UNKNOWN  "
        yield f"{head}{points[0]}", points[1:]


def _of_below(analysis: Analysis, world: PairWorld) -> Iterator[str]:
    if count := len(analysis.below):
        norm = "best pairs" if analysis.is_below_best else "median"
        lead = "Besides," if analysis.verdicts else "Nothing can be named, but"
        yield (
            f"{lead} {count} pair{'s are' if count > 1 else ' is'} below 80 % of the {norm}, the"
            f" slowest {pair_names(analysis.below[:1], world)}."
        )
        if analysis.is_below_best:
            yield (
                "Nothing tells whether these are slow or the best are fast. Measure more pairs of"
                " each host, or give what a good pair reaches by --rate."
            )
        else:
            yield (
                "No host or group explains that. Measure each pair several times, on hosts without"
                " other work; what stays is a path."
            )


def _of_unjudged(analysis: Analysis, world: PairWorld) -> Iterator[str]:
    if analysis.is_cut_short:
        yield f"The hunt ended early, after {counted(analysis.measured, 'pair')}. Run it again."
    if analysis.maybe:
        maybe = (f"{place_name(place, world)} by {_times(by)}x" for place, by in analysis.maybe)
        names = some_of(maybe, _PAIRS)
        why = "chance and waits for cores are" if analysis.waits else "chance is"
        yield f"Maybe slow: {names}; {why} not excluded. Measure each pair several times."
    if factors := [_factor(one.effect) for one in analysis.sharing if one.is_open]:
        yield (
            f"Maybe slow: {_LOAD}, {factors[0]}; by the network, or by waits for cores on"
            f" {some_of(analysis.waits, _PAIRS)}. Measure again where each rank has a core."
        )
    if analysis.failed:
        yield f"Not judged: {pair_names(analysis.failed, world)}, without a rate."
    if analysis.unjudged:
        unjudged = some_of(analysis.unjudged, _PAIRS)
        yield f"Not judged: {unjudged}. Measure pairs with hosts that are good."
    if analysis.untested:
        yield f"Not tested: {_untested(analysis, world)}. Measure pairs in that direction."
    if not analysis.verdicts and analysis.least > _TOO_MUCH:
        yield _of_too_few(world)
    elif not analysis.verdicts and analysis.least > MUST_FIND:
        least = _times(analysis.least)
        yield f"Only a host slower than {least}x would be seen. Measure more pairs, several times."


def _of_too_few(world: PairWorld) -> str:
    is_of_ranks = len(world.host_names) == 1
    if len(names := world.host_names) == 2 or world.n == 2:
        two = " and ".join(_rank_name(one, world) if is_of_ranks else names[one] for one in (0, 1))
        return (
            f"Nothing tells {two} apart: a slow one would look like a slow path. Measure pairs with"
            " a third, or give the rate of a good pair by --rate."
        )
    return "There are too few pairs to compare. Measure each host with several others."


def _untested(analysis: Analysis, world: PairWorld) -> str:
    """The directions without a rate, those of many hosts as a number."""
    return some_of((place_name(one, world).replace(",", "") for one in analysis.untested), _PAIRS)


def headline(verdict: Verdict, world: PairWorld) -> str:
    """A verdict in a line: what is slow, how much, and on what evidence."""
    effect = verdict.effect
    names = " or ".join(place_name(place, world) for place in (verdict.place, *verdict.same))
    if verdict.is_layout:
        built = "which may be how the host is built"
        return f"Between two groups, {names}: {_factor(effect)}, {built}."
    only = ", only while all pairs are loaded" if verdict.is_only_together else ""
    what = "partner" if verdict.place.kind in ("host", "rank") else "measurement"
    evidence = f"{effect.slow} of {counted(effect.of, what)} slow"
    return f"SLOW  {names}: {_factor(effect)}{only}, {evidence}"


def details(verdict: Verdict, world: PairWorld) -> list[str]:
    """What else is known of a verdict, and what to do next."""
    shown: list[str] = []
    if verdict.is_layout:
        return shown
    if verdict.is_inside and len(world.host_names) > 1:
        shown.append("Seen in transfers inside a host.")
    if len(verdict.effects) > 1:
        modes = (f"{mode}: {_factor(effect)}" for mode, effect in verdict.effects.items())
        shown.append("; ".join(modes) + ".")
    if verdict.missing:
        shown.append(f"To be sure, measure {pair_names(verdict.missing, world)}.")
    elif verdict.same:
        shown.append("Only another host or rank could tell them apart: start one more.")
    if not verdict.same:
        shown.append(f"Next: {_NEXT[verdict.place.kind]}")
    return shown


def _of_load(sharing: Sharing) -> tuple[str, list[str]]:
    factor, effect = _factor(sharing.effect), sharing.effect
    pairs = counted(sharing.pairs, "pair")
    if sharing.is_slow:
        slow = f"{effect.slow} of {counted(effect.of, 'transfer')} slow"
        return f"SLOW  {_LOAD}: {factor}, oversubscription", [
            f"{slow}, with at most {pairs} on a host's links at once.",
            f"Next: {_NEXT['load']}",
        ]
    if sharing.is_inside:
        return f"Inside a host: {factor} together: pairs share its cores and memory.", []
    why = f"{pairs} on the links of a host, which explains it"
    return f"Between hosts: {factor} together: {why}.", []


def _factor(effect: Effect) -> str:
    factor, low, high = map(_times, (effect.factor, effect.low, effect.high))
    reach = f" ({low} to {high})" if effect.low < effect.high else ""
    return f"slow by {factor}x{reach}"


def _times(factor: float) -> str:
    return f"{factor:.0f}" if factor >= 10 else f"{factor:.1f}" if factor >= 3 else f"{factor:.2f}"


def place_name(place: Place, world: PairWorld) -> str:
    """A place as people name it.

    >>> two = PairWorld(("a", "a", "b", "b"), (0, 1, 0, 1))
    >>> place_name(Place("host", (1,), "out"), two), place_name(Place("rank", (3,)), two)
    ('host b, sending', 'rail 1 of b (rank 3)')
    >>> place_name(Place("path", (0, 1), "out"), two), place_name(Place("rail", (1,)), two)
    ('only the path a -> b', 'rail 1 of all hosts')
    """
    flow = {"out": ", sending", "in": ", receiving", "both": ""}[place.flow]
    if place.kind == "rail":
        return f"rail {place.key[0]} of all hosts"
    joint = " -> " if place.flow == "out" else " - "
    is_of_ranks = place.kind in ("rank", "pair") or len(world.host_names) == 1
    names = [_rank_name(one, world) if is_of_ranks else world.host_names[one] for one in place.key]
    match place.kind:
        case "host":
            return f"host {names[0]}{flow or ' as a host'}"
        case "rank":
            return f"{names[0]}{flow}"
        case "path" | "pair":
            return f"only the {place.kind} {joint.join(names)}"
        case "group":
            others = "ranks" if is_of_ranks else "hosts"
            return f"all between {some_of(names, _PAIRS)} and the other {others}"
    return "all pairs, against the known rate"


def _rank_name(rank: int, world: PairWorld) -> str:
    if len(world.host_names) == 1:
        return f"rank {rank}"
    return f"rail {world.local[rank]} of {world.hosts[rank]} (rank {rank})"


def pair_names(pairs: Sequence[Pair], world: PairWorld) -> str:
    """Some pairs by the names of hosts, or by numbers where a host has several ranks."""
    names = world.hosts if world.is_one_rank_a_host else [f"rank {r}" for r in range(world.n)]
    return some_of((f"{names[a]} - {names[b]}" for a, b in pairs), _PAIRS)


def bisection_gbs(samples: Iterable[PairSample], world: PairWorld) -> tuple[float, ...]:
    """What the pairs across the two halves reached together, from the first half to the second and
    back, or in each direction at once; empty unless all of the first round were measured so.

    >>> world = PairWorld(("a", "b"), (0, 0))
    >>> there = PairSample(a=0, b=1, gbs=10.0, mode="together")
    >>> bisection_gbs([there, PairSample(a=1, b=0, gbs=8.0, mode="together")], world)
    (10.0, 8.0)
    """
    rates = grouped(
        ((one.a, one.b), one.gbs)
        for one in samples
        if one.mode == "together" and one.gbs is not None
    )
    there = planned(world, "quick")[0] if world.n > 1 else ()
    ways = [there, [(b, a) for a, b in there]] if there else []
    return tuple(
        sum(median(rates[pair]) for pair in way) for way in ways if all(map(rates.get, way))
    )


def matrix(
    samples: Iterable[PairSample], world: PairWorld
) -> tuple[Sequence[str], dict[Pair, float]]:
    """The names of ranks, or of hosts if there are many ranks, and the median rate from each to
    each; alone where that was measured. What both directions reached at once stands for both,
    unless the other one was measured as well.

    >>> world = PairWorld(("a", "b", "c"), (0, 0, 0))
    >>> ends = ((0, 1, 24.0), (1, 0, 10.0), (0, 2, 20.0))
    >>> samples = [PairSample(a=a, b=b, gbs=gbs, is_both=True) for a, b, gbs in ends]
    >>> matrix(samples, world)[1]
    {(0, 1): 24.0, (1, 0): 10.0, (0, 2): 20.0, (2, 0): 20.0}
    """
    is_of_hosts = world.n > _MATRIX_RANKS and len(world.host_names) > 1
    number = world.host_numbers if is_of_hosts else range(world.n)
    is_named = is_of_hosts or world.is_one_rank_a_host
    known = [one for one in samples if one.gbs is not None]
    alone = [one for one in known if one.mode == "alone"] or known
    rates = grouped(((number[one.a], number[one.b]), one.gbs or 0.0) for one in alone)
    medians = {pair: median(values) for pair, values in rates.items()}
    for one in alone:
        if one.is_both:
            a, b = number[one.a], number[one.b]
            medians.setdefault((b, a), medians[a, b])
    return world.host_names if is_named else [f"rank {r}" for r in range(world.n)], medians


def _matrix_lines(
    samples: Sequence[PairSample],
    world: PairWorld,
    columns: int,
    paint: Paint,
    good_gbs: float | None,
) -> list[str]:
    """The matrix with rates, or with one digit for each where it is too wide, or the slowest."""
    names, rates = matrix(samples, world)
    if not rates:
        return ["No pair was measured."]
    middle, lead = median(rates.values()), max(map(len, names))
    slow = _SLOW * max(middle, good_gbs or 0.0)
    cells = {pair: format_rate(rate) for pair, rate in rates.items()}
    width = max(4, *map(len, cells.values())) + 1
    what, typical = "Rows send, columns receive", format_rate(middle)
    if lead + len(names) * width <= columns:
        heads = [name.removeprefix("rank ") for name in names]
        wide = max(width, 1 + max(map(len, heads)))
        width = wide if lead + len(names) * wide <= columns else width
        # the end of a name tells it from others
        short = [head[1 - width :] for head in heads]
        shown = [f"{what}, GB/s (median {typical}):"]
        shown.append(" " * lead + "".join(f"{name:>{width}}" for name in short))
    elif lead + 1 + len(names) <= columns:
        scale = "(9: 90 % or more, .: not measured)"
        shown = wrapped(f"{what}, tenths of the median of {typical} GB/s {scale}:", columns)
        cells = {pair: str(min(9, int(10 * rate / middle))) for pair, rate in rates.items()}
        width = 1
    else:
        return _slowest(names, rates, middle)
    for a, name in enumerate(names):
        row = ""
        for b in range(len(names)):
            nothing = "." if width == 1 else "X" if a == b else "-"
            text = f"{cells.get((a, b), nothing):>{width}}"
            row += paint(text, "worse") if rates.get((a, b), slow) < slow else text
        shown.append(f"{name:<{lead}}{' ' if width == 1 else ''}{row}".rstrip())
    return shown


def _slowest(names: Sequence[str], rates: Mapping[Pair, float], middle: float) -> list[str]:
    """The slowest of many, each by the median of what it sends or of what it receives, whichever is
    less.
    """
    ways: dict[int, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for (a, b), rate in rates.items():
        ways[a][0].append(rate)
        ways[b][1].append(rate)
    worst = []
    for end, of in ways.items():
        sent, received = (median(some) if some else float("inf") for some in of)
        way = "both" if sent == received else "sends" if sent < received else "receives"
        worst.append((min(sent, received), end, way))
    rows = [
        (names[end], way, format_rate(rate), f"{rate / middle:.0%}")
        for rate, end, way in sorted(worst)[:_SHOWN]
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
    whole = asdict(analysis)
    least = whole.pop("least")  # infinite where none would be seen, which JSON cannot say
    if analysis.untested:
        untested = f"not tested: {_untested(analysis, world)}"
        unmeasured = f"{unmeasured}; {untested}" if unmeasured else untested
    document = {
        "hosts": world.hosts,
        "local": world.local,
        "seconds": round(seconds, 3),
        "where": _where(samples),
        "unmeasured": unmeasured,
        "answer": analysis.answer,
        "bisection_gbs": bisection_gbs(samples, world) or None,
        **whole,
        "verdicts": [
            {
                "name": place_name(one.place, world),
                **asdict(one.place),
                "inside_a_host": one.is_inside,
                "only_together": one.is_only_together,
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
        "least_factor": round(least, 3) if least < _TOO_MUCH else None,
        "samples": [asdict(one) for one in samples],
    }
    is_wrong = any(one.gbs is None for one in samples)
    verdict = "FAIL" if is_wrong else _VERDICTS[analysis.answer]
    return result_json(document, machine=", ".join(dict.fromkeys(world.hosts)), verdict=verdict)


def assessment_of(
    analysis: Analysis, world: PairWorld, seconds: float, *, is_bad: bool
) -> Assessment:
    """The verdicts as an assessment, with a line for every host. Bad is a host that all places name
    which explain a verdict; of a path nobody knows whose end it is. is_bad: of the whole.
    """
    lines = []
    for one in analysis.verdicts:
        suspects = {_host_of(place, world) for place in (one.place, *one.same)}
        lines.append(
            AssessedLine(
                name=place_name(one.place, world),
                kind=one.place.kind,
                grade="good" if one.is_layout else "bad",
                text=headline(one, world),
                host=suspects.pop() if len(suspects) == 1 else "",
            )
        )
    lines += [
        AssessedLine(
            name=_LOAD,
            kind="network",
            grade="bad" if one.is_slow else "unknown",
            text=_factor(one.effect),
        )
        for one in analysis.sharing
        if one.is_slow or one.is_open
    ]
    named = {one.host for one in lines}
    is_open = analysis.answer == "cannot tell" or analysis.is_cut_short
    open_hosts = {*analysis.unjudged, *(world.host_names[one.key[0]] for one in analysis.untested
                                        if one.kind == "host")}  # fmt: skip
    lines += [
        AssessedLine(name=f"host {name}", kind="host", host=name,
                     grade="skipped" if is_open or name in open_hosts else "good")
        for name in world.host_names
        if name not in named
    ]  # fmt: skip
    return Assessment(
        command="hunt",
        subject=f"{counted(len(world.host_names), 'host')}, {counted(world.n, 'rank')}",
        grade="bad" if is_bad else "unknown" if is_open else "good",
        why=analysis.answer,
        lines=lines,
        host=world.host_names[0] if len(world.host_names) == 1 else "",
        seconds=seconds,
        ended_s=time.time(),
    )


def _host_of(place: Place, world: PairWorld) -> str:
    """The host that a place is in, or an empty text where it is in several."""
    names = world.hosts if place.kind in ("rank", "pair") else world.host_names
    is_inside = place.kind in ("host", "rank", "path", "pair")
    hosts = {names[number] for number in place.key} if is_inside else set[str]()
    return hosts.pop() if len(hosts) == 1 else ""
