"""What the rates of pairs say: which host, rank, rail, path or pair is slow, how much, on what
evidence, and which pairs are missing where that cannot be told.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, median
from typing import Literal

import numpy as np

from collbench.analysis.hunt.fit import Cause, Fit, fit
from collbench.analysis.hunt.places import Floats, Ints, Place, Rows, places_of, rows_of
from collbench.analysis.hunt.rounds import Pair
from collbench.results.pairwise import MODES, Mode, PairSample, PairWorld
from collbench.results.verdict import t_of_z, z_of_t
from collbench.util.limits import (
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
)

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
    """How much longer transfers take while all pairs of a round are loaded. pairs: that share the
    links of a host. is_slow: longer than one shared link explains.
    """

    is_inside: bool
    effect: Effect
    pairs: int
    is_slow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Verdicts, worst first.

    suspects: pairs to measure again, as they may be slow. maybe: hosts, ranks and rails that are
    slow by a factor, unless chance made them so, which is unlikely but not excluded. tested: the
    places that were tested in all. below: pairs far slower than good ones, which nothing explains,
    slowest first; is_below_best: than the best ones, which are few. unjudged: hosts without a rate,
    or with such of slow hosts alone. failed: pairs without a rate, though they were tried.
    measured: the pairs with a rate. least: the factor by which a host must be slow to be found.
    good_gbs: the rate of good pairs, between hosts if there are several.
    """

    verdicts: tuple[Verdict, ...] = ()
    sharing: tuple[Sharing, ...] = ()
    suspects: tuple[Pair, ...] = ()
    maybe: tuple[tuple[Place, float], ...] = ()
    tested: int = 0
    below: tuple[Pair, ...] = ()
    is_below_best: bool = False
    unjudged: tuple[str, ...] = ()
    failed: tuple[Pair, ...] = ()
    measured: int = 0
    least: float = math.inf
    good_gbs: float | None = None

    @property
    def answer(self) -> Answer:
        """What all of it says: that nothing is slow only where a host at half of the rate would
        have been found.
        """
        is_slow = any(not one.is_layout for one in self.verdicts)
        if is_slow or any(one.is_slow for one in self.sharing):
            return "slow"
        is_open = self.below or self.unjudged or self.failed or self.maybe
        return "cannot tell" if is_open or self.least > MUST_FIND else "nothing slow"

    @property
    def is_clean(self) -> bool:
        """Whether nothing is slow."""
        return self.answer == "nothing slow"


@dataclass(frozen=True, slots=True)
class _Stratum:
    """Samples that can be compared, with what fits them: of one mode, all inside or all between
    hosts, all of one or of both directions.
    """

    mode: Mode
    is_inside: bool
    rows: Rows
    fit: Fit

    def pairs(self, rows: Ints) -> list[Pair]:
        """The pairs of some rows."""
        ends = zip(self.rows.a[rows].tolist(), self.rows.b[rows].tolist(), strict=True)
        return [(min(a, b), max(a, b)) for a, b in ends]


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
    strata, tested = _fitted(samples, world, rate_gbs)
    verdicts = _merged(strata, world, measured)
    good_gbs = _good(strata, world)
    if rate_gbs and good_gbs and math.log(rate_gbs / good_gbs) > FAR_SLOWNESS:
        verdicts.append(_all_slow(strata, rate_gbs / good_gbs, len(measured)))
    suspects = [(stratum, one) for stratum in strata if (one := stratum.fit.suspect)]
    maybe = {
        one.place: math.exp(one.effect)
        for _, one in suspects
        if one.place.kind in ("host", "rank", "rail") and one.chance < HUNT_MAYBE
    }
    again = [
        pair for stratum, one in suspects for pair in sorted(set(stratum.pairs(one.rows)))[:_PAIRS]
    ]
    below = [
        pair
        for stratum in strata
        if not _is_layout(stratum, world)
        for pair in stratum.pairs(stratum.fit.unexplained)
    ]
    least = max((stratum.fit.least for stratum in strata), default=math.inf)
    return Analysis(
        verdicts=tuple(sorted(verdicts, key=lambda one: -one.effect.factor)),
        sharing=tuple(_sharing(samples, world)),
        suspects=tuple(dict.fromkeys(again)),
        maybe=tuple(maybe.items()),
        tested=tested,
        below=tuple(dict.fromkeys(below)),
        is_below_best=any(stratum.fit.is_by_best for stratum in strata),
        failed=tuple(sorted({_pair(one) for one in samples} - measured)),
        measured=len(measured),
        unjudged=_unjudged(strata, verdicts, world),
        least=math.exp(min(700.0, least)),
        good_gbs=good_gbs,
    )


