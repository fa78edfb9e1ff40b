"""Successive halving with invented times: who is left, who leads, and what a tie is."""

from dataclasses import dataclass, field
from itertools import count

import pytest

from collbench.tune.halving import REPEATS, ROUNDS, halve, simplest


@dataclass(eq=False)
class Entrant:
    """Takes `seconds`, and by turns up to `noise` more. breaks: the repeat that is wrong."""

    seconds: float
    noise: float = 0.0
    knobs: int = 0
    breaks: int = -1
    times: list[float] = field(default_factory=list)
    reason: str = ""


def repeat(one: Entrant) -> None:
    if len(one.times) == one.breaks:
        one.reason = "wrong"
    else:
        one.times.append(one.seconds + one.noise * (len(one.times) % 2))


def always() -> bool:
    return True


@pytest.mark.parametrize("entrants", [1, 2, 3, 8, 24])
def test_the_fastest_is_left_and_the_slower_half_leaves_after_each_round(entrants: int) -> None:
    field_ = [Entrant(1.0 + 0.1 * k, noise=0.01) for k in reversed(range(entrants))]
    ranked = halve(field_, repeat, always)
    assert ranked[0].seconds == 1.0
    assert sum(len(one.times) for one in field_) <= 2 * REPEATS * entrants
    if entrants > 1:
        assert len(field_[0].times) == REPEATS


def test_what_may_be_as_fast_stays_until_the_last_round() -> None:
    noisy = [Entrant(1.0, noise=1.0), Entrant(1.01, noise=1.0), Entrant(0.99, noise=1.0)]
    assert len(halve(noisy, repeat, always)) == 3
    assert {len(one.times) for one in noisy} == {ROUNDS * REPEATS}


def test_wrong_data_is_out_whenever_it_comes() -> None:
    fast, slow = Entrant(0.1, breaks=1), Entrant(1.0)
    assert halve([fast, slow, Entrant(2.0, breaks=0)], repeat, always) == [slow]


def test_the_time_ends_a_round_and_leaves_out_what_was_not_measured() -> None:
    turns = count()
    ranked = halve([Entrant(3.0), Entrant(2.0), Entrant(1.0)], repeat, lambda: next(turns) < 2)
    assert [one.seconds for one in ranked] == [2.0, 3.0]


def test_a_tie_goes_to_the_one_with_the_fewest_knobs() -> None:
    def ranked(seconds: float, noise: float) -> list[Entrant]:
        return [
            Entrant(1.0, knobs=3, times=[1.0, 1.0 + noise]),
            Entrant(seconds, knobs=1, times=[seconds, seconds + noise]),
        ]

    assert simplest(ranked(1.01, 0.0)).knobs == 1  # below what counts as a gain
    assert simplest(ranked(1.04, 0.1)).knobs == 1  # the intervals touch
    assert simplest(ranked(1.04, 0.0)).knobs == 3
    assert simplest(ranked(1.2, 0.5)).knobs == 3
