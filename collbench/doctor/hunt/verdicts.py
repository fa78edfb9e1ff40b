"""What the rates of pairs say: which host, rank, rail, path or pair is slow, how much, on what
evidence, and which pairs are missing where that cannot be told.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np

from collbench.core.grouping import grouped
from collbench.core.limits import (
    FAR_SLOWNESS,
    FEW_PATHS,
    HUNT_FALSE_ALARM,
    HUNT_MAYBE,
    LEAST_SLOWNESS,
    MUST_FIND,
    PAIR_FLOOR,
    PARTNERS,
    PLACE_AGREED,
    SINGLE_Z,
    WAIT_S,
    WAIT_SLOWNESS,
)
from collbench.core.pairwise import MODES, Mode, PairSample, PairWorld
from collbench.core.verdict import middle_of, t_of_z, z_of_t
from collbench.doctor.hunt.fit import Cause, Fit, fit
from collbench.doctor.hunt.places import Floats, Flow, Place, Rows, places_of, rows_of
from collbench.doctor.hunt.rounds import Pair

_PAIRS = 6  # of a suspect, to measure again
_NORMAL = NormalDist()

Answer = Literal["slow", "cannot tell", "nothing slow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """How slow a place is in one mode: a factor of time with its interval of 95 %, and of how many
    partners (or measurements, of a path or a pair) so many are slow.
    """

    factor: float
    low: float
    high: float
    slow: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A slow place. effects: by mode, those in which it is slow. modes: those that were measured.

    same: places that the measured pairs cannot tell from it. missing: pairs that would tell them
    apart, or confirm it; empty with `same` where no pair of these hosts can.
    """

    place: Place
    is_inside: bool = False
    effects: Mapping[Mode, Effect]
    modes: tuple[Mode, ...]
    same: tuple[Place, ...] = ()
    missing: tuple[Pair, ...] = ()

    @property
    def effect(self) -> Effect:
        """The effect alone, which others do not disturb, or else the only one."""
        return next(self.effects[mode] for mode in MODES if mode in self.effects)

    @property
    def is_certain(self) -> bool:
        """Whether no other place explains the same."""
        return not self.same

    @property
    def is_only_together(self) -> bool:
        """Whether it is slow only while all pairs are loaded, and well alone."""
        return "alone" not in self.effects and "alone" in self.modes

    @property
    def is_layout(self) -> bool:
        """Whether it is between two groups of ranks of one host, which is how the host is built."""
        return self.place.kind == "group" and self.is_inside


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How much longer transfers take while all pairs of a round are loaded, with the evidence in
    pairs and directions. pairs: that share the links of a host. is_slow: longer than one shared
    link explains, which pairs of hosts show whose cores are free. is_open: only those of hosts do
    whose ranks may have waited for cores.
    """

    is_inside: bool
    effect: Effect
    pairs: int
    is_slow: bool
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Verdicts, worst first.

    suspects: pairs to measure again, as they may be slow. maybe: hosts, ranks and rails that are
    slow by a factor, unless chance made them so, which is unlikely but not excluded. tested: the
    places that were tested in all. below: pairs far slower than good ones, which nothing explains,
    slowest first; is_below_best: than the best ones, which are few. unjudged: hosts without a rate,
    or with such of slow hosts alone. untested: directions of hosts (or of ranks of one host) that
    no pair with a rate has. failed: pairs without a rate, though they were tried.
    waits: why ranks may have waited for cores. measured: the pairs with a rate. least: the factor
    by which a host must be slow to be found. good_gbs: the rate of good pairs, between hosts if any
    were measured. is_cut_short: whether a fault or a signal ended the measurements.
    """

    verdicts: tuple[Verdict, ...] = ()
    sharing: tuple[Sharing, ...] = ()
    suspects: tuple[Pair, ...] = ()
    maybe: tuple[tuple[Place, float], ...] = ()
    tested: int = 0
    below: tuple[Pair, ...] = ()
    is_below_best: bool = False
    unjudged: tuple[str, ...] = ()
    untested: tuple[Place, ...] = ()
    failed: tuple[Pair, ...] = ()
    waits: tuple[str, ...] = ()
    measured: int = 0
    least: float = math.inf
    good_gbs: float | None = None
    is_cut_short: bool = False

    @property
    def answer(self) -> Answer:
        """What all of it says: that nothing is slow only where a host at half of the rate would
        have been found.
        """
        is_slow = any(not one.is_layout for one in self.verdicts)
        if is_slow or any(one.is_slow for one in self.sharing):
            return "slow"
        open_points = self.below, self.unjudged, self.untested, self.failed, self.maybe
        is_open = any(open_points) or any(one.is_open for one in self.sharing)
        is_open = is_open or self.is_cut_short or self.least > MUST_FIND
        return "cannot tell" if is_open else "nothing slow"

    @property
    def is_clean(self) -> bool:
        """Whether nothing is slow."""
        return self.answer == "nothing slow"


