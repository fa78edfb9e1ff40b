"""Statistics on made-up numbers."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from collbench.core.verdict import COVERAGE, Array, interval, is_noisy, segments
from tests.support.tiers import tiered

Draw = Callable[[np.random.Generator, tuple[int, int]], Array]
# Shapes of noise: near normal, heavy tails, and one value in twenty that was disturbed.
NOISE: dict[str, Draw] = {
    "normal": lambda random, shape: random.normal(size=shape),
    "t3": lambda random, shape: random.standard_t(3, size=shape),
    "disturbed": lambda random, shape: (
        random.normal(size=shape) + 20 * (random.random(shape) < 0.05)
    ),
}


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


@pytest.mark.parametrize("kind", NOISE)
@tiered("count", [5, 8, 20], 1)
def test_at_most_one_false_level_in_a_hundred_series(kind: str, count: int) -> None:
    noise = 0.02 * NOISE[kind](np.random.default_rng(count), (200, count))
    assert sum(bool(segments(one.tolist(), 0.02)[0]) for one in noise) <= 2


@pytest.mark.parametrize("kind", NOISE)
def test_a_level_eight_scales_off_is_found_where_it_begins(kind: str) -> None:
    noise = NOISE[kind](np.random.default_rng(3), (20, 12))
    noise[:, 7:] += 8
    assert sum(segments((0.02 * one).tolist(), 0.02)[0] == [7] for one in noise) >= 17


def test_two_values_that_are_off_are_no_level_and_three_are() -> None:
    for slow, wanted in ((2, []), (3, [5])):
        assert segments([0.0, 0.01, 0.0, 0.01, 0.0, *[0.5] * slow], 0.01)[0] == wanted
