"""Successive halving: rounds of measuring in turns, after which the slower half leaves. Pure.

The intervals decide: what is in the slower half but may be as fast as the leader stays, for a few
rounds. What is left then is tied, and the simplest is taken.
"""

from collections.abc import Callable, Sequence
from statistics import median_low

from collbench.core.limits import LEAST_GAIN, NEAR
from collbench.core.verdict import interval, is_separated
from collbench.tune.candidates import Candidate

ROUNDS = 4
REPEATS = 2  # of each in a round


def middle(one: Candidate) -> float:
    """The median of the repeats, the lower one of two: what disturbs a repeat makes it longer."""
    return median_low(one.times)


def halve(
    entrants: Sequence[Candidate], repeat: Callable[[Candidate], None], has_time: Callable[[], bool]
) -> list[Candidate]:
    """Those that no repeat beats, the fastest first. repeat(entrant) measures one: it adds a time
    or gives a reason. Those that the time does not suffice for are left out.
    """
    field = list(entrants)
    for number in range(ROUNDS * REPEATS):
        for one in field[:: -1 if number % 2 else 1]:
            if not has_time():
                break
            repeat(one)
            if one.reason:
                field = [other for other in field if other is not one]
        if len(field) < 2 or not has_time():
            break
        if number % REPEATS == REPEATS - 1:
            field = _faster_half(field)
    return sorted((one for one in field if one.times), key=middle)


def _faster_half(field: Sequence[Candidate]) -> list[Candidate]:
    """The faster half, and of the other one what may be as fast as the leader; in their order."""
    ranked = sorted(field, key=middle)
    leader, half = ranked[0], -(-len(ranked) // 2)
    left = {
        id(one)
        for place, one in enumerate(ranked)
        if place < half or interval(one.times).low <= interval(leader.times).median
    }
    return [one for one in field if id(one) in left]


def simplest(ranked: Sequence[Candidate]) -> Candidate:
    """Of those that the leader does not beat, and that take about as long, the one with the fewest
    knobs; of several the fastest.
    """
    leader = ranked[0]
    tied = [
        one
        for one in ranked
        if middle(one) < LEAST_GAIN * middle(leader)
        or (middle(one) < NEAR * middle(leader) and not is_separated(leader.times, one.times))
    ]
    return min(tied, key=lambda one: one.knobs)