# what can be compared: of one mode, inside a host or between hosts, of one direction or of both
_Kind = tuple[Mode, bool, bool]


def analyse(
    samples: Iterable[PairSample], world: PairWorld, rate_gbs: float | None = None
) -> Analysis:
    """What the samples say. rate_gbs: what a good pair reaches alone, if that is known.

    >>> world = PairWorld(("a", "b", "c"), (0, 0, 0))
    >>> pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    >>> samples = [
    ...     PairSample(a=a, b=b, gbs=5.0 if a == 2 else 10.0) for a, b in pairs for _ in range(6)
    ... ]
    >>> [
    ...     (one.place.kind, one.place.key, one.place.flow)
    ...     for one in analyse(samples, world).verdicts
    ... ]
    [('host', (2,), 'out')]
    """
    samples = list(samples)
    measured = {_pair(one) for one in samples if one.gbs}
    fits, tested = _fitted(samples, world, rate_gbs)
    verdicts = _merged(fits, world, measured)
    waiting = _least_of_waits(samples, world)
    waits = [one for one in verdicts if _may_be_waits(one, samples, world, waiting)]
    verdicts = [one for one in verdicts if one not in waits]
    good_gbs = _good(fits)
    if rate_gbs and good_gbs and math.log(rate_gbs / good_gbs) > FAR_SLOWNESS:
        verdicts.append(_all_slow(fits, rate_gbs / good_gbs, len(measured)))
    suspects = [(one, one.suspect) for one in fits.values() if one.suspect is not None]
    maybe = {
        cause.place: math.exp(cause.effect)
        for _, cause in suspects
        if cause.place.kind in ("host", "rank", "rail") and cause.chance < HUNT_MAYBE
    }
    maybe |= {one.place: one.effect.factor for one in waits}
    again = [
        pair for one, cause in suspects for pair in sorted(set(one.rows.pairs(cause.rows)))[:_PAIRS]
    ]
    below = [
        pair
        for (_, is_inside, _), one in fits.items()
        # many that are slow inside several hosts are how these are built
        if not (is_inside and len(world.host_names) > 1)
        or len(one.unexplained) <= FEW_PATHS * len(one.rows)
        for pair in one.rows.pairs(one.unexplained)
    ]
    least = max((one.least for one in fits.values()), default=math.inf)
    return Analysis(
        verdicts=tuple(sorted(verdicts, key=lambda one: -one.effect.factor)),
        sharing=tuple(_sharing(fits, samples)),
        suspects=tuple(dict.fromkeys(again)),
        maybe=tuple(maybe.items()),
        tested=tested,
        below=tuple(dict.fromkeys(below)),
        is_below_best=any(one.is_by_best for one in fits.values()),
        failed=tuple(sorted({_pair(one) for one in samples} - measured)),
        waits=tuple(dict.fromkeys(one.waits for one in samples if one.waits)),
        measured=len(measured),
        unjudged=_unjudged(fits, verdicts, world),
        untested=tuple(_untested(fits, world)),
        least=math.exp(min(700.0, max(waiting, least))),
        good_gbs=good_gbs,
    )


def _least_of_waits(samples: Iterable[PairSample], world: PairWorld) -> float:
    """The logarithm of the factor up to which waits for cores may slow messages between hosts."""
    messages_s = [
        one.size_bytes * 1e-9 / one.gbs
        for one in samples
        if one.gbs and one.size_bytes and one.waits and world.hosts[one.a] != world.hosts[one.b]
    ]
    if not messages_s:
        return 0.0
    return min(WAIT_SLOWNESS, math.log1p(WAIT_S / middle_of(np.array(messages_s))))


def _may_be_waits(
    verdict: Verdict, samples: Iterable[PairSample], world: PairWorld, least: float
) -> bool:
    """Whether a place is slow by no more than waits for cores take, which all its samples have: any
    time where both ranks of a pair are of one host.
    """
    hosts = {world.host_numbers[rank] for rank in ends_of(verdict.place, world)}
    places = verdict.place, *verdict.same
    is_pair = verdict.is_inside and any(place.kind == "pair" for place in places)
    if not hosts or (verdict.is_inside and not is_pair):
        return False
    if not is_pair and math.log(verdict.effect.factor) >= least:
        return False
    host_of = world.host_numbers
    return all(one.waits for one in samples if hosts <= {host_of[one.a], host_of[one.b]})


def _pair(sample: PairSample) -> Pair:
    return min(sample.a, sample.b), max(sample.a, sample.b)


