"""The search of NCCL's settings, with planted costs in the place of NCCL: what is tried, what is
proved, and the files that are made of it.
"""

import pytest

from collbench.bench.experiment import Cost, Experiment
from collbench.core.errors import UnavailableError
from collbench.core.verdict import Interval
from collbench.tune.nccl_file import env_lines_of, tuner_lines_of
from collbench.tune.nccl_gains import TunerMatch, TunerSetting
from collbench.tune.nccl_search import LEAST_S, algorithms, search, settings

MATCH, SIZES = TunerMatch("allreduce", 1, 8), (1 << 10, 1 << 20)


class Plant:
    """NCCL with known costs: LL gains 30 % at the small size and loses at the large one; Ring with
    16 channels gains 10 % at the large one; half of a first measurement's gain is luck. Each
    measurement takes so long.
    """

    def __init__(self, takes_s: float = 0.0) -> None:
        self.seen: list[tuple[tuple[str, str], ...]] = []
        self.takes_s, self.now_s = takes_s, 0.0

    def monotonic(self) -> float:
        return self.now_s

    def __call__(self, experiment: Experiment, budget_s: float) -> tuple[Cost, ...]:
        variables = {name: str(value) for name, value in experiment.changed.environment.items()}
        assert variables
        assert not experiment.found.environment
        self.now_s += self.takes_s
        if variables.get("NCCL_ALGO") == "Tree":
            raise UnavailableError("the process of an experiment did not answer")
        key = tuple(sorted(variables.items()))
        luck = 1.0 if key in self.seen else 1.03
        self.seen.append(key)
        small = 1.3 if variables.get("NCCL_PROTO") == "LL" else 0.9
        large = 0.7 if variables.get("NCCL_PROTO") == "LL" else 1.0
        if variables.get("NCCL_MAX_CTAS") == "16" and variables.get("NCCL_PROTO") == "Simple":
            large = 1.1
        return tuple(
            Cost(what="", ratio=Interval(gain * luck, 0.99 * gain * luck, 1.01 * gain * luck))
            for gain in (small, large)
        )


def test_gains_are_those_of_fresh_repeats_and_both_files_have_them() -> None:
    plant = Plant()
    gains = {MATCH: search(MATCH, SIZES, 1000.0, plant, lambda text: None)}
    small = max(gains[MATCH][SIZES[0]], key=lambda one: one.ratio.median)
    assert (small.setting.proto, small.ratio.median) == ("ll", 1.3)
    lines = tuner_lines_of(gains, ["a remark"])
    rules = [line.split(",") for line in lines if line.startswith("allreduce,")]
    assert lines[0] == "# a remark"
    assert any("NCCL_MIN_NCHANNELS=16" in line for line in lines)
    assert [rule[3:5] for rule in rules] == [["ring", "ll"], ["ring", "simple"]]
    assert (rules[0][1], rules[1][2], rules[1][5], rules[1][7]) == ("0", "4294967295", "16", "8")
    env = "\n".join(env_lines_of(gains, []))
    assert "what gains at some sizes loses" in env
    assert "1K: 1.30x\n    NCCL_PROTO=LL" in env


@pytest.mark.parametrize(("takes_s", "tried"), [(LEAST_S, 2), (LEAST_S / 4, 7), (0.0, 17)])
def test_the_time_limits_what_is_tried(
    monkeypatch: pytest.MonkeyPatch, takes_s: float, tried: int
) -> None:
    """The time that it takes, not the longest that it may; a file of a short search does not lose
    at a size which none of its few lines serves.
    """
    plant = Plant(takes_s)
    monkeypatch.setattr("collbench.tune.nccl_search.time", plant)
    gains = {MATCH: search(MATCH, SIZES, 4 * LEAST_S, plant, lambda text: None)}
    assert len(set(plant.seen)) == tried
    assert plant.now_s <= 4 * LEAST_S
    if takes_s < LEAST_S:
        lines = tuner_lines_of(gains, [])
        has_rules = any(line.startswith("allreduce,") for line in lines)
        assert has_rules == (not takes_s)
        text = " ".join(line.lstrip("# ") for line in lines)
        assert has_rules or "slower than NCCL's own choice at some sizes (0.70x" in text


def test_nothing_measured_is_an_error() -> None:
    def refuse(experiment: Experiment, budget_s: float) -> tuple[Cost, ...]:
        raise UnavailableError("nccl4py is not installed")

    with pytest.raises(UnavailableError, match="nccl4py is not installed"):
        search(MATCH, SIZES, 100.0, refuse, lambda text: None)


def test_settings_are_each_tried_once_and_only_what_serves_the_collective() -> None:
    assert algorithms("allgather") == ("ring",)
    tried = list(settings(algorithms("allreduce"), {}))
    assert len(set(tried)) == len(tried)
    assert {one.algo for one in tried} == {"", "ring", "chain"}
    assert any(one.buffsize for one in tried)
    assert sum(one.is_for_tuner for one in tried) == 2 * 3 * 3


def test_what_gained_alone_is_tried_together_first() -> None:
    """For each size in turn: where LL gains at the small size and 32 channels at the large one."""
    first: dict[TunerSetting, tuple[Cost, ...]] = {}
    together: list[TunerSetting] = []
    for one in settings(("ring",), first):
        small = 1.1 if one.proto == "ll" else 0.9
        large = 1.13 if one.channels == 32 else 0.5 if one.proto == "ll" else 1.0
        ratios = (Interval(gain, 0.99 * gain, 1.01 * gain) for gain in (small, large))
        first[one] = tuple(Cost(what="", ratio=ratio) for ratio in ratios)
        together += [one] if one.is_for_tuner else []
    assert together[0].proto == "ll"
    assert (together[1].channels, together[1].proto != "ll") == (32, True)
    assert len(set(together)) == len(together) == 9
