"""The bisection bandwidth, and the rates of all pairs as a matrix."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from collbench.core.pairwise import PairSample, PairWorld
from collbench.doctor.hunt.rounds import planned

HEAT_RANKS = 32  # from more ranks on, the matrix is one of hosts


@dataclass(frozen=True, slots=True)
class Bisection:
    """What the pairs across the two halves reached together, from the first half to the second and
    back, or in each direction at once.
    """

    pairs: int
    gbs: tuple[float, ...]


def bisection(samples: Iterable[PairSample], world: PairWorld) -> Bisection | None:
    """Of the first round, if all of its pairs were measured together.

    >>> world = PairWorld(("a", "b"), (0, 0))
    >>> one = PairSample(a=0, b=1, gbs=10.0, mode="together")
    >>> bisection([one, PairSample(a=1, b=0, gbs=8.0, mode="together")], world)
    Bisection(pairs=1, gbs=(10.0, 8.0))
    """
    across = planned(world, "quick")[0] if world.n > 1 else ()
    rates: dict[tuple[int, int, bool], list[float]] = {}
    for one in samples:
        if one.mode == "together" and one.gbs is not None:
            rates.setdefault((one.a, one.b, one.is_both), []).append(one.gbs)
    ways = [[(a, b, False) for a, b in across], [(b, a, False) for a, b in across]]
    ways = [way for way in ways if all(key in rates for key in way)]
    if not ways:
        ways = [[(a, b, True) for a, b in across]]
        ways = [way for way in ways if all(key in rates for key in way)]
    if not ways or not across:
        return None
    return Bisection(len(across), tuple(sum(median(rates[key]) for key in way) for way in ways))


def matrix(
    samples: Iterable[PairSample], world: PairWorld
) -> tuple[tuple[str, ...], dict[tuple[int, int], float]]:
    """The names of ranks, or of hosts if there are many ranks, and the median rate from each to
    each; alone where that was measured. What both directions reached at once stands for both,
    unless the other one was measured as well.

    >>> world = PairWorld(("a", "b", "c"), (0, 0, 0))
    >>> ends = ((0, 1, 24.0), (1, 0, 10.0), (0, 2, 20.0))
    >>> samples = [PairSample(a=a, b=b, gbs=gbs, is_both=True) for a, b, gbs in ends]
    >>> matrix(samples, world)[1]
    {(0, 1): 24.0, (1, 0): 10.0, (0, 2): 20.0, (2, 0): 20.0}
    """
    is_of_hosts = world.n > HEAT_RANKS and len(world.host_names) > 1
    group = world.host_numbers if is_of_hosts else tuple(range(world.n))
    names = world.host_names if is_of_hosts or world.is_one_rank_a_host else _rank_names(world)
    rates: dict[tuple[int, int], list[float]] = {}
    known = [one for one in samples if one.gbs is not None]
    alone = [one for one in known if one.mode == "alone"]
    for one in alone or known:
        rates.setdefault((group[one.a], group[one.b]), []).append(one.gbs or 0.0)
    medians = {key: median(values) for key, values in rates.items()}
    for one in alone or known:
        if one.is_both:
            a, b = group[one.a], group[one.b]
            medians.setdefault((b, a), medians[a, b])
    return names, medians


def _rank_names(world: PairWorld) -> tuple[str, ...]:
    return tuple(f"rank {rank}" for rank in range(world.n))
