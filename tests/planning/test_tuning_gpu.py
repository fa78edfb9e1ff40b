"""What the table for GPUs decides and refuses, against what the kernels can take. No GPU is
needed.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest

from collbench.backends.cuda import backend as cuda
from collbench.bench.points import plan_points
from collbench.bench.ranks import Ranks, ranks_of
from collbench.core.case import Case
from collbench.core.collectives import OPS, OpName
from collbench.core.options import DEFAULT_MEMORY
from collbench.device.compile import kernel_source
from collbench.device.layout import ARGS, CONTROL_BYTES, END, Memory, layout, pack_args
from collbench.device.program import ctas, launches_counted
from collbench.launch.local import LocalGroup
from collbench.machine.topology.machines import machine_topology
from collbench.planning.limits import MAX_ENDS, Limits, memory_bytes
from collbench.planning.plan import Plan
from collbench.planning.planner import machine_of, resolve
from collbench.planning.selection import Choice, algorithms_of
from collbench.planning.tuning import tuning_without
from tests.support.tiers import tiered

PAIRS = [(op, algo) for op in OPS for algo in algorithms_of(op, has_hosts=False)]


def plan_of(memory: int = DEFAULT_MEMORY, **knobs: Any) -> Plan:
    base: dict[str, Any] = {"backend": "cuda", "ranks": 4, "size_bytes": 1 << 30}
    return resolve(Case(**(base | knobs)), Limits(memory_bytes=memory)).plan


def choice(limits: Limits | None = None, **knobs: Any) -> Choice:
    """What is chosen for four ranks and 16M, unless the knobs say otherwise."""
    base: dict[str, Any] = {"backend": "cuda", "ranks": 4, "size_bytes": 1 << 24}
    return resolve(Case(**(base | knobs)), limits or Limits())


def in_turn(name: str, values: Sequence[str], count: int) -> pytest.MarkDecorator:
    """Every pair with every value; quick some pairs with one of them, in turn."""
    every = [(op, algo, value) for op, algo in PAIRS for value in values]
    quick = [(*pair, value) for pair, value in zip(PAIRS, cycle(values), strict=False)]
    return tiered(("op", "algo", name), every, quick[:count])


@in_turn("proto", ["simple", "ll", "ll128"], 12)
def test_memory_is_what_the_layout_takes_and_within_its_limit(
    op: str, algo: str, proto: str
) -> None:
    for memory in (DEFAULT_MEMORY, 16 << 20):
        for direct in ("on", "off") if proto == "simple" else ("auto",):
            plan = plan_of(op=op, algo=algo, proto=proto, direct=direct, memory=memory)
            taken = max(layout(plan, rank).total for rank in range(plan.n)) - CONTROL_BYTES
            assert memory_bytes(plan) <= memory
            assert abs(taken - memory_bytes(plan)) < 2048  # two alignments


def test_the_largest_numbers_fit_their_fields() -> None:
    plan = plan_of(
        op="alltoall", algo="direct", proto="simple", direct="on", chunk=1 << 30, size_bytes=1 << 36
    )
    memory = Memory(
        arenas=(1 << 46,) * 4,
        inputs=(1 << 46,) * 4,
        outputs=(1 << 46,) * 4,
        own=1 << 46,
        abort=1,
        program=1,
        aborts=1,
    )
    assert pack_args(plan, 3, memory, set_offset=1 << 40, timeout_ns=1 << 50)


@in_turn("transport", ["p2p", "shm", "net"], 3)
def test_what_is_chosen_fits_the_memory_that_is_allowed(op: str, algo: str, transport: str) -> None:
    for ranks in (2, 4, 16):
        for size_bytes in (1 << 16, 1 << 22, 1 << 26, 1 << 30):
            plan = plan_of(
                op=op, algo=algo, transport=transport, ranks=ranks, size_bytes=size_bytes
            )
            assert memory_bytes(plan) <= DEFAULT_MEMORY


@pytest.mark.parametrize("op", ["alltoall", "sendrecv"])
def test_both_tracks_of_duplex_fit_a_small_gpu(op: OpName) -> None:
    case, plan = resolve(
        Case(op=op, backend="cuda", algo="duplex", transport="shm", ranks=4, size_bytes=1 << 26),
        Limits(ctas=20),
    )
    assert case.channels == 10 and ctas(plan) == 20


@pytest.mark.parametrize("size_bytes", [8, 1 << 20, 1 << 26, 1 << 30])
def test_a_smaller_gpu_gets_fewer_channels(size_bytes: int) -> None:
    for op in OPS:
        case, plan = resolve(
            Case(op=op, backend="cuda", ranks=4, size_bytes=max(size_bytes, 16)), Limits(ctas=58)
        )
        assert 0 < ctas(plan) <= 58
        assert case.channels == plan.channels


def plant_gpus(monkeypatch: pytest.MonkeyPatch, count: int, model: str, arch: str) -> None:
    """GPUs without clusters, with so many multiprocessors, that reach each other."""
    monkeypatch.setattr(cuda.BACKEND, "why_not", lambda group: "")
    monkeypatch.setattr(cuda, "least_multiprocessors", lambda: count)
    monkeypatch.setattr(cuda, "all_have_clusters", lambda: False)
    monkeypatch.setattr(cuda, "all_reach_each_other", lambda: True)
    monkeypatch.setattr(cuda, "model_of_all", lambda: model)
    monkeypatch.setattr(cuda, "archs", lambda: {arch})


def test_a_sweep_asks_the_backend_what_its_gpus_have(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_gpus(monkeypatch, 58, "NVIDIA H200", "90")
    case = Case(op="allreduce", backend="cuda", ranks=4, size_bytes=1 << 28)
    (point,) = plan_points([case], LocalGroup(), where=Ranks(joined="NVLink"))
    (elsewhere,) = plan_points([case], LocalGroup(), where=Ranks(joined="PCIe"))
    assert point.origin is not None and point.origin.is_fitting
    assert elsewhere.origin is not None and not elsewhere.origin.is_fitting
    assert point.plan is not None
    assert point.plan.channels == 58
    assert point.case.cluster == 1
    assert point.is_choice


def test_a_users_file_cannot_ask_for_lines_over_pcie() -> None:
    case = Case(op="allreduce", backend="cuda", ranks=4, size_bytes=1 << 20)
    for joined, proto in (("NVLink", "ll128"), ("PCIe", "simple")):
        limits = Limits(joined=joined)
        tuning = tuning_without(machine_of("cuda", limits), 4, first={"proto": "ll128"})
        assert resolve(case, limits, tuning).case.proto == proto


@pytest.mark.exhaustive
def test_the_model_decides_on_gpus_that_no_tuning_file_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight V100 of a cube: a ring over their NVLinks for large sizes, few hops for small ones."""
    plant_gpus(monkeypatch, 80, "Tesla V100-SXM2-16GB", "70")
    where = ranks_of(("cuda",), None, LocalGroup(), (), machine_topology("dgx-1v"))
    small = Case(op="allreduce", backend="cuda", ranks=8, size_bytes=1 << 10)
    points = plan_points([small, replace(small, size_bytes=1 << 26)], LocalGroup(), where=where)
    assert [point.origin and point.origin.priced_by for point in points] == ["h200x4-vm"] * 2
    assert all(point.is_choice for point in points)
    assert points[1].case.algo == "ring"
    assert points[0].plan is not None and points[1].plan is not None
    assert points[0].plan.proof.hops < points[1].plan.proof.hops


