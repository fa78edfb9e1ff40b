"""The smallest set of causes that explains the slow pairs of one kind of samples.

The model, in the logarithm of time: a pair takes the level of the good pairs, and more by what
slows its sender's end, its receiver's end, and its path. Two slow ends may add up, or the slower
one alone may count: a pair of both judges neither, and anything between the two explains it. The
level is that of the pairs without a cause, however few they are, and not a median: a slow majority
does not become the norm.

A row is a pair and direction, with the median of its repeats. Places are added one by one, the one
first that takes most off the squares of the residuals; also after the slowest hosts, by where their
mean slowness has its widest gaps, and after a split of the hosts in two. Then those go that a test
does not confirm, and of the sets that are left the best is taken. The test is Student's: the
variance is the larger one of what repeats show and of what the residuals of the rows show, with a
floor; where both are few, an effect also stands that noise of 10 % could not make. The chance is
multiplied by the number of places tested (Bonferroni).

Each path that is slow for itself is one cause more. Few may be: were they many, what is slow has no
pattern that these places know, and none of them is named.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from collbench.core.limits import (
    ENOUGH_PAIRS,
    FAR_DEVIATES,
    FAR_SLOWNESS,
    FEW_PATHS,
    HUNT_FALSE_ALARM,
    HUNT_PATHS_SHARE,
    HUNT_SUSPICION,
    LEAST_SLOWNESS,
    MANY_PAIRS,
    ONCE_SLOWNESS,
    PATH_AGREED,
    PLACE_AGREED,
    PLACE_GAIN,
    SURE_NOISE,
    UNLIKE,
)
from collbench.doctor.hunt.model import (
    AHEAD,
    CELLS,
    GAPS,
    HUGE,
    INTERVAL,
    MOST,
    NORMAL,
    PATHS,
    Model,
    Rows,
    Term,
    by_rows,
    deviate,
    least_squares,
    other_end_covered,
    rows_of,
)
from collbench.doctor.hunt.places import Family, Floats, Ints, Place, split


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A slow place. effect: the logarithm of its factor, with its interval of 95 %. chance: that
    chance alone names a place like it. same: places that explain its rows as well. samples: numbers
    of its own; residuals: their slowness without the level and other causes.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Causes, those that explain most first; suspects, which only more samples can clear.

    level: of the slowness of good pairs. unexplained: a sample of each row (pair and direction)
    that is far slower than good ones without a cause, slowest first; is_by_best: than the best
    ones, which are few. least: the effect that a host must have to be found.
    """

    causes: tuple[Cause, ...] = ()
    suspects: tuple[Cause, ...] = ()
    level: float = 0.0
    unexplained: tuple[int, ...] = ()
    is_by_best: bool = False
    least: float = math.inf
    rows: int = 0

    @property
    def uneven(self) -> int:
        """How many rows nothing explains."""
        return len(self.unexplained)


def fit(
    slow: Floats,
    families: Sequence[Family],
    pairs: Family,
    tested: int = 0,
    known: float = -math.inf,
) -> Fit:
    """The slow places. pairs: the family of every pair and direction. tested: the places tested in
    all, where other samples are judged too. known: the slowness of a good pair, if it is known.

    A step costs O(families x rows), and O(causes^2 x rows).
    """
    if len(pairs.starts) < 2:
        return Fit()
    rows = rows_of(slow, pairs)
    of_rows = [by_rows(family, pairs) for family in families]
    tested = tested or sum(len(family.starts) - 1 for family in families)
    parted = (
        [family for one in of_rows for family in split(one, rows.slow, LEAST_SLOWNESS)]
        if len(rows.slow) < HUGE
        else []
    )
    places = [*of_rows, *parted]
    search = _Search(slow, pairs, rows, places, _tests(places, tested), known)
    best = search.run(len(of_rows))
    causes = [_cause(search, best, k, len(families)) for k in range(len(best.terms))]
    causes.sort(key=lambda one: -one.effect * math.sqrt(len(one.samples)))
    doubtful = least_squares(rows, [*best.terms, *search.dropped])
    suspects = [
        _cause(search, doubtful, k, len(families))
        for k in range(len(best.terms), len(doubtful.terms))
    ]
    first = pairs.members[pairs.starts[:-1]]
    unexplained, is_by_best = _unexplained(best, rows)
    return Fit(
        causes=tuple(causes),
        suspects=tuple(suspects),
        level=best.level,
        unexplained=tuple(int(first[row]) for row in unexplained),
        is_by_best=is_by_best,
        least=search.least(best),
        rows=len(rows.slow),
    )


