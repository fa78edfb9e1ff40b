"""Plans: whatever the knobs, every byte belongs to one channel and is moved exactly as often as the
schedule says.
"""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.dtypes import DTYPES, DtypeName
from collbench.core.errors import ScheduleError
from collbench.core.world import World
from collbench.planning.layout import lay_out, registered
from collbench.planning.lowering import Region, SlotSequence, actors, room_wanted
from collbench.planning.plan import Plan
from collbench.planning.planner import MAX_ACTIONS, refuse_too_many, resolve
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules.passes import message_chunks
from tests.support.batteries import PAIRS, assert_right, plan_of, problem

LAYOUTS = st.fixed_dictionaries(
    {
        "channels": st.integers(1, 5),
        "slots": st.integers(2, 8),
        "chunk_bytes": st.sampled_from([16, 32, 48, 64, 256, 4096]),
        "slot_bytes": st.sampled_from([0, 0, 1024, 2048]),
        "direct": st.booleans(),
    }
)


def try_plan(
    pair_index: int, n: int, count: int, dtype: DtypeName, in_place: bool, layout: dict[str, int]
) -> Plan | None:
    """The plan, or None where the knobs do not fit together or the schedule fails its proof with
    them.
    """
    op, algo = PAIRS[pair_index % len(PAIRS)]
    in_place = in_place and collective(op).has_in_place
    try:
        return plan_of(problem(op, n, count=count, dtype=dtype, in_place=in_place), algo, **layout)
    except ScheduleError:
        return None


PLANS = st.builds(
    try_plan,
    st.integers(0, len(PAIRS) - 1),
    st.integers(2, 6),
    st.integers(1, 3000),
    st.sampled_from(DTYPES),
    st.booleans(),
    LAYOUTS,
).filter(lambda plan: plan is not None)


@given(PLANS)
def test_channels_cut_a_block_without_gap_or_overlap(plan: Plan) -> None:
    end = 0
    for channel in range(plan.channels):
        first, size = plan.channel_range(channel)
        assert first == end
        assert first % plan.problem.item_bytes == 0
        end = first + size
    assert end == plan.problem.block_bytes


@given(PLANS)
def test_loops_cut_a_channel_without_gap_or_overlap(plan: Plan) -> None:
    for channel in range(plan.channels):
        first, size = plan.channel_range(channel)
        at = first
        for loop in plan.loops(channel):
            assert loop.offset == at
            assert 0 < loop.chunk <= plan.chunk_bytes
            assert loop.chunk % plan.problem.item_bytes == 0
            assert loop.slices >= 1
            at += loop.size
        assert at == first + size


def bytes_written(plan: Plan, rank: int) -> Counter[int]:
    """How often each byte of the rank's output is written in one launch."""
    written: Counter[int] = Counter()
    for actor in actors(plan, rank):
        for action in actor.actions:
            for region in action.targets:
                if region.space == "out":
                    written.update(range(region.offset, region.offset + region.size))
    return written


@pytest.mark.exhaustive
@given(PLANS)
def test_every_output_byte_is_written_as_often_as_the_schedule_writes_its_chunk(plan: Plan) -> None:
    what, schedule = collective(plan.problem.op), plan.schedule
    for rank in range(plan.n):
        writes = Counter(
            step.dst.chunk
            for track in schedule.program(rank)
            for steps in track.rounds
            for step in steps
            if step.dst and step.dst.buffer == "out"
        )
        written = bytes_written(plan, rank)
        out_bytes = plan.problem.buffers(rank).out_bytes
        if what.is_interleaved:
            assert set(writes.values()) <= {1}
            assert written == Counter(dict.fromkeys(range(out_bytes), 1) if writes else {})
        else:
            expected = {
                block * plan.problem.block_bytes + i: count
                for block, count in writes.items()
                for i in range(plan.problem.block_bytes)
            }
            assert written == Counter(expected)