def _fitted(
    samples: Iterable[PairSample], world: PairWorld, rate_gbs: float | None
) -> tuple[Mapping[_Kind, Fit], int]:
    """The fit of the samples of each kind, and how many places are tested in all."""
    found: dict[_Kind, list[PairSample]] = grouped(
        ((one.mode, world.hosts[one.a] == world.hosts[one.b], one.is_both), one)
        for one in samples
        if one.gbs
    )
    kinds = {}
    for kind, some in found.items():
        a, b = np.array([(one.a, one.b) for one in some]).T
        slow = np.array([-math.log(one.gbs or 1.0) for one in some])
        rows = rows_of(a, b, slow, is_both=some[0].is_both)
        kinds[kind] = rows, places_of(rows, world)
    tested = sum(len(places) for _, places in kinds.values())
    known = -math.log(rate_gbs) if rate_gbs else -math.inf
    return {kind: fit(*one, tested, known) for kind, one in kinds.items()}, tested


def _good(fits: Mapping[_Kind, Fit]) -> float | None:
    """The rate of good pairs, between hosts if any were measured, and alone if measured so."""
    is_of_one = all(inside for _, inside, _ in fits)
    levels = {mode: one.level for (mode, inside, _), one in fits.items() if inside == is_of_one}
    return math.exp(-levels[min(levels)]) if levels else None


def _all_slow(fits: Mapping[_Kind, Fit], factor: float, pairs: int) -> Verdict:
    """That even good pairs are slower than is known of them."""
    mode = min(fits)[0]
    effect = Effect(factor=factor, low=factor, high=factor, slow=pairs, of=pairs)
    return Verdict(place=Place("all", ()), effects={mode: effect}, modes=(mode,))


def _unjudged(
    fits: Mapping[_Kind, Fit], verdicts: Sequence[Verdict], world: PairWorld
) -> tuple[str, ...]:
    """The hosts without a rate that nothing else slows: none of them can be called good."""
    judged = {
        world.host_names[host]
        for verdict in verdicts
        for place in (verdict.place, *verdict.same)
        if place.kind in ("host", "path")
        for host in place.key
    }
    for one in fits.values():
        is_good = np.ones(len(one.rows), bool)
        for cause in one.causes:
            if cause.place.kind != "group":
                is_good[cause.rows] = False
        ends = one.rows.pairs(np.flatnonzero(is_good))
        judged |= {world.hosts[rank] for pair in ends for rank in pair}
    return tuple(name for name in world.host_names if name not in judged)


def _untested(fits: Mapping[_Kind, Fit], world: PairWorld) -> Iterator[Place]:
    """The directions of hosts, or of ranks of one host, that have rates of the other one alone."""
    is_of_one = len(world.host_names) == 1
    number = range(world.n) if is_of_one else world.host_numbers
    senders, receivers = set[int](), set[int]()
    for (_, is_inside, is_both), one in fits.items():
        if is_inside == is_of_one:
            a, b = ({number[rank] for rank in ends.tolist()} for ends in (one.rows.a, one.rows.b))
            senders |= a | b if is_both else a
            receivers |= a | b if is_both else b
    for end in sorted(senders ^ receivers):
        flow: Flow = "in" if end in senders else "out"
        yield Place("rank" if is_of_one else "host", (end,), flow)


def _merged(fits: Mapping[_Kind, Fit], world: PairWorld, measured: set[Pair]) -> list[Verdict]:
    """One verdict of the causes that several fits name."""
    causes = [(kind, one.rows, cause) for kind, one in fits.items() for cause in one.causes]
    slow_ranks = {rank for *_, cause in causes for rank in ranks_of(cause.place, world)}
    found: dict[tuple[Place, bool], Verdict] = {}
    for (mode, is_inside, _), rows, cause in causes:
        effect = _effect(cause, rows, world)
        known = found.get((cause.place, is_inside)) or Verdict(
            place=cause.place,
            is_inside=is_inside,
            effects={},
            modes=tuple(sorted({mode for mode, inside, _ in fits if inside == is_inside})),
            same=cause.same,
            missing=_missing(cause, effect, world, measured, slow_ranks, is_inside=is_inside),
        )
        effects = {mode: effect, **known.effects}
        found[cause.place, is_inside] = replace(known, effects=effects)
    return list(found.values())


def _effect(cause: Cause, rows: Rows, world: PairWorld) -> Effect:
    """The numbers of a cause, with its evidence counted in partners where it has some."""
    slow, of = cause.slow, cause.of
    if cause.place.kind in ("host", "rank"):
        group = np.array(world.host_numbers if cause.place.kind == "host" else range(world.n))
        a, b = group[rows.a[cause.rows]], group[rows.b[cause.rows]]
        partners = np.where(a == cause.place.key[0], b, a)
        each = [middle_of(cause.residuals[partners == one]) for one in np.unique(partners)]
        slow, of = sum(value > cause.effect / 2 for value in each), len(each)
    low, factor, high = (math.exp(value) for value in (cause.low, cause.effect, cause.high))
    return Effect(factor=factor, low=low, high=high, slow=slow, of=of)