def _pair(sample: PairSample) -> Pair:
    return min(sample.a, sample.b), max(sample.a, sample.b)


def _by_kind(
    samples: Iterable[PairSample], world: PairWorld
) -> dict[tuple[Mode, bool, bool], list[PairSample]]:
    """Samples with a rate, by mode, whether inside a host, and whether in both directions."""
    found: dict[tuple[Mode, bool, bool], list[PairSample]] = defaultdict(list)
    for one in samples:
        if one.gbs:
            found[one.mode, world.hosts[one.a] == world.hosts[one.b], one.is_both].append(one)
    return found


def _fitted(
    samples: Iterable[PairSample], world: PairWorld, rate_gbs: float | None
) -> tuple[list[_Stratum], int]:
    """Samples by what can be compared, and how many places are tested in all."""
    known = -math.log(rate_gbs) if rate_gbs else -math.inf
    kinds = []
    for kind, some in _by_kind(samples, world).items():
        a, b = np.array([(one.a, one.b) for one in some]).T
        slow = np.array([-math.log(one.gbs or 1.0) for one in some])
        rows = rows_of(a, b, slow, is_both=some[0].is_both)
        kinds.append((kind, rows, places_of(rows, world)))
    tested = sum(len(places) for *_, places in kinds)
    return [
        _Stratum(mode, is_inside, rows, fit(rows, places, tested, known))
        for (mode, is_inside, _), rows, places in kinds
    ], tested


def _is_layout(stratum: _Stratum, world: PairWorld) -> bool:
    """Whether slow pairs are how hosts are built: many inside several hosts."""
    is_inside = stratum.is_inside and len(world.host_names) > 1
    return is_inside and len(stratum.fit.unexplained) > FEW_PATHS * len(stratum.rows)


def _good(strata: Sequence[_Stratum], world: PairWorld) -> float | None:
    """The rate of good pairs, between hosts if there are several, and alone if measured so."""
    is_inside = len(world.host_names) == 1
    levels = {one.mode: one.fit.level for one in strata if one.is_inside == is_inside}
    return next((math.exp(-levels[mode]) for mode in MODES if mode in levels), None)


def _all_slow(strata: Sequence[_Stratum], factor: float, pairs: int) -> Verdict:
    """That even good pairs are slower than is known of them."""
    mode = min(one.mode for one in strata)
    effect = Effect(factor=factor, low=factor, high=factor, slow=pairs, of=pairs)
    return Verdict(place=Place("all", ()), effects={mode: effect}, modes=(mode,))


def _unjudged(
    strata: Sequence[_Stratum], verdicts: Sequence[Verdict], world: PairWorld
) -> tuple[str, ...]:
    """The hosts without a rate that nothing else slows: none of them can be called good."""
    judged = {
        world.host_names[host]
        for verdict in verdicts
        for place in (verdict.place, *verdict.same)
        if place.kind in ("host", "path")
        for host in place.key
    }
    for stratum in strata:
        is_good = np.ones(len(stratum.rows), bool)
        for cause in stratum.fit.causes:
            if cause.place.kind != "group":
                is_good[cause.rows] = False
        ends = stratum.pairs(np.flatnonzero(is_good))
        judged |= {world.hosts[rank] for pair in ends for rank in pair}
    return tuple(name for name in world.host_names if name not in judged)


def _merged(strata: Sequence[_Stratum], world: PairWorld, measured: set[Pair]) -> list[Verdict]:
    """One verdict of the causes that several strata name."""
    slow_ranks = {
        rank
        for stratum in strata
        for cause in stratum.fit.causes
        for rank in ranks_of(cause.place, world)
    }
    found: dict[tuple[Place, bool], Verdict] = {}
    for stratum in strata:
        modes = {one.mode for one in strata if one.is_inside == stratum.is_inside}
        for cause in stratum.fit.causes:
            key, effect = (cause.place, stratum.is_inside), _effect(cause, stratum.rows, world)
            known = found.get(key) or Verdict(
                place=cause.place,
                is_inside=stratum.is_inside,
                effects={},
                modes=tuple(sorted(modes)),
                same=cause.same,
                missing=_missing(cause, effect, world, measured, slow_ranks),
            )
            found[key] = replace(known, effects={stratum.mode: effect, **known.effects})
    return list(found.values())


