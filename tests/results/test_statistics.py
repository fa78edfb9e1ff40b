"""Statistics on made-up numbers."""

import random

from collbench.results.statistics import COVERAGE, best, interval, is_noisy


def test_interval_covers_the_median_as_often_as_it_says() -> None:
    rng = random.Random(1)
    for n in (6, 10, 15):
        covered = 0
        for _ in range(2000):
            found = interval([rng.expovariate(1) for _ in range(n)])
            covered += found.low <= 0.6931 <= found.high
        assert covered / 2000 >= COVERAGE - 0.02


def test_interval_is_tighter_than_the_range_with_many_values() -> None:
    found = interval([float(k) for k in range(20)])
    assert (found.low, found.high) == (5.0, 14.0)


def test_best_is_reported_on_repeats_that_did_not_choose_it() -> None:
    """Of many equally noisy rows, the chosen one is not flattered."""
    rng = random.Random(2)
    flattered = honest = 0.0
    for _ in range(300):
        rows = [[rng.gauss(10, 1) for _ in range(6)] for _ in range(20)]
        found = best(rows)
        honest += found.seconds
        flattered += min(sorted(row)[3] for row in rows)
    assert abs(honest / 300 - 10) < 0.15
    assert flattered / 300 < 9.5


def test_best_of_single_repeats_says_so() -> None:
    assert not best([[2.0], [1.0]]).is_held_out
    assert best([[2.0], [1.0]]).index == 1


def test_noise() -> None:
    assert not is_noisy([1.0, 1.1, 1.2])
    assert is_noisy([1.0, 1.1, 1.9])
    assert not is_noisy([1.0, 1.0, 1.0, 1.05, 1.1, 1.1, 1.1, 9.0])
    assert not is_noisy([1.0])
