"""Finds the best configuration of one collective and size, and proves what it gains.

1. Heats of successive halving: first all ways (algorithm, protocol, transport) that the price
   proposes, then what differs from the fastest in one other knob, until nothing is faster.
2. The fastest and today's choice are measured again in turns, on new ranks and fresh repeats. The
   choice changes only where the interval of their ratio says that it is better.

On CPUs, where time is short, the heats take the same buffers in every launch, which takes a tenth
of it, and the fastest few run once more as a sweep measures: buffers in turn that pass the cache.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collbench.backends.repeat import BatchLength, auto_iterations
from collbench.bench.points import SweepPoint, estimate_s
from collbench.bench.runner import Measurement
from collbench.core.errors import ScheduleError, UnavailableError
from collbench.core.group import Group
from collbench.core.limits import LEAST_GAIN, LEAST_PAIRS, MOST_PAIRS, NARROW
from collbench.core.options import Settings
from collbench.core.verdict import Interval, interval, is_separated
from collbench.planning.tuning import Values
from collbench.tune.candidates import Candidate, Field
from collbench.tune.halving import REPEATS, halve, middle, simplest

_MOST_CANDIDATES, _FEWEST_CANDIDATES = 24, 4  # of a heat
_FINALISTS = 3  # beside today's choice
_HEAT_SHARE = 0.5  # of the time that is left, for the first round of a heat
_BATCH = BatchLength(target_s=0.01, least=3, most=300)  # of launches in a heat on CPUs
_LEAST_S = 1e-6  # of a candidate: a clock may stand still
_OPEN_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was found. challenger: the fastest, or today's choice, which is `former`. gain: the time
    of today's choice over that of the challenger, of paired repeats; None where they are the same.
    is_better: the challenger replaces it. tried: candidates that were measured.
    """

    former: Candidate
    challenger: Candidate
    gain: Interval | None
    is_better: bool
    pairs: int
    tried: int

    @property
    def best(self) -> Candidate:
        """What is taken."""
        return self.challenger if self.is_better else self.former


class Pace:
    """How many times as long as estimated a repeat takes on this machine, as seen so far."""

    def __init__(self) -> None:
        self.factor = 1.5
        self._has_seen = False

    def learn(self, estimated_s: float, seconds: float) -> None:
        """Follow what was measured: at first at once, then slowly."""
        if estimated_s > 0:
            seen = seconds / estimated_s
            self.factor = 0.8 * self.factor + 0.2 * seen if self._has_seen else seen
            self._has_seen = True


class Trial:
    """Candidates on ranks of their own, which are measured in turns. A context."""

    def __init__(
        self, candidates: Sequence[Candidate], group: Group, settings: Settings, pace: Pace
    ) -> None:
        self._points = {id(one): one.point.anew() for one in candidates}
        self._measurement = Measurement(list(self._points.values()), group, settings)
        self._pace = pace

    def __enter__(self) -> "Trial":
        self._measurement.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._measurement.close()

    def repeat(self, one: Candidate) -> None:
        """Measure a candidate: adds the seconds of a launch, or the reason why it is out."""
        point, start_s = self._points[id(one)], time.monotonic()
        try:
            one.times.append(self._measurement.repeat(point))
        except (UnavailableError, ScheduleError) as error:
            one.reason = error.text
            one.is_wrong = any(samples.wrong for samples in point.repeats)
            return
        measurement = self._measurement
        estimated_s = estimate_s(point, measurement.settings, measurement.machine)
        self._pace.learn(estimated_s, time.monotonic() - start_s)


