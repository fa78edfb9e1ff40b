"""Which pairs to measure next, until the budget is spent: rounds, their repeats, then what verdicts
miss and squares around what may be slow.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

from collbench.core.pairwise import MODES, Mode, PairSample, PairWorld, Where
from collbench.doctor.hunt.rounds import Pair, Round, groups, packed, planned, squares
from collbench.doctor.hunt.verdicts import Analysis, analyse, ends_of, ranks_of

# Up to so many ranks of a group all pairs are measured, and up to so many in all in both modes;
# of more hosts than these they would take too many rounds.
SMALL, FEW_HOSTS = 16, 8
_REPEATS = 3
_REPEATS_OF_FEW = ((3, 10), (8, 5))  # up to so many ranks, whose few pairs need more to tell
_FIRST_SHARE = 0.75  # of the budget: the rest is for what the verdicts miss
_TURNS_OF_MISSING = 3
_MEASUREMENTS = 6  # of a path or a pair that is named: fewer are repeated

Measure = Callable[[Round, Mode], Iterable[PairSample]]


@dataclass(slots=True)
class Search:
    """Measures pairs of a world and judges them.

    measure: the pairs of a round in a mode. clock: seconds since the budget began. modes: of the
    measurements, None: both of few ranks, or else together. rate_gbs: of a good pair, if known.
    samples: of all that was measured; missed: measurements of pairs that came too late.
    """

    world: PairWorld
    measure: Measure
    clock: Callable[[], float]
    budget_s: float
    choice: str = ""
    rails: bool = False
    where: Where = "both"
    modes: Sequence[Mode] | None = None
    rate_gbs: float | None = None
    samples: list[PairSample] = field(default_factory=list)
    missed: int = 0

    def run(self) -> Analysis:
        """Measure and judge. However it ends, samples has what was measured until then."""
        sizes = [len(ranks) for ranks in groups(self.world, rails=self.rails, where=self.where)]
        n, most = sum(sizes), SMALL if len(self.world.host_names) <= FEW_HOSTS else 0
        choice = self.choice or ("all" if max(sizes, default=0) <= most else "square")
        self.modes = self.modes or (MODES if n <= most else ("together",))
        turns = self.planned(choice)
        few = (of for most, of in _REPEATS_OF_FEW if n <= most)
        for _ in range(next(few, _REPEATS)):
            self._measure(turns, _FIRST_SHARE * self.budget_s)
        analysis = self.analysis()
        if choice == "quick":
            return analysis
        for _ in range(_TURNS_OF_MISSING):
            wanted = _wanted(analysis, self.world, self.where)
            if not wanted or self.clock() >= self.budget_s:
                break
            for _ in range(_REPEATS):
                self._measure(packed(wanted), self.budget_s)
            analysis = self.analysis()
        return analysis

    def analysis(self) -> Analysis:
        """What the samples until now say."""
        return analyse(self.samples, self.world, self.rate_gbs)

    def planned(self, choice: str) -> list[Round]:
        """The rounds of a choice of pairs."""
        return planned(self.world, choice, rails=self.rails, where=self.where)

    def _measure(self, turns: Sequence[Round], until_s: float) -> None:
        """Measure rounds until a time, and count the pairs that come too late."""
        for turn, mode in product(turns, self.modes or MODES):
            for part in [turn] if mode == "together" else [(pair,) for pair in turn]:
                if self.clock() >= until_s and self.samples:
                    self.missed += len(part)
                else:
                    self.samples.extend(self.measure(part, mode))


def _wanted(analysis: Analysis, world: PairWorld, where: Where) -> list[Pair]:
    """Pairs asked for that the verdicts miss, and squares around those that may be slow."""
    bad = {rank for one in analysis.verdicts for rank in ranks_of(one.place, world)}
    missing = [pair for one in analysis.verdicts for pair in one.missing]
    between = [
        (ends[0], ends[1])
        for one in analysis.verdicts
        if one.effect.of < _MEASUREMENTS and len(ends := ends_of(one.place, world)) > 1
    ]
    around = squares([*analysis.suspects, *between], world, bad)
    return [
        (a, b)
        for a, b in dict.fromkeys([*missing, *around])
        if where in ("both", "inside" if world.hosts[a] == world.hosts[b] else "network")
    ]
