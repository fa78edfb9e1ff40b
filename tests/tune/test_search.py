"""The search for the best configuration and its successive halving, with planted times in the place
of measurements: wherever its time ends, it has a choice that was measured, or none.
"""

from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.bench.points import SweepPoint
from collbench.core.case import Case
from collbench.core.options import Settings
from collbench.launch.local import LocalGroup
from collbench.planning.planner import resolve
from collbench.tune import search
from collbench.tune.candidates import Candidate
from collbench.tune.halving import REPEATS, ROUNDS, halve, middle, simplest
from collbench.tune.search import ConfigurationSearch, Pace
from tests.support.planted_tune import Clock

REPEAT_S, TIMES_US = 0.25, {"today": 10.0, "better": 8.0, "best": 7.0, "slow": 30.0}


class PlantedTrial:
    """Measures what is planted; each repeat takes REPEAT_S, and a start twice as long."""

    clock = Clock()

    def __init__(self, candidates: Sequence[Candidate], *_: object) -> None:
        self.candidates = candidates

    def __enter__(self) -> "PlantedTrial":
        self.clock.now_s += 2 * REPEAT_S
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def repeat(self, one: Candidate) -> None:
        assert one in self.candidates
        self.clock.now_s += REPEAT_S
        one.times.append(1e-6 * TIMES_US[str(one.values["name"])])


def planted_field() -> Any:
    """Today's choice, one that is better and one that is slow; a neighbour of the better one is
    best.
    """
    point = SweepPoint(*resolve(Case(op="allreduce", backend="cpu", ranks=2, size_bytes=1024)))
    made = {name: Candidate({"name": name}, point) for name in TIMES_US}
    near = {"better": [made["best"]]}
    return SimpleNamespace(
        today=made["today"],
        ways=lambda known: [made["better"], made["slow"]],
        neighbours=lambda one: near.pop(str(one.values["name"]), []),
    )


@pytest.mark.parametrize("is_gpu", [False, True])
def test_wherever_the_time_ends_the_choice_was_measured(
    monkeypatch: pytest.MonkeyPatch, is_gpu: bool
) -> None:
    found: list[str] = []
    for quarters in range(1, 160):
        clock = PlantedTrial.clock = Clock()
        clock.now_s = 0.0
        monkeypatch.setattr(search, "time", clock)
        monkeypatch.setattr(search, "Trial", PlantedTrial)
        paces = (Pace(), Pace())
        for pace in paces:
            pace.learn(1.0, 1.0)
        one = ConfigurationSearch(
            planted_field(),
            LocalGroup(),
            Settings(),
            lambda point: 1e-5,
            paces,
            is_gpu=is_gpu,
            tell=lambda text: None,
        )
        outcome = one.run([], REPEAT_S * quarters, 2 * REPEAT_S * quarters)
        if outcome is None:
            found.append("")
            continue
        assert outcome.best.times
        assert outcome.is_better == (outcome.challenger is not outcome.former)
        found.append(str(outcome.best.values["name"]))
    assert found[-1] == "best"
    assert {"better", "best"} <= set(found)


POINT = SweepPoint(*resolve(Case(op="allreduce", backend="cpu", ranks=2, size_bytes=1024)))
PLANTED: dict[Candidate, tuple[float, float, int]] = {}


def entrant(seconds: float, noise: float = 0.0, breaks: int = -1) -> Candidate:
    """Takes so many seconds, and by turns up to `noise` more. breaks: the repeat that is wrong."""
    made = Candidate({}, POINT)
    PLANTED[made] = seconds, noise, breaks
    return made


def repeat(one: Candidate) -> None:
    seconds, noise, breaks = PLANTED[one]
    if len(one.times) == breaks:
        one.reason = "wrong"
    else:
        one.times.append(seconds + noise * (len(one.times) % 2))


def always() -> bool:
    return True


@pytest.mark.parametrize("entrants", [1, 2, 3, 8, 24])
def test_the_fastest_is_left_and_the_slower_half_leaves_after_each_round(entrants: int) -> None:
    field_ = [entrant(1.0 + 0.1 * k, noise=0.01) for k in reversed(range(entrants))]
    ranked = halve(field_, repeat, always)
    assert middle(ranked[0]) == 1.0
    assert sum(len(one.times) for one in field_) <= 2 * REPEATS * entrants
    if entrants > 1:
        assert len(field_[0].times) == REPEATS


def test_what_may_be_as_fast_stays_until_the_last_round() -> None:
    noisy = [entrant(1.0, noise=1.0), entrant(1.01, noise=1.0), entrant(0.99, noise=1.0)]
    assert len(halve(noisy, repeat, always)) == 3
    assert {len(one.times) for one in noisy} == {ROUNDS * REPEATS}


def test_wrong_data_is_out_whenever_it_comes() -> None:
    fast, slow = entrant(0.1, breaks=1), entrant(1.0)
    assert halve([fast, slow, entrant(2.0, breaks=0)], repeat, always) == [slow]


def test_the_time_ends_a_round_and_leaves_out_what_was_not_measured() -> None:
    turns = count()
    ranked = halve([entrant(3.0), entrant(2.0), entrant(1.0)], repeat, lambda: next(turns) < 2)
    assert [middle(one) for one in ranked] == [2.0, 3.0]


def test_a_tie_goes_to_the_one_with_the_fewest_knobs() -> None:
    def ranked(seconds: float, noise: float) -> list[Candidate]:
        return [
            Candidate({"a": 1, "b": 1, "c": 1}, POINT, [1.0, 1.0 + noise]),
            Candidate({"a": 1}, POINT, [seconds, seconds + noise]),
        ]

    assert simplest(ranked(1.01, 0.0)).knobs == 1  # below what counts as a gain
    assert simplest(ranked(1.04, 0.1)).knobs == 1  # the intervals touch
    assert simplest(ranked(1.04, 0.0)).knobs == 3
    assert simplest(ranked(1.2, 0.5)).knobs == 3
