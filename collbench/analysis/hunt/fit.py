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
from statistics import NormalDist

import numpy as np

from collbench.analysis.hunt.places import (
    BETWEEN,
    RECEIVER,
    SENDER,
    Bools,
    Family,
    Floats,
    Ints,
    Place,
    split,
)

FALSE_ALARM = 1e-3  # that anything is named where nothing is slow
# of that for paths, pairs and groups: there are many, and few measurements of each
PATHS_SHARE = 0.1
SUSPICION = 0.5  # of a false alarm: what is more likely is not even measured again
LEAST = math.log(1.03)  # a slower place is called slow: well hosts differ by 1 to 2 %
FAR = math.log(1.25)  # a row that takes so much longer than good ones must be explained
UNEVEN = 0.999  # sure that pairs differ by more than their repeats do: only these count then
FLOOR = 0.005  # of the standard deviation of a row: well pairs differ by that for good
SURE_NOISE = 0.1  # no more is expected of a row where too few of them show its noise
FEW_PATHS = 0.1  # of the rows (or one path) may be slow for themselves
UNLIKE = 0.01  # another place explains as well unless chance prefers this one so rarely
FAR_DEVIATES = 4.0  # of noise: a row further off is not noise, among thousands
_AHEAD = 3  # places that are added though the last one was not sure: the next may explain more
_GAPS = 8  # widest gaps of the slowness of hosts that are tried
LEAST_GAIN = 4.0  # of a place that is tried: two standard deviations, squared
_ENOUGH = 8  # rows whose median deviation is a noise
# of the measurements of a path must exceed half of its effect: two hiccups of three are no path
AGREED = 0.8
MOST_AGREED = 0.5  # of another place, whose chance counts many pairs
_MOST = 256  # places
_CELLS = 4e6  # of rows by places: more takes seconds
_MANY = 20  # repeats, of which the median deviation tells hiccups
_CLIP = 3.0  # standard deviations of repeats, from which on one is a hiccup
_PATHS = ("path", "pair", "group")
_NORMAL = NormalDist()
_INTERVAL = 0.975  # on each side: 95 of 100 between


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

    @property
    def uneven(self) -> int:
        """How many rows nothing explains."""
        return len(self.unexplained)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Pairs and directions. slow: medians of repeats; variance: expected of each. degrees: of
    freedom that repeats have for it.
    """

    slow: Floats
    variance: Floats
    degrees: int


@dataclass(frozen=True, slots=True)
class _Term:
    """A place in the model: its family, its rows, and which of their ends it slows."""

    family: int
    group: int
    rows: Ints
    ends: Ints


@dataclass(frozen=True, slots=True)
class _Model:
    """Terms with their effects and errors. residuals: of all rows. degrees: of freedom of scale,
    the factor on the expected variance. chances: of each term, before Bonferroni's correction.
    bare: rows without a cause. adds_up: whether rows with slow places at both ends show both.
    """

    terms: tuple[_Term, ...]
    level: float
    effects: Floats
    errors: Floats
    chances: Floats
    residuals: Floats
    squares: float
    scale: float
    degrees: int
    bare: int
    adds_up: bool


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
    rows = _rows(slow, pairs)
    of_rows = [_by_rows(family, pairs) for family in families]
    tested = tested or sum(len(family.starts) - 1 for family in families)
    parted = [family for one in of_rows for family in split(one, rows.slow)]
    places = [*of_rows, *parted]
    search = _Search(slow, pairs, rows, places, _tests(places, tested), known)
    best = search.run(len(of_rows))
    causes = [_cause(search, best, k, len(families)) for k in range(len(best.terms))]
    causes.sort(key=lambda one: -one.effect * math.sqrt(len(one.samples)))
    dropped = search.model(search.dropped) if search.dropped else None
    suspects = (
        [_cause(search, dropped, k, len(families)) for k in range(len(dropped.terms))]
        if dropped
        else []
    )
    first = pairs.members[pairs.starts[:-1]]
    unexplained, is_by_best = _unexplained(best, rows)
    return Fit(
        causes=tuple(causes),
        suspects=tuple(suspects),
        level=best.level,
        unexplained=tuple(int(first[row]) for row in unexplained),
        is_by_best=is_by_best,
        least=search.least(best),
    )


def _rows(slow: Floats, pairs: Family) -> _Rows:
    values, sizes = slow[pairs.members], np.diff(pairs.starts)
    in_order = values[np.lexsort((values, pairs.groups))]
    first = pairs.starts[:-1]
    medians = (in_order[first + (sizes - 1) // 2] + in_order[first + sizes // 2]) / 2
    steps = np.diff(values)[np.diff(pairs.groups) == 0] / math.sqrt(2)  # between repeats
    noise = _spread(steps)
    # a median of normal values varies by pi / 2 times as much as their mean
    shares = np.where(sizes < 3, 1.0, math.pi / 2) / sizes
    return _Rows(medians, np.maximum(FLOOR**2, noise**2 * shares), len(steps))


def _tests(places: Sequence[Family], tested: int) -> list[float]:
    """How many tests each place of a family counts for: together, those of all places and of what
    is judged elsewhere.
    """
    is_path = [one.kind in _PATHS for one in places]
    numbers = [len(one.starts) - 1 for one in places]
    count = {kind: sum(n for n, own in zip(numbers, is_path) if own == kind) for kind in is_path}
    share = {True: PATHS_SHARE, False: 1 - PATHS_SHARE} if len(count) > 1 else dict.fromkeys(count, 1)
    elsewhere = max(1.0, tested / max(sum(numbers), 1))
    return [elsewhere * max(count[kind], 1) / share[kind] for kind in is_path]


def _spread(values: Floats) -> float:
    """The standard deviation of values about 0, with hiccups clipped."""
    if not len(values):
        return 0.0
    typical = float(np.median(np.abs(values))) / _NORMAL.inv_cdf(0.75)
    bound = _CLIP * typical if typical and len(values) >= _MANY else math.inf
    return math.sqrt(float(np.mean(np.minimum(np.abs(values), bound) ** 2)))


def _by_rows(family: Family, pairs: Family) -> Family:
    """A family of samples as one of rows, by the first sample of each."""
    row = np.full(len(pairs.members), -1, np.int64)
    row[pairs.members[pairs.starts[:-1]]] = np.arange(len(pairs.starts) - 1)
    rows = row[family.members]
    kept = rows >= 0
    groups = family.groups[kept]
    starts = np.searchsorted(groups, np.arange(len(family.starts)))
    return Family(
        family.kind, family.flow, rows[kept], groups, starts, family.key_of, family.ends[kept]
    )


@dataclass(slots=True)
class _Search:
    """Models of the rows, by the places of some families. dropped: terms that were not sure."""

    slow: Floats
    pairs: Family
    rows: _Rows
    places: Sequence[Family]
    tests: Sequence[float]
    known: float
    dropped: tuple[_Term, ...] = ()

    def run(self, known: int) -> _Model:
        """The best model. known: the families that are tried everywhere; each other one is a start
        of its own.
        """
        starts = [[self._term(number, 0)] for number in range(known, len(self.places))]
        starts += list(self._slowest(known))
        best, self.dropped = self._grown(self.model(()), known)
        for terms in starts:
            model = self.model(terms)
            if all(self._is_sure(model, k) for k in range(len(terms))):
                grown, dropped = self._grown(model, known)
                if self._is_better(grown, best):
                    best, self.dropped = grown, dropped
        return best

    def _term(self, family: int, group: int) -> _Term:
        one = self.places[family]
        span = slice(one.starts[group], one.starts[group + 1])
        return _Term(family, group, one.members[span], one.ends[span])

    def _slowest(self, known: int) -> Iterable[list[_Term]]:
        """The hosts, or ranks, that are slower than the rest, for each of the widest gaps."""
        for number, family in enumerate(self.places[:known]):
            sizes = np.diff(family.starts)
            if family.flow == "both" and family.kind in ("host", "rank") and len(sizes) > 3:
                slow = np.bincount(family.groups, self.rows.slow[family.members]) / sizes
                # of slow hosts that are half of all, the partners are slow in half of their pairs
                order = np.argsort(-slow)
                gaps = -np.diff(slow[order])[1:-1]  # two hosts at least on each side
                for place in np.argsort(-gaps)[:_GAPS]:
                    is_few = place + 2 <= min(_MOST, _CELLS / len(self.rows.slow))
                    if is_few and gaps[place] > LEAST / 2:
                        yield [self._term(number, int(group)) for group in order[: place + 2]]

    def _grown(self, model: _Model, known: int) -> tuple[_Model, tuple[_Term, ...]]:
        """A model with all that explains more, and without what is not sure."""
        sure, left = model, _AHEAD
        while left and len(model.terms) < _MOST:
            term = self._next(model, known)
            if term is None:
                break
            model = self.model([*model.terms, term])
            is_sure = bool(len(model.chances)) and self._is_sure(model, len(model.terms) - 1)
            sure, left = (model, _AHEAD) if is_sure else (sure, left - 1)
        dropped: list[_Term] = []
        if model is not sure:
            first = self.model([*sure.terms, model.terms[len(sure.terms)]])
            if self.chance(first, -1) < SUSPICION and first.effects[-1] >= LEAST:
                dropped.append(first.terms[-1])
        sure = self._pruned(sure, dropped)
        paths = [term for term in sure.terms if self._is_path(term)]
        if sum(len(term.rows) for term in paths) > self._few_paths(paths):
            others = [term for term in sure.terms if not self._is_path(term)]
            sure = self._pruned(self.model(others), dropped)
        return sure, tuple(dropped)

    def _pruned(self, model: _Model, dropped: list[_Term]) -> _Model:
        """Without the terms that are not sure, the least sure one first."""
        while model.terms:
            worst = max(range(len(model.terms)), key=lambda k: (-self._surety(model, k)))
            if self._is_sure(model, worst):
                break
            if self.chance(model, worst) < SUSPICION and model.effects[worst] >= LEAST:
                dropped.append(model.terms[worst])
            model = self.model([term for k, term in enumerate(model.terms) if k != worst])
        return model if self._has_norm(model) else self.model(())

    @staticmethod
    def _surety(model: _Model, k: int) -> float:
        return float(model.effects[k] / model.errors[k]) if model.errors[k] else math.inf

    def _is_sure(self, model: _Model, k: int) -> bool:
        if model.effects[k] < LEAST or self.chance(model, k) >= FALSE_ALARM:
            return False
        residuals = self.samples(model, k)[1]
        agreed = AGREED if self._is_path(model.terms[k]) else MOST_AGREED
        return bool((residuals > model.effects[k] / 2).mean() >= agreed)

    def chance(self, model: _Model, k: int) -> float:
        """That chance alone makes any place look like a term."""
        return float(model.chances[k]) * self.tests[model.terms[k].family]

    def samples(self, model: _Model, k: int) -> tuple[Ints, Floats]:
        """The samples of a term, and their slowness without the level and other terms."""
        rows = model.terms[k].rows
        starts = self.pairs.starts
        places = [np.arange(starts[row], starts[row + 1]) for row in rows]
        samples = self.pairs.members[np.concatenate(places)]
        expected = self.rows.slow[rows] - model.residuals[rows] - model.effects[k]
        sizes = np.diff(starts)[rows]
        return samples, self.slow[samples] - np.repeat(expected, sizes)

    def _is_path(self, term: _Term) -> bool:
        return self.places[term.family].kind in ("path", "pair")

    def _few_paths(self, paths: Sequence[_Term]) -> float:
        return max(FEW_PATHS * len(self.rows.slow), max((len(one.rows) for one in paths), default=0))

    def _has_norm(self, model: _Model) -> bool:
        """Whether good rows are more than an oddity: one pair against several slow hosts may as
        well be a fast pair, unless the rate of a good one is known, or slow hosts add up.
        """
        ends = [term for term in model.terms if not self._is_path(term)]
        is_known = model.level < self.known + FAR
        is_plain = len(ends) < 2 or is_known or model.adds_up
        return is_plain or model.bare > self._rows_of_a_pair()

    def _rows_of_a_pair(self) -> int:
        sizes = [
            int(np.diff(one.starts).max())
            for one in self.places
            if one.kind in ("path", "pair") and one.flow == "both" and len(one.starts) > 1
        ]
        return min(sizes, default=1)

    def _is_better(self, one: _Model, other: _Model) -> bool:
        scale = min(one.scale, other.scale)

        def badness(model: _Model) -> float:
            tests = [self.tests[term.family] for term in model.terms]
            return model.squares / scale + 2 * sum(math.log(n / FALSE_ALARM) for n in tests)

        return badness(one) < badness(other)

    def _next(self, model: _Model, known: int) -> _Term | None:
        """The place that takes most off the squares of the residuals."""
        best, found = LEAST_GAIN, None
        taken = {(term.family, term.group) for term in model.terms}
        for number in range(known):
            gains = self.gains(number, model.residuals, model.terms)
            for group in (group for family, group in taken if family == number):
                gains[group] = 0.0
            if len(gains) and gains.max() > best * (1 + 1e-9):
                best, found = float(gains.max()), (number, int(gains.argmax()))
        return self._term(*found) if found is not None else None

    def gains(self, number: int, residuals: Floats, terms: Sequence[_Term]) -> Floats:
        """What each place of a family takes off the squares, if it is slow; 0 otherwise."""
        family = self.places[number]
        weights = 1 / self.rows.variance
        rows, groups, n = family.members, family.groups, len(family.starts) - 1
        own = weights[rows] * ~_other_end_covered(rows, family.ends, terms, len(weights))
        all_w, all_s = weights.sum(), float(weights @ residuals)
        in_w = np.bincount(groups, own, n)
        in_s = np.bincount(groups, own * residuals[rows], n)
        out_w = all_w - in_w
        with np.errstate(divide="ignore", invalid="ignore"):
            effects = in_s / in_w - (all_s - in_s) / out_w
            gains: Floats = effects**2 * in_w * out_w / all_w
        is_slow = (effects > 0) & (out_w > 1e-9 * all_w)
        return np.where(is_slow, gains, 0.0)

    def model(self, terms: Sequence[_Term]) -> _Model:
        """The least squares of some terms; a row with slow places at both ends judges neither."""
        slow, variance = self.rows.slow, self.rows.variance
        m, k = len(slow), len(terms)
        design = np.zeros((m, k + 1))
        design[:, k] = 1
        for number, term in enumerate(terms):
            design[term.rows, number] = 1
        ends = _covered(terms, m)
        is_free = ~(ends[0] & ends[1])
        weighted = design[is_free] / variance[is_free, None]
        inverse = np.linalg.pinv(weighted.T @ design[is_free], hermitian=True)
        values = inverse @ (weighted.T @ slow[is_free])
        residuals, adds_up = slow - design @ values, False
        if not is_free.all():
            residuals[~is_free], adds_up = _between(slow, values, terms, ~is_free)
        squares = float((residuals**2 / variance).sum())
        left = int(is_free.sum()) - k - 1
        scale, degrees = self._scale(squares, left)
        sds = np.sqrt(scale * np.diag(inverse)[:k])
        own = design[is_free, :k].sum(axis=0)
        # nothing but its overlap with others tells of a term without rows of its own
        sds = np.where(own > 0, sds, math.inf)
        sure_sds = sds * max(1.0, SURE_NOISE / math.sqrt(scale * float(variance.min())))
        chances = [
            min(_tail(effect / sd, degrees), _NORMAL.cdf(-effect / sure))
            for effect, sd, sure in zip(values[:k], sds, sure_sds, strict=True)
        ]
        return _Model(
            terms=tuple(terms),
            level=float(values[k]),
            effects=values[:k],
            errors=sds,
            chances=np.array(chances),
            residuals=residuals,
            squares=squares,
            scale=scale,
            degrees=degrees,
            bare=int((design[:, :k].sum(axis=1) == 0).sum()),
            adds_up=adds_up,
        )

    def _scale(self, squares: float, left: int) -> tuple[float, int]:
        """How many times as much as expected the rows vary, and the degrees of freedom of that: the
        residuals alone, where they vary by more than repeats do, or without repeats; else of both.
        """
        of_repeats = self.rows.degrees
        least = FLOOR**2 / float(self.rows.variance.min())
        if left < 1:
            return 1.0, of_repeats
        scale = squares / left
        if not of_repeats or _deviate_of_ratio(scale, left, of_repeats) > _NORMAL.inv_cdf(UNEVEN):
            return max(least, scale), left
        pooled = (squares + of_repeats) / (left + of_repeats)
        return max(least, pooled), left + of_repeats

    def least(self, model: _Model) -> float:
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
        deviate = -_NORMAL.inv_cdf(FALSE_ALARM / tests)
        sure = deviate * SURE_NOISE * math.sqrt(max(shares))
        by_test = _deviate(deviate, model.degrees) * sd
        return min(by_test, max(sure, deviate * sd))


def _covered(terms: Sequence[_Term], m: int) -> tuple[Bools, Bools]:
    """Whether a place slows the sender's end of each row, and the receiver's end."""
    ends = np.zeros(m, bool), np.zeros(m, bool)
    for term in terms:
        for end in (SENDER, RECEIVER):
            ends[end][term.rows[term.ends == end]] = True
    return ends


def _other_end_covered(
    rows: Ints, ends: Ints, terms: Sequence[_Term], m: int
) -> Bools:
    """Whether the end that a place does not slow is slowed by another place already."""
    sent, received = _covered(terms, m)
    return ((ends == SENDER) & received[rows]) | ((ends == RECEIVER) & sent[rows])


def _between(
    slow: Floats, values: Floats, terms: Sequence[_Term], chosen: Bools
) -> tuple[Floats, bool]:
    """The residuals of rows with slow places at both ends: from the slower one, or from both; and
    whether it is rather both.
    """
    parts = np.zeros((3, len(slow)))  # by the sender, by the receiver, and by the path
    for term, effect in zip(terms, values[:-1], strict=True):
        np.add.at(parts, (term.ends, term.rows), effect)
    over = (slow - values[-1] - parts[BETWEEN])[chosen]
    sent, received = parts[SENDER][chosen], parts[RECEIVER][chosen]
    most, both = np.maximum(sent, received), sent + received
    adds_up = bool(np.median((over - most) - (both - over)) > 0)
    return over - np.clip(over, most, both), adds_up


def _deviate_of_ratio(ratio: float, above: int, below: int) -> float:
    """The normal deviate as unlikely as a ratio of two variances, by their degrees of freedom
    (Paulson 1942).

    >>> round(_deviate_of_ratio(9.15, 4, 6), 1)  # exceeded by 1 of 100
    2.3
    """
    a, b, root = 2 / (9 * above), 2 / (9 * below), ratio ** (1 / 3)
    return ((1 - b) * root - (1 - a)) / math.sqrt(b * root * root + a)


def _tail(t: float, degrees: int) -> float:
    """The chance of a larger Student's t (Wallace 1959; from 2 degrees on within 0.1 deviates, and
    never less by much).

    >>> round(_tail(8.61, 4), 4), round(_tail(3.29, 10000), 4), _tail(100.0, 0)
    (0.0006, 0.0005, 1.0)
    """
    if degrees < 1 or t <= 0:
        return 1.0
    if math.isinf(t):
        return 0.0
    shrink = (8 * degrees + 1) / (8 * degrees + 3)
    return _NORMAL.cdf(-shrink * math.sqrt(degrees * math.log1p(t * t / degrees)))


def _deviate(normal: float, degrees: int) -> float:
    """The Student's t as unlikely as a normal deviate: the inverse of _tail().

    >>> round(_deviate(1.96, 10), 1), _deviate(1.96, 0)
    (2.2, inf)
    """
    if degrees < 1:
        return math.inf
    grown = normal * (8 * degrees + 3) / (8 * degrees + 1)
    return math.sqrt(degrees * math.expm1(min(grown * grown / degrees, 500.0)))


def _unexplained(model: _Model, rows: _Rows) -> tuple[Ints, bool]:
    """The rows that are far slower than the level without a cause, slowest first; or all that are
    far slower than the best ones, if these are far faster than the level.
    """
    residuals = model.residuals
    noise = 0.0
    if rows.degrees or len(residuals) >= _ENOUGH:
        noise = float(np.median(np.abs(residuals - np.median(residuals))))
    limit = max(FAR, FAR_DEVIATES * noise / _NORMAL.inv_cdf(0.75))
    level = float(np.median(residuals))
    fast = residuals < level - limit
    if fast.any():
        level = float(np.median(residuals[fast]))
    found: Ints = np.flatnonzero(residuals > level + limit)
    return found[np.argsort(-residuals[found], kind="stable")], bool(fast.any())


def _cause(
    search: _Search,
    model: _Model,
    k: int,
    known: int,
) -> Cause:
    term, effect = model.terms[k], float(model.effects[k])
    family = search.places[term.family]
    place = family.place(term.group)
    reach = _deviate(_NORMAL.inv_cdf(_INTERVAL), model.degrees) * float(model.errors[k])
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


def _same(
    search: _Search, model: _Model, k: int, own: Floats, known: int
) -> Iterable[Place]:
    """Other places that would explain the rows of a term as well as it does."""
    term = model.terms[k]
    others = [one for number, one in enumerate(model.terms) if number != k]
    gains = [search.gains(number, own, others) for number in range(known)]
    if term.family >= known:
        return
    enough = gains[term.family][term.group] - 2 * math.log(1 / UNLIKE) * model.scale
    for number, some in enumerate(gains):
        for group in np.flatnonzero(some >= max(enough, some.max(initial=0.0) * 1e-9)):
            if (number, group) != (term.family, term.group) and some[group] > 0:
                yield search.places[number].place(int(group))