def _tests(places: Sequence[Family], tested: int) -> list[float]:
    """How many tests each place of a family counts for: together, those of all places and of what
    is judged elsewhere.
    """
    is_path = [one.kind in PATHS for one in places]
    numbers = [len(one.starts) - 1 for one in places]
    paths = sum(n for n, own in zip(numbers, is_path, strict=True) if own)
    ends = sum(numbers) - paths
    elsewhere = max(1.0, tested / max(paths + ends, 1))
    of_path = elsewhere * max(paths, 1) / (HUNT_PATHS_SHARE if ends else 1)
    of_end = elsewhere * max(ends, 1) / (1 - HUNT_PATHS_SHARE if paths else 1)
    return [of_path if own else of_end for own in is_path]


@dataclass(slots=True)
class _Search:
    """Models of the rows, by the places of some families. dropped: terms that were not sure."""

    slow: Floats
    pairs: Family
    rows: Rows
    places: Sequence[Family]
    tests: Sequence[float]
    known: float
    dropped: tuple[Term, ...] = ()

    def run(self, known: int) -> Model:
        """The best model. known: the families that are tried everywhere; each other one is a start
        of its own.
        """
        starts = [[self._term(number, 0)] for number in range(known, len(self.places))]
        starts += list(self._slowest(known))
        best, self.dropped = self._grown(self._model(()), known)
        for terms in starts:
            model = self._model(terms)
            if all(self._is_sure(model, k) for k in range(len(terms))):
                grown, dropped = self._grown(model, known)
                if self._is_better(grown, best):
                    best, self.dropped = grown, dropped
        return best

    def _model(self, terms: Sequence[Term]) -> Model:
        return least_squares(self.rows, terms)

    def _term(self, family: int, group: int) -> Term:
        one = self.places[family]
        span = slice(one.starts[group], one.starts[group + 1])
        return Term(family, group, one.members[span], one.ends[span])

    def _slowest(self, known: int) -> Iterable[list[Term]]:
        """The hosts, or ranks, that are slower than the rest, for each of the widest gaps."""
        for number, family in enumerate(self.places[:known]):
            sizes = np.diff(family.starts)
            if family.flow == "both" and family.kind in ("host", "rank") and len(sizes) > 3:
                slow = np.bincount(family.groups, self.rows.slow[family.members]) / sizes
                order = np.argsort(-slow)
                gaps = -np.diff(slow[order])[1:-1]  # two hosts at least on each side
                for place in np.argsort(-gaps)[:GAPS]:
                    is_few = place + 2 <= min(MOST, CELLS / len(self.rows.slow))
                    if is_few and gaps[place] > LEAST_SLOWNESS / 2:
                        yield [self._term(number, int(group)) for group in order[: place + 2]]

    def _grown(self, model: Model, known: int) -> tuple[Model, tuple[Term, ...]]:
        """A model with all that explains more, and without what is not sure."""
        ahead = AHEAD if len(self.rows.slow) < HUGE else 1
        sure, left = model, ahead
        while left and len(model.terms) < MOST:
            term = self._next(model, known)
            if term is None:
                break
            model = self._model([*model.terms, term])
            is_sure = self._is_sure(model, len(model.terms) - 1)
            sure, left = (model, ahead) if is_sure else (sure, left - 1)
        dropped: list[Term] = []
        if model is not sure:
            first = self._model([*sure.terms, model.terms[len(sure.terms)]])
            if self._is_suspect(first, -1):
                dropped.append(first.terms[-1])
        sure = self._pruned(sure, dropped)
        paths = [term for term in sure.terms if self._is_path(term)]
        if sum(len(term.rows) for term in paths) > self._few_paths(paths):
            others = [term for term in sure.terms if not self._is_path(term)]
            sure = self._pruned(self._model(others), dropped)
        return sure, tuple(dropped)

    def _pruned(self, model: Model, dropped: list[Term]) -> Model:
        """Without the terms that are not sure, the least sure one first."""
        while unsure := [k for k in range(len(model.terms)) if not self._is_sure(model, k)]:
            worst = min(unsure, key=lambda k: float(model.effects[k] / model.errors[k]))
            if self._is_suspect(model, worst):
                dropped.append(model.terms[worst])
            model = self._model([term for k, term in enumerate(model.terms) if k != worst])
        return model if self._has_norm(model) else self._model(())

    def _is_suspect(self, model: Model, k: int) -> bool:
        return self.chance(model, k) < HUNT_SUSPICION and bool(model.effects[k] >= LEAST_SLOWNESS)

    def _is_sure(self, model: Model, k: int) -> bool:
        effect = float(model.effects[k])
        if effect < LEAST_SLOWNESS or self.chance(model, k) >= HUNT_FALSE_ALARM:
            return False
        residuals = self.samples(model, k)[1]
        counted = int((residuals > effect / 2).sum())
        if not self._is_path(model.terms[k]):
            return counted >= PLACE_AGREED * len(residuals)
        if len(residuals) == 1 and effect < ONCE_SLOWNESS:
            return False
        # hiccups have no normal tail: how many rows are as far off, to the other side at least
        others = model.residuals
        far = int((others < -effect / 2).sum())
        if len(others) >= MANY_PAIRS:
            far = max(far, int((others > effect / 2).sum()))
        by_chance = (far / len(others)) ** counted * self.tests[model.terms[k].family]
        return counted >= PATH_AGREED * len(residuals) and by_chance < HUNT_FALSE_ALARM

    def chance(self, model: Model, k: int) -> float:
        """That chance alone makes any place look like a term."""
        return float(model.chances[k]) * self.tests[model.terms[k].family]

    def samples(self, model: Model, k: int) -> tuple[Ints, Floats]:
        """The samples of a term, and their slowness without the level and other terms."""
        rows = model.terms[k].rows
        starts = self.pairs.starts
        places = [np.arange(starts[row], starts[row + 1]) for row in rows]
        samples = self.pairs.members[np.concatenate(places)]
        expected = self.rows.slow[rows] - model.residuals[rows] - model.effects[k]
        sizes = np.diff(starts)[rows]
        return samples, self.slow[samples] - np.repeat(expected, sizes)

    def _is_path(self, term: Term) -> bool:
        return self.places[term.family].kind in ("path", "pair")

    def _few_paths(self, paths: Sequence[Term]) -> float:
        return max(
            FEW_PATHS * len(self.rows.slow), max((len(one.rows) for one in paths), default=0)
        )

    def _has_norm(self, model: Model) -> bool:
        """Whether good rows are more than an oddity: one pair against several slow hosts may as
        well be a fast pair, unless the rate of a good one is known, or slow hosts add up.
        """
        ends = [term for term in model.terms if not self._is_path(term)]
        is_known = model.level < self.known + FAR_SLOWNESS
        is_plain = len(ends) < 2 or is_known or model.adds_up
        return is_plain or model.bare > self._rows_of_a_pair()

    def _rows_of_a_pair(self) -> int:
        sizes = [
            int(np.diff(one.starts).max())
            for one in self.places
            if one.kind in ("path", "pair") and one.flow == "both" and len(one.starts) > 1
        ]
        return min(sizes, default=1)

    def _is_better(self, one: Model, other: Model) -> bool:
        scale = min(one.scale, other.scale)

        def badness(model: Model) -> float:
            tests = [self.tests[term.family] for term in model.terms]
            return model.squares / scale + 2 * sum(math.log(n / HUNT_FALSE_ALARM) for n in tests)

        return badness(one) < badness(other)

    def _next(self, model: Model, known: int) -> Term | None:
        """The place that takes most off the squares of the residuals."""
        best, found = PLACE_GAIN, None
        taken = {(term.family, term.group) for term in model.terms}
        for number in range(known):
            gains = self.gains(number, model.residuals, model.terms)
            for group in (group for family, group in taken if family == number):
                gains[group] = 0.0
            if len(gains) and gains.max() > best * (1 + 1e-9):
                best, found = float(gains.max()), (number, int(gains.argmax()))
        return self._term(*found) if found is not None else None

    def gains(self, number: int, residuals: Floats, terms: Sequence[Term]) -> Floats:
        """What each place of a family takes off the squares, if it is slow; 0 otherwise."""
        family = self.places[number]
        weights = 1 / self.rows.variance
        rows, groups, n = family.members, family.groups, len(family.starts) - 1
        own = weights[rows] * ~other_end_covered(rows, family.ends, terms, len(weights))
        all_w, all_s = weights.sum(), float(weights @ residuals)
        in_w = np.bincount(groups, own, n)
        in_s = np.bincount(groups, own * residuals[rows], n)
        out_w = all_w - in_w
        with np.errstate(divide="ignore", invalid="ignore"):
            effects = in_s / in_w - (all_s - in_s) / out_w
            gains: Floats = effects**2 * in_w * out_w / all_w
        is_slow = (effects > 0) & (out_w > 1e-9 * all_w)
        return np.where(is_slow, gains, 0.0)

    def least(self, model: Model) -> float:
        """The least effect that every host or rank (or else any place) would be found by."""
        m, tests = len(self.rows.slow), min(self.tests, default=1)
        ends = [one for one in self.places if one.kind in ("host", "rank") and one.flow == "both"]
        shares: list[float] = []
        for some in (ends, self.places):
            sizes = [size for one in some for size in np.diff(one.starts).tolist()]
            shares = shares or [1 / size + 1 / (m - size) for size in sizes if 0 < size < m]
        if not shares or not model.degrees:
            return math.inf
        sd = math.sqrt(model.scale * float(np.median(self.rows.variance)) * max(shares))
        normal = -NORMAL.inv_cdf(HUNT_FALSE_ALARM / tests)
        sure = normal * SURE_NOISE * math.sqrt(max(shares))
        return min(deviate(normal, model.degrees) * sd, max(sure, normal * sd))


