"""The search for the best configuration, with planted times in the place of measurements: wherever
its time ends, it has a choice that was measured, or none.
"""

from collections.abc import Sequence
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
from collbench.tune.search import ConfigurationSearch, Pace

REPEAT_S, TIMES_US = 0.25, {"today": 10.0, "better": 8.0, "best": 7.0, "slow": 30.0}


class Clock:
    """A clock that only measuring moves."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


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