@given(PLANS)
def test_bytes_on_every_connection_are_what_the_schedule_sends(plan: Plan) -> None:
    """Sum over channels, loops and slices = chunks sent x their bytes, for messages through FIFOs
    and for those that are pulled zero-copy.
    """
    sent: Counter[tuple[int, int, str]] = Counter()
    for rank in range(plan.n):
        for actor in actors(plan, rank):
            for action in actor.actions:
                for region in action.targets:
                    if region.space == "slot":
                        connection = plan.connections[region.owner]
                        sent[connection.src, connection.dst, connection.port] += region.size
                for region in action.operands:
                    if region.space in ("in", "out") and region.owner != rank:
                        ports = {plan.connections[edge].port for edge, _ in action.take} or {"?"}
                        sent[region.owner, rank, "pulled"] += region.size
                        assert ports
    by_pair: Counter[tuple[int, int]] = Counter()
    for (src, dst, _), size in sent.items():
        by_pair[src, dst] += size
    expected: Counter[tuple[int, int]] = Counter()
    what = collective(plan.problem.op)
    for rank in range(plan.n):
        for t, track in enumerate(plan.schedule.program(rank)):
            for r, steps in enumerate(track.rounds):
                for s, step in enumerate(steps):
                    for edge in step.send:
                        if not what.is_interleaved:
                            expected[rank, edge.peer] += plan.problem.block_bytes
                        else:
                            expected[rank, edge.peer] += chunk_bytes_of(plan, rank, t, r, s)
    assert +by_pair == +expected


def chunk_bytes_of(plan: Plan, rank: int, t: int, r: int, s: int) -> int:
    """Bytes, over all channels and loops, of the chunk that a step of an interleaved schedule works
    on.
    """
    from collbench.schedules.verify.check import Place

    proof, schedule = plan.proof, plan.schedule
    if schedule.is_symmetric:
        chunk = proof.chunks[Place(0, t, r, s)]
        chunk = (chunk + rank) % plan.n if schedule.chunks["in"] == plan.n else chunk
    else:
        chunk = proof.chunks[Place(rank, t, r, s)]
    return sum(
        max(0, min(loop.chunk, loop.size - chunk * loop.chunk))
        for channel in range(plan.channels)
        for loop in plan.loops(channel)
    )


@pytest.mark.exhaustive
@given(PLANS)
def test_regions_lie_inside_their_buffers(plan: Plan) -> None:
    for rank in range(plan.n):
        for actor in actors(plan, rank):
            for action in actor.actions:
                assert len({region.size for region in (*action.operands, *action.targets)}) <= 1
                for region in (*action.operands, *action.targets):
                    assert region.offset >= 0
                    assert region.offset + region.size <= limit(plan, region)
                    assert region.offset % plan.problem.item_bytes == 0


def limit(plan: Plan, region: Region) -> int:
    if region.space == "slot":
        assert plan.connections[region.owner].fifo_offset >= 0
        return plan.slots * plan.slot_bytes
    if region.space == "tmp":
        return plan.tmp_bytes
    at = plan.problem.buffers(region.owner)
    return at.in_bytes if region.space == "in" else at.out_bytes


@given(PLANS)
def test_both_ends_count_the_same_slices(plan: Plan) -> None:
    posted: Counter[int] = Counter()
    freed: Counter[int] = Counter()
    for rank in range(plan.n):
        for actor in actors(plan, rank):
            for action in actor.actions:
                posted.update(edge for edge, _ in action.post)
                freed.update(edge for edge, _ in action.free)
    slices = Counter(
        {
            number: connection.slices
            for number, connection in enumerate(plan.connections)
            if connection.slices
        }
    )
    assert posted == slices
    assert freed == slices


@pytest.mark.exhaustive
@given(PLANS)
def test_the_reference_is_right(plan: Plan) -> None:
    assert_right(plan)


@pytest.mark.parametrize("protocol", PROTOCOLS.names())
def test_a_protocol_carries_data(protocol: str) -> None:
    assert 0 < PROTOCOLS.load(protocol).payload_bytes(1 << 20) <= 1 << 20


def test_room_counts_from_the_slots_last_user() -> None:
    """Slots restart at 0 every launch: slot k is free once its last slice of the launch before has
    been read.
    """
    for slices in range(1, 12):
        for slots in range(1, 6):
            users: dict[int, int] = {}
            for launch in range(3):
                for number in range(slices):
                    slot, counted = number % slots, launch * slices + number
                    wanted = launch * slices + room_wanted(SlotSequence(0, number), slices, slots)
                    assert wanted == users.get(slot, -1) + 1 or (slot not in users and wanted <= 0)
                    users[slot] = counted


