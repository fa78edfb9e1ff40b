"""A robust additive fit, in the logarithm, of the slowness of places to samples of one kind.

Few places are slow, so they are found one by one: the place that explains most is taken, what it
adds is taken off its samples, and so on. A place is judged by its samples against all others: the
median of its samples less the median of the others is the effect, and the sample that exceeds half
of the effect counts. Chance would let a sample count as often as it does among the others, with
three added to their number (Hanley and Lippman-Hand 1983: none among m is at most 3/m); the tail of
the binomial distribution (the bound of Chernoff) times the number of places tested (Bonferroni) is
the probability that chance alone names one of them. Medians and counts need no form of the noise.

Samples of one pair are not independent where pairs differ for reasons of their own (a connection, a
route, the core that a process got). So a place must also be exceptional among pairs: at most one in
20 of the other pairs is as slow, by its median, or the pairs of the place are all slow although few
others are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collbench.analysis.hunt.places import Family, Floats, Ints, Place

# that anything is named where nothing is slow; 1,000 clean draws of the tests name nothing
FALSE_ALARM = 1e-3
LEAST = math.log(1.1)  # a place that takes less than 10 % longer is not called slow
_SHARE = 0.8  # of a place's samples that must exceed half of its effect
_SUSPECT_SHARE = 0.6  # and of one that is measured again
_SUSPICION = 0.5  # of a false alarm: what is more likely is not even measured again
_LARGE = 0.05  # of all samples: the median of the others needs them without the place's own
_RARE = 0.05  # of the other pairs may be as slow
_UNLIKELY = 0.05  # that the pairs of a place are slow because so many are
_MOST = 256  # places
_INTERVAL_DEVIATES = 1.96  # 95 of 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A slow place. effect: the logarithm of its factor, with its interval of 95 %. chance: that
    chance alone names a place like it. same: places with the very same samples. samples: numbers of
    its own; counted: those that exceed half of the effect. residuals: the slowness of its samples
    without that of other causes and of the rest.
    """

    place: Place
    effect: float
    low: float
    high: float
    chance: float
    same: tuple[Place, ...]
    samples: Ints
    residuals: Floats

    @property
    def counted(self) -> int:
        """The samples that exceed half of the effect."""
        return int((self.residuals > self.effect / 2).sum())


@dataclass(frozen=True, slots=True)
class Fit:
    """Causes, those that explain most first; suspects, which only more samples can clear; and what
    is left of every sample: its slowness without the causes. uneven: how many pairs are as slow as
    the slowest place that is not exceptional among them.
    """

    causes: tuple[Cause, ...]
    suspects: tuple[Cause, ...]
    rest: Floats
    uneven: int = 0


@dataclass(frozen=True, slots=True)
class _Found:
    family: Family
    group: int
    gain: float
    chance: float
    is_sure: bool


def fit(slow: Floats, families: Sequence[Family], pairs: Family, tested: int = 0) -> Fit:
    """The slow places. pairs: the family of every pair and direction. tested: the places tested in
    all, where other samples are judged too.

    Per cause it sorts the samples of every family once: O(families x samples log samples).
    """
    tested = tested or sum(len(family.starts) - 1 for family in families)
    rest, taken = slow.copy(), list[_Found]()
    effects: list[float] = []
    while True:
        ready = [one for family in families for one in _candidates(rest, family, tested)]
        sure = sorted((one for one in ready if one.is_sure), key=lambda one: -one.gain)
        medians = _medians(rest[pairs.members], pairs) if ready else rest
        best = next(
            (one for one in sure if _is_exceptional(rest, medians, one, pairs, tested)), None
        )
        if best is None or len(taken) == _MOST:
            break
        inside = best.family.samples(best.group)
        effect = _effect(rest, inside)
        taken.append(best)
        effects.append(effect)
        rest[inside] -= effect
    causes = []
    for one, effect in zip(taken, effects, strict=True):
        inside = one.family.samples(one.group)
        rest[inside] += effect
        causes.append(_cause(rest, one, families))
        rest[inside] -= effect
    suspects = [one for one in ready if not one.is_sure]
    return Fit(
        tuple(causes),
        tuple(_cause(rest, one, families) for one in sorted(suspects, key=lambda one: one.chance)),
        rest,
        max((_as_slow(rest, medians, one, pairs) for one in ready), default=0),
    )


def _is_exceptional(slow: Floats, medians: Floats, one: _Found, pairs: Family, tested: int) -> bool:
    """Whether the pairs of a place are not just some of many slow ones."""
    inside = one.family.samples(one.group)
    own = np.zeros(len(medians), bool)
    own[_group_of(pairs)[inside]] = True
    is_slow = medians > _middle(slow, inside)
    others = int((~own).sum())
    if not others:
        return True
    share = int((is_slow & ~own).sum()) / others
    if share <= _RARE:
        return True
    return tested * _tail(int((is_slow & own).sum()), int(own.sum()), share) < _UNLIKELY


