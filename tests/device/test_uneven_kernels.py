"""Unequal blocks in kernels: the tables, arguments and programs that GPUs get do what the
definition demands on GPUs made of NumPy arrays; and kernels of equal blocks have no byte of it.
"""

import random
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collbench.core.case import Case, Problem
from collbench.core.collectives import UNEVEN_OPS, OpName, collective
from collbench.core.dtypes import DTYPES, REDOPS
from collbench.core.errors import ScheduleError
from collbench.device.compile import kernel_source
from collbench.device.layout import BLOCK, block_of, pack_blocks, pack_constants, pack_program
from collbench.device.program import lower
from collbench.planning.chooser import choice_of_problem
from collbench.planning.layout import registered
from collbench.planning.limits import Limits, needs_no_credits
from collbench.planning.lowering import actors
from collbench.planning.plan import Kernel, Plan, label
from collbench.planning.planner import resolve
from collbench.planning.protocols import FAMILY as PROTOCOLS
from tests.device.test_copy_engine import wrong_of
from tests.device.test_device import HOST_MODES, MODES, RUNS, Mode, assert_right
from tests.device.test_device import plan_for as plan_of
from tests.device.test_kernels import ARCHS, SHAPES, compiled, limits_of
from tests.support.batteries import UNEVEN_PAIRS, drawn_counts, placements, uneven_problem, world_of
from tests.support.device import Gpus, Run
from tests.support.structures import structure
from tests.support.tiers import tiered

COPIED = Kernel(proto="simple", threads=64, unroll=2, ctas=4)


def plan_for(what: Problem, algo: str, mode: Mode, **knobs: Any) -> Plan:
    """The plan of an algorithm of the equal form."""
    schedule = registered(collective(what.op).even, algo, world_of(algo, what.n))
    copied = {"kernel": COPIED} if mode.transport == "ce" else {}
    return plan_of(what, schedule, mode, **copied, **knobs)


def drawn_problem(op: OpName, n: int, seed: int, *, in_place: bool = False) -> Problem:
    """Counts with zeros and one hot rank, the types and reductions by turns."""
    return uneven_problem(
        op,
        n,
        drawn_counts(op, n, random.Random(seed)),
        dtype=DTYPES[seed % len(DTYPES)],
        redop=REDOPS[seed % len(REDOPS)] if collective(op).is_reduction else "sum",
        in_place=in_place,
    )


@tiered(("op", "algo"), UNEVEN_PAIRS, 1)
def test_programs_do_what_the_collective_defines(op: OpName, algo: str) -> None:
    """Every pair in every mode with two numbers of ranks by turns, in place and out of place."""
    ranks, places = cycle((3, 2, 5, 4, 8)), cycle(placements(op))
    for seed, mode in enumerate((*MODES, *HOST_MODES) * 2, UNEVEN_PAIRS.index((op, algo))):
        what = drawn_problem(op, next(ranks), seed, in_place=next(places))
        assert_right(plan_for(what, algo, mode, channels=1 + seed % 3), seed)


@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    pair=st.sampled_from(UNEVEN_PAIRS),
    mode=st.sampled_from((*MODES, *HOST_MODES)),
    n=st.integers(2, 4),
    knobs=st.fixed_dictionaries(
        {
            "channels": st.integers(1, 4),
            "slots": st.integers(3, 8),
            "chunk_bytes": st.sampled_from((16, 48, 256)),
            "slices": st.integers(1, 3),
        }
    ),
    seed=st.integers(0, 10_000),
    is_placed=st.booleans(),
)
def test_any_counts_on_any_layout(
    pair: tuple[OpName, str], mode: Mode, n: int, knobs: dict[str, int], seed: int, is_placed: bool
) -> None:
    op, algo = pair
    what = drawn_problem(op, n, seed, in_place=is_placed and collective(op).has_in_place)
    try:
        plan = plan_for(what, algo, mode, **knobs)
    except ScheduleError:
        return  # too few slots
    assert_right(plan, seed)


