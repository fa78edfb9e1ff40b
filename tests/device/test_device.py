"""The programs, packed arguments and memory that GPUs get do what the collectives' definitions
demand, on GPUs made of NumPy arrays.
"""

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, groupby, pairwise, product
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.backends.gpu.hang import REPORT
from collbench.backends.gpu.rank import BARRIER, FLAG, MAX_FLAGS, stride_bytes
from collbench.core.case import Case, Problem
from collbench.core.collectives import OPS, OpName, collective
from collbench.core.dtypes import DTYPES, REDOPS, DtypeName, RedopName
from collbench.core.errors import ScheduleError
from collbench.core.knobs import P2p
from collbench.core.world import World
from collbench.device import program as programs
from collbench.device.compile import DTYPE_NUMBER, PDL_NUMBER
from collbench.device.layout import (
    ABORT_AT,
    ARGS,
    BARRIER_AT,
    CONTROL_BYTES,
    END,
    FLAG_LINE_BYTES,
    MAX_CTAS,
    REPORT_BYTES,
    REPORTS_AT,
    STATE_BYTES,
    STATES_AT,
    layout,
)
from collbench.device.program import SIGNAL_NAMES, lower
from collbench.planning.layout import lay_out, registered
from collbench.planning.limits import MEMORY_GRAIN_BYTES
from collbench.planning.plan import Kernel, Plan
from collbench.planning.planner import resolve
from collbench.schedules.ir import Schedule
from tests.support.batteries import PAIRS, placements, problem, world_of
from tests.support.device import ARENA, USER, Gpus, Run, args_of, macros_of, place_of, shared_region
from tests.support.random_schedules import random_schedule
from tests.support.structures import enumerators, structure
from tests.support.tiers import pairwise_of, tiered
from tests.support.written import schedule_of

AUTOMATIC_RANKS = (2, 3, 4, 8)
RUNS = (Run(0), Run(0), Run(1))


class Mode(NamedTuple):
    """The protocol, and the way in which data travels."""

    proto: str
    direct: bool
    p2p: P2p
    transport: str = "p2p"


MODES = (
    Mode("simple", False, "push"),
    Mode("simple", False, "pull"),
    Mode("simple", True, "push"),
    Mode("simple", True, "pull"),
    Mode("ll", False, "push"),
    Mode("ll128", False, "push"),
)


OPS_AND_MODES = [(op, mode) for op in OPS for mode in MODES]
# of the first collectives another mode each
QUICK = [(op, MODES[2 * k]) for k, op in enumerate([*OPS][:3])]


def plan_for(what: Problem, schedule: Schedule, mode: Mode, **knobs: Any) -> Plan:
    """Several slices, where the protocol has them; knobs: of lay_out."""
    kernel = Kernel(proto=mode.proto, threads=64, unroll=1)
    given = {"channels": 2, "slots": 4, "chunk_bytes": 64, "slices": 2, "kernel": kernel, **knobs}
    given |= {"direct": mode.direct, "p2p": mode.p2p, "transport": mode.transport}
    return lay_out(what, schedule, **(given if mode.proto == "simple" else {**given, "slices": 1}))


def parts_of(schedule: Schedule) -> int:
    """The chunks into which a loop cuts a block."""
    return schedule.chunks["in"] if collective(schedule.op).is_interleaved else 1


def kinds(op: OpName, number: int) -> tuple[DtypeName, RedopName]:
    """A type and a reduction, different ones for every number."""
    return DTYPES[number % len(DTYPES)], (
        REDOPS[number % len(REDOPS)] if collective(op).is_reduction else "sum"
    )


def assert_right(plan: Plan, seed: int, *runs: Run, any_size: bool = False) -> None:
    gpus = Gpus(plan, seed, any_size=any_size)
    assert_addresses(plan, [gpus.args(rank, Run(1)) for rank in range(plan.n)])
    gpus.run(*runs or RUNS)


Variant = tuple[Mode, bool, float]


def variants(op: OpName, n: int) -> list[Variant]:
    """Modes, placements, and the loops that the data has: several, or too little data for all
    channels.
    """
    return [*product(MODES, placements(op), (2.3, 0.01) if n < 8 else (1.2,))]


def assert_variants_right(op: OpName, algo: str, n: int, chosen: Sequence[Variant]) -> None:
    root = n // 2 if collective(op).is_rooted else 0
    schedule = registered(op, algo, world_of(algo, n, root))
    for number, (mode, in_place, loops) in enumerate(chosen, PAIRS.index((op, algo)) + n + 1):
        dtype, redop = kinds(op, number)
        what = problem(op, n, root=root, dtype=dtype, redop=redop, in_place=in_place)
        count = int(2 * loops * 64 * parts_of(schedule)) // what.item_bytes + 1
        what = replace(what, block_count=count)
        try:
            plan = plan_for(what, schedule, mode)
        except ScheduleError as error:
            assert (algo, in_place, mode.direct, mode.p2p) == ("oneshot", True, True, "pull")
            assert "finish a pull" in error.message
            continue
        assert_right(plan, number)


