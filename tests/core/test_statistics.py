"""Statistics on made-up numbers."""

import random

from collbench.core.verdict import COVERAGE, interval, is_noisy


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


def test_noise() -> None:
    assert not is_noisy([1.0, 1.1, 1.2])
    assert is_noisy([1.0, 1.4, 1.9])
    assert not is_noisy([1.0, 1.1, 9.0])  # one outlier is none
    assert not is_noisy([1.0, 1.0, 1.0, 1.05, 1.1, 1.1, 1.1, 9.0])
    assert not is_noisy([1.0])
