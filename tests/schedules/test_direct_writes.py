"""Direct writes: what passes for safe is proved, what is not safe is found, and the handshake is
there exactly where it must be.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from collbench.core.collectives import OpName
from collbench.core.errors import ScheduleError
from collbench.core.world import World
from collbench.planning.layout import registered
from collbench.schedules.algorithms import ring
from collbench.schedules.ir import At, Edge, Message, Schedule, build, expanded
from collbench.schedules.passes import (
    arrivals,
    direct_count,
    landing,
    message_count,
    pull_zero_copy,
    reorder,
)
from collbench.schedules.verify.check import check
from collbench.schedules.zero_copy import push_zero_copy
from tests.support.adversary import Adversary
from tests.support.batteries import PAIRS, placements, roots, world_of
from tests.support.random_schedules import random_schedule
from tests.support.tiers import tiered
from tests.support.written import schedule_of

# what is written was made of what its receiver gave, in the same launch
DEPENDENT: tuple[OpName, ...] = ("allreduce", "reduce", "reducescatter")


def assert_proved(schedule: Schedule, *, in_place: bool) -> None:
    """The placed schedule is right, and without its handshake it is refused, unless it needs
    none.
    """
    pushed = push_zero_copy(schedule, in_place=in_place)
    for slots in (2, 8):
        assert check(pushed, slots=slots, in_place=in_place) == check(
            schedule, slots=slots, in_place=in_place
        )
    if pushed.ready:
        assert pushed.pushed
        with pytest.raises(ScheduleError, match="without knowing that the launch has begun"):
            check(replace(pushed, ready={}), slots=8, in_place=in_place)


@tiered("n", [2, 3, 4, 5, 8], [2, 5])
@tiered(("op", "algo"), PAIRS, 8)
def test_every_registered_pair(op: OpName, algo: str, n: int) -> None:
    for root in {0, roots(op, n)[-1]}:
        schedule = registered(op, algo, world_of(algo, n, root))
        for in_place in placements(op):
            assert_proved(schedule, in_place=in_place)
            found = push_zero_copy(schedule, in_place=in_place)
            assert bool(found.ready) == (op not in DEPENDENT)


@tiered(("op", "algo"), PAIRS, 12)
def test_slices_and_loops(op: OpName, algo: str) -> None:
    pushed = push_zero_copy(registered(op, algo, World(n=5)), in_place=False)
    check(pushed, slots=8, slices=3, loops=3, launches=3)


def plays(schedule: Schedule, *, in_place: bool, seeds: int) -> int:
    """How many of so many random plays go wrong."""
    return sum(
        Adversary(schedule, in_place=in_place, launches=3, seed=seed).play() != "right"
        for seed in range(seeds)
    )


@tiered(
    ("op", "algo", "seeds"),
    [*((*pair, 8) for pair in PAIRS[:9:4]), *((*pair, 24) for pair in PAIRS)],
    3,
)
def test_no_order_of_events_spoils_what_is_proved(op: OpName, algo: str, seeds: int) -> None:
    for n in (2, 3, 5):
        for in_place in placements(op):
            pushed = push_zero_copy(registered(op, algo, World(n=n)), in_place=in_place)
            assert plays(pushed, in_place=in_place, seeds=seeds) == 0
            if pushed.ready and n > 2:
                assert plays(replace(pushed, ready={}), in_place=in_place, seeds=40) > 0


@pytest.mark.exhaustive
@settings(max_examples=30)
@given(random_schedule)
def test_random_schedules_are_proved_and_no_order_of_events_spoils_them(schedule: Schedule) -> None:
    for in_place in placements(schedule.op):
        assert_proved(schedule, in_place=in_place)
        assert plays(push_zero_copy(schedule, in_place=in_place), in_place=in_place, seeds=4) == 0


@pytest.mark.parametrize("n", [2, 3, 4, 8, 13])
@pytest.mark.parametrize("in_place", [False, True])
def test_known_counts(n: int, in_place: bool) -> None:
    def count(op: OpName, algo: str) -> int:
        return direct_count(push_zero_copy(registered(op, algo, World(n=n)), in_place=in_place))

    assert count("allreduce", "ring") == n * (n - 1)  # n-1 of the 2(n-1) messages of a rank
    assert message_count(registered("allreduce", "ring", World(n=n))) == 2 * n * (n - 1)
    assert count("allgather", "direct") == count("allgather", "ring") == n * (n - 1)
    assert count("broadcast", "chain") == count("allreduce", "star") == n - 1
    assert count("allreduce", "oneshot") == count("reducescatter", "ring") == 0


def test_the_handshake_of_a_ring_is_one_edge_a_rank() -> None:
    found = push_zero_copy(registered("allgather", "ring", World(n=5)), in_place=False)
    assert found.is_symmetric
    assert found.ready == {0: frozenset({Edge(4, "ring")})}
    assert found.ready_at(3) == frozenset({Edge(2, "ring")})
    assert found.pushed_at(3, 0, 2) == frozenset({Edge(2, "ring")})


@pytest.mark.parametrize(
    ("op", "algo"),
    [("allreduce", "ring"), ("allgather", "ring"), ("alltoall", "direct"), ("allgather", "direct")],
)
def test_one_program_and_all_programs_agree(op: OpName, algo: str) -> None:
    schedule = registered(op, algo, World(n=5))
    assert schedule.is_symmetric
    together, apart = (
        expanded(push_zero_copy(schedule, in_place=False)),
        push_zero_copy(expanded(schedule), in_place=False),
    )
    assert together.programs == apart.programs
    assert together.pushed == apart.pushed
    assert together.ready == apart.ready
    mine, theirs = arrivals(schedule), arrivals(expanded(schedule))
    for message, taken in mine.items():
        assert theirs[message].at[1:] == taken.at[1:]
        assert (taken.edge.peer + theirs[message].at.program) % 5 == 0 == message.at.program


@pytest.mark.parametrize("op", ["allgather", "broadcast", "alltoall"])
def test_one_missing_announcement_is_enough_to_refuse(op: OpName) -> None:
    pushed = expanded(push_zero_copy(registered(op, "direct", World(n=4)), in_place=False))
    for rank, edges in pushed.ready.items():
        for edge in edges:
            with pytest.raises(
                ScheduleError,
                match=rf"of rank {rank} without knowing that the launch has begun there",
            ):
                check(replace(pushed, ready={**pushed.ready, rank: edges - {edge}}))


@pytest.mark.parametrize("mine", ["i0 >1x | i0 >1z | <1y =o0", "i0 >1x | <1y =o0 / second: i0 >1z"])
def test_an_input_in_place_that_is_still_needed(mine: str) -> None:
    """Rank 0 gives its input for the sum that comes back, and reads it once more, in no order with
    what comes back: later in the same track, or in another track, which a schedule without direct
    writes may not do at all.
    """
    schedule = schedule_of((mine, "i0 <0x =o0 >0y / other: <0z =t0"))
    pushed = push_zero_copy(schedule, in_place=False)
    assert direct_count(pushed) == 1
    check(pushed)
    if "second" not in mine:
        check(schedule, in_place=True)
        assert direct_count(push_zero_copy(schedule, in_place=True)) == 0
    with pytest.raises(
        ScheduleError,
        match=(
            r"rank \d, track \w+, round \d: two tracks touch out\[0\] of rank 0 .*; the other: rank"
            r" \d, track \w+"
        ),
    ):
        check(pushed, in_place=True)


def test_a_receiver_that_reads_the_cell_before() -> None:
    """Rank 1 keeps its input in the output for a while: right through a FIFO, not if rank 0 writes
    there when it likes.
    """
    programs = "i0 >1x | <1y =o0", "i0 =o0 | o0 >0y | <0x =o0"
    schedule = schedule_of(programs, "sendrecv")
    check(schedule)
    found = push_zero_copy(schedule, in_place=False)
    assert found.pushed == {At(0, 0, 1): frozenset({Edge(1, "y")})}
    into = {**found.pushed, At(1, 0, 2): frozenset({Edge(0, "x")})}
    forced = replace(found, pushed=into, ready={**found.ready, 1: frozenset({Edge(0, "x")})})
    assert plays(found, in_place=False, seeds=40) == 0
    assert plays(forced, in_place=False, seeds=40) > 0
    with pytest.raises(
        ScheduleError,
        match=(
            r"rank \d, track main, round \d: two tracks touch out\[0\] of rank 1 without an order"
        ),
    ):
        check(forced)


def test_two_senders_that_write_one_cell() -> None:
    """Rank 0 takes what rank 1 sends and then, over it, what rank 2 sends: safe only through a
    FIFO.
    """
    programs = "<1x =o0 | <2x =o0 | i0 >1x", "i0 >0x >2x | <0x =o0", "i0 >0x | <1x =o0"
    schedule = schedule_of(programs, "sendrecv")
    check(schedule)
    found = push_zero_copy(schedule, in_place=False)
    assert len({At(0, 0, 0), At(0, 0, 1)} & found.pushed.keys()) < 2
    check(found)
    into = {At(0, 0, 0): frozenset({Edge(1, "x")}), At(0, 0, 1): frozenset({Edge(2, "x")})}
    with pytest.raises(
        ScheduleError, match=r"two tracks touch out\[0\] of rank 0 without an order"
    ):
        check(replace(schedule, pushed=into, ready={0: frozenset({Edge(1, "x"), Edge(2, "x")})}))


def test_credits_are_no_order() -> None:
    """With one slot a sender cannot send again before its receiver has read; that must not make a
    direct write safe.
    """
    allgather = registered("allgather", "direct", World(n=2))
    pushed = replace(push_zero_copy(allgather, in_place=False), ready={})
    with pytest.raises(ScheduleError, match="without knowing that the launch has begun"):
        check(pushed, slots=1)


def test_a_sum_cannot_be_placed() -> None:
    schedule = registered("allreduce", "ring", World(n=4))
    with pytest.raises(
        ScheduleError, match="round 1: rank 3 cannot write what is not just copied to the output"
    ):
        check(replace(schedule, pushed={At(0, 0, 1): frozenset({Edge(3, "ring")})}))
    assert landing(schedule.programs[0][0].rounds[1], Edge(3, "ring")) == ()


def test_a_message_is_pulled_or_pushed() -> None:
    schedule = registered("allreduce", "twoshot", World(n=4))
    with pytest.raises(ScheduleError, match="cannot be written in place, too"):
        push_zero_copy(pull_zero_copy(schedule, in_place=False), in_place=False)
    with pytest.raises(
        ScheduleError, match="messages that are pulled and messages that are pushed"
    ):
        check(pull_zero_copy(push_zero_copy(schedule, in_place=False), in_place=False))


def test_another_rank_order_is_found_anew() -> None:
    pushed = push_zero_copy(build("allgather", "ring", ring.allgather, World(n=4)), in_place=False)
    moved = reorder(pushed, (0, 2, 1, 3))
    assert (moved.pushed, moved.ready) == ({}, {})
    assert_proved(moved, in_place=False)


def test_a_message_and_its_arrival() -> None:
    found = arrivals(registered("broadcast", "chain", World(n=3)))
    assert found[Message(At(0, 0, 0), Edge(1, "chain"))] == Message(At(1, 0, 0), Edge(0, "chain"))
