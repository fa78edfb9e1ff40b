"""What the check must refuse: each schedule here has one thing wrong."""

from dataclasses import replace
from math import gcd, lcm

import pytest

from collbench.core.collectives import OpName
from collbench.core.errors import ScheduleError
from collbench.core.world import World
from collbench.planning.layout import lay_out, registered
from collbench.planning.plan import Kernel
from collbench.schedules.ir import At, BufferName, Edge, Operand, PendingPull, Schedule
from collbench.schedules.passes import pull_zero_copy
from collbench.schedules.verify.check import check
from collbench.schedules.zero_copy import push_zero_copy
from tests.support.adversary import Adversary
from tests.support.batteries import assert_right, problem
from tests.support.tables import cells_of
from tests.support.written import schedule_of

IN, OUT, TMP = Operand("in", 0), Operand("out", 0), Operand("tmp", 0)
EXCHANGE = ("i0 >1x | i0 <1x =o0", "i0 >0x | i0 <0x =o0")  # of inputs, which both ranks add


def ahead_by(messages: int) -> Schedule:
    """Two ranks send each other so many messages before either receives one."""
    texts = ["i{0} >{1}x", "i{0} <{1}x =o{0}"]
    each = [[text.format(c, peer) for text in texts for c in range(messages)] for peer in (1, 0)]
    return schedule_of([" | ".join(rounds) for rounds in each])


def test_accepts_an_exchange() -> None:
    assert check(schedule_of(EXCHANGE)).hops == 1


@pytest.mark.parametrize(
    ("op", "first", "second", "match"), cells_of(__file__, "refused-schedules.tsv")
)
def test_each_of_these_has_one_thing_wrong(op: OpName, first: str, second: str, match: str) -> None:
    with pytest.raises(ScheduleError, match=match):
        check(schedule_of((first, second), op), loops=2, launches=2)


def test_slots_left_full() -> None:
    left = schedule_of(("i0 >1x | i0 >1x | i0 <1x =o0", EXCHANGE[1]))
    with pytest.raises(ScheduleError, match="stay in port"):
        check(left, loops=1, launches=1)


@pytest.mark.parametrize(("slots", "slices"), [(1, 1), (2, 2), (4, 4)])
def test_as_many_slots_as_slices_deadlock_every_ring(slots: int, slices: int) -> None:
    for n in (2, 3, 8):
        for op in ("allreduce", "allgather", "reducescatter"):
            schedule = registered(op, "ring", World(n=n))
            check(schedule, slots=slots + 1, slices=slices)
            if (op, n) in (("allgather", 2), ("reducescatter", 2)):
                # one hop: nothing is sent before something is received that could wait for it
                continue
            with pytest.raises(ScheduleError, match="deadlocks"):
                check(schedule, slots=slots, slices=slices)


def test_credits_that_come_back_too_late_deadlock() -> None:
    """Seven messages ahead, ten slots, credits for five at a time: two loops end, the third does
    not.
    """
    ahead = ahead_by(7)
    kernel = Kernel(proto="ll", threads=64)
    assert (kernel.credit_batch(10), kernel.sure_slots(10)) == (5, 6)
    check(ahead, slots=7)
    with pytest.raises(ScheduleError, match="deadlocks with 6 slots"):
        lay_out(problem("allreduce", 2), ahead, slots=10, kernel=kernel)
    verdicts = [
        Adversary(ahead, in_place=False, launches=1, loops=loops, slots=10, batch=5, seed=1).play()
        for loops in (1, 2, 3)
    ]
    assert verdicts == ["right", "right", "hang"]


