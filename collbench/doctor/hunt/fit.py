"""The smallest set of causes that explains the slow pairs of one kind of samples.

The model, in the logarithm of time: a pair takes the level of the good pairs, and more by what
slows its sender's end, its receiver's end, and its path. Two slow ends may add up, or the slower
one alone may count: a pair of both judges neither, and anything between the two explains it. The
level is that of the pairs without a cause, however few they are, and not a median: a slow majority
does not become the norm.

Places are added one by one, the one first that takes most off the squares of the residuals; from
nothing, and from the slowest hosts, by where their mean slowness has its widest gaps. Then those go
that a test does not confirm, and of the sets that are left the best is taken. The test is
Student's: the variance is what repeats and the residuals of the rows show together, or these alone
where they show more, with a floor; where both are few, an effect also stands that noise of 10 %
could not make. The chance is multiplied by the number of places tested (Bonferroni).

Each path that is slow for itself is one cause more. Few may be: were they many, what is slow has no
pattern that these places know, and none of them is named.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

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
    MAD_TO_SD,
    MANY_PAIRS,
    ONCE_SLOWNESS,
    PAIR_FLOOR,
    PATH_AGREED,
    PLACE_AGREED,
    PLACE_GAIN,
    SINGLE_Z,
    SURE_NOISE,
    SURE_Z,
    UNEVEN,
    UNLIKE,
)
from collbench.core.verdict import middle_of, t_of_z, z_of_f, z_of_t
from collbench.doctor.hunt.places import (
    BETWEEN,
    HUGE,
    RECEIVER,
    SENDER,
    Bools,
    Floats,
    Ints,
    Place,
    Places,
    Rows,
)

# They bound the work of a search.
_AHEAD = 3  # places that are added though the last one was not sure: the next may explain more
_GAPS = 8  # widest gaps of the slowness of hosts that are tried
_MOST = 256  # places
_CELLS = 4e6  # of rows by places: more takes seconds
_OWN = 1 - 1e-6  # of an effect that rows tell from others: 1 but for rounding, of two alike a half
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A slow place. effect: the logarithm of its factor, with its interval of 95 %. chance: that
    chance alone names a place like it. same: places that explain its rows as well. rows: that it
    slows; residuals: their slowness without the level and other causes. slow: how many of its
    samples, which are `of`, exceed half of the effect.
    """

    place: Place
    effect: float
    low: float
    high: float
    chance: float
    same: tuple[Place, ...]
    rows: Ints
    residuals: Floats
    slow: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Causes, those that explain most first; a suspect, which only more samples can clear.

    level: of the slowness of good pairs. unexplained: the rows (pairs and directions) that are far
    slower than good ones without a cause, slowest first; is_by_best: than the best ones, which are
    few. least: the effect that a host must have to be found.
    """

    rows: Rows
    causes: tuple[Cause, ...]
    suspect: Cause | None
    level: float
    unexplained: Ints
    is_by_best: bool
    least: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """Terms, which are numbers of places, with their effects and errors. deviates: normal ones, as
    unlikely as each effect. residuals: of all rows. degrees: of freedom of scale, the factor on the
    expected variance. is_bare: the rows without a cause. adds_up: whether rows with slow places at
    both ends show both.
    """

    terms: tuple[int, ...]
    level: float
    effects: Floats
    errors: Floats
    deviates: Floats
    residuals: Floats
    squares: float
    scale: float
    degrees: int
    is_bare: Bools
    adds_up: bool


def fit(rows: Rows, places: Places, tested: int = 0, known: float = -math.inf) -> Fit:
    """The slow places. tested: the places tested in all, where other samples are judged too. known:
    the slowness of a good pair, if it is known.

    A step costs O(families x rows), and O(causes^2 x rows).
    """
    search = _Search(rows, places, max(tested, len(places)), known)
    best = search.best()
    causes = [search.cause(best, k) for k in range(len(best.terms))]
    unexplained, is_by_best = _unexplained(best, rows)
    return Fit(
        rows=rows,
        causes=tuple(sorted(causes, key=lambda one: -one.effect * math.sqrt(one.of))),
        suspect=search.suspect(best),
        level=best.level,
        unexplained=unexplained,
        is_by_best=is_by_best,
        least=search.least(best),
    )


class _Search:
    """Models of rows by places. tests: how many each place counts for: together, those of all
    places and of what is judged elsewhere. wholes: the families of hosts and ranks, all their rows.
    """

    def __init__(self, rows: Rows, places: Places, tested: int, known: float) -> None:
        self.rows, self.places, self.known = rows, places, known
        self.weights = 1 / rows.variance
        whole = ("host", "both"), ("rank", "both")
        self.wholes = [k for k, family in enumerate(places.families) if family in whole]
        self.is_path = places.are("path", "pair")
        is_many = places.are("path", "pair", "group")
        paths = int(is_many.sum())
        of_path, of_end = paths / HUNT_PATHS_SHARE, (len(places) - paths) / (1 - HUNT_PATHS_SHARE)
        self.tests = np.where(is_many, of_path, of_end) * tested / len(places)

    def best(self) -> _Model:
        """The best model of those that grow from nothing, or from the slowest hosts."""
        best = self._grown(self._model(()))
        for terms in self._slowest():
            model = self._model(terms)
            if all(self._is_sure(model, k) for k in range(len(terms))):
                grown = self._grown(model)
                best = grown if self._is_better(grown, best) else best
        return best

    def suspect(self, model: _Model) -> Cause | None:
        """What explains most of the rest, unless chance made it so."""
        term = self._next(model)
        if term is None:
            return None
        cause = self.cause(self._model((*model.terms, term)), -1)
        is_suspect = cause.chance < HUNT_SUSPICION and cause.effect >= LEAST_SLOWNESS
        return cause if is_suspect else None

    def cause(self, model: _Model, k: int) -> Cause:
        """A term of a model with its evidence."""
        term, effect = model.terms[k], float(model.effects[k])
        reach = _t_of_z(SINGLE_Z, model.degrees) * float(model.errors[k])
        if not model.degrees and model.deviates[k] > 0:  # what noise of 10 % leaves
            reach = SINGLE_Z * effect / float(model.deviates[k])
        rows, samples = self.places.rows_of(term), self._samples(model, k)
        return Cause(
            place=self.places.place(term),
            effect=effect,
            low=effect - reach,
            high=effect + reach,
            chance=self._chance(model, k),
            same=tuple(map(self.places.place, self._same(model, k))),
            rows=rows,
            residuals=model.residuals[rows] + effect,
            slow=int((samples > effect / 2).sum()),
            of=len(samples),
        )

    def least(self, model: _Model) -> float:
        """The least effect that every host or rank (or else any place) would be found by. One that
        is in all rows makes the norm slow, which only a known rate shows.
        """
        sizes, by_rate = np.diff(self.places.starts), 0.0
        is_part = sizes < len(self.rows)
        is_first = self.places.family == self.wholes[0]
        if is_first.sum() > 1 and not is_part[is_first].all():
            by_rate = FAR_SLOWNESS if self.known > -math.inf else math.inf
        is_end = is_part & np.isin(self.places.family, self.wholes)
        sizes = sizes[is_end if is_end.any() else is_part]
        if not len(sizes) or not model.degrees:
            return math.inf if len(sizes) or not by_rate else by_rate
        share = math.sqrt((1 / sizes + 1 / (len(self.rows) - sizes)).max())
        sd = share * math.sqrt(model.scale * middle_of(self.rows.variance))
        z = -_NORMAL.inv_cdf(HUNT_FALSE_ALARM / float(self.tests.min()))
        by_rows = min(_t_of_z(z, model.degrees) * sd, z * max(SURE_NOISE * share, sd))
        return max(by_rate, by_rows, LEAST_SLOWNESS + SURE_Z * sd)

    def _slowest(self) -> Iterator[Sequence[int]]:
        """The slowest hosts, or ranks, in front of the widest gaps between their means."""
        places = self.places
        means = np.bincount(places.owners, self.rows.slow[places.rows]) / np.diff(places.starts)
        for family in self.wholes:
            numbers = np.flatnonzero(places.family == family)
            in_order = numbers[np.argsort(-means[numbers])]
            gaps = -np.diff(means[in_order])[1:-1]  # two hosts at least on each side
            for gap in np.argsort(-gaps)[:_GAPS]:
                is_little = gap + 2 <= min(_MOST, _CELLS / len(self.rows))
                if is_little and gaps[gap] > LEAST_SLOWNESS / 2:
                    yield in_order[: gap + 2].tolist()

    def _grown(self, model: _Model) -> _Model:
        """A model with all that explains more, and without what is not sure."""
        ahead = _AHEAD if len(self.rows) < HUGE else 1
        sure, left = model, ahead
        while left and len(model.terms) < _MOST and (term := self._next(model)) is not None:
            model = self._model((*model.terms, term))
            sure, left = (model, ahead) if self._is_sure(model, -1) else (sure, left - 1)
        sure = self._pruned(sure)
        sizes = [len(self.places.rows_of(term)) for term in sure.terms if self.is_path[term]]
        if sum(sizes) > max(FEW_PATHS * len(self.rows), *sizes, 0):
            others = [term for term in sure.terms if not self.is_path[term]]
            sure = self._pruned(self._model(others))
        return sure if self._has_norm(sure) else self._model(())

    def _pruned(self, model: _Model) -> _Model:
        """Without the terms that are not sure, the least sure one first."""
        while unsure := [k for k in range(len(model.terms)) if not self._is_sure(model, k)]:
            worst = min(unsure, key=lambda k: float(model.effects[k] / model.errors[k]))
            model = self._model(model.terms[:worst] + model.terms[worst + 1 :])
        return model

    def _model(self, terms: Sequence[int]) -> _Model:
        """The least squares of some terms. A row with slow places at both ends judges neither,
        unless such rows show that both count.
        """
        rows, k = self.rows, len(terms)
        effect_of = np.zeros((3, len(rows)))  # by the sender, by the receiver, and by the path
        design = np.zeros((len(rows), k + 1))
        design[:, k] = 1
        for number, term in enumerate(terms):
            design[self.places.rows_of(term), number] = 1
        slowed = self._slowed(terms)
        is_free = ~(slowed[SENDER] & slowed[RECEIVER])
        values, variances = self._solved(design, is_free)
        residuals, adds_up = rows.slow - design @ values, False
        if not is_free.all():
            for term, effect in zip(terms, values[:k], strict=True):
                effect_of[self.places.ends_of(term), self.places.rows_of(term)] += effect
            beyond_both = residuals[~is_free]
            beyond_slower = beyond_both + effect_of[:BETWEEN, ~is_free].min(axis=0)
            adds_up = middle_of(beyond_both + beyond_slower) > 0
            residuals[~is_free] = np.minimum(beyond_slower, 0) + np.maximum(beyond_both, 0)
        # about half of the rows with two slow ends lie beyond what the two explain
        left = int(is_free.sum()) - k - 1 + int((~is_free).sum()) // 2
        if adds_up:
            is_free[:], left = True, len(rows) - k - 1
            values, variances = self._solved(design, is_free)
            residuals = rows.slow - design @ values
        squares = float((residuals**2 * self.weights).sum())
        scale, degrees = self._scale(squares, left)
        errors = np.sqrt(scale * variances[:k])
        noise = math.sqrt(scale * float(rows.variance.min()))
        t, freedom = np.maximum(values[:k] / errors, 0), np.array(float(max(degrees, 1)))
        by_test = z_of_t(t, freedom) if degrees else np.zeros(k)
        return _Model(
            terms=tuple(terms),
            level=float(values[k]),
            effects=values[:k],
            errors=errors,
            deviates=np.maximum(by_test, values[:k] / errors / max(1.0, SURE_NOISE / noise)),
            residuals=residuals,
            squares=squares,
            scale=scale,
            degrees=degrees,
            is_bare=design.sum(axis=1) == 1,
            adds_up=adds_up,
        )

    def _solved(self, design: Floats, chosen: Bools) -> tuple[Floats, Floats]:
        """The effects and the level, and their variances: infinite where the rows do not tell terms
        apart, among which least squares share an effect that is of none of them.
        """
        weighted = design[chosen] * self.weights[chosen, None]
        normal = weighted.T @ design[chosen]
        inverse = np.linalg.pinv(normal, hermitian=True).astype(np.float64)
        is_own = np.diag(inverse @ normal) > _OWN
        variances = np.where(is_own, np.diag(inverse), math.inf)
        return inverse @ (weighted.T @ self.rows.slow[chosen]), variances

    def _scale(self, squares: float, left: int) -> tuple[float, int]:
        """How many times as much as expected the rows vary, and the degrees of freedom of that: the
        residuals alone, where they vary by more than repeats do, or without repeats; else of both.
        """
        repeats = self.rows.degrees
        if left < 1:
            return 1.0, repeats
        scale, degrees = squares / left, left
        if repeats and z_of_f(scale, left, repeats) <= _NORMAL.inv_cdf(UNEVEN):
            scale, degrees = (squares + repeats) / (left + repeats), left + repeats
        return max(PAIR_FLOOR**2 / float(self.rows.variance.min()), scale), degrees

    def _slowed(self, terms: Sequence[int]) -> Bools:
        """Whether a term slows the sender's end, the receiver's, or the path, of each row."""
        slowed = np.zeros((3, len(self.rows)), bool)
        for term in terms:
            slowed[self.places.ends_of(term), self.places.rows_of(term)] = True
        return slowed

    def _is_sure(self, model: _Model, k: int) -> bool:
        term, effect = model.terms[k], float(model.effects[k])
        if effect < LEAST_SLOWNESS or self._chance(model, k) >= HUNT_FALSE_ALARM:
            return False
        # a row with two slow ends agrees with any effect; one row that is left may be a hiccup
        judged = self._judged(model, k)
        sizes = np.diff(self.rows.starts)[self.places.rows_of(term)]
        samples = self._samples(model, k)[np.repeat(judged, sizes)]
        agreed = int((samples > effect / 2).sum())
        if not self.is_path[term] and not judged.sum() == 1 < len(judged):
            return agreed >= PLACE_AGREED * len(samples)
        if len(samples) == 1 and effect < ONCE_SLOWNESS:
            return False
        # hiccups have no normal tail: how many rows are as far off, to the other side at least
        others = model.residuals
        far = int((others < -effect / 2).sum())
        if len(others) >= MANY_PAIRS:
            far = max(far, int((others > effect / 2).sum()))
        by_chance = (far / len(others)) ** agreed * self.tests[term]
        return agreed >= PATH_AGREED * len(samples) and bool(by_chance < HUNT_FALSE_ALARM)

    def _chance(self, model: _Model, k: int) -> float:
        """That chance alone makes any place look like a term."""
        return _NORMAL.cdf(-float(model.deviates[k])) * float(self.tests[model.terms[k]])

    def _judged(self, model: _Model, k: int) -> Bools:
        """Which rows of a term judge it: not those with two slow ends, unless these add up."""
        rows, ends = self.places.rows_of(model.terms[k]), self.places.ends_of(model.terms[k])
        slowed = self._slowed(model.terms)
        is_both = slowed[SENDER][rows] & slowed[RECEIVER][rows]
        judged: Bools = ~is_both | (ends == BETWEEN) | model.adds_up
        return judged

    def _samples(self, model: _Model, k: int) -> Floats:
        """The slowness of the samples of a term, without the level and other terms."""
        rows, starts = self.places.rows_of(model.terms[k]), self.rows.starts
        expected = self.rows.slow[rows] - model.residuals[rows] - model.effects[k]
        samples = [self.rows.values[starts[row] : starts[row + 1]] for row in rows]
        beyond: Floats = np.concatenate(samples) - np.repeat(expected, np.diff(starts)[rows])
        return beyond

    def _has_norm(self, model: _Model) -> bool:
        """Whether good rows are more than an oddity: one pair against several slow hosts may as
        well be a fast pair, unless the rate of a good one is known, or slow hosts add up.
        """
        ends = sum(not self.is_path[term] for term in model.terms)
        if ends < 2 or model.level < self.known + FAR_SLOWNESS or model.adds_up:
            return True
        return len(set(self.rows.pairs(np.flatnonzero(model.is_bare)))) > 1

    def _is_better(self, one: _Model, other: _Model) -> bool:
        scale = min(one.scale, other.scale)
        badness, of_other = (
            model.squares / scale
            + 2 * float(np.log(self.tests[list(model.terms)] / HUNT_FALSE_ALARM).sum())
            for model in (one, other)
        )
        return badness < of_other

    def _next(self, model: _Model) -> int | None:
        """The place that takes most off the squares of the residuals, if any takes enough."""
        gains = self._gains(model.residuals, model.terms)
        gains[list(model.terms)] = 0.0
        best = float(gains.max(initial=0.0))
        return int(np.argmax(gains >= best * (1 - 1e-9))) if best > PLACE_GAIN else None

    def _gains(self, residuals: Floats, terms: Sequence[int]) -> Floats:
        """What each place takes off the squares, if it is slow; 0 otherwise. A row of which the
        other end is slow already does not count.
        """
        rows, ends, n = self.places.rows, self.places.ends, len(self.places)
        slowed = self._slowed(terms)
        other_is_slow = np.where(ends == SENDER, slowed[RECEIVER][rows], slowed[SENDER][rows])
        own = self.weights[rows] * ~(other_is_slow & (ends < BETWEEN))
        all_w, all_s = self.weights.sum(), float(self.weights @ residuals)
        in_w = np.bincount(self.places.owners, own, n)
        in_s = np.bincount(self.places.owners, own * residuals[rows], n)
        out_w = all_w - in_w
        with np.errstate(divide="ignore", invalid="ignore"):
            effects = in_s / in_w - (all_s - in_s) / out_w
            gains: Floats = effects**2 * in_w * out_w / all_w
        return np.where((effects > 0) & (out_w > 1e-9 * all_w), gains, 0.0)

    def _same(self, model: _Model, k: int) -> Ints:
        """Other places that would explain the rows of a term as well as it does."""
        term, residuals = model.terms[k], model.residuals.copy()
        is_group = self.places.are("group")
        if is_group[term]:
            return np.arange(0)
        residuals[self.places.rows_of(term)] += model.effects[k]
        gains = self._gains(residuals, [one for one in model.terms if one != term])
        enough = gains[term] - 2 * math.log(1 / UNLIKE) * model.scale
        is_same = (gains >= max(enough, gains.max() * 1e-9)) & (gains > 0) & ~is_group
        is_same[term] = False
        return np.flatnonzero(is_same)


def _t_of_z(z: float, degrees: int) -> float:
    return float(t_of_z(z, np.array(float(degrees)))) if degrees else math.inf


def _unexplained(model: _Model, rows: Rows) -> tuple[Ints, bool]:
    """The rows that are far slower than the level without a cause, slowest first; or all that are
    far slower than the best ones, if these are far faster than the level. All repeats of a row must
    show it: of two, one may be a hiccup.
    """
    residuals, noise = model.residuals, 0.0
    level = middle_of(residuals)
    if rows.degrees or len(residuals) >= ENOUGH_PAIRS:
        noise = MAD_TO_SD * middle_of(np.abs(residuals - level))
    deviates = max(FAR_DEVIATES, -_NORMAL.inv_cdf(HUNT_FALSE_ALARM / len(residuals)))
    limit = max(FAR_SLOWNESS, deviates * noise)
    off = residuals - rows.slow
    fast = off + rows.values[rows.starts[1:] - 1] < level - limit
    if fast.any():
        level = middle_of(residuals[fast])
    found: Ints = np.flatnonzero(off + rows.values[rows.starts[:-1]] > level + limit)
    return found[np.argsort(-residuals[found], kind="stable")], 0 < 2 * int(fast.sum()) < len(fast)