@tiered(("op", "algo"), PAIRS, 1)
def test_programs_do_what_the_collective_defines(op: OpName, algo: str) -> None:
    """Several slices, sizes that are no multiple of a chunk, and every pair of a number of ranks, a
    mode, a placement and a number of loops.
    """
    rows = pairwise_of((n, *variant) for n in (2, 3, 4, 5) for variant in variants(op, n))
    for n, variants_of_n in groupby(sorted(rows, key=itemgetter(0)), itemgetter(0)):
        assert_variants_right(
            op, algo, n, [(mode, place, loops) for _, mode, place, loops in variants_of_n]
        )


@tiered(("op", "algo"), {algo: (op, algo) for op, algo in reversed(PAIRS)}.values(), 1)
def test_programs_of_eight_ranks(op: OpName, algo: str) -> None:
    """Every algorithm once, in every mode."""
    in_turn = cycle(placements(op))
    assert_variants_right(op, algo, 8, [(mode, next(in_turn), 1.2) for mode in MODES])


@tiered(("op", "mode"), OPS_AND_MODES, QUICK)
def test_chunks_of_many_lines(op: OpName, mode: Mode) -> None:
    """Chunks of more tiles than warps, cut into uneven slices."""
    for number, algo in enumerate(algo for served, algo in PAIRS if served == op):
        schedule = registered(op, algo, World(n=3))
        dtype, redop = kinds(op, number)
        what = problem(op, 3, dtype=dtype, redop=redop)
        count = int(1.7 * 6640 * parts_of(schedule)) // what.item_bytes + 3
        knobs = {"channels": 1, "chunk_bytes": 6640, "slices": 3, "slots": 6}
        assert_right(plan_for(replace(what, block_count=count), schedule, mode, **knobs), number)


@tiered(("op", "mode"), OPS_AND_MODES, QUICK[:2])
def test_ranks_that_run_ahead(op: OpName, mode: Mode) -> None:
    """More launches of one message than a FIFO has slots: a rank that could end early must not
    overwrite unread data. The modes of an algorithm take its numbers of slots in turns.
    """
    for number, algo in enumerate(algo for served, algo in PAIRS if served == op):
        schedule = registered(op, algo, World(n=4))
        # no chunk is empty, or some are
        count = 16 * parts_of(schedule) if number % 2 else 3
        slots = (1, 2, 8)[(number + MODES.index(mode)) % 3]
        what = problem(op, 4, count=count)
        try:
            plan = plan_for(what, schedule, mode, channels=1, slots=slots, slices=1)
        except ScheduleError as error:
            assert "deadlocks" in error.message
            continue
        assert_right(plan, number, *[Run(0)] * 11)


HOST_MODES = (
    Mode("simple", False, "push", "shm"),
    Mode("simple", False, "pull", "shm"),
    Mode("ll", False, "push", "shm"),
)


