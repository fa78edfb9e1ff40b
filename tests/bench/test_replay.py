"""The operations of a job: budgets, rows by case, and the proof in rounds."""

import math
from dataclasses import replace

import pytest

from collbench.backends.base import Batch, Samples
from collbench.backends.cpu.backend import CpuSession
from collbench.bench.ranks import Ranks
from collbench.bench.replay import LEAST_ROUNDS, Bench, ReplayProof, by_estimate, measure, prove
from collbench.core.case import Case
from collbench.core.errors import UnavailableError
from collbench.core.options import Settings
from collbench.launch.local import LocalGroup
from collbench.planning.plan import Plan

RING = Case(op="allreduce", backend="model", algo="ring", ranks=4, size_bytes=4096)
STAR = replace(RING, algo="star")


@pytest.fixture
def bench() -> Bench:
    return Bench(group=LocalGroup(), settings=Settings(repeats=2), where=Ranks())


def test_rows_are_found_by_what_was_asked(bench: Bench) -> None:
    twice, waived = replace(RING, proto="simple"), replace(RING, op="alltoall")
    rows = measure([RING, twice, waived], bench, 60, {})
    assert rows[RING] is rows[twice]  # it resolves to the same
    assert rows[RING].repeats == 2
    assert rows[waived].status == "waived"


def test_a_budget_measures_the_first_case_at_least(bench: Bench) -> None:
    cases = [replace(RING, size_bytes=4096 << place) for place in range(3)]
    assert list(measure(cases, bench, 0, {})) == cases[:1]


def test_other_settings_come_by_what_they_should_take(bench: Bench) -> None:
    large = replace(RING, backend="cpu", size_bytes=16 << 20)
    small = replace(large, size_bytes=4096)
    refused = replace(large, op="alltoall")
    # else a large cache needs many sets of small buffers, which take long to fill
    bench = replace(bench, settings=Settings(repeats=2, hot=True))
    assert by_estimate([large, refused, small], bench, 60) == [small, large]


def test_the_model_proves_in_one_round(bench: Bench) -> None:
    proof = prove([(RING, 2.0)], [(STAR, 2.0)], bench, 60)
    assert proof.is_modelled and proof.is_proven
    (times,) = proof.rounds
    rows = measure([RING, STAR], bench, 60, {})
    assert times == pytest.approx([2e-6 * (rows[case].time_us or 0) for case in (RING, STAR)])


def test_what_cannot_run_is_no_proof(bench: Bench) -> None:
    with pytest.raises(UnavailableError, match="does not serve"):
        prove([(RING, 1.0)], [(replace(RING, op="alltoall"), 1.0)], bench, 60)


@pytest.mark.exhaustive
def test_arms_take_turns_and_ranks_on_cpus_start_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    run = CpuSession.run

    def noted(session: CpuSession, plan: Plan, batch: Batch) -> Samples:
        ran.append(plan.digest)
        return run(session, plan, batch)

    monkeypatch.setattr(CpuSession, "run", noted)
    monkeypatch.setattr("collbench.bench.replay._NARROW", math.inf)
    before, after = (replace(case, backend="cpu", ranks=2) for case in (STAR, RING))
    proof = prove([(before, 1.0)], [(after, 1.0)], bench, 60)
    assert len(proof.rounds) == LEAST_ROUNDS and not proof.is_modelled
    first, second = ran[:2]
    # of each start: both once, then three rounds, of which the second is the other way round
    assert ran == [first, second, first, second, second, first, first, second] * 2
    with pytest.raises(UnavailableError, match="5 more rounds take about"):
        prove([(before, 1.0)], [(after, 1.0)], bench, 0.01)


def test_a_proof_needs_an_interval() -> None:
    few = ReplayProof(rounds=((2.0, 1.0),) * (LEAST_ROUNDS - 1))
    assert not few.is_proven
    assert ReplayProof(rounds=((2.0, 1.0),) * LEAST_ROUNDS).is_proven
    assert not ReplayProof(rounds=((2.0, 1.0), (1.0, 1.1)) * 3).is_proven