@pytest.mark.parametrize("mode", MODES, ids=str)
@tiered("op", UNEVEN_OPS, 1)
def test_ranks_that_run_ahead(op: OpName, mode: Mode) -> None:
    """Launch after launch: a rank that gets and gives nothing ends its launches at once, and must
    not overwrite what others have not read.
    """
    n = 4
    hot = (0, 0, 33, 0) * n if op == "alltoallv" else (0, 0, 33, 0)
    for seed, slots in enumerate((3, 8)):
        plan = plan_for(uneven_problem(op, n, hot), "direct", mode, slots=slots, slices=1)
        assert_right(plan, seed, *[Run(0)] * 9)


def test_credits_stay_where_a_block_may_be_empty() -> None:
    """A message without data does not show that its sender has begun."""
    plans = [
        plan_for(uneven_problem("alltoallv", 3, counts), "direct", MODES[4], channels=1, slots=8)
        for counts in ((3, 4, 5) * 3, (3, 4, 5, 3, 4, 5, 3, 0, 5))
    ]
    assert [needs_no_credits(plan) for plan in plans] == [True, False]
    for plan in plans:
        assert_right(plan, 1, *[Run(0)] * 9)


@tiered(("op", "algo"), UNEVEN_PAIRS, 5)
def test_aligned_blocks_are_moved_by_whole_vectors(op: OpName, algo: str) -> None:
    """Where all blocks are multiples of 16 bytes, zeros among them."""
    counts = (8, 0, 36) * (3 if op == "alltoallv" else 1)
    for mode in MODES:
        plan = plan_for(uneven_problem(op, 3, counts), algo, mode)
        macros = dict(kernel_source(plan, 0).macros)
        assert (macros["ALIGNED"], macros["WHOLE"]) == ("1", "1")
        assert_right(plan, 2)
    odd = uneven_problem(op, 3, (*counts[:-1], 37))
    assert dict(kernel_source(plan_for(odd, algo, MODES[0]), 0).macros)["ALIGNED"] == "0"


