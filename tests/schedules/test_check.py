"""What the check must refuse: each schedule here has one thing wrong."""

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, lcm

import pytest

from collbench.core.collectives import OpName
from collbench.core.errors import ScheduleError
from collbench.core.world import World
from collbench.planning.layout import lay_out, registered
from collbench.planning.plan import Kernel
from collbench.schedules.ir import (
    At,
    BufferName,
    Edge,
    Operand,
    PendingPull,
    Program,
    Round,
    Schedule,
    Step,
    Track,
    build,
)
from collbench.schedules.passes import pull_zero_copy
from collbench.schedules.verify.check import check
from collbench.schedules.zero_copy import push_zero_copy
from tests.support.adversary import Adversary
from tests.support.batteries import assert_right, problem

IN, OUT, TMP = Operand("in", 0), Operand("out", 0), Operand("tmp", 0)


def schedule_of(programs: Sequence[Program], op: OpName = "allreduce", root: int = 0) -> Schedule:
    return build(op, "test", lambda world, rank: programs[rank], World(n=len(programs), root=root))


def track(*rounds: tuple[Step, ...], name: str = "main") -> Track:
    return Track(name=name, rounds=rounds)


def exchange(port: str = "x", **changes: object) -> list[Program]:
    """Two ranks send their input and add."""
    return [
        (
            track(
                (Step(src=(IN,), send=(Edge(1 - rank, port),)),),
                (Step(src=(IN,), recv=(Edge(1 - rank, port),), dst=OUT),),
            ),
        )
        for rank in (0, 1)
    ]


def refuse(
    programs: Sequence[Program],
    match: str,
    op: OpName = "allreduce",
    root: int = 0,
    *,
    loops: int = 2,
    launches: int = 2,
) -> None:
    with pytest.raises(ScheduleError, match=match):
        check(schedule_of(programs, op, root), loops=loops, launches=launches)


def ahead_by(messages: int) -> Schedule:
    """Two ranks send each other so many messages before either receives one."""
    parts = range(messages)
    return schedule_of(
        [
            (
                track(
                    *((Step(src=(Operand("in", c),), send=(Edge(1 - rank, "x"),)),) for c in parts),
                    *(
                        (
                            Step(
                                src=(Operand("in", c),),
                                recv=(Edge(1 - rank, "x"),),
                                dst=Operand("out", c),
                            ),
                        )
                        for c in parts
                    ),
                ),
            )
            for rank in (0, 1)
        ]
    )


def test_accepts_an_exchange() -> None:
    assert check(schedule_of(exchange())).hops == 1


SENDS = (Step(src=(IN,), send=(Edge(1, "x"),)),)
ADDS = Step(src=(IN,), recv=(Edge(1, "x"),), dst=OUT)


@pytest.mark.parametrize(
    ("rounds", "match"),
    [
        ((SENDS, (replace(ADDS, src=(IN, IN)),)), "adds a rank twice"),
        ((SENDS, (replace(ADDS, src=()),)),
         "ends as input chunk 0 of ranks 1 .*, wanted input chunk 0 of ranks 0, 1"),
        ((SENDS, (replace(ADDS, dst=TMP),)), "ends as nothing"),
        (((replace(SENDS[0], src=(Operand("in", 1),)),), (ADDS,)), "adds input chunk 1 of ranks 0"),
        ((SENDS * 2, (ADDS,)), "a message of 2 chunks from rank 0 where 1 are read"),
        ((SENDS, SENDS, (ADDS,)),
         "adds input chunk 0 of ranks 0 .piece 0. to input chunk 0 of ranks 1 .piece 1."),
        ((SENDS, (Step(src=(OUT,), dst=TMP), ADDS)), "one step reads out.0. and another writes it"),
        ((SENDS, (ADDS, Step(src=(IN,), dst=OUT))), "two steps write out.0."),
    ],
)  # fmt: skip
def test_a_rank_of_an_exchange_that_does_something_else(
    rounds: tuple[Round, ...], match: str
) -> None:
    refuse([(track(*rounds),), exchange()[1]], match)


def test_slots_left_full() -> None:
    programs = [(track(SENDS, SENDS, (ADDS,)),), exchange()[1]]
    refuse(programs, "stay in port", loops=1, launches=1)


