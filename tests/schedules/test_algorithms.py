"""The battery: every registered algorithm for every collective that it serves, on the check and on
the reference.
"""

from collections.abc import Callable
from itertools import product

import pytest

from collbench.core.collectives import OpName, collective
from collbench.core.errors import ScheduleError
from collbench.core.world import World
from collbench.planning.layout import along, registered
from collbench.schedules.passes import pair_traffic, pull_zero_copy, reorder, traffic
from collbench.schedules.verify.check import check
from tests.support.batteries import (
    PAIRS,
    assert_right,
    placements,
    plan_of,
    problem,
    roots,
    world_of,
)
from tests.support.tiers import tiered

RANKS = (2, 3, 5, 8, 4, 6, 7, 9, 11, 13, 16, 17, 32, 64)
LAYOUTS = ((2, 1), (8, 3), (2, 3), (8, 1))  # slots, channels


@tiered("n", RANKS, 4)
@tiered(("op", "algo"), PAIRS, 9)
def test_proved_and_right(op: OpName, algo: str, n: int) -> None:
    """Every layout, of 32 ranks and more one; of several roots each with one in turn, all of eight
    ranks and two of 64.
    """
    count = 3 * n + 1 if collective(op).is_interleaved else min(3 * n + 1, 37)
    every = list(roots(op, n))[:: max(1, n * n // 80)]
    for number, root in enumerate(every):
        turn = (n + number) % len(LAYOUTS)
        is_each = len(every) == 1 and n < 32
        for slots, channels in LAYOUTS if is_each else LAYOUTS[turn : turn + 1]:
            what = problem(op, n, root=root, count=count)
            assert_right(plan_of(what, algo, slots=slots, channels=channels))


@tiered("n", [2, 5, 3, 4, 7, 8, 13], 2)
@tiered(("op", "algo"), PAIRS, 12)
def test_in_place_and_with_loans(op: OpName, algo: str, n: int) -> None:
    for root, in_place, direct in product(roots(op, n), placements(op), (False, True)):
        if (algo, in_place, direct) == ("oneshot", True, True):
            continue  # see test_oneshot_in_place_lends_nothing
        what = problem(op, n, root=root, count=53, in_place=in_place)
        assert_right(plan_of(what, algo, slots=2, direct=direct))
        assert_right(plan_of(what, algo, slots=8, slot_bytes=32 * n, channels=3, direct=direct))


def test_oneshot_in_place_lends_nothing() -> None:
    """Every rank would wait for all others to have read what it must overwrite."""
    with pytest.raises(ScheduleError, match="finish a pull"):
        plan_of(problem("allreduce", 4, in_place=True), "oneshot", direct=True)


@tiered(("op", "algo"), PAIRS, 5)
def test_slices(op: OpName, algo: str) -> None:
    for n in (2, 5, 8):
        schedule = registered(op, algo, world_of(algo, n, n - 1 if collective(op).is_rooted else 0))
        for slices in (2, 3):
            check(schedule, slots=2 * slices, slices=slices, loops=3)
        check(pull_zero_copy(schedule, in_place=False), slots=8, slices=2)


@tiered(("op", "algo"), PAIRS, 14)
def test_any_rank_order(op: OpName, algo: str) -> None:
    for order in ((2, 0, 1), (3, 1, 4, 0, 2), (5, 4, 3, 2, 1, 0)):
        n = len(order)
        for root in roots(op, n):
            schedule = registered(op, algo, world_of(algo, n, root, order))
            assert schedule.root == root
            check(schedule)
            check(pull_zero_copy(schedule, in_place=False))


# hops and bytes that the busiest rank sends, as functions of n
FORMULAS: dict[tuple[OpName, str], Callable[[int], tuple[float, float]]] = {
    ("allreduce", "ring"): lambda n: (2 * (n - 1), 2 * (n - 1) / n),
    ("allreduce", "twoshot"): lambda n: (2, 2 * (n - 1) / n),
    ("allreduce", "oneshot"): lambda n: (1, n - 1),
    ("allreduce", "star"): lambda n: (2, n - 1),
    ("allreduce", "chain"): lambda n: (2 * (n - 1), 2 if n > 2 else 1),
    ("allgather", "ring"): lambda n: (n - 1, (n - 1) / n),
    ("allgather", "direct"): lambda n: (1, (n - 1) / n),
    ("reducescatter", "ring"): lambda n: (n - 1, (n - 1) / n),
    ("broadcast", "chain"): lambda n: (n - 1, 1),
    ("broadcast", "direct"): lambda n: (1, n - 1),
    ("broadcast", "twoshot"): lambda n: (2 if n > 2 else 1, 1),
    ("reduce", "twoshot"): lambda n: (2, 1),
    ("reduce", "chain"): lambda n: (n - 1, 1),
    ("alltoall", "direct"): lambda n: (1, (n - 1) / n),
    # of one host; of several see test_hierarchical
    ("allreduce", "hierarchical"): lambda n: (2, 2 * (n - 1) / n),
    ("sendrecv", "direct"): lambda n: (1, 1),
    ("allgather", "duplex"): lambda n: (1, (n - 1) / n),
    ("reducescatter", "duplex"): lambda n: (1, (n - 1) / n),
    ("alltoall", "duplex"): lambda n: (1, (n - 1) / n),
    ("sendrecv", "duplex"): lambda n: (1, 1),
}


@pytest.mark.parametrize(("op", "algo"), FORMULAS)
def test_hops_and_bytes_are_the_known_ones(op: OpName, algo: str) -> None:
    for n in (2, 3, 5, 8, 13):
        schedule = registered(op, algo, World(n=n))
        hops, sent = FORMULAS[op, algo](n)
        assert check(schedule).hops == hops
        assert float(traffic(schedule).sent) == pytest.approx(sent)


@pytest.mark.parametrize("n", [4, 8, 16])
def test_halving_takes_two_log_n_hops(n: int) -> None:
    assert check(registered("allreduce", "halving", World(n=n))).hops == 2 * (n.bit_length() - 1)


@pytest.mark.parametrize("n", [4, 6, 8, 16, 32])
def test_no_rank_is_inner_in_both_trees(n: int) -> None:
    schedule = registered("allreduce", "tree", World(n=n))
    for program in schedule.programs:
        inner = {
            track.name[-1]
            for track in program
            if track.name.startswith("up")
            for steps in track.rounds
            for step in steps
            if step.recv
        }
        tops = {track.name[-1] for track in program if track.name.startswith("top")}
        assert len(inner | tops) <= 1


@pytest.mark.parametrize("op", ["allgather", "reducescatter", "alltoall", "sendrecv"])
def test_no_track_of_duplex_both_sends_and_receives(op: OpName) -> None:
    """All that a rank sends is on one track, all that it receives or keeps on the other."""
    for program in registered(op, "duplex", World(n=5)).programs:
        sends, receives = ([step for steps in track.rounds for step in steps] for track in program)
        assert all(step.send and not step.recv for step in sends)
        assert all(not step.send for step in receives) and any(step.recv for step in receives)


@tiered(("algo", "n"), product(("ring", "twoshot"), (200, 500)), 1)
def test_hundreds_of_ranks_need_one_program(algo: str, n: int) -> None:
    schedule = registered("allreduce", algo, World(n=n))
    assert schedule.is_symmetric
    assert len(schedule.programs) == 1
    assert check(schedule).hops == {"ring": 2 * (n - 1), "twoshot": 2}[algo]


def test_reorder_moves_the_ring() -> None:
    plain = registered("allreduce", "ring", World(n=4))
    moved = reorder(plain, (0, 2, 1, 3))
    assert {edge.peer for step in moved.program(0)[0].rounds[0] for edge in step.send} == {2}


@pytest.mark.parametrize("op", ["allreduce", "broadcast", "reduce"])
@pytest.mark.parametrize("algo", ["ring", "chain", "twoshot", "tree", "star"])
def test_a_braid_of_orders_is_proved_and_sends_no_more(op: OpName, algo: str) -> None:
    """Three orders side by side: the hops of one, and no rank sends more than in the order that
    asks most of it.
    """
    orders = ((0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (0, 2, 4, 1, 3))
    one, three = along(op, algo, 5, 1, orders[:1]), along(op, algo, 5, 1, orders)
    assert check(three).hops <= max(check(along(op, algo, 5, 1, (order,))).hops for order in orders)
    assert three.chunks["in"] == 3 * one.chunks["in"]
    assert traffic(three).sent <= max(
        traffic(along(op, algo, 5, 1, (order,))).sent for order in orders
    )


def test_what_cannot_be_cut_follows_the_first_order() -> None:
    along_both = along("allgather", "ring", 4, 0, ((0, 2, 1, 3), (3, 1, 2, 0)))
    assert set(pair_traffic(along_both)) == {(0, 2), (2, 1), (1, 3), (3, 0)}