@tiered(("op", "algo", "direct"), [(*pair, bool(k % 2)) for k, pair in enumerate(UNEVEN_PAIRS)], 5)
def test_copy_engines_are_right_in_any_order(
    op: OpName, algo: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, n in enumerate((2, 3, 4)):
        for in_place in placements(op):
            what = drawn_problem(op, n, number + n, in_place=in_place)
            mode = Mode("simple", direct, "push", "ce")
            plan = plan_for(what, algo, mode, slots=6, chunk_bytes=512, channels=1 + number % 2)
            assert wrong_of(plan, monkeypatch, seed=number) == ()


@tiered(("op", "algo", "number"), [(*pair, k) for k, pair in enumerate(UNEVEN_PAIRS)], 5)
def test_messages_of_mpi_carry_unequal_blocks(op: OpName, algo: str, number: int) -> None:
    """Between all ranks, or between halves that reach each other's memory."""
    for seed, proto in enumerate(("simple", "ll"), number):
        domains = (0, 0, 1, 1) if seed % 2 else (0, 1, 2)
        what, mode = (
            drawn_problem(op, len(domains), seed),
            Mode(proto, False, "push", label(domains)),
        )
        plan = plan_for(what, algo, mode, channels=1 + number % 3, domains=domains)
        Gpus(plan, seed).run(*RUNS)


# The tables


@tiered(("op", "algo"), UNEVEN_PAIRS, 5)
def test_tables_name_the_memory_that_the_interpreters_use(op: OpName, algo: str) -> None:
    """Every operand of a kernel's steps in a user buffer is one of the rank's actions, or a peer's
    memory that these name.
    """
    for n, direct in ((2, False), (3, True), (4, False), (4, True)):
        what = drawn_problem(op, n, n)
        plan = plan_for(what, algo, Mode("simple", direct, "pull"), channels=3, slices=1)
        for rank in range(n):
            tables = BLOCK.iter_unpack(pack_blocks(plan, rank))
            length = 1 + len(lower(plan, rank).blocks)
            for channel in range(plan.channels):
                table = [next(tables) for _ in range(length)]
                assert table[0] == plan.channel_range(channel)
                parts = {
                    (block_of(plan, rank, number)[:2], table[number]) for number in range(1, length)
                }
                regions = [
                    region
                    for actor in actors(plan, rank)
                    if actor.channel == channel
                    for action in actor.actions
                    for region in (*action.operands, *action.targets)
                    if region.space in ("in", "out") and region.size
                ]
                for region in regions:
                    assert any(
                        place == (region.space, region.owner)
                        and first <= region.offset
                        and region.offset + region.size <= first + size
                        for place, (first, size) in parts
                    )


def test_tables_lie_behind_the_program_where_kernels_look() -> None:
    assert structure("Block", {}).itemsize == BLOCK.size
    plan = plan_for(drawn_problem("alltoallv", 3, 1), "direct", MODES[0])
    program, packed = pack_program(lower(plan, 1)), pack_constants(plan, 1)
    behind = -(-len(program) // BLOCK.size) * BLOCK.size
    assert packed[: len(program)] == program
    assert packed[behind:] == pack_blocks(plan, 1)
    even = resolve(SHAPES["pushed"]).plan
    assert pack_constants(even, 1) == pack_program(lower(even, 1))


def test_one_program_serves_all_ranks_of_a_symmetric_schedule() -> None:
    """Counts are data: they change no kernel, unless alignment does."""
    first, second = (
        plan_for(uneven_problem("alltoallv", 3, counts), "direct", MODES[0])
        for counts in ((3, 0, 5, 1, 1, 1, 0, 0, 9), (7, 7, 7, 0, 0, 1, 2, 3, 9))
    )
    assert {kernel_source(plan, rank) for plan in (first, second) for rank in range(3)} == {
        kernel_source(first, 0)
    }


# The choice


@pytest.mark.parametrize("op", UNEVEN_OPS)
def test_auto_chooses_as_for_equal_blocks_of_the_same_total(op: OpName) -> None:
    for size in (4 << 10, 1 << 20, 64 << 20):
        equal = Case(op=collective(op).even, backend="cuda", ranks=4, size_bytes=size)
        even = choice_of_problem(equal, Limits())
        assert even is not None
        for skew in ("even", "zipf:1.1", "hot:1"):
            case = Case(op=op, backend="cuda", ranks=4, size_bytes=size, skew=skew).rounded()
            uneven = choice_of_problem(case, Limits())
            assert uneven is not None
            like: Case | None = even
            if even.proto == "sentinel" != uneven.proto:  # it has no marker for integers either
                like = choice_of_problem(replace(equal, dtype="int32"), Limits())
            for knob in ("algo", "proto", "transport", "channels", "threads", "slots", "direct"):
                assert getattr(uneven, knob) == getattr(like, knob), (skew, knob)


# The kernels


# Each pair for one GPU in turn
KERNELS = [
    (*pair, arch) for pair, arch in zip(product(UNEVEN_OPS, PROTOCOLS.names()), cycle(ARCHS))
]


# daily each collective, with other protocols
@tiered(("op", "proto", "arch"), KERNELS, 1)
def test_kernels_with_tables_compile(op: OpName, proto: str, arch: int) -> None:
    """Interpreted and compiled in, with narrow and wide sets of buffers."""
    narrow = Case(op=op, backend="cuda", ranks=4, size_bytes=1 << 16, proto=proto)
    if proto == "sentinel":  # a launch needs each slot once
        cases = [replace(narrow, skew="even", specialize="on")]
    else:
        wide = replace(narrow, size_bytes=4 << 30, skew="zipf:1")
        specialize: Any = "auto" if proto == "simple" else "on"
        cases = [wide, replace(narrow, skew="hot:1", specialize=specialize)]
    for case in cases:
        plan = resolve(case.rounded(), limits_of(arch)).plan
        for rank in (0, plan.n - 1):
            compiled(kernel_source(plan, rank), arch)
