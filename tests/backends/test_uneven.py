"""Unequal blocks, zeros among them, on the reference and cpu, against their definition written out
again here.
"""

import random
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import pytest

from collbench.backends.cpu.backend import CpuSession
from collbench.backends.reference import ReferenceRun, ReferenceSession
from collbench.backends.repeat import compare_output, prepare_buffers, verify_in_process
from collbench.core.case import Problem
from collbench.core.collectives import OpName, collective
from collbench.core.errors import ScheduleError
from collbench.launch.local import LocalGroup
from collbench.planning.layout import lay_out, registered
from collbench.planning.plan import Plan
from tests.support.batteries import CPU_PROTOCOLS as PROTOS
from tests.support.batteries import (
    UNEVEN_PAIRS,
    drawn_counts,
    random_inputs,
    uneven_problem,
    world_of,
)
from tests.support.tiers import tiered
from tests.support.written import schedule_of

RANKS, MOST = 3, 700


def plan_of(what: Problem, algo: str, seed: int, proto: str = "simple") -> Plan:
    chance = random.Random(seed)
    return lay_out(
        what,
        registered(collective(what.op).even, algo, world_of(algo, what.n)),
        direct=proto == "simple" and seed % 2 == 0,
        channels=chance.choice((1, 3)),
        slots=4,
        chunk_bytes=256,
        slices=chance.choice((1, 2)) if seed % 2 else 1,
        proto=proto,
    )


def defined(what: Problem, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What every rank must end with."""
    n, counts = what.n, np.array(what.counts)
    if what.op == "allgatherv":
        return [np.concatenate(inputs)] * n
    if what.op == "reducescatterv":
        return np.split(sum(one.astype(np.float64) for one in inputs), np.cumsum(counts)[:-1])
    rows = counts.reshape(n, n)
    parts = [np.split(inputs[i], np.cumsum(rows[i])[:-1]) for i in range(n)]
    return [np.concatenate([parts[i][j] for i in range(n)]) for j in range(n)]


@tiered(("op", "algo"), UNEVEN_PAIRS, 5)
def test_the_reference_does_what_the_definition_says(op: OpName, algo: str) -> None:
    for n, seed in ((2, 1), (3, 2), (6, 4)):
        what = uneven_problem(op, n, drawn_counts(op, n, random.Random(seed), MOST))
        plan, inputs = plan_of(what, algo, seed), random_inputs(what, seed)
        wanted = defined(what, inputs)
        for rank, output in enumerate(ReferenceSession().once(plan, inputs)):
            assert len(output) == len(wanted[rank])
            np.testing.assert_allclose(output, wanted[rank], rtol=1e-4, atol=1e-4)
        in_place = collective(op).has_in_place and seed % 2 == 0
        plan = plan_of(uneven_problem(op, n, what.counts, in_place=in_place), algo, seed)
        machine = ReferenceRun(plan)
        assert verify_in_process(plan.problem, machine.buffer, machine.launch) == ()


@pytest.fixture(scope="module")
def session() -> Iterator[CpuSession]:
    largest = uneven_problem("alltoallv", RANKS, (4000,) * RANKS**2)
    opened = CpuSession(LocalGroup(), [plan_of(largest, "direct", 1)], hot=True)
    yield opened
    opened.close()


@pytest.mark.parametrize(("op", "algo"), UNEVEN_PAIRS)
def test_cpu_equals_the_reference(session: CpuSession, op: OpName, algo: str) -> None:
    protocols = PROTOS
    for seed, proto in enumerate(("simple", protocols[len(algo) % len(protocols)])):
        what = uneven_problem(op, RANKS, drawn_counts(op, RANKS, random.Random(seed + 5), MOST))
        plan, inputs = plan_of(what, algo, seed, proto), random_inputs(what, seed)
        pairs = zip(session.once(plan, inputs), ReferenceSession().once(plan, inputs), strict=True)
        assert all(ours.tobytes() == theirs.tobytes() for ours, theirs in pairs)


def test_a_wrong_element_and_a_byte_behind_the_output_are_found() -> None:
    what = uneven_problem("alltoallv", 3, (2, 0, 5, 0, 0, 0, 7, 1, 1))
    for rank, outputs in enumerate((9, 1, 6)):
        at = what.buffers(rank)
        source = np.zeros(at.in_bytes // 4, np.float32)
        target = np.zeros((at.out_bytes + at.guard_bytes) // 4, np.float32)
        prepare_buffers(what, rank, source, target)
        wrong = compare_output(what, rank, target)
        assert wrong is not None
        assert (wrong.index, wrong.count) == (0, outputs)
        for block in what.blocks(rank):  # the pattern of the giver, from where its block begins
            given = np.zeros(what.buffers(block.giver).in_bytes // 4, np.float32)
            rest = np.zeros(what.buffers(block.giver).guard_bytes // 4 + 9, np.float32)
            prepare_buffers(what, block.giver, given, rest)
            taken = given[block.given_first : block.given_first + block.size]
            target[block.first : block.first + block.size] = taken
        assert compare_output(what, rank, target) is None
        for place in (0, outputs - 1, outputs, len(target) - 1):
            target[place] += 1
            wrong = compare_output(what, rank, target)
            assert wrong is not None
            assert (wrong.index, wrong.count) == (place, 1)
            target[place] -= 1


def test_a_schedule_that_keeps_another_block_in_the_output_is_refused() -> None:
    """What arrives goes where the rank's own block belongs, and from there to its place."""

    text = "i0 >{1}ring | <{1}ring =o{0} | o{0} =o{1} | i0 =o{0}"
    schedule = schedule_of([text.format(0, 1), text.format(1, 0)], "allgather")
    even = Problem(
        **{**asdict(uneven_problem("allgatherv", 2, (4, 4))), "op": "allgather", "counts": ()}
    )
    machine = ReferenceRun(plan := lay_out(even, schedule))
    assert verify_in_process(plan.problem, machine.buffer, machine.launch) == ()
    with pytest.raises(ScheduleError, match=r"keeps another block in out\[0\]"):
        lay_out(uneven_problem("allgatherv", 2, (4, 4)), schedule)


def test_empty_messages_do_not_order_two_tracks() -> None:
    """One track reads what the other has received, behind a message that the peer has sent because
    of that. The lines of an empty message are waited for by nobody.
    """

    receiving = "receiving: i0 >{1}first | <{1}first =o{1} >{1}back"
    reading = "reading: <{1}back =o{0} >{1}again | <{1}again =t0 | o{1} =t1"
    programs = [f"{receiving} / {reading}".format(rank, 1 - rank) for rank in (0, 1)]
    schedule = schedule_of(programs, "allgather")
    for proto in ("simple", "ll"):
        lay_out(uneven_problem("allgatherv", 2, (4, 4)), schedule, proto=proto)
    short = uneven_problem("allgatherv", 2, (4, 1))
    lay_out(short, schedule)
    with pytest.raises(ScheduleError, match="an empty message of ll keeps no order"):
        lay_out(short, schedule, proto="ll")