@tiered(("op", "algo", "mode"), [(*pair, mode) for pair in PAIRS for mode in HOST_MODES], 4)
def test_fifos_in_host_memory_take_none_on_the_gpu(op: OpName, algo: str, mode: Mode) -> None:
    plan = plan_for(problem(op, 4, count=611), registered(op, algo, world_of(algo, 4, 0)), mode)
    assert_right(plan, PAIRS.index((op, algo)))
    assert {layout(plan, rank).total - CONTROL_BYTES for rank in range(4)} == {
        -(-plan.tmp_bytes // MEMORY_GRAIN_BYTES) * MEMORY_GRAIN_BYTES
    }


def test_pulled_buffers_are_read_before_they_are_overwritten() -> None:
    """Rank 0 has received everything that it needs to overwrite its input, which rank 1 may not
    have pulled yet: only the flag BACK shows that it has.
    """
    first = "i0 >1all | i1 >1all | i0 <1all =o0 | i1 <1all =o1"
    second = "i0 >0all | i1 >0all | <0all =t0 | <0all =t1 | i0 t0 =o0 | i1 t1 =o1"
    schedule = schedule_of((first, second))
    plan = plan_for(
        problem("allreduce", 2, count=300, in_place=True), schedule, Mode("simple", True, "pull")
    )
    assert plan.schedule.pending_pulls
    for seed in range(8):
        assert_right(plan, seed)


@pytest.mark.parametrize("mode", [mode for mode in MODES if not mode.direct], ids=str)
def test_fifos_of_one_slot(mode: Mode) -> None:
    pairs: list[tuple[OpName, str]] = [("allgather", "direct"), ("allreduce", "oneshot")]
    for op, algo in [*pairs, ("broadcast", "chain"), ("sendrecv", "direct")]:
        schedule, what = registered(op, algo, World(n=3)), problem(op, 3, count=301)
        assert_right(plan_for(what, schedule, mode, slots=1, slices=1), 1)


@tiered(("op", "mode"), OPS_AND_MODES, QUICK[:2])
def test_a_plan_serves_smaller_problems(op: OpName, mode: Mode) -> None:
    """Consecutive launches of other sizes than the plan's."""
    for number, algo in enumerate(algo for served, algo in PAIRS if served == op):
        schedule = registered(op, algo, World(n=4))
        count = 80 * parts_of(schedule)
        plan = plan_for(problem(op, 4, count=count), schedule, mode, channels=3)
        assert_right(
            plan,
            number,
            *(Run(k % 2, size) for k, size in enumerate((count, 1, count // 2 + 1, 3, count))),
            any_size=True,
        )


@tiered(("op", "n"), [(op, n) for op in OPS for n in AUTOMATIC_RANKS], 1)
def test_automatic_choices_are_right(op: OpName, n: int) -> None:
    """Of four sizes each number of ranks of a collective takes two in turns."""
    turn = (list(OPS).index(op) + AUTOMATIC_RANKS.index(n)) % 2
    for number, size in enumerate((8 * n, 4096 + 4 * n, 96 << 10, 600 << 10)[turn::2]):
        case = Case(op=op, backend="cuda", ranks=n, size_bytes=size).rounded()
        assert_right(resolve(case).plan, number)


@pytest.mark.exhaustive
@given(
    random_schedule,
    st.sampled_from(MODES),
    st.integers(1, 400),
    st.fixed_dictionaries(
        {
            "channels": st.integers(1, 3),
            "slots": st.integers(2, 8),
            "chunk_bytes": st.sampled_from([16, 48, 64, 256]),
            "slices": st.integers(1, 3),
        }
    ),
    st.integers(0, 7),
    st.booleans(),
)
@settings(max_examples=40)
def test_schedules_that_nobody_registered(
    schedule: Schedule, mode: Mode, count: int, knobs: dict[str, int], number: int, in_place: bool
) -> None:
    op, n = schedule.op, schedule.n
    dtype, redop = kinds(op, number)
    in_place &= collective(op).has_in_place
    what = problem(op, n, count=count, dtype=dtype, redop=redop, in_place=in_place)
    try:
        plan = plan_for(what, schedule, mode, **knobs)
    except ScheduleError as error:
        assert "deadlocks" in error.message
        return
    assert_right(plan, number)


# Memory layout


def assert_addresses(plan: Plan, args: Sequence[SimpleNamespace]) -> None:
    """Both ends of every connection have the same flags and slots, and nothing overlaps. args: of
    every rank, for the second set of user buffers.
    """
    shared = shared_region(plan)
    taken: list[list[tuple[int, int]]] = [[(0, CONTROL_BYTES)] for _ in range(plan.n)]
    both: tuple[Counter[object], Counter[object]] = Counter(), Counter()
    for rank, mine in enumerate(args):
        at, program = layout(plan, rank), lower(plan, rank)
        assert_own(plan, rank, mine)
        tmp = at.tmp, at.tmp + plan.channels * mine.tmp_stride
        if shared == ARENA:
            taken[rank].append(tmp)
        else:
            assert_apart([(0, CONTROL_BYTES), tmp], at.total)
        for known, found, ends in zip(
            both, (program.sending, program.receiving), (mine.sending, mine.receiving), strict=True
        ):
            for one, end in zip(found, ends[: len(found)], strict=True):
                assert_buffers(plan, end, rank)
                own = rank, where(end.local_flag), end.local_flag_stride
                other = end.peer, where(end.remote_flag), end.remote_flag_stride
                assert (own[1][:2], other[1][:2]) == ((rank, shared), (end.peer, shared))
                sides = (own, other) if known is both[0] else (other, own)
                known[*sides, one.port, where(end.slots), end.slots_stride, end.per_loop] += 1
        for one, end in zip(program.sending, mine.sending, strict=False):
            parts = [
                (end.local_flag, end.local_flag_stride, FLAG_LINE_BYTES),
                (end.remote_flag, end.remote_flag_stride, FLAG_LINE_BYTES),
            ]
            assert (end.slots == 0) == (not one.has_fifo)
            if end.slots:
                assert where(end.slots)[:2] == (rank if plan.p2p == "pull" else end.peer, shared)
                parts.append((end.slots, end.slots_stride, plan.slots * mine.slot_bytes))
            for address, stride, size in parts:
                owner, _, first = where(address)
                starts = [first + channel * stride for channel in range(plan.channels)]
                taken[owner] += [(start, start + size) for start in starts]
    assert both[0] == both[1]
    for rank, ranges in enumerate(taken):
        at = layout(plan, rank)
        assert_apart(ranges, at.total if shared == ARENA else at.fifos_end)


def assert_own(plan: Plan, rank: int, mine: SimpleNamespace) -> None:
    """What is a rank's alone lies where its layout says."""
    at, buffers = layout(plan, rank), plan.problem.buffers(rank)
    for address, region, offset in (
        (mine.tmp, ARENA, at.tmp),
        (mine.state, ARENA, STATES_AT),
        (mine.abort, ARENA, ABORT_AT),
        (mine.reports, ARENA, REPORTS_AT),
        (vars(mine)["in"], USER, buffers.in_offset),
        (mine.out, USER, buffers.out_offset),
    ):
        assert place_of(address) == ((rank, rank, region), offset)
    assert (mine.set, mine.rank, mine.ranks) == (stride_bytes(plan.problem), rank, plan.n)


def where(address: int) -> tuple[int, int, int]:
    """The owner of an address, the region and the byte, the same for all viewers."""
    (_, owner, region), offset = place_of(address)
    return owner, region, offset


def assert_buffers(plan: Plan, end: SimpleNamespace, viewer: int) -> None:
    at = plan.problem.buffers(end.peer)
    assert (place_of(end.peer_in), place_of(end.peer_out)) == (
        ((viewer, end.peer, USER), at.in_offset),
        ((viewer, end.peer, USER), at.out_offset),
    )
    for address in (end.local_flag, end.remote_flag, *[end.slots] * bool(end.slots)):
        assert place_of(address)[0][0] == viewer


def assert_apart(ranges: Sequence[tuple[int, int]], total: int) -> None:
    """Ranges begin on cache lines, do not overlap and end within the arena."""
    found = sorted((first, last) for first, last in ranges if last > first)
    assert all(first % FLAG_LINE_BYTES == 0 for first, _ in found)
    assert all(last <= following for (_, last), (following, _) in pairwise(found))
    assert found[-1][1] <= total


@tiered("op", OPS, 3)
def test_addresses_of_automatic_choices_agree(op: OpName) -> None:
    for n in (2, 4, 8):
        for size in (8 << k for k in range(0, 28, 3)):
            case = Case(op=op, backend="cuda", transport="p2p", ranks=n, size_bytes=size).rounded()
            if not case.why_senseless():
                plan = resolve(case).plan
                assert_addresses(
                    plan,
                    [args_of(plan, rank, Run(1), macros_of(plan, rank)) for rank in range(plan.n)],
                )


def test_control_words_fit_before_the_flags() -> None:
    assert BARRIER_AT + 8 * 1001 <= STATES_AT
    assert STATES_AT + STATE_BYTES * MAX_CTAS <= REPORTS_AT
    assert REPORTS_AT + REPORT_BYTES * MAX_CTAS <= CONTROL_BYTES


# Declarations that the host and the kernels share


def test_structures_are_packed_as_cpp_lays_them_out() -> None:
    """No padding and the same sizes. The launches above show that the fields have the same
    order.
    """
    sizes = {"RECEIVING": 0, "SENDING": 0, "MAX_SOURCES": 2, "MAX_TARGETS": 3}
    assert structure("ConnectionEnd", sizes).itemsize == END.size
    assert structure("Args", sizes).itemsize == ARGS.size + 2 * END.size
    assert structure("State", sizes).itemsize == STATE_BYTES
    assert structure("Report", sizes, "spin.cuh").itemsize == REPORT_BYTES == REPORT.size
    assert structure("Step", sizes).itemsize == struct.calcsize("<4H") * 6
    assert structure("BarrierArgs", sizes, "barrier.cu").itemsize == BARRIER.size
    assert structure("FlagArgs", {"MAX_FLAGS": MAX_FLAGS}, "flag.cu").itemsize == FLAG.size


def test_numbers_have_the_same_names() -> None:
    for enumeration in ("Kind", "Signal", "StepFlags"):
        for name, value in enumerators(enumeration).items():
            assert getattr(programs, name) == value
    signals = {name: value for value, name in enumerate(SIGNAL_NAMES)}
    dtypes = {name.removesuffix("fn"): value for name, value in DTYPE_NUMBER.items()}
    for name, file, numbers in (
        ("Signal", "types.cuh", signals),
        ("Redop", "reduce.cuh", {name: value for value, name in enumerate(REDOPS)}),
        ("Pdl", "program.cuh", {f"pdl_{name}": value for name, value in PDL_NUMBER.items()}),
        ("Dtype", "reduce.cuh", dtypes),
    ):
        found = {key.lower().replace("_", ""): at for key, at in enumerators(name, file).items()}
        assert found == {key.replace("_", ""): value for key, value in numbers.items()}
