"""The check refuses every broken schedule that shows itself, and no valid one."""

from dataclasses import replace
from pathlib import Path

import pytest

from collbench.core.errors import ScheduleError
from collbench.schedules.ir import At, Edge, Schedule
from collbench.schedules.verify.check import check
from tests.mutants.judge import Judgement
from tests.mutants.lowering import action_mutant, program_mutant
from tests.mutants.report import RULES, accepted, mutants, noticed, rule_of, unchanged
from tests.mutants.schedules import FAULTS, KINDS
from tests.support.adversary import Adversary
from tests.support.tiers import tiered
from tests.support.written import schedule_of

SOME = 400
# which in one launch need not show, whatever the order of events: a target that nobody reads
MAY_BE_HIDDEN = "leave out a target"


def told(found: Judgement) -> str:
    schedule = found.subject.schedule
    return f"{found.subject.fault}: {schedule.op} {schedule.name}, {schedule.n} ranks"


@pytest.mark.exhaustive
def test_what_shows_itself_is_refused() -> None:
    """And what is refused though it was right in all orders that were tried breaks a rule that
    schedules must keep.
    """
    judged = list(mutants(10 * KINDS, seed=1))
    assert [told(found) for found in judged if found.is_bad and not found.refused] == []
    assert len([found for found in judged if found.is_bad]) > 10 * KINDS / 3
    assert {found.subject.fault for found in judged if found.refused} >= {
        fault.__name__ for fault in FAULTS[:4]
    }
    harmless = [found for found in judged if found.refused and not found.is_bad]
    assert {rule_of(found.refused) for found in harmless} <= set(RULES.values())


@pytest.mark.exhaustive
def test_what_is_accepted_is_right() -> None:
    """With real sizes on the reference, and in other orders of events with every phase of
    credits.
    """
    judged = accepted(SOME, 2)
    assert [told(found) for found in judged if found.is_bad] == []


def test_the_page_about_the_proof_tells_every_rule() -> None:
    page = (Path(__file__).parents[2] / "docs/explanation/proof.md").read_text()
    assert [rule for rule in RULES.values() if f"| {rule} |" not in page] == []


@tiered("count", [15, SOME // 5], 1)
def test_valid_schedules_are_accepted_and_right(count: int) -> None:
    judged = list(unchanged(count, seed=1))
    assert [(told(found), found.refused) for found in judged if found.is_bad or found.refused] == []


@pytest.mark.exhaustive
def test_broken_actions_show_on_the_reference() -> None:
    found = noticed(action_mutant, SOME // 5, 1)
    assert {fault for fault, (shown, of) in found.items() if shown < of} <= {MAY_BE_HIDDEN}


@tiered("count", [8, SOME // 10], 1)
def test_broken_programs_show_on_gpus_of_numpy_arrays(count: int) -> None:
    found = noticed(program_mutant, count, 1)
    for fault in ("leave out an operand", "read another slot"):
        shown, of = found[fault]
        assert shown == of > 0


def known_by_a_second_slice() -> Schedule:
    """Rank 0 writes straight into rank 2's output. That rank 2 has begun, it knows from rank 1,
    which sends before it hears of rank 2: the first slice of its message does not say it, a second
    one does.
    """

    schedule = schedule_of(
        [
            "i1 >1x, <1x =o1 | i2 >2x | i0 =o0, <2x =o2",
            "i0 >0x, i2 >2x, <2x =o2 | i1 =o1, <0x =o0",
            "i0 >0x, i1 >1x | i2 =o2, <0x =o0, <1x =o1",
        ],
        "alltoall",
    )
    return replace(schedule, pushed={At(2, 0, 1): frozenset({Edge(0, "x")})})


def test_a_write_that_a_second_slice_announces_is_wrong_with_one() -> None:
    """A proof for two slices refuses it, too, because a short loop may send one."""
    schedule = known_by_a_second_slice()
    for slices in (1, 2):
        with pytest.raises(ScheduleError, match="without knowing that the launch has begun"):
            check(schedule, slots=8, slices=slices)
    plays = [
        Adversary(schedule, in_place=False, launches=2, seed=seed).play() for seed in range(40)
    ]
    assert "wrong" in plays
