"""What costs follow from rounds, how findings are ranked, and arms that do not run."""

import pytest

from collbench.bench.experiment import Arm, Cost, Experiment, costs_of
from collbench.bench.lab import FailsUnchanged, measure
from collbench.core.errors import UnavailableError
from collbench.core.verdict import Interval
from collbench.doctor.check import Finding, ranked
from collbench.doctor.tables.findings import assessment_of, cost_text, finding_lines, mark
from tests.support.tables import cells_of

ONE = Experiment(backend="cpu", ranks=2, sizes=(1 << 10, 1 << 20), found=Arm(), changed=Arm())


def _finding(check: str = "a", **values: object) -> Finding:
    known = {"subject": "x", "seen": "s", "why": "w.", "change": "c"}
    return Finding(check=check, **{**known, **values})  # type: ignore[arg-type]  # by the caller


def _cost(median: float, low: float, high: float, *, is_noisy: bool = False) -> Cost:
    return Cost(what="w", ratio=Interval(median, low, high), is_noisy=is_noisy)


def test_costs_are_ratios_of_paired_rounds() -> None:
    """What both arms have in common, such as a round in which all is slow, is no cost."""
    drift = (1.0, 8.0, 2.0, 1.0, 4.0, 1.0, 3.0)
    rounds = [((2.0 * slow, slow), (slow, slow)) for slow in drift]
    small, large = costs_of(ONE, rounds)
    assert small.what == "allreduce of 1K, cpu with 2 ranks"
    assert tuple(small.ratio) == pytest.approx((2, 2, 2))
    assert tuple(large.ratio) == pytest.approx((1, 1, 1))
    assert small.is_real and not small.is_none
    assert large.is_none and not large.is_real


@pytest.mark.parametrize(("ratio", "noisy", "wanted", "words"), cells_of(__file__, "costs.tsv"))
def test_an_interval_proves_a_cost_or_none_or_nothing(
    ratio: str, noisy: str, wanted: str, words: str
) -> None:
    median, low, high = map(float, ratio.split())
    cost = _cost(median, low, high, is_noisy=noisy == "yes")
    assert (cost.is_real, cost.is_none) == (wanted == "COST", wanted == "NOTE")
    assert words in cost_text(cost)
    finding = _finding(costs=(cost,))
    assert mark(finding) == wanted
    assert finding.is_cost == cost.is_real
    assert any(words in line for line in finding_lines(finding, 200))


def test_the_worst_comes_first() -> None:
    findings = [
        _finding("remark", severity="remark"),
        _finding("risk"),
        _finding("cleared", costs=(_cost(1.0, 0.99, 1.01),)),
        _finding("small", costs=(_cost(1.2, 1.1, 1.3),)),
        _finding("fault", severity="fault"),
        _finding("large", costs=(_cost(1.0, 1.0, 1.0), _cost(3.0, 2.9, 3.1))),
        _finding("noisy", costs=(_cost(9.0, 8.0, 10.0, is_noisy=True),)),
    ]
    assert [one.check for one in ranked(findings)] == [
        "large", "small", "fault", "risk", "cleared", "noisy", "remark",
    ]  # fmt: skip
    assert [round(one.percent) for one in ranked(findings)[:3]] == [200, 20, 0]


def test_an_arm_that_cannot_be_bound_is_a_reason() -> None:
    nowhere = Arm(cpulist="9999")
    experiment = Experiment(backend="cpu", ranks=2, sizes=(1024,), found=nowhere, changed=nowhere)
    with pytest.raises(UnavailableError, match="cores 9999 cannot be used: Invalid argument"):
        measure(experiment, 1.0)


@pytest.mark.exhaustive
def test_a_cause_that_lets_nothing_run_is_told_from_one_that_both_have() -> None:
    experiment = Experiment(
        backend="cpu", ranks=2, sizes=(1024,), found=Arm(cpulist="9999"), changed=Arm()
    )
    with pytest.raises(FailsUnchanged, match="start with the change: cores 9999 cannot"):
        measure(experiment, 1.0)


@pytest.mark.exhaustive
def test_a_backend_that_is_not_there_is_a_reason() -> None:
    unset = Arm(environment={"PYTHONPATH": None, "LD_PRELOAD": "/nowhere/libnothing.so"})
    missing = Arm(environment={"MPI4PY_LIBMPI": "/nowhere/libmpi.so"})
    experiment = Experiment(backend="mpi", ranks=2, sizes=(1024,), found=unset, changed=missing)
    with pytest.raises(UnavailableError, match=r"\w"):
        measure(experiment, 1.0)


@pytest.mark.exhaustive
def test_rounds_that_take_too_long_are_a_reason() -> None:
    with pytest.raises(UnavailableError, match="1 of 3 rounds took"):
        measure(ONE, 0.0)


@pytest.mark.exhaustive
def test_the_same_arm_twice_costs_nothing() -> None:
    """The null experiment: whatever else the machine does falls on both."""
    for cost in measure(ONE, 20.0):
        assert not cost.is_real or cost.ratio.low < 1.1, cost


def test_no_host_is_bad_for_what_a_process_was_given() -> None:
    found = [
        _finding("cross-memory-attach", subject="this process", severity="fault"),
        _finding("settings", subject="NCCL_P2P_DISABLE", severity="fault"),
        _finding("memlock", subject="rank 0, rank 1", severity="fault"),
        _finding("oversubscription", subject="this host", severity="fault"),
    ]
    assert assessment_of(found, found, [], ["h1"], 1.0).bad_hosts == ()
    found.append(_finding("pcie-link", subject="GPU 1", severity="fault"))
    judged = assessment_of(found, found, [], ["h1"], 1.0)
    assert (judged.grade, judged.bad_hosts) == ("bad", ("h1",))
