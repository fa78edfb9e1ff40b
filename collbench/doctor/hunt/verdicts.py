"""What the rates of pairs say: which host, rank, rail, path or pair is slow, how much, on what
evidence, and which pairs are missing where that cannot be told.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from statistics import median
from typing import Literal

import numpy as np

from collbench.core.limits import (
    FAR_SLOWNESS,
    FEW_PATHS,
    HUNT_MAYBE,
    LEAST_SLOWNESS,
    MUST_FIND,
    PARTNERS,
)
from collbench.core.pairwise import MODES, Mode, PairSample, PairWorld
from collbench.doctor.hunt.fit import Cause, Fit, fit
from collbench.doctor.hunt.places import BETWEEN, Family, Place, Table, directed_pairs, families
from collbench.doctor.hunt.rounds import Pair

_PAIRS = 6  # of a suspect, to measure again

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


@dataclass(slots=True)
class _Stratum:
    """Samples that can be compared: one mode, inside or between hosts, one or both directions."""

    mode: Mode
    is_inside: bool
    is_both: bool
    samples: list[PairSample] = field(default_factory=list)

    def table(self) -> Table:
        return Table(
            np.array([one.a for one in self.samples], np.int64),
            np.array([one.b for one in self.samples], np.int64),
            np.array([-math.log(one.gbs or 1.0) for one in self.samples]),
            self.is_both,
        )


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
    strata = _strata(samples, world)
    measured = {_pair(one) for one in samples if one.gbs}
    tables = [stratum.table() for stratum in strata]
    places = [families(table, world) for table in tables]
    tested = sum(len(one.starts) - 1 for found in places for one in found)
    known = -math.inf if rate_gbs is None else -math.log(rate_gbs)
    fits = [
        fit(table.slow, found, directed_pairs(table, world.n), tested, known)
        for table, found in zip(tables, places, strict=True)
    ]
    verdicts = _merged(strata, tables, fits, world)
    good_gbs = _good(strata, fits, world)
    if (
        rate_gbs is not None
        and good_gbs is not None
        and math.log(rate_gbs / good_gbs) > FAR_SLOWNESS
    ):
        verdicts.append(_all_slow(strata, rate_gbs / good_gbs))
    suspects = [
        pair
        for stratum, one in zip(strata, fits, strict=True)
        for suspect in one.suspects
        for pair in sorted({_pair(stratum.samples[number]) for number in suspect.samples})[:_PAIRS]
    ]
    maybe = {
        one.place: math.exp(one.effect)
        for found in fits
        for one in found.suspects
        if one.place.kind in ("host", "rank", "rail")
        and one.chance < HUNT_MAYBE
        and one.effect > LEAST_SLOWNESS
    }
    below = [
        _pair(stratum.samples[number])
        for stratum, one in zip(strata, fits, strict=True)
        if not _is_layout(stratum, one, world)
        for number in one.unexplained
    ]
    return Analysis(
        verdicts=tuple(sorted(verdicts, key=lambda one: -one.effect.factor)),
        sharing=tuple(_sharing(strata, world)),
        suspects=tuple(dict.fromkeys(suspects)),
        maybe=tuple(maybe.items()),
        tested=tested,
        below=tuple(dict.fromkeys(below)),
        is_below_best=any(one.is_by_best for one in fits),
        failed=tuple(sorted({_pair(one) for one in samples} - measured)),
        measured=len(measured),
        unjudged=_unjudged(strata, fits, verdicts, world),
        least=math.exp(min(700.0, max((one.least for one in fits), default=math.inf))),
        good_gbs=good_gbs,
    )


def _is_layout(stratum: _Stratum, one: Fit, world: PairWorld) -> bool:
    """Whether slow pairs are how hosts are built: many inside several hosts."""
    is_inside = stratum.is_inside and len(world.host_names) > 1
    return is_inside and len(one.unexplained) > FEW_PATHS * one.rows


def _good(strata: Sequence[_Stratum], fits: Sequence[Fit], world: PairWorld) -> float | None:
    """The rate of good pairs, between hosts if there are several, and alone if measured so."""
    is_inside = len(world.host_names) == 1
    levels = {
        stratum.mode: one.level
        for stratum, one in zip(strata, fits, strict=True)
        if stratum.is_inside == is_inside
    }
    return next((math.exp(-levels[mode]) for mode in MODES if mode in levels), None)


def _all_slow(strata: Sequence[_Stratum], factor: float) -> Verdict:
    """That even good pairs are slower than is known of them."""
    pairs = len({_pair(sample) for one in strata for sample in one.samples})
    mode = next(mode for mode in MODES if any(one.mode == mode for one in strata))
    effect = Effect(factor=factor, low=factor, high=factor, slow=pairs, of=pairs)
    return Verdict(place=Place("all", ()), effects={mode: effect}, modes=(mode,))


def _unjudged(
    strata: Sequence[_Stratum], fits: Sequence[Fit], verdicts: Sequence[Verdict], world: PairWorld
) -> tuple[str, ...]:
    """The hosts without a rate that nothing else slows: none of them can be called good."""
    judged = {
        world.host_names[host]
        for verdict in verdicts
        for place in (verdict.place, *verdict.same)
        if place.kind in ("host", "path")
        for host in place.key
    }
    for stratum, one in zip(strata, fits, strict=True):
        slowed = {
            int(number)
            for cause in one.causes
            if cause.place.kind != "group"
            for number in cause.samples
        }
        judged |= {
            world.hosts[rank]
            for number, sample in enumerate(stratum.samples)
            if number not in slowed
            for rank in (sample.a, sample.b)
        }
    return tuple(name for name in world.host_names if name not in judged)


def _strata(samples: Iterable[PairSample], world: PairWorld) -> list[_Stratum]:
    found: dict[tuple[Mode, bool, bool], _Stratum] = {}
    for one in samples:
        if one.gbs:
            key = one.mode, world.hosts[one.a] == world.hosts[one.b], one.is_both
            found.setdefault(key, _Stratum(*key)).samples.append(one)
    return list(found.values())


def _pair(sample: PairSample) -> Pair:
    return min(sample.a, sample.b), max(sample.a, sample.b)


def _merged(
    strata: Sequence[_Stratum], tables: Sequence[Table], fits: Sequence[Fit], world: PairWorld
) -> list[Verdict]:
    """One verdict of the causes that several strata name."""
    modes = {
        is_inside: tuple(
            mode
            for mode in MODES
            if any(one.mode == mode and one.is_inside == is_inside for one in strata)
        )
        for is_inside in (False, True)
    }
    measured = {_pair(sample) for stratum in strata for sample in stratum.samples}
    slow_ranks = {
        rank
        for one in fits
        for cause in one.causes
        for rank in _ranks(cause.place, world)
        if cause.place.kind in ("host", "rank")
    }
    found: dict[tuple[Place, bool], Verdict] = {}
    for stratum, table, one in zip(strata, tables, fits, strict=True):
        for cause in one.causes:
            key = cause.place, stratum.is_inside
            effect = _effect(cause, table, world)
            known = found.get(key)
            if known is not None:
                found[key] = replace(known, effects={stratum.mode: effect, **known.effects})
                continue
            found[key] = Verdict(
                place=cause.place,
                is_inside=stratum.is_inside,
                effects={stratum.mode: effect},
                modes=modes[stratum.is_inside],
                same=cause.same,
                missing=_missing(cause, effect, world, measured, slow_ranks),
            )
    return list(found.values())


def _effect(cause: Cause, table: Table, world: PairWorld) -> Effect:
    """The numbers of a cause, with its evidence counted in partners where it has some."""
    slow, of = cause.counted, len(cause.samples)
    if cause.place.kind in ("host", "rank"):
        partners = _partners(cause, table, world)
        medians = [
            median(cause.residuals[place] for _, place in same)
            for _, same in groupby(sorted(partners), key=lambda item: item[0])
        ]
        slow, of = int(sum(value > cause.effect / 2 for value in medians)), len(medians)
    low, factor, high = (math.exp(value) for value in (cause.low, cause.effect, cause.high))
    return Effect(factor=factor, low=low, high=high, slow=slow, of=of)


def _partners(cause: Cause, table: Table, world: PairWorld) -> list[tuple[int, int]]:
    """Beside the number of the partner each sample's place among those of the cause."""
    group = world.host_numbers if cause.place.kind == "host" else range(world.n)
    own = cause.place.key[0]
    ends = zip(table.a[cause.samples], table.b[cause.samples], strict=True)
    return [(group[b] if group[a] == own else group[a], place) for place, (a, b) in enumerate(ends)]