class ConfigurationSearch:
    """The search of one collective and size. tell(text): what is known now."""

    def __init__(
        self,
        field: Field,
        group: Group,
        settings: Settings,
        costs: Callable[[SweepPoint], float],
        paces: tuple[Pace, Pace],
        *,
        is_gpu: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._field, self._group, self._costs, self._tell = field, group, costs, tell
        # where ranks on CPUs and their memory are placed stays for as long as they live
        self._starts = 1 if is_gpu else 2
        self._settings, (self._pace, self._heat_pace) = settings, paces
        self._is_hot = not is_gpu  # whether heats take the same buffers in every launch
        self._tried: dict[int, Candidate] = {}
        self._wrong: dict[int, str] = {}
        self._machine = Measurement([], group, settings).machine

    @property
    def wrong(self) -> list[str]:
        """Candidates whose data was wrong, and where."""
        return list(self._wrong.values())

    @property
    def least_s(self) -> float:
        """Seconds that the search takes at least, if it has to prove a gain."""
        return self._proof_s + self._final_s(1) + self._heat_s(_FEWEST_CANDIDATES)

    @property
    def former(self) -> Candidate:
        """Today's choice."""
        assert self._field.today is not None, "nothing can run"
        return self._field.today

    @property
    def _proof_s(self) -> float:
        """Seconds of the pairs that prove a gain."""
        return self._starts * _OPEN_S + 2 * LEAST_PAIRS * self._cold_s

    def _final_s(self, repeats: int) -> float:
        """Seconds of the last heat on CPUs, with so many repeats."""
        return _OPEN_S + repeats * (1 + _FINALISTS) * self._cold_s if self._is_hot else 0.0

    def _heat_s(self, candidates: int) -> float:
        """Seconds of the first round of a heat."""
        if not self._is_hot:
            return _OPEN_S + candidates * REPEATS * self._cold_s
        one_s = self._repeat_s(self.former.point, self._heat_settings, self._heat_pace)
        return _OPEN_S + candidates * REPEATS * one_s

    @property
    def _cold_s(self) -> float:
        """Seconds of a repeat as a sweep measures."""
        return self._repeat_s(self.former.point, self._settings, self._pace)

    def _repeat_s(self, point: SweepPoint, settings: Settings, pace: Pace) -> float:
        return pace.factor * estimate_s(point, settings, self._machine)

    @property
    def _heat_settings(self) -> Settings:
        if not self._is_hot:
            return self._settings
        launches = auto_iterations(self._costs(self.former.point), _BATCH)
        return replace(self._settings, hot=True, iterations=launches)

    def run(self, known: Sequence[Values], until_s: float, latest_s: float) -> Outcome | None:
        """Search until about that time of the monotonic clock, and never past the latest; first
        rows that were best elsewhere. None where the time did not suffice, or where today's choice
        cannot be measured.
        """
        former = self.former
        proof_s = self._proof_s
        first_heat_s = _OPEN_S + _MOST_CANDIDATES * REPEATS * self._cold_s
        left_s = until_s - proof_s - time.monotonic()
        self._is_hot = self._is_hot and first_heat_s > _HEAT_SHARE * left_s
        ways, ranked = self._heats(known, until_s - proof_s - self._final_s(1))
        if not ranked or former.reason:
            return None
        best = simplest(ranked)
        if self._is_hot:
            best = self._final(best, ways, until_s - proof_s)
        if former.reason:
            return None
        if best is former:
            return self._outcome(former, [])
        self._tell(f"proving {best.text} against {former.text}")
        pairs = self._pairs(best, until_s, latest_s)
        if best.reason and not former.reason:
            return self._outcome(former, [])
        return self._outcome(best, pairs) if len(pairs) >= LEAST_PAIRS else None

    def _heats(
        self, known: Sequence[Values], until_s: float
    ) -> tuple[list[Candidate], list[Candidate]]:
        """What the first heat and the last one leave over, the fastest first."""
        former, ways = self.former, self._field.ways(known)
        first = [one for one in ways if one.values in known]
        others = sorted(
            (one for one in ways if one not in first), key=lambda one: self._costs(one.point)
        )
        ways = self._heat([former, *first, *others][: self._most(until_s)], until_s)
        ranked = ways
        while ranked and not former.reason and time.monotonic() < until_s:
            leader = simplest(ranked)
            near = self._field.neighbours(leader)[: self._most(until_s)]
            if not near:
                break
            again = {one: one.times for one in (former, leader)}
            for one in again:
                one.times = []
            later = self._heat([*again, *near], until_s)
            for one, times in again.items():
                one.times = one.times or times  # what the time did not suffice for
            if not later:
                break
            best = simplest(later)
            if best is leader or (leader in later and not is_separated(best.times, leader.times)):
                return ways, [leader]  # a lucky step would lead to the next one
            ranked = later
        return ways, ranked

    def _most(self, until_s: float) -> int:
        """Candidates of a heat: so many that its first round takes half of the time."""
        one_s = max(_LEAST_S, self._heat_s(1) - _OPEN_S)
        fitting = int(_HEAT_SHARE * (until_s - time.monotonic()) / one_s)
        return max(_FEWEST_CANDIDATES, min(_MOST_CANDIDATES, fitting))

    def _heat(self, entrants: Sequence[Candidate], until_s: float) -> list[Candidate]:
        """Successive halving of some candidates on the same ranks."""
        pace = self._heat_pace if self._is_hot else self._pace
        with Trial(entrants, self._group, self._heat_settings, pace) as trial:
            done: set[int] = set()

            def repeat(one: Candidate) -> None:
                self._measure(trial, one)
                done.add(id(one))
                timed = [other for other in entrants if other.times and not other.reason]
                if timed:
                    leader = min(timed, key=middle)
                    self._tell(
                        f"{len(done)} of {len(entrants)} candidates, fastest"
                        f" {leader.text} {1e6 * middle(leader):.4g} us"
                    )

            former = self.former
            return halve(entrants, repeat, lambda: time.monotonic() < until_s and not former.reason)

    def _measure(self, trial: Trial, one: Candidate) -> None:
        trial.repeat(one)
        self._tried[id(one)] = one
        if one.is_wrong:
            self._wrong[id(one)] = f"{one.text}: {one.reason}"

    def _final(self, best: Candidate, ways: Sequence[Candidate], until_s: float) -> Candidate:
        """The fastest of today's choice, the best and a few other ways, measured as a sweep does;
        the best where the time does not suffice for that.
        """
        entrants = list(dict.fromkeys([self.former, best, *ways]))[: 1 + _FINALISTS]
        entrants = [one for one in entrants if not one.reason]
        is_long = time.monotonic() + self._final_s(REPEATS) < until_s
        heats = [one.times for one in entrants]
        for one in entrants:
            one.times = []
        with Trial(entrants, self._group, self._settings, self._pace) as trial:
            for number in range(REPEATS if is_long else 1):
                for one in entrants[:: -1 if number % 2 else 1]:
                    if time.monotonic() < until_s and not one.reason:
                        self._measure(trial, one)
        if any(not one.times and not one.reason for one in entrants):
            for one, times in zip(entrants, heats, strict=True):
                one.times = times
            return best
        left = sorted((one for one in entrants if not one.reason), key=middle)
        return simplest(left) if left else self.former

    def _pairs(self, best: Candidate, until_s: float, latest_s: float) -> list[tuple[float, float]]:
        """Seconds of today's choice and of the best, pair by pair, by new ranks in every start."""
        former = self.former
        pairs: list[tuple[float, float]] = []
        for start in range(self._starts):
            wanted = LEAST_PAIRS * (start + 1) // self._starts
            most = MOST_PAIRS * (start + 1) // self._starts
            former.times, best.times = [], []
            with Trial([former, best], self._group, self._settings, self._pace) as trial:
                while len(pairs) < most:
                    order = (former, best) if len(pairs) % 2 else (best, former)
                    for one in order:
                        if time.monotonic() > latest_s:
                            return pairs
                        self._measure(trial, one)
                        if one.reason:
                            return pairs
                    pairs.append((former.times[-1], best.times[-1]))
                    late = time.monotonic() > until_s
                    if len(pairs) >= wanted and (late or _is_narrow(pairs)):
                        break
        return pairs

    def _outcome(self, best: Candidate, pairs: Sequence[tuple[float, float]]) -> Outcome:
        former = self.former
        gain = interval([before / after for before, after in pairs]) if pairs else None
        is_better = gain is not None and gain.low > 1 and gain.median >= LEAST_GAIN
        return Outcome(
            former=former,
            challenger=best,
            gain=gain,
            is_better=is_better,
            pairs=len(pairs),
            tried=len(self._tried),
        )


def _is_narrow(pairs: Sequence[tuple[float, float]]) -> bool:
    bounds = interval([before / after for before, after in pairs])
    return bounds.high - bounds.low < NARROW
