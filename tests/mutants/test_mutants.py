"""The check refuses every broken schedule that shows itself, and no valid one."""

from dataclasses import replace
from pathlib import Path

import pytest

from collbench.core.errors import ScheduleError
from collbench.core.world import World
from collbench.schedules.ir import At, Edge, Operand, Program, Schedule, Step, Track, build
from collbench.schedules.verify.check import check
from tests.mutants.judge import Judgement
from tests.mutants.lowering import action_mutant, program_mutant
from tests.mutants.report import RULES, accepted, lowered, mutants, rule_of, unchanged
from tests.mutants.schedules import FAULTS, KINDS
from tests.support.adversary import Adversary
from tests.support.tiers import tiered

SOME = 400
# what a fault in an action shows in one launch, whatever the order of events
ALWAYS_SHOWN = (
    "drop a signal of data",
    "leave out an operand",
    "read another slot",
    "write to another offset",
)


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
    unnoticed = {
        line[:58].strip() for line in lowered(action_mutant, SOME // 5, 1) if "nothing" in line
    }
    assert unnoticed.isdisjoint(ALWAYS_SHOWN)


@tiered("count", [8, SOME // 10], 1)
def test_broken_programs_show_on_gpus_of_numpy_arrays(count: int) -> None:
    unnoticed = {
        line[:58].strip() for line in lowered(program_mutant, count, 1) if "nothing" in line
    }
    assert unnoticed.isdisjoint(("leave out an operand", "read another slot"))


def known_by_a_second_slice() -> Schedule:
    """Rank 0 writes straight into rank 2's output. That rank 2 has begun, it knows from rank 1,
    which sends before it hears of rank 2: the first slice of its message does not say it, a second
    one does.
    """

    def step(chunk: int, to: int) -> Step:
        return Step(src=(Operand("in", chunk),), send=(Edge(to, "x"),))

    def take(peer: int) -> Step:
        return Step(recv=(Edge(peer, "x"),), dst=Operand("out", peer))

    def program(world: World, rank: int) -> Program:
        own = Step(src=(Operand("in", rank),), dst=Operand("out", rank))
        rounds = {
            0: ((step(1, 1), take(1)), (step(2, 2),), (own, take(2))),
            1: ((step(0, 0), step(2, 2), take(2)), (own, take(0))),
            2: ((step(0, 0), step(1, 1)), (own, take(0), take(1))),
        }[rank]
        return (Track(name="main", rounds=rounds),)

    schedule = build("alltoall", "late", program, World(n=3))
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