def _as_slow(slow: Floats, medians: Floats, one: _Found, pairs: Family) -> int:
    """The pairs that are as slow as a place."""
    return int((medians > _middle(slow, one.family.samples(one.group))).sum())


def _middle(slow: Floats, inside: Ints) -> float:
    """What a slow sample of a place exceeds."""
    others = float(np.median(np.delete(slow, inside)))
    return (others + float(np.median(slow[inside]))) / 2


def _group_of(family: Family) -> Ints:
    """The group of every sample, of a family to which each belongs once."""
    groups = np.empty_like(family.groups)
    groups[family.members] = family.groups
    return groups


def _effect(slow: Floats, inside: Ints) -> float:
    return float(np.median(slow[inside]) - np.median(np.delete(slow, inside)))


def _candidates(slow: Floats, family: Family, tested: int) -> list[_Found]:
    """The places of a family that look slow, with what they explain."""
    sizes = np.diff(family.starts)
    if not len(sizes) or len(slow) < 2:
        return []
    values = slow[family.members]
    inside, outside = _medians(values, family), np.full(len(sizes), np.median(slow))
    large = np.flatnonzero(sizes > _LARGE * len(slow))
    for group in large:
        others = np.delete(slow, family.samples(int(group)))
        outside[group] = np.median(others) if len(others) else math.inf
    effects = inside - outside
    with np.errstate(invalid="ignore"):  # of a place that has all samples
        limits = (outside + effects / 2)[family.groups]
    counted = np.add.reduceat(values > limits, family.starts[:-1], dtype=np.int64)
    is_slow = (effects >= LEAST) & (counted >= _SUSPECT_SHARE * sizes)
    chosen = np.flatnonzero(is_slow)
    if not len(chosen):
        return []
    in_order = np.sort(slow)
    above = len(slow) - np.searchsorted(
        in_order, outside[chosen] + effects[chosen] / 2, side="right"
    )
    others = len(slow) - sizes[chosen]
    # of the others that count, and three more
    shares = np.minimum(1.0, (above - counted[chosen] + 3) / np.maximum(others, 1))
    gains = np.add.reduceat(
        np.abs(values - outside[family.groups]) - np.abs(values - inside[family.groups]),
        family.starts[:-1],
    )
    found = []
    for group, share in zip(chosen, shares, strict=True):
        chance = tested * _tail(int(counted[group]), int(sizes[group]), float(share))
        if chance < _SUSPICION:
            is_sure = chance < FALSE_ALARM and counted[group] >= _SHARE * sizes[group]
            found.append(_Found(family, int(group), float(gains[group]), chance, bool(is_sure)))
    return found


def _medians(values: Floats, family: Family) -> Floats:
    """The median of the values of every group, which stand together."""
    in_order = values[np.lexsort((values, family.groups))]
    first, sizes = family.starts[:-1], np.diff(family.starts)
    medians: Floats = (in_order[first + (sizes - 1) // 2] + in_order[first + sizes // 2]) / 2
    return medians


def _tail(counted: int, of: int, share: float) -> float:
    """That so many or more of some count by chance, at most (Chernoff's bound).

    >>> round(_tail(3, 3, 0.1), 6), _tail(1, 10, 0.2)
    (0.001, 1.0)
    """
    seen = counted / of
    if seen <= share:
        return 1.0
    distance = seen * math.log(seen / share)
    if seen < 1:
        distance += (1 - seen) * math.log((1 - seen) / (1 - share))
    return math.exp(-of * distance)


def _cause(slow: Floats, one: _Found, families: Sequence[Family]) -> Cause:
    inside = one.family.samples(one.group)
    others = np.median(np.delete(slow, inside))
    residuals = np.sort(slow[inside] - others)
    n = len(residuals)
    # the order statistics between which the median lies (the sign test)
    reach = _INTERVAL_DEVIATES * math.sqrt(n) / 2
    low, high = math.floor((n - 1) / 2 - reach), math.ceil((n - 1) / 2 + reach)
    return Cause(
        place=one.family.place(one.group),
        effect=float(np.median(residuals)),
        low=float(residuals[max(0, low)]),
        high=float(residuals[min(n - 1, high)]),
        chance=one.chance,
        same=tuple(_same(inside, one, families)),
        samples=inside,
        residuals=slow[inside] - others,
    )


def _same(inside: Ints, one: _Found, families: Sequence[Family]) -> list[Place]:
    """Other places that have exactly these samples."""
    wanted = np.sort(inside)
    found = []
    for family in families:
        sizes = np.diff(family.starts)
        groups = family.groups[family.members == wanted[0]]
        found += [
            family.place(int(group))
            for group in groups
            if (family is not one.family or group != one.group)
            and sizes[group] == len(wanted)
            and (np.sort(family.samples(int(group))) == wanted).all()
        ]
    return found