def test_pulled_two_shot_needs_no_fifo() -> None:
    plan = plan_of(problem("allreduce", 4, count=1000), "twoshot", direct=True)
    assert plan.fifo_bytes == 0
    assert all(
        region.space != "slot"
        for rank in range(4)
        for actor in actors(plan, rank)
        for action in actor.actions
        for region in action.targets
    )


def test_direct_halves_what_a_two_shot_touches() -> None:
    def touched(direct: bool) -> int:
        plan = plan_of(
            problem("allreduce", 4, count=4096), "twoshot", direct=direct, chunk_bytes=4096
        )
        actions = [
            action for rank in range(4) for actor in actors(plan, rank) for action in actor.actions
        ]
        return sum(region.size for action in actions if action.targets for region in action.targets)

    assert touched(True) * 2 <= touched(False) + 4096 * 4


def test_same_knobs_same_digest() -> None:
    one, two = (plan_of(problem("allreduce", 3), "ring") for _ in range(2))
    assert one.digest == two.digest
    assert one.digest != plan_of(problem("allreduce", 3), "ring", slots=8).digest
    assert one.digest != plan_of(problem("allreduce", 3, count=38), "ring").digest


@pytest.mark.parametrize(
    ("knobs", "match"),
    [
        ({"chunk_bytes": 8}, "at least 16 bytes"),
        ({"slot_bytes": 16}, "cannot carry"),
        ({"slot_bytes": 64, "chunk_bytes": 1 << 20}, "needs 16384 slices"),
        ({"slots": 1}, "deadlocks with 1 slot"),
    ],
)
def test_knobs_that_do_not_fit_are_refused(knobs: dict[str, int], match: str) -> None:
    algo = "star" if "slot_bytes" in knobs and knobs["slot_bytes"] == 16 else "ring"
    op = "reducescatter" if algo == "star" else "allreduce"
    count = knobs.pop("count", 37)
    with pytest.raises(ScheduleError, match=match):
        plan_of(problem(op, 4, count=count), algo, **knobs)  # type: ignore[arg-type]


def test_more_actions_than_an_interpreter_can_bind_are_refused() -> None:
    """A kernel walks any number of loops, so the plan itself may have them."""
    plan = plan_of(problem("allreduce", 4, count=1 << 28), "ring", chunk_bytes=16)
    assert plan.action_count() > MAX_ACTIONS
    with pytest.raises(ScheduleError, match="actions of a rank in one launch"):
        refuse_too_many(plan)
    case = Case(
        op="allreduce",
        backend="cpu",
        algo="ring",
        direct="off",
        chunk=16,
        ranks=4,
        size_bytes=1 << 30,
    )
    with pytest.raises(ScheduleError, match="actions of a rank in one launch"):
        resolve(case)


def test_zero_copy_is_to_blame_only_where_it_was_asked_for() -> None:
    case = Case(op="allreduce", backend="cpu", algo="ring", slots=1, ranks=2, size_bytes=1 << 10)
    with pytest.raises(ScheduleError) as refused:
        resolve(case)
    assert "direct" not in refused.value.hint
    with pytest.raises(ScheduleError, match="pulled zero-copy") as refused:
        resolve(replace(case, direct="on"))
    assert "slots must outnumber" in refused.value.hint
    assert resolve(replace(case, direct="on", slots=2)).case.direct == "on"
    with pytest.raises(ScheduleError, match="finish a pull") as refused:
        resolve(replace(case, algo="oneshot", placement="in", slots=4, direct="on"))
    assert refused.value.hint == "use --direct off"


def test_a_schedule_for_another_problem_is_refused() -> None:
    with pytest.raises(ScheduleError, match="does not fit"):
        lay_out(problem("allreduce", 4), registered("allreduce", "ring", World(n=5)))


def test_messages_of_both_ends_match() -> None:
    schedule = registered("allreduce", "halving", World(n=6))
    sent: Counter[tuple[int, int]] = Counter()
    received: Counter[tuple[int, int]] = Counter()
    for rank in range(6):
        for track in schedule.program(rank):
            for steps in track.rounds:
                out, into = message_chunks(steps)
                sent.update({(rank, edge.peer): chunks for edge, chunks in out.items()})
                received.update({(edge.peer, rank): chunks for edge, chunks in into.items()})
    assert sent == received