def test_reducing_what_is_only_moved() -> None:
    refuse(exchange(), "sendrecv reduces nothing", op="sendrecv")


def test_nobody_receives() -> None:
    programs = exchange()
    programs[1] = (track((Step(src=(IN,), dst=OUT),)),)
    refuse(programs, "nobody")


def test_a_port_of_two_tracks() -> None:
    programs = exchange()
    main = programs[0][0]
    programs[0] = (track(main.rounds[0], name="a"), track(main.rounds[0], main.rounds[1], name="b"))
    refuse(programs, "used by two tracks")


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


def by_way_of(park: Operand) -> Schedule:
    """A broadcast in four chunks, of which rank 1 keeps the first one elsewhere for a while."""
    sends = tuple((Step(src=(Operand("in", c),), send=(Edge(1, "x"),)),) for c in range(4))
    takes = tuple((Step(recv=(Edge(0, "x"),), dst=Operand("out", c)),) for c in range(1, 4))
    keeps = (Step(recv=(Edge(0, "x"),), dst=park),), (Step(src=(park,), dst=OUT),)
    copies = tuple(Step(src=(Operand("in", c),), dst=Operand("out", c)) for c in range(4))
    return schedule_of([(track(*sends, copies),), (track(*keeps, *takes),)], "broadcast")


def test_a_chunk_of_a_vector_may_not_lie_in_another_chunk_of_the_output() -> None:
    """Of seven elements in four chunks, the last chunk has one and the others two."""
    parked = by_way_of(Operand("out", 3))
    with pytest.raises(ScheduleError, match=PARKED):
        check(parked)
    with pytest.raises(ScheduleError, match=PARKED):
        lay_out(problem("broadcast", 2, count=7), parked)
    plays = [
        Adversary(parked, in_place=False, launches=1, loops=2, seed=seed).play()
        for seed in range(8)
    ]
    assert "wrong" in plays
    for park in (TMP, OUT):
        check(by_way_of(park))
        assert_right(lay_out(problem("broadcast", 2, count=7), by_way_of(park)))


@pytest.mark.parametrize("zero_copy", ["pulled", "pushed"])
def test_nor_may_a_peer_read_or_write_it_there(zero_copy: str) -> None:
    """Rank 1 passes the chunk on from where it keeps it; or rank 0 writes it there."""
    parked = by_way_of(Operand("out", 3))
    taken, on = (Step(recv=(Edge(0, "x"),), dst=Operand("out", 3)),), Edge(0, "y")
    relayed = (Step(src=(Operand("out", 3),), dst=OUT, send=(on,)),)
    (sending,), (main,) = parked.programs
    back = (Step(recv=(Edge(1, "y"),), dst=TMP),)
    whole = schedule_of(
        [(track(*sending.rounds, back),), (track(taken, relayed, *main.rounds[2:]),)], "broadcast"
    )
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
    programs = [
        (
            track(
                (Step(src=(Operand("in", 1),), send=(Edge(1 - rank, "x"),)),),
                (Step(src=(Operand("in", 1),), recv=(Edge(1 - rank, "x"),), dst=TMP),),
                (Step(src=(IN,), send=(Edge(1 - rank, "x"),)),),
                (Step(src=(IN,), recv=(Edge(1 - rank, "x"),), dst=Operand("out", 1)),),
                (Step(src=(Operand("out", 1),), dst=OUT),),
                (Step(src=(TMP,), dst=Operand("out", 1)),),
            ),
        )
        for rank in (0, 1)
    ]
    for in_place in (False, True):
        with pytest.raises(ScheduleError, match=r"input chunk 0 to out.1., which may"):
            check(schedule_of(programs), in_place=in_place)