def _missing(
    cause: Cause,
    effect: Effect,
    world: PairWorld,
    measured: set[Pair],
    slow: set[int],
    *,
    is_inside: bool,
) -> tuple[Pair, ...]:
    """Pairs not measured yet that tell the cause from others, or confirm it: so many good partners
    for each host or rank that may be at fault, inside its host or on others.
    """
    place = cause.place
    is_told = place.kind in ("host", "rank") and effect.of >= PARTNERS and not cause.same
    if place.kind == "rail" or is_told:
        return ()
    missing: list[Pair] = []
    places, host_of = (place, *cause.same), world.host_numbers
    ends = [end for one in places for end in ends_of(one, world)]
    if len(ends) == 2 and cause.of == 1:
        missing.append((min(ends), max(ends)))  # again
    # another rank of a host tells whether all of it is slow, or one of its ranks
    hosts = {one.key[0] for one in places if one.kind == "host"}
    hosts &= {host_of[one.key[0]] for one in places if one.kind == "rank"}
    ends += [world.n - 1 - host_of[::-1].index(host) for host in hosts]
    near = {world.hosts[rank] for rank in ends}
    good = [
        rank
        for rank in range(world.n)
        if rank not in ends and rank not in slow and (world.hosts[rank] in near) == is_inside
    ]
    for end in dict.fromkeys(ends):
        pairs = [(min(end, rank), max(end, rank)) for rank in good]
        unmeasured = [pair for pair in pairs if pair not in measured]
        missing += unmeasured[: max(0, PARTNERS - (len(pairs) - len(unmeasured)))]
    return tuple(missing)


def ranks_of(place: Place, world: PairWorld) -> list[int]:
    """The ranks that a slow host or rank has."""
    if place.kind not in ("host", "rank"):
        return []
    group = world.host_numbers if place.kind == "host" else range(world.n)
    return [rank for rank in range(world.n) if group[rank] == place.key[0]]


def ends_of(place: Place, world: PairWorld) -> list[int]:
    """A rank for each of the hosts or ranks of a place."""
    if place.kind in ("rank", "pair"):
        return list(place.key)
    if place.kind in ("host", "path"):
        return [world.host_numbers.index(host) for host in place.key]
    return []


def _sharing(fits: Mapping[_Kind, Fit], samples: Iterable[PairSample]) -> Iterator[Sharing]:
    """What the load of all pairs of a round adds to the times alone, pair by pair."""
    sharing: dict[Pair, int] = defaultdict(int)  # the most in any round: no more is then blamed
    waiting: set[Pair] = set()
    for sample in samples:
        ends = sample.a, sample.b
        sharing[ends] = max(sharing[ends], sample.sharing)
        waiting |= {ends} if sample.waits else set()
    for (mode, is_inside, is_both), one in fits.items():
        alone = fits.get(("alone", is_inside, is_both))
        if mode == "alone" or alone is None:
            continue
        slow_alone, slow = alone.rows.slow_of(), one.rows.slow_of()
        both = [ends for ends in slow if ends in slow_alone]
        added = np.array([slow[ends] - slow_alone[ends] for ends in both])
        # what a link that the pairs of a host share explains
        explained = np.log([1.0 if is_inside else sharing[ends] for ends in both])
        if (effect := _effect_of_load(added)) is not None:
            is_free = np.array([ends not in waiting for ends in both])
            beyond = added - explained
            is_slow = not is_inside and _effect_of_load(beyond[is_free]) is not None
            is_maybe = not is_inside and _effect_of_load(beyond) is not None
            yield Sharing(
                is_inside=is_inside,
                effect=effect,
                pairs=max(sharing[ends] for ends in both),
                is_slow=is_slow,
                is_open=is_maybe and not is_slow,
            )


def _effect_of_load(added: Floats) -> Effect | None:
    """By how much pairs are slower, if they surely are."""
    n, freedom = len(added), np.array(len(added) - 1.0)
    if n < 2:
        return None
    effect, error = float(added.mean()), max(PAIR_FLOOR, float(added.std(ddof=1))) / math.sqrt(n)
    slow = int((added > effect / 2).sum())
    is_sure = z_of_t(np.array(effect / error), freedom) > -_NORMAL.inv_cdf(HUNT_FALSE_ALARM)
    if effect < LEAST_SLOWNESS or slow < PLACE_AGREED * n or not is_sure:
        return None
    reach = error * float(t_of_z(SINGLE_Z, freedom))
    low, factor, high = (math.exp(effect + way * reach) for way in (-1, 0, 1))
    return Effect(factor=factor, low=low, high=high, slow=slow, of=n)
