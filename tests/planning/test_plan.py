"""Plans: whatever the knobs, every byte belongs to one channel and is moved exactly as often as the
schedule says, and what a plan is said to move is what its actions move.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.core.case import Case
from collbench.core.collectives import OpName, collective
from collbench.core.dtypes import DTYPES, DtypeName
from collbench.core.errors import ScheduleError
from collbench.core.world import World
from collbench.planning.layout import lay_out, registered
from collbench.planning.limits import Limits
from collbench.planning.lowering import Action, Region, SlotSequence, actors, room_wanted
from collbench.planning.plan import Plan
from collbench.planning.planner import MAX_ACTIONS, refuse_too_many, resolve
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.traffic import FLAG_BYTES, traffic
from collbench.schedules.verify.check import Place
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
def test_channels_and_loops_cut_a_block_without_gap_or_overlap(plan: Plan) -> None:
    end = 0
    for channel in range(plan.channels):
        first, size = plan.channel_range(channel)
        assert first == end
        assert first % plan.problem.item_bytes == 0
        for loop in plan.loops(channel):
            assert loop.offset == end
            assert 0 < loop.chunk <= plan.chunk_bytes
            assert loop.chunk % plan.problem.item_bytes == 0
            assert loop.slices >= 1
            end += loop.size
        assert end == first + size
    assert end == plan.problem.block_bytes


def actions_of(plan: Plan) -> Iterator[tuple[int, Action]]:
    """Every action of a launch, with its rank."""
    for rank in range(plan.n):
        for actor in actors(plan, rank):
            yield from ((rank, action) for action in actor.actions)


@pytest.mark.exhaustive
@given(PLANS)
def test_every_output_byte_is_written_as_often_as_the_schedule_writes_its_chunk(plan: Plan) -> None:
    what, schedule = collective(plan.problem.op), plan.schedule
    outputs = [Counter[int]() for _ in range(plan.n)]  # how often each byte is written
    for rank, action in actions_of(plan):
        for region in action.targets:
            if region.space == "out":
                outputs[rank].update(range(region.offset, region.offset + region.size))
    for rank, written in enumerate(outputs):
        writes = Counter(
            step.dst.chunk
            for track in schedule.program(rank)
            for steps in track.rounds
            for step in steps
            if step.dst and step.dst.buffer == "out"
        )
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
    sent: Counter[tuple[int, int]] = Counter()
    for rank, action in actions_of(plan):
        for region in action.targets:
            if region.space == "slot":
                connection = plan.connections[region.owner]
                sent[connection.src, connection.dst] += region.size
        for region in action.operands:
            if region.space in ("in", "out") and region.owner != rank:
                sent[region.owner, rank] += region.size
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
    assert +sent == +expected


def chunk_bytes_of(plan: Plan, rank: int, t: int, r: int, s: int) -> int:
    """Bytes, over all channels and loops, of the chunk that a step of an interleaved schedule works
    on.
    """
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
    for _, action in actions_of(plan):
        regions = (*action.operands, *action.targets)
        assert len({region.size for region in regions}) <= 1
        for region in regions:
            assert 0 <= region.offset <= limit(plan, region) - region.size
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
    for _, action in actions_of(plan):
        posted.update(edge for edge, _ in action.post)
        freed.update(edge for edge, _ in action.free)
    slices = Counter({number: one.slices for number, one in enumerate(plan.connections)})
    assert posted == freed == +slices


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
    spaces = {region.space for _, action in actions_of(plan) for region in action.targets}
    assert "slot" not in spaces


def test_direct_halves_what_a_two_shot_touches() -> None:
    def touched(direct: bool) -> int:
        plan = plan_of(
            problem("allreduce", 4, count=4096), "twoshot", direct=direct, chunk_bytes=4096
        )
        return sum(region.size for _, action in actions_of(plan) for region in action.targets)

    assert touched(True) * 2 <= touched(False) + 4096 * 4


def test_same_knobs_same_digest() -> None:
    one, two = (plan_of(problem("allreduce", 3), "ring") for _ in range(2))
    assert one.digest == two.digest
    assert one.digest != plan_of(problem("allreduce", 3), "ring", slots=8).digest
    assert one.digest != plan_of(problem("allreduce", 3, count=38), "ring").digest


@pytest.mark.parametrize(
    ("op", "algo", "knobs", "match"),
    [
        ("allreduce", "ring", {"chunk_bytes": 8}, "at least 16 bytes"),
        ("reducescatter", "star", {"slot_bytes": 16}, "cannot carry"),
        ("allreduce", "ring", {"slot_bytes": 64, "chunk_bytes": 1 << 20}, "needs 16384 slices"),
        ("allreduce", "ring", {"slots": 1}, "deadlocks with 1 slot"),
    ],
)
def test_knobs_that_do_not_fit_are_refused(
    op: OpName, algo: str, knobs: dict[str, int], match: str
) -> None:
    with pytest.raises(ScheduleError, match=match):
        plan_of(problem(op, 4), algo, **knobs)


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


SIZE = 100_000


def planned(op: OpName, algo: str, n: int, **knobs: Any) -> Plan:
    skew = "linear" if op.endswith("v") else ""
    case = Case(op=op, backend="cpu", algo=algo, ranks=n, size_bytes=SIZE, skew=skew, chunk=4096)
    plan = resolve(replace(case, **knobs).rounded(), Limits(memory_bytes=1 << 28)).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize(
    ("op", "algo", "n"),
    [
        ("allreduce", "ring", 3),
        ("allreduce", "halving", 5),
        ("allgather", "direct", 4),
        ("broadcast", "tree", 5),
        ("alltoallv", "direct", 3),
    ],
)
def test_messages_and_slots_have_the_bytes_of_the_actions(op: OpName, algo: str, n: int) -> None:
    for transport in ("net", "shm"):
        plan = planned(op, algo, n, transport=transport, direct="off")
        slices, sent, stored = Counter[object](), Counter[object](), Counter[object]()
        for rank, action in actions_of(plan):
            for edge, _ in action.post:
                slices[rank, plan.connections[edge].dst] += 1
            for (edge, _), region in action.sent:
                sent[rank, plan.connections[edge].dst] += region.size
            for region in action.targets:
                if region.space == "slot":
                    stored[rank, plan.connections[region.owner].dst] += region.size
        known = {pair: one for pair, one in traffic(plan).items() if one.messages}
        assert {pair: one.messages for pair, one in known.items()} == slices
        assert {pair: one.payload for pair, one in known.items()} == stored
        if transport == "net":
            assert {pair: one.wire for pair, one in known.items()} == sent


def test_protocols_take_their_part_of_the_link() -> None:
    sizes = {}
    for proto in ("simple", "ll", "ll128"):
        (one,) = {
            (sent.payload, sent.wire, sent.flags, sent.messages)
            for sent in traffic(planned("allreduce", "ring", 2, proto=proto)).values()
        }
        sizes[proto] = one
    payload = SIZE
    assert {one[0] for one in sizes.values()} == {payload}
    assert sizes["simple"][1] == payload
    # a flag that a slice is there, and one of the other direction that its slot is free
    assert sizes["simple"][2] == 2 * FLAG_BYTES * sizes["simple"][3]
    assert sizes["ll"][1] == 2 * payload
    assert sizes["ll128"][1] >= payload * 128 / 120
    # a slice ends with a part of a warp's access, of which at least half is stored
    assert sizes["ll128"][1] <= payload * 128 / 120 + 1024 * sizes["ll128"][3]