def _effect(cause: Cause, rows: Rows, world: PairWorld) -> Effect:
    """The numbers of a cause, with its evidence counted in partners where it has some."""
    slow, of = cause.slow, cause.of
    if cause.place.kind in ("host", "rank"):
        group = np.array(world.host_numbers if cause.place.kind == "host" else range(world.n))
        a, b = group[rows.a[cause.rows]], group[rows.b[cause.rows]]
        partners = np.where(a == cause.place.key[0], b, a)
        each = [np.median(cause.residuals[partners == one]) for one in np.unique(partners)]
        slow, of = sum(bool(value > cause.effect / 2) for value in each), len(each)
    low, factor, high = (math.exp(value) for value in (cause.low, cause.effect, cause.high))
    return Effect(factor=factor, low=low, high=high, slow=slow, of=of)


def _missing(
    cause: Cause, effect: Effect, world: PairWorld, measured: set[Pair], slow: set[int]
) -> tuple[Pair, ...]:
    """Pairs not measured yet that tell the cause from others, or confirm it: so many good partners
    for each host or rank that may be at fault.
    """
    place = cause.place
    is_told = place.kind in ("host", "rank") and effect.of >= PARTNERS and not cause.same
    if place.kind == "rail" or is_told:
        return ()
    missing: list[Pair] = []
    ends = [end for one in (place, *cause.same) for end in ends_of(one, world)]
    if len(ends) == 2 and cause.of == 1:
        missing.append((min(ends), max(ends)))  # again
    near = {world.hosts[rank] for rank in ends} if len(world.host_names) > 1 else set()
    good = [
        rank
        for rank in range(world.n)
        if rank not in ends and rank not in slow and world.hosts[rank] not in near
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


def _sharing(samples: Iterable[PairSample], world: PairWorld) -> Iterable[Sharing]:
    """What the load of all pairs of a round adds to the times alone, pair by pair."""
    kinds = _by_kind(samples, world)
    for (mode, is_inside, is_both), together in kinds.items():
        alone = kinds.get(("alone", is_inside, is_both), [])
        rates: dict[Pair, list[float]] = defaultdict(list)
        for one in alone:
            rates[one.a, one.b].append(one.gbs or 1.0)
        typical = {pair: median(some) for pair, some in rates.items()}
        loaded = [one for one in together if (one.a, one.b) in typical]
        if mode == "alone" or not loaded:
            continue
        base, seen = (
            np.array([math.log(typical[one.a, one.b] / (one.gbs or 1.0)) for one in some])
            for some in (alone, loaded)
        )
        # what a link that the pairs of a host share explains
        explained = np.log([1.0 if is_inside else one.sharing for one in loaded])
        if (effect := _effect_of_load(base, seen)) is not None:
            yield Sharing(
                is_inside=is_inside,
                effect=effect,
                pairs=max(one.sharing for one in loaded),
                is_slow=not is_inside and _effect_of_load(base, seen - explained) is not None,
            )


def _effect_of_load(alone: Floats, together: Floats) -> Effect | None:
    """By how much pairs that are loaded together are slower, if they surely are."""
    freedom, effect = len(alone) + len(together) - 2, float(together.mean() - alone.mean())
    variance = (len(alone) * alone.var() + len(together) * together.var()) / max(freedom, 1)
    error = math.sqrt(max(PAIR_FLOOR**2, variance) * (1 / len(alone) + 1 / len(together)))
    slow = int((together - alone.mean() > effect / 2).sum())
    if effect < LEAST_SLOWNESS or freedom < 1 or slow < PLACE_AGREED * len(together):
        return None
    if z_of_t(np.array(effect / error), np.array(freedom)) < -_NORMAL.inv_cdf(HUNT_FALSE_ALARM):
        return None
    reach = error * t_of_z(SINGLE_Z, np.array(freedom))
    low, factor, high = (math.exp(effect + way * reach) for way in (-1, 0, 1))
    return Effect(factor=factor, low=low, high=high, slow=slow, of=len(together))
