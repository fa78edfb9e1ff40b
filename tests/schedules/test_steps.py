"""Schedules drawn step by step: every message of the schedule is there, sums only grow, and what
the ranks end with is what the collective is defined to give.
"""

import json
import re
from collections import Counter
from itertools import cycle

import pytest

from collbench.core.collectives import OpName
from collbench.core.world import World
from collbench.planning.cut import cut, playback_of
from collbench.planning.layout import registered
from collbench.planning.lowering import actors
from collbench.schedules.drawings.page import data_of, page
from collbench.schedules.drawings.step_words import StepWords, members
from collbench.schedules.ir import Edge, Operand, Program, Schedule, Step, Track, build
from collbench.schedules.passes import message_chunks, message_count, rounds_of
from collbench.schedules.playback import CellKey, CellState, Flight, Playback, play
from tests.support.batteries import PAIRS, some_roots, world_of
from tests.support.tiers import tiered

End = tuple[str, tuple[int, ...]]  # the name of a cell, the ranks whose contributions are in it
Ends = set[tuple[int, str, tuple[int, ...]]]


def defined(schedule: Schedule) -> Ends:
    """What each rank must end with.

    Written down once more, without the table that drawings read.
    """
    n, root = schedule.n, schedule.root
    everyone = tuple(range(n))
    chunks = [str(chunk) for chunk in range(schedule.chunks["in"])]
    blocks: list[End] = [(str(rank), (rank,)) for rank in everyone]
    ends: dict[OpName, list[list[End]]] = {
        "allreduce": [[(chunk, everyone) for chunk in chunks]] * n,
        "reduce": [
            [(chunk, everyone) for chunk in chunks] if rank == root else [] for rank in everyone
        ],
        "broadcast": [[(chunk, (root,)) for chunk in chunks]] * n,
        "reducescatter": [[(str(rank), everyone)] for rank in everyone],
        "allgather": [blocks] * n,
        "gather": [blocks if rank == root else [] for rank in everyone],
        "scatter": [[(str(rank), (root,))] for rank in everyone],
        "sendrecv": [[(str((rank - 1) % n), ((rank - 1) % n,))] for rank in everyone],
        "alltoall": [
            [(f"→{rank}", (rank,)), *((f"{peer}→", (peer,)) for peer in everyone if peer != rank)]
            for rank in everyone
        ],
    }
    return {(rank, *cell) for rank, cells in enumerate(ends[schedule.op]) for cell in cells}


def sent(schedule: Schedule) -> Counter[tuple[int, int, str, int]]:
    """Every message of an expanded schedule: from, to, port, number of chunks."""
    return Counter(
        (at.program, edge.peer, edge.port, chunks)
        for at, steps in rounds_of(schedule)
        for edge, chunks in message_chunks(steps)[0].items()
    )


def assert_page(played: Playback, text: str) -> None:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert found
    data = json.loads(found[1])
    flights = Counter(
        (one["source"], one["target"], one["port"], len(one["values"])) for one in data["flights"]
    )
    assert flights == sent(played.schedule)
    cells = [[(one["has"], 0) for one in rank["cells"]] for rank in data["ranks"]]
    for time, rank, place, mask, is_output in data["updates"]:
        assert 0 < time <= data["stops"][-1]
        assert mask & cells[rank][place][0] == cells[rank][place][0]  # a sum only grows
        cells[rank][place] = (mask, is_output)
    assert {
        (rank, one["name"], tuple(members(mask)))
        for rank, entry in enumerate(data["ranks"])
        for one, (mask, is_output) in zip(entry["cells"], cells[rank], strict=True)
        if one["wants"] and is_output
    } == defined(played.schedule)
    assert text.count("<li>") == len(played.stops) * played.schedule.n
    assert "http:" not in text.replace("http-equiv", "")
    assert "https:" not in text


def assert_senders_have_what_they_send(played: Playback) -> None:
    """Contributions appear nowhere by themselves: a message holds what its sender has then."""
    states = played.states()
    for flight in played.flights:
        before = states[sum(stop <= flight.start for stop in played.stops)][flight.source]
        for value in flight.values:
            assert value.mask & before[played.key(value)].mask == value.mask


@tiered(
    ("op", "algo", "n"),
    [(*pair, n) for pair in PAIRS for n in (2, 3, 5, 8, 12, 16)],
    [(*pair, n) for pair, n in zip(PAIRS, cycle((3, 5, 2)), strict=False)],
)
def test_everything_is_drawn(op: OpName, algo: str, n: int) -> None:
    for root in sorted({0, some_roots(op, n, algo)[-1]}):
        world = world_of(algo, n, root)
        played = play(registered(op, algo, world))
        assert len(played.flights) == message_count(played.schedule)
        assert_senders_have_what_they_send(played)
        text = page(played, world.hosts)
        assert_page(played, text)
        assert page(play(registered(op, algo, world)), world.hosts) == text