def _ranks(place: Place, world: PairWorld) -> list[int]:
    """The ranks that a place has."""
    of = {"host": world.host_numbers, "path": world.host_numbers, "rail": world.local}
    group = of.get(place.kind, range(world.n))
    return [rank for rank in range(world.n) if group[rank] in place.key]


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
    if len(ends) == 2 and len(cause.samples) == 1:
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


def ends_of(place: Place, world: PairWorld) -> list[int]:
    """A rank for each of the hosts or ranks of a place."""
    if place.kind in ("rank", "pair"):
        return list(place.key)
    if place.kind in ("host", "path"):
        return [world.host_numbers.index(host) for host in place.key]
    return []


def _sharing(strata: Sequence[_Stratum], world: PairWorld) -> list[Sharing]:
    """What the load of all pairs of a round adds to the times alone, pair by pair."""
    found = []
    for together in (one for one in strata if one.mode == "together"):
        alone = next(
            (
                one
                for one in strata
                if one.mode == "alone"
                and (one.is_inside, one.is_both) == (together.is_inside, together.is_both)
            ),
            None,
        )
        if alone is not None:
            found += _loaded(alone, together)
    return found


def _loaded(alone: _Stratum, together: _Stratum) -> list[Sharing]:
    of_pair: dict[Pair, list[float]] = {}
    for one in alone.samples:
        of_pair.setdefault((one.a, one.b), []).append(one.gbs or 1.0)
    middle = {pair: median(rates) for pair, rates in of_pair.items()}
    slower = partial(_slower, middle)
    loaded = [one for one in together.samples if (one.a, one.b) in middle]
    if not loaded:
        return []
    # what a link that the pairs of a host share explains
    explained = [0.0 if together.is_inside else math.log(one.sharing) for one in loaded]
    base = [slower(one) for one in alone.samples]
    seen = [slower(one) for one in loaded]
    found = _of_load(base, seen)
    if found is None:
        return []
    beyond = _of_load(base, [value - share for value, share in zip(seen, explained, strict=True)])
    is_slow = beyond is not None and not together.is_inside
    return [
        Sharing(
            is_inside=together.is_inside,
            effect=found,
            pairs=max(one.sharing for one in loaded),
            is_slow=is_slow,
        )
    ]


def _slower(middle: Mapping[Pair, float], one: PairSample) -> float:
    return math.log(middle[one.a, one.b] / (one.gbs or 1.0))


def _of_load(alone: Sequence[float], together: Sequence[float]) -> Effect | None:
    """The effect of the load, judged as a place is."""
    slow = np.array([*alone, *together])
    each = np.arange(len(slow))
    numbers = each[len(alone) :]
    ends = np.full_like(each, BETWEEN)
    groups, starts = np.zeros_like(numbers), np.array([0, len(numbers)])
    load = Family("all", "both", numbers, groups, starts, lambda _: (), ends[len(alone) :])
    rows = Family("pair", "out", each, each, np.arange(len(slow) + 1), lambda _: (), ends)
    causes = fit(slow, [load], rows).causes
    if not causes:
        return None
    cause = causes[0]
    low, factor, high = (math.exp(value) for value in (cause.low, cause.effect, cause.high))
    return Effect(factor=factor, low=low, high=high, slow=cause.counted, of=len(cause.samples))