@pytest.mark.parametrize(
    ("channels", "size_bytes", "wanted"),
    [(24, 1 << 21, 4), (48, 1 << 24, 8), (128, 1 << 24, 1), (24, 1 << 20, 1), (6, 1 << 24, 1)],
)
def test_ctas_are_placed_in_clusters_that_fill_gpcs_alike(
    channels: int, size_bytes: int, wanted: int
) -> None:
    knobs: dict[str, Any] = {"proto": "simple", "channels": channels}
    case, plan = choice(op="allreduce", algo="ring", size_bytes=size_bytes, **knobs)
    assert plan.kernel is not None
    assert (case.cluster, plan.kernel.cluster) == (wanted, wanted)


@pytest.mark.parametrize("op", ["allreduce", "allgather"])
def test_a_small_rest_has_no_loop_of_its_own(op: OpName) -> None:
    even, odd = (plan_of(op=op, ranks=2, size_bytes=(64 << 20) + more) for more in (0, 8))
    assert len(list(odd.loops(0))) == len(list(even.loops(0)))


def test_pieces_of_odd_vectors_begin_where_vectors_do() -> None:
    """Those of odd blocks do not."""
    whole, vector, blocks = (
        dict(kernel_source(plan_of(op=op, ranks=2, size_bytes=(1 << 20) + more), 0).macros)
        for op, more in (("allreduce", 0), ("allreduce", 4), ("allgather", 8))
    )
    known = [(macros["ALIGNED"], macros["WHOLE"]) for macros in (whole, vector, blocks)]
    assert known == [("1", "1"), ("1", "0"), ("0", "0")]


def test_slices_of_a_repeat_have_numbers_of_32_bits() -> None:
    plan = plan_of(
        op="allreduce", algo="ring", proto="ll", channels=1, chunk=16, size_bytes=1 << 24
    )
    slices = max(connection.slices for connection in plan.connections)
    assert slices == 6 * (1 << 24) // 64
    assert launches_counted(plan) * slices < 1 << 32 <= (launches_counted(plan) + 1) * slices


def test_a_launch_has_room_for_its_connections() -> None:
    assert ARGS.size + MAX_ENDS * END.size <= 4096 < ARGS.size + (MAX_ENDS + 1) * END.size