@pytest.mark.parametrize("ahead", range(1, 9))
def test_sure_slots_are_enough_in_every_phase_of_the_credits(ahead: int) -> None:
    """They are the fewest, too, unless the messages of a loop and a batch have a common divisor."""
    schedule, kernel = ahead_by(ahead), Kernel(proto="ll", threads=64)
    for slots in range(1, 18):
        batch = kernel.credit_batch(slots)
        loops = lcm(ahead, batch) // ahead + 2
        play = Adversary(
            schedule, in_place=False, launches=2, loops=loops, slots=slots, batch=batch, seed=slots
        )
        is_enough = ahead <= slots - batch + gcd(ahead, batch)
        assert play.play() == ("right" if is_enough else "hang")
        assert is_enough or ahead > kernel.sure_slots(slots)


PARKED = "writes input chunk 0 to out.3., which may be shorter"


def by_way_of(park: str) -> Schedule:
    """A broadcast in four chunks, of which rank 1 keeps the first one elsewhere for a while."""
    sends = "i0 >1x | i1 >1x | i2 >1x | i3 >1x | i0 =o0, i1 =o1, i2 =o2, i3 =o3"
    takes = f"<0x ={park} | {park} =o0 | <0x =o1 | <0x =o2 | <0x =o3"
    return schedule_of((sends, takes), "broadcast")


def test_a_chunk_of_a_vector_may_not_lie_in_another_chunk_of_the_output() -> None:
    """Of seven elements in four chunks, the last chunk has one and the others two."""
    parked = by_way_of("o3")
    with pytest.raises(ScheduleError, match=PARKED):
        check(parked)
    with pytest.raises(ScheduleError, match=PARKED):
        lay_out(problem("broadcast", 2, count=7), parked)
    plays = [
        Adversary(parked, in_place=False, launches=1, loops=2, seed=seed).play()
        for seed in range(8)
    ]
    assert "wrong" in plays
    for park in ("t0", "o0"):
        check(by_way_of(park))
        assert_right(lay_out(problem("broadcast", 2, count=7), by_way_of(park)))


@pytest.mark.parametrize("zero_copy", ["pulled", "pushed"])
def test_nor_may_a_peer_read_or_write_it_there(zero_copy: str) -> None:
    """Rank 1 passes the chunk on from where it keeps it; or rank 0 writes it there."""
    on = Edge(0, "y")
    sends = "i0 >1x | i1 >1x | i2 >1x | i3 >1x | i0 =o0, i1 =o1, i2 =o2, i3 =o3 | <1y =t0"
    takes = "<0x =o3 | o3 =o0 >0y | <0x =o1 | <0x =o2 | <0x =o3"
    whole = schedule_of((sends, takes), "broadcast")
    direct = (
        replace(whole, pulled={At(1, 0, 1): frozenset({on})})
        if zero_copy == "pulled"
        else replace(
            whole,
            pushed={At(1, 0, 0): frozenset({Edge(0, "x")})},
            ready={1: frozenset({Edge(0, "x")})},
        )
    )
    with pytest.raises(ScheduleError, match=PARKED):
        check(direct)
    with pytest.raises(ScheduleError, match=PARKED):
        push_zero_copy(whole, in_place=False)


def test_nor_in_place() -> None:
    """There the chunk would lie in the input, too."""
    text = "i1 >{0}x | i1 <{0}x =t0 | i0 >{0}x | i0 <{0}x =o1 | o1 =o0 | t0 =o1"
    programs = [text.format(peer) for peer in (1, 0)]
    for in_place in (False, True):
        with pytest.raises(ScheduleError, match=r"input chunk 0 to out.1., which may"):
            check(schedule_of(programs), in_place=in_place)


def test_blocks_are_equal_so_that_one_may_lie_in_the_place_of_another() -> None:
    """Rank 0 of an allgather takes the block of rank 1 in the place of its own."""
    programs = [f"i0 >{p}x | <{p}x =o{1 - p} | o{1 - p} =o{p} | i0 =o{1 - p}" for p in (1, 0)]
    schedule = schedule_of(programs, "allgather")
    check(schedule)
    assert_right(lay_out(problem("allgather", 2, count=7), schedule))