def test_a_ring_in_words() -> None:
    played = play(registered("allreduce", "ring", world_of("ring", 4)))
    words = StepWords(played)
    assert words.heading(2) == "Step 2 of 6: ring"
    assert words.step(2)[1] == (
        "Rank 1 sends chunk 3 (the sum of ranks 0 and 1) to rank 2; receives chunk 2 from rank 0,"
        " adds its own: the sum of ranks 0, 1 and 3."
    )
    assert words.label(words.leaving(3)[0]) == "1: 0+2+3"


def test_tracks_run_at_once() -> None:
    """Both trees of a double tree are under way in the first step."""
    played = play(registered("allreduce", "tree", world_of("tree", 5)))
    words = StepWords(played)
    assert {flight.port for flight in words.leaving(1)} == {"up0", "up1"}
    assert words.step(1)[0] == "Rank 0 waits."
    assert words.step(6)[0] == "Rank 0 is done."


def test_a_message_waits_for_its_receiver() -> None:
    """A slice waits while its receiver still sends the one before."""
    played = play(registered("allreduce", "ring", World(n=4)), loops=(2,), slots=3)
    waiting = [flight for flight in played.flights if flight.taken > flight.end]
    assert len(waiting) == 40
    words = StepWords(played)
    assert "that waits" in words.step(1)[waiting[0].target]
    assert words.label(words.leaving(2)[0]) == "3b: 0"


@pytest.mark.parametrize(
    ("op", "algo", "proto", "size", "slots"),
    [
        ("allreduce", "ring", "ll128", 1 << 20, 4),
        ("allreduce", "ring", "simple", 1 << 23, 3),
        ("allreduce", "ring", "sentinel", 1 << 16, 12),
        ("allreduce", "tree", "ll", 1 << 18, 4),
        ("broadcast", "chain", "simple", 1 << 19, 2),
        ("alltoall", "direct", "ll", 1 << 19, 2),
    ],
)
def test_a_plan_is_played_as_it_is_lowered(
    op: OpName, algo: str, proto: str, size: int, slots: int
) -> None:
    """Of a channel, every slice of every loop goes through its connection, a slot at a time."""
    plan = cut(op, algo, 4, 0, size, proto, 2, slots)
    steps, shown = playback_of(plan)
    assert (steps.loops, shown.count) == (tuple(loop.slices for loop in plan.loops(0)), slots)
    posts = Counter(
        plan.connections[post.edge][:3]
        for rank in range(plan.n)
        for actor in actors(plan, rank)
        if actor.channel == 0
        for action in actor.actions
        for post in action.post
    )
    sent: dict[tuple[int, int, str], list[Flight]] = {}
    for flight in steps.flights:
        sent.setdefault((flight.source, flight.target, flight.port), []).append(flight)
    assert {port: len(flights) for port, flights in sent.items()} == posts
    for flights in sent.values():
        for number, flight in enumerate(flights):
            assert number == 0 or flights[number - 1].end <= flight.start
            assert number < slots or flights[number - slots].freed <= flight.start
    final = steps.states()[-1]
    assert all(
        final[rank][key] == CellState(mask=mask, is_output=True)
        for rank in range(plan.n)
        for key, mask in steps.wanted(rank).items()
    )


def test_a_head_moves_as_kernels_move_it() -> None:
    def backs(proto: str, slots: int, size: int) -> list[float | None]:
        steps, shown = playback_of(cut("allreduce", "ring", 4, 0, size, proto, 1, slots))
        flights = data_of(steps, (), shown)["flights"]
        return [one["back"] for one in flights if one["source"] == 0][:6]

    assert backs("simple", 4, 1 << 20) == [2, 3, 4, 5, 6, 6]
    assert backs("ll", 4, 1 << 18) == [3, 3, 5, 5, 6, 6]  # half of the slots at a time
    assert backs("ll", 8, 1 << 16) == [6] * 6  # at the end of the launch
    assert backs("ll", 12, 1 << 16) == [None] * 6  # the slots hold two launches


def test_a_cell_keeps_its_sum_when_a_rank_sends_its_own_again() -> None:
    def program_of(_: World, rank: int) -> Program:
        peer = (Edge(1 - rank, "x"),)
        own = (Operand("in", 0),)
        add = (Step(src=own, recv=peer, dst=Operand("out", 0)),)
        send = (Step(src=own, send=peer),)
        return (Track(name="main", rounds=(add, send) if rank == 0 else (send, add)),)

    played = play(build("allreduce", "late", program_of, World(n=2)))
    assert [state[0] for state in played.states()] == [
        {CellKey(0, -1): CellState(mask=1)},
        {CellKey(0, -1): CellState(mask=3, is_output=True)},
        {CellKey(0, -1): CellState(mask=3, is_output=True)},
    ]