def test_blocks_are_equal_so_that_one_may_lie_in_the_place_of_another() -> None:
    """Rank 0 of an allgather takes the block of rank 1 in the place of its own."""
    programs = exchange()
    send = programs[0][0].rounds[0]
    for rank in (0, 1):
        own, other = Operand("out", rank), Operand("out", 1 - rank)
        programs[rank] = (
            track(
                send if rank == 0 else (Step(src=(IN,), send=(Edge(0, "x"),)),),
                (Step(recv=(Edge(1 - rank, "x"),), dst=own),),
                (Step(src=(own,), dst=other),),
                (Step(src=(IN,), dst=own),),
            ),
        )
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
    second = Step(src=(IN,), send=(Edge(1, "x"),))
    late = Step(src=(IN,), recv=(Edge(1, "x"),), dst=OUT)
    programs = exchange()
    programs[0] = (track((second,), (late,), (Step(src=(IN,), send=(Edge(1, "y"),)),)),)
    programs[1] = (
        track(
            (Step(src=(IN,), send=(Edge(0, "x"),)),),
            (Step(src=(IN,), recv=(Edge(0, "x"),), dst=TMP),),
            (Step(src=(IN,), recv=(Edge(0, "y"),), dst=OUT),),
        ),
    )
    check(schedule_of(programs))
    with pytest.raises(ScheduleError, match="adds a rank twice"):
        check(schedule_of(programs), in_place=True)


def test_two_tracks_without_an_order() -> None:
    """Track b reads scratch that track a writes, and nothing says when."""
    programs = exchange()
    programs[0] = (
        track((Step(src=(IN,), dst=TMP),), name="a"),
        track(
            (Step(src=(IN,), send=(Edge(1, "x"),)),),
            (Step(src=(TMP,), recv=(Edge(1, "x"),), dst=OUT),),
            name="b",
        ),
    )
    refuse(programs, "without an order|before anything was written|stale")


def through_a_peer(*rounds: Round) -> list[Program]:
    """Track a of rank 0 writes scratch and tells rank 1, which answers track b, whose rounds are
    given.
    """
    first: Program = (
        track((Step(src=(IN,), dst=TMP, send=(Edge(1, "go"),)),), name="a"),
        track(*rounds, name="b"),
    )
    return [
        first,
        (
            track(
                (Step(recv=(Edge(0, "go"),), src=(IN,), dst=OUT),),
                (Step(src=(IN,), send=(Edge(0, "back"),)),),
            ),
        ),
    ]


def test_an_order_through_a_peer_counts() -> None:
    """Track b reads scratch only after a message that left rank 0 after track a wrote it."""
    add = (Step(src=(TMP, OUT), dst=OUT),)
    programs = through_a_peer((Step(recv=(Edge(1, "back"),), dst=OUT),), add)
    check(schedule_of(programs), loops=1)
    programs[1] = (
        track(
            (
                Step(src=(IN,), send=(Edge(0, "back"),)),
                Step(src=(IN,), recv=(Edge(0, "go"),), dst=OUT),
            )
        ),
    )
    refuse(programs, "without an order|before anything|stale")


def test_a_step_may_read_before_its_own_message_comes() -> None:
    """As ll and ll128 do: the message of the step itself orders nothing that it reads."""
    programs = through_a_peer((Step(src=(TMP,), recv=(Edge(1, "back"),), dst=OUT),))
    with pytest.raises(ScheduleError, match="without an order"):
        check(schedule_of(programs), loops=1)


def test_scratch_overwritten_by_the_next_loop() -> None:
    """The same schedule is refused for two loops: nothing keeps track a from running ahead of track
    b.
    """
    programs = through_a_peer(
        (Step(recv=(Edge(1, "back"),), dst=OUT),), (Step(src=(TMP, OUT), dst=OUT),)
    )
    refuse(programs, "without an order|stale", loops=2)


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


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (Step(src=(IN,), dst=IN), "writes to the input"),
        (Step(src=(IN,)), "goes nowhere"),
        (Step(dst=OUT), "without operands"),
        (Step(src=(IN,), send=(Edge(0, "x"),)), "an edge to rank 0"),
        (Step(src=(IN,), send=(Edge(7, "x"),)), "an edge to rank 7"),
        (Step(src=(IN,), send=(Edge(1, "x"), Edge(1, "x"))), "uses an edge twice"),
    ],
)
def test_steps_that_mean_nothing(step: Step, match: str) -> None:
    refuse([(track((step,)),), (track((Step(src=(IN,), dst=OUT),)),)], match)


def test_a_buffer_that_the_rank_has_not() -> None:
    programs = [(track((Step(src=(IN,), dst=OUT),)),), (track((Step(src=(IN,), dst=OUT),)),)]
    refuse(programs, "rank 1.*has no in buffer", op="broadcast")


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