@pytest.mark.parametrize(
    ("op", "chunks"),
    [
        ("allreduce", {"in": 4, "out": 3, "tmp": 0}),
        ("allreduce", {"in": 0, "out": 0, "tmp": 0}),
        ("allgather", {"in": 1, "out": 5, "tmp": 0}),
        ("reducescatter", {"in": 5, "out": 1, "tmp": 0}),
    ],
)
def test_buffers_that_are_cut_otherwise(op: OpName, chunks: dict[BufferName, int]) -> None:
    schedule = replace(registered(op, "ring", World(n=4)), chunks=chunks)
    with pytest.raises(ScheduleError, match=f"{chunks['in']} chunks of the input and"):
        check(schedule)


def test_in_place_input_overwritten_before_its_last_read() -> None:
    programs = "i0 >1x | i0 <1x =o0 | i0 >1y", "i0 >0x | i0 <0x =t0 | i0 <0y =o0"
    check(schedule_of(programs))
    with pytest.raises(ScheduleError, match="adds a rank twice"):
        check(schedule_of(programs), in_place=True)


def test_an_order_through_a_peer_counts() -> None:
    """Track b reads scratch only after a message that left rank 0 after track a wrote it; nothing
    keeps track a from running ahead of it in the next loop, which the table has.
    """
    first, answers = "a: i0 =t0 >1go / b: <1back =o0 | t0 o0 =o0", "i0 <0go =o0 | i0 >0back"
    check(schedule_of((first, answers)), loops=1)
    # as ll and ll128 do: a step may read before its own message comes
    early = schedule_of(("a: i0 =t0 >1go / b: t0 <1back =o0", answers))
    with pytest.raises(ScheduleError, match="without an order"):
        check(early, loops=1)


def test_a_loan_overwritten_too_early() -> None:
    """Without the wait that pull_zero_copy puts there, an in-place two-shot would overwrite what
    peers still read.
    """
    pulled = pull_zero_copy(registered("allreduce", "twoshot", World(n=4)), in_place=True)
    check(pulled, in_place=True)
    with pytest.raises(ScheduleError, match="while it is pulled"):
        check(replace(pulled, pending_pulls={}), in_place=True)


def test_a_pull_of_what_is_not_kept() -> None:
    """Halving sends sums that no step leaves in the output; and a round that sends nothing."""
    ring, sums = registered("allreduce", "ring", World(n=4)), Edge(1, "ring")
    for at in (At(0, 0, 1), At(0, 0, 6)):
        with pytest.raises(ScheduleError, match="cannot read what the input or output does not"):
            check(replace(ring, pulled={at: frozenset({sums})}))


def test_a_wait_for_a_pull_that_is_not_under_way() -> None:
    pulled = pull_zero_copy(registered("allreduce", "twoshot", World(n=3)), in_place=False)
    edge = next(iter(pulled.pulled[At(0, 0, 1)]))
    for pull in (PendingPull(1, edge), PendingPull(0, Edge(1, "?"))):
        with pytest.raises(ScheduleError, match=r"a wait for a pull by rank \d that is not"):
            check(replace(pulled, pending_pulls={At(0, 0, 1): {0: (pull,)}}))


def test_avg_divides_where_the_sum_is_complete() -> None:
    for algo in ("ring", "twoshot", "oneshot", "halving", "chain", "tree", "star"):
        schedule = registered("allreduce", algo, World(n=6))
        proof = check(schedule)
        assert proof.complete
        for place in proof.complete:
            step = schedule.programs[place.program][place.track].rounds[place.round][place.step]
            assert len(step.src) + len(step.recv) > 1
    assert not check(registered("allgather", "ring", World(n=6))).complete


def test_lent_messages_are_known_by_place() -> None:
    pulled = pull_zero_copy(registered("allreduce", "twoshot", World(n=3)), in_place=False).pulled
    assert At(0, 0, 0) in pulled
    assert At(0, 0, 1) in pulled