def _unexplained(model: Model, rows: Rows) -> tuple[Ints, bool]:
    """The rows that are far slower than the level without a cause, slowest first; or all that are
    far slower than the best ones, if these are far faster than the level. All repeats of a row must
    show it: of two, one may be a hiccup.
    """
    residuals = model.residuals
    noise = 0.0
    if rows.degrees or len(residuals) >= ENOUGH_PAIRS:
        noise = float(np.median(np.abs(residuals - np.median(residuals))))
    deviates = max(FAR_DEVIATES, -NORMAL.inv_cdf(HUNT_FALSE_ALARM / len(residuals)))
    limit = max(FAR_SLOWNESS, deviates * noise / NORMAL.inv_cdf(0.75))
    level = float(np.median(residuals))
    fast = residuals + rows.most - rows.slow < level - limit
    if fast.any():
        level = float(np.median(residuals[fast]))
    found: Ints = np.flatnonzero(residuals + rows.least - rows.slow > level + limit)
    return found[np.argsort(-residuals[found], kind="stable")], 0 < 2 * int(fast.sum()) < len(fast)


def _cause(search: _Search, model: Model, k: int, known: int) -> Cause:
    term, effect = model.terms[k], float(model.effects[k])
    family = search.places[term.family]
    place = family.place(term.group)
    reach = deviate(NORMAL.inv_cdf(INTERVAL), model.degrees) * float(model.errors[k])
    own = model.residuals.copy()
    own[term.rows] += effect
    samples, residuals = search.samples(model, k)
    return Cause(
        place=place,
        effect=effect,
        low=effect - reach,
        high=effect + reach,
        chance=search.chance(model, k),
        same=tuple(_same(search, model, k, own, known)),
        samples=samples,
        residuals=residuals,
    )


def _same(search: _Search, model: Model, k: int, own: Floats, known: int) -> Iterable[Place]:
    """Other places that would explain the rows of a term as well as it does."""
    term = model.terms[k]
    others = [one for number, one in enumerate(model.terms) if number != k]
    gains = [search.gains(number, own, others) for number in range(known)]
    if term.family >= known:
        return
    enough = gains[term.family][term.group] - 2 * math.log(1 / UNLIKE) * model.scale
    for number, some in enumerate(gains):
        for group in np.flatnonzero(some >= max(enough, some.max(initial=0.0) * 1e-9)):
            if (number, int(group)) != (term.family, term.group) and some[group] > 0:
                yield search.places[number].place(int(group))
