"""Constants of a machine from measured points: planted ones are found again."""

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from collbench.core.errors import UsageError
from collbench.machine.topology.machines import machine_topology
from collbench.planning.limits import Limits
from collbench.planning.links import RankLinks
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve
from collbench.planning.price.constants import cpu_costs, gpu_costs
from collbench.planning.price.gpus import gpu_price
from collbench.planning.price.work import cpu_price
from collbench.planning.tuning import Machine
from collbench.tune import constants, run_model
from collbench.tune.calibrate import names_of, values_of, with_values
from collbench.tune.constants import CHECKED, POINTS, Calibration, found, lines
from collbench.tune.drawn import drawn_cases
from tests.support.commands import Says


@cache
def planted_cpu(seed: int, noise: float) -> Calibration:
    """What is found of cores whose constants are those of the profile times drawn factors."""
    drawn = random.Random(seed)
    start = cpu_costs()
    kinds = tuple(start.kinds)
    values = [value * 2 ** drawn.uniform(-1, 1) for value in values_of(start, kinds)]
    planted = with_values(start, values, kinds)
    cases = drawn_cases("cpu", lambda one: one.choice((2, 3)), POINTS + CHECKED, seed=seed)
    points = [
        (plan, cpu_price(plan, planted) * (1 + drawn.gauss(0, noise)))
        for plan in (resolve(case).plan for case in cases)
    ]
    return found(points, None, start.cores)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("seed", "noise"), [(1, 0.0), (2, 0.05)])
def test_planted_constants_of_cores_price_what_was_not_fitted(seed: int, noise: float) -> None:
    calibration = planted_cpu(seed, noise)
    half, most = calibration.after
    assert half < 0.08 + noise and most < 0.25 + noise
    assert half < calibration.before[0] / 2
    assert (calibration.points, calibration.checked) == (POINTS, CHECKED)


@pytest.mark.exhaustive
def test_planted_constants_of_gpus_price_what_was_not_fitted() -> None:
    machine = machine_topology("h200x4-vm")
    links = RankLinks(machine, [gpu.id for gpu in machine.gpus])
    start, kinds = gpu_costs(), ("ll", "ll128", "simple")
    drawn = random.Random(3)
    values = [value * 2 ** drawn.uniform(-0.7, 0.7) for value in values_of(start, kinds)]
    planted = replace(with_values(start, values, kinds), cache_mib=20.0)
    limits = links.described(Limits(), 4)
    cases = drawn_cases("cuda", lambda one: 4, POINTS + CHECKED, limits=limits, seed=3)
    plans = [resolve(case, limits).plan for case in cases]

    def priced(plan: Plan) -> float:
        return gpu_price(plan, replace(links.site_of(plan.n), costs=planted))

    calibration = found([(one, priced(one)) for one in plans], links, 2, 20.0)
    assert "cache_mib = 20\n" in calibration.text(Machine("gpu", "a GPU"), "2026-11-25")
    half, most = calibration.after
    assert half < 0.08 and most < 0.25 and half < calibration.before[0] / 2


@pytest.mark.exhaustive
def test_what_is_found_is_a_machine_file_that_is_read_back(tmp_path: Path) -> None:
    calibration = planted_cpu(2, 0.05)
    file = tmp_path / "mine.toml"
    file.write_text(calibration.text(Machine("cpu", "a CPU"), "2026-11-23"))
    again = cpu_costs(str(file))
    fitted = {name.partition(".")[0] for name in calibration.names}
    kinds = tuple(kind for kind in again.kinds if kind in fitted)
    assert values_of(again, kinds) == pytest.approx(values_of(calibration.costs, kinds), rel=1e-3)
    assert names_of(again, kinds) == list(calibration.names)
    shown = lines(calibration)
    assert sum("+-" in line or "do not show" in line for line in shown) == len(calibration.names)
    file.write_text(file.read_text().replace("launch_us", "lunch_us"))
    cpu_costs.cache_clear()
    with pytest.raises(UsageError, match="lacks launch_us, has lunch_us"):
        cpu_costs(str(file))
    file.write_text(
        "\n".join(line for line in file.read_text().splitlines() if "source" not in line)
    )
    with pytest.raises(UsageError, match=r"mine.toml: \[cpu\] has no source"):
        cpu_costs(str(file))


@pytest.mark.exhaustive
def test_constants_that_price_worse_are_not_better() -> None:
    one = planted_cpu(1, 0.0)
    assert one.is_better
    assert not replace(one, before=(0.1, 0.2), after=(0.1, 0.4)).is_better
    assert replace(one, before=(0.08, 0.78), after=(0.11, 0.18)).is_better


def test_points_that_show_nothing_leave_a_constant_where_it_was() -> None:
    start = replace(cpu_costs(), switch_us=17.0)
    cases = drawn_cases("cpu", lambda one: 2, POINTS + CHECKED, seed=5)
    plans = [resolve(case).plan for case in cases]

    calibration = found([(plan, cpu_price(plan, start)) for plan in plans], None, 2)
    errors = dict(zip(calibration.names, calibration.errors, strict=True))
    assert errors["switch_us"] > 0.7 > errors["launch_us"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_better", [True, False])
def test_a_machine_learns_its_constants(
    says: Says, home: Path, monkeypatch: pytest.MonkeyPatch, *, is_better: bool
) -> None:
    """Which are kept where they are better than those before."""
    monkeypatch.setattr(Calibration, "is_better", is_better)
    monkeypatch.setattr(constants, "POINTS", 30)
    monkeypatch.setattr(constants, "CHECKED", 10)
    monkeypatch.setattr(constants, "_ROUNDS", 1)
    monkeypatch.setitem(run_model._MOST_BYTES, "cpu", 64 << 10)
    monkeypatch.setattr("collbench.backends.blocking.auto_iterations", lambda seconds: 3)
    monkeypatch.setattr("collbench.backends.repeat.MAX_ROTATIONS", 2)
    out, err = says(0 if is_better else 3, "tune", "--model", "--backend", "cpu")
    assert "simple.send_gbs" in out and "half within" in out
    if not is_better:
        assert "the constants before price this machine better" in err
        assert not (home / "collbench").exists()
        return
    (file,) = (home / "collbench" / "machines").iterdir()
    assert str(file) in " ".join(err.split()) or "prices this machine now" in err
    says(0, "sweep", "--backend", "model", "--machine", file, "--sizes", "1K")
