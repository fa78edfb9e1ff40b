"""Print the tables of docs/results/hunt.md: how often `hunt` names a slow host, and how often it
names anything else.

python -m tests.benchmarks.hunt_curves [DRAWS]

Rates of pairs are drawn with normal noise in the logarithm, a line for every pair and round in any
order, both directions at once, as files of other tools have them; and judged by the real code.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from collbench.core.pairwise import Mode, PairSample, PairWorld, world_of
from collbench.doctor.hunt.places import Place
from collbench.doctor.hunt.rounds import Pair, Round, quick
from collbench.doctor.hunt.search import Search
from collbench.doctor.hunt.verdicts import Analysis, analyse

HOSTS = (4, 8, 16, 64)
NOISES = (0.01, 0.03, 0.1)
SLOWER = (0.05, 0.1, 0.15, 0.3, 0.5)
ROUNDS = (1, 2, 3)
BEST_GBS = 48.0


@dataclass(frozen=True, slots=True)
class Tally:
    """Of some draws, the shares of those that name what is slow, that name anything else, and that
    say neither what is slow nor that nothing is.
    """

    recall: float
    false: float
    unknown: float


def drawn(
    rng: np.random.Generator,
    hosts: int,
    noise: float,
    rounds: int,
    factor: Callable[[int, int], float] = lambda a, b: 1.0,
) -> tuple[PairWorld, list[PairSample]]:
    """Samples of all pairs. factor: of the rate of a pair."""
    pairs = [*combinations(range(hosts), 2)]
    good = BEST_GBS * np.array([factor(a, b) for a, b in pairs] * rounds)
    rates = good * np.exp(rng.normal(0, noise, len(good)))
    samples = [
        PairSample(
            a=pairs[k % len(pairs)][0],
            b=pairs[k % len(pairs)][1],
            gbs=float(rates[k]),
            is_both=True,
        )
        for k in rng.permutation(len(rates)).tolist()
    ]
    return world_of([f"n{host}" for host in range(hosts)]), samples


def slow_hosts(
    slow: Sequence[int], share: float, *, adds_up: bool = False
) -> Callable[[int, int], float]:
    """Of pairs of which an end is slow; of two slow ends the factors multiply, or one counts."""

    def factor(a: int, b: int) -> float:
        times = sum(end in slow for end in (a, b))
        return float((1 - share) ** (times if adds_up else min(times, 1)))

    return factor


def slow_pairs(slow: Sequence[Pair], share: float) -> Callable[[int, int], float]:
    """Of pairs that are slow for themselves."""
    return lambda a, b: 1 - share if (a, b) in slow else 1.0


def tally(results: Iterator[tuple[Analysis, set[Place]]]) -> Tally:
    """Of analyses, each with the places that are slow."""
    hits = wrong = unknown = count = 0
    for analysis, slow in results:
        named = {one.place for one in analysis.verdicts if one.is_certain}
        hits += slow <= named
        wrong += bool(named - slow)
        unknown += analysis.answer == "cannot tell"
        count += 1
    return Tally(hits / count, wrong / count, unknown / count)


def one_slow_host(
    hosts: int, noise: float, share: float, rounds: int, draws: int
) -> Iterator[tuple[Analysis, set[Place]]]:
    """Draws of hosts of which one, any, is slower by a share."""
    rng = np.random.default_rng([hosts, int(1000 * noise), int(1000 * share), rounds])
    for _ in range(draws):
        slow = int(rng.integers(hosts))
        ranks, samples = drawn(rng, hosts, noise, rounds, slow_hosts([slow], share))
        yield analyse(samples, ranks), {Place("host", (slow,))} if share else set()


def two_quick_rounds(
    hosts: int, noise: float, share: float, draws: int
) -> Iterator[tuple[Analysis, set[Place]]]:
    """The same of two rounds of disjoint pairs, both directions, which is the least that a hunt
    measures.
    """
    rng = np.random.default_rng([hosts, int(1000 * noise), int(1000 * share)])
    ranks = world_of([f"n{host}" for host in range(hosts)])
    pairs = [pair for turn in quick(hosts) for pair in turn]
    for _ in range(draws):
        slow = int(rng.integers(hosts))
        factor = slow_hosts([slow], share)
        samples = [
            PairSample(a=a, b=b, gbs=BEST_GBS * factor(a, b) * math.exp(rng.normal(0, noise)))
            for pair in pairs
            for a, b in (pair, pair[::-1])
        ]
        yield analyse(samples, ranks), {Place("host", (slow,))}


def scenarios(hosts: int) -> Iterator[tuple[str, Callable[[int, int], float], set[Place]]]:
    """What else may be slow by 30 %, with the places that should be named."""
    half, most = range(hosts // 2), range(hosts // 2 + 1)
    for name, slow in (("two hosts", range(2)), ("half of the hosts", half), ("most hosts", most)):
        places = {Place("host", (host,)) for host in slow}
        yield f"{name}, the slower end counts", slow_hosts(slow, 0.3), places
        yield f"{name}, both ends count", slow_hosts(slow, 0.3, adds_up=True), places
    yield "one pair", slow_pairs([(0, 1)], 0.3), {Place("path", (0, 1))}
    across = [(a, b) for a, b in combinations(range(hosts), 2) if a < hosts // 2 <= b]
    yield "all between two halves", slow_pairs(across, 0.3), {Place("group", tuple(half))}


def main(draws: int) -> None:
    """The tables."""
    _one_slow_host(draws)
    _two_quick_rounds(draws)
    _scenarios(draws)
    _rounds()


def _one_slow_host(draws: int) -> None:
    print("| hosts | noise | rounds | 5 % | 10 % | 15 % | 30 % | 50 % | nothing is |")
    print("| ---: | ---: | ---: | --- | --- | --- | --- | --- | --- |")
    for hosts, noise, rounds in product(HOSTS, NOISES, ROUNDS):
        shares = (*SLOWER, 0.0)
        *cells, clean = (tally(one_slow_host(hosts, noise, one, rounds, draws)) for one in shares)
        shown = [f"{one.recall:.0%} ({one.false:.0%})" for one in cells]
        shown.append(f"{clean.false:.0%}, {clean.unknown:.0%} unknown")
        print(f"| {hosts} | {noise:.0%} | {rounds} | {' | '.join(shown)} |", flush=True)


def _two_quick_rounds(draws: int) -> None:
    print("\n| hosts | noise | 5 % | 10 % | 15 % | 30 % | 50 % |")
    print("| ---: | ---: | --- | --- | --- | --- | --- |")
    for hosts, noise in product(HOSTS, NOISES):
        cells = [tally(two_quick_rounds(hosts, noise, share, draws)) for share in SLOWER]
        shown = [f"{one.recall:.0%} ({one.false:.0%})" for one in cells]
        print(f"| {hosts} | {noise:.0%} | {' | '.join(shown)} |", flush=True)


def _scenarios(draws: int) -> None:
    for hosts in (5, 6, 8):
        rng = np.random.default_rng(hosts)
        for name, factor, places in scenarios(hosts):
            cases = (drawn(rng, hosts, 0.03, 2, factor) for _ in range(draws))
            one = tally((analyse(samples, ranks), places) for ranks, samples in cases)
            shown = f"{one.recall:.0%} ({one.false:.0%}), {one.unknown:.0%} unknown"
            print(f"{hosts} hosts, {name} by 30 %: {shown}")


def _rounds() -> None:
    """What the search of the command measures, by itself, until it says which hosts are slow."""
    print("\n| hosts | slow by 20 % | rounds | exchanges of pairs | answer |")
    print("| ---: | ---: | ---: | ---: | --- |")
    for hosts, slow in product((4, 8, 16, 64, 256, 1024), (0, 1)):
        _search(hosts, [hosts // 3] * slow)
    _search(232, [3, 50, 99, 150, 200])


def _search(hosts: int, slow: Sequence[int]) -> None:
    rng, factor, turns = np.random.default_rng(hosts), slow_hosts(slow, 0.2), list[Round]()

    def measure(turn: Round, mode: Mode) -> Iterator[PairSample]:
        if mode == "together":
            turns.append(turn)
        for a, b in (way for pair in turn for way in (pair, pair[::-1])):
            gbs = BEST_GBS * factor(a, b) * math.exp(rng.normal(0, 0.03))
            yield PairSample(a=a, b=b, gbs=gbs, mode=mode)

    ranks = world_of([f"n{host}" for host in range(hosts)])
    search = Search(ranks, measure, lambda: 0.0, 1.0)
    named = {one.place for one in search.run().verdicts if one.is_certain}
    answer = "right" if named == {Place("host", (host,)) for host in slow} else "wrong"
    count = len(set(turns))
    print(f"| {hosts} | {len(slow)} | {count} | {len(search.samples) // 2} | {answer} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
