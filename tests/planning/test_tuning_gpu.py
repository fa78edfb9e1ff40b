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
from collbench.core.errors import ScheduleError
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


@pytest.mark.parametrize(
    ("knobs", "match"),
    [
        ({"chunk": 1 << 32, "direct": "on"}, "chunks up to 1G"),
        ({"chunk": 1 << 30, "direct": "off", "channels": 1, "memory": 1 << 40}, "4G a channel"),
        (
            {"chunk": 1 << 20, "direct": "off", "channels": 1, "memory": 16 << 20, "slots": 8},
            "16M are allowed",
        ),
        ({"proto": "ll128", "unroll": 4}, "no effect"),
        ({"buffers": "window"}, "--nccl has no effect with the cuda backend"),
        ({"transport": "shm", "proto": "ll128"}, "128 bytes"),
        ({"transport": "shm", "direct": "on"}, "nothing reaches"),
    ],
)
def test_what_kernels_cannot_take_is_refused(knobs: dict[str, Any], match: str) -> None:
    base: dict[str, Any] = {
        "op": "alltoall",
        "algo": "direct",
        "proto": "simple",
        "size_bytes": 1 << 34,
    }
    with pytest.raises(ScheduleError) as caught:
        plan_of(**(base | knobs))
    assert match in f"{caught.value.message} {caught.value.hint}"


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


@pytest.mark.parametrize(
    ("op", "transport", "ranks", "size_bytes", "wanted"),
    [
        ("alltoall", "shm", 4, 1 << 18, ("direct", "ll")),
        ("alltoall", "shm", 4, 1 << 20, ("direct", "simple")),
        ("alltoall", "shm", 4, 1 << 22, ("duplex", "simple")),
        ("alltoall", "shm", 2, 1 << 22, ("duplex", "simple")),
        ("alltoall", "shm", 2, 1 << 26, ("direct", "simple")),
        ("sendrecv", "shm", 4, 1 << 16, ("direct", "simple")),
        ("sendrecv", "shm", 2, 1 << 16, ("direct", "ll")),
        ("alltoall", "net", 8, 1 << 24, ("duplex", "simple")),
        ("alltoall", "p2p", 4, 1 << 24, ("direct", "simple")),
        ("allgather", "net", 4, 1 << 24, ("duplex", "simple")),
        ("allgather", "net", 8, 1 << 24, ("ring", "simple")),
        *[("reducescatter", "net", ranks, 1 << 14, ("direct", "ll")) for ranks in (2, 4, 8)],
        ("allgather", "net", 2, 1 << 24, ("ring", "simple")),
    ],
)
def test_each_transport_has_choices_of_its_own(
    op: OpName, transport: str, ranks: int, size_bytes: int, wanted: tuple[str, str]
) -> None:
    case, _ = choice(op=op, transport=transport, ranks=ranks, size_bytes=size_bytes)
    assert (case.algo, case.proto) == wanted


@pytest.mark.parametrize("transport", ["shm", "net"])
def test_ll_has_the_algorithm_of_one_track(transport: str) -> None:
    assert choice(op="sendrecv", proto="ll", transport=transport).case.algo == "direct"


def test_where_messages_only_join_hosts_the_first_one_is_small() -> None:
    """What four ranks of one host gave over messages alone is not taken where most hops are in
    memory, nor through more ranks.
    """
    case = Case(
        op="broadcast", backend="cuda", algo="chain", proto="simple", ranks=4, size_bytes=1 << 23
    )
    found = [
        resolve(replace(case, ranks=ranks, transport=transport), Limits(hosts=hosts))[0]
        for ranks, transport, hosts in ((4, "net", ()), (4, "auto", (0, 0, 1, 1)), (8, "net", ()))
    ]
    assert [case.chunk for case in found] == [1 << 20, 320 << 10, 256 << 10]


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


def test_a_sweep_asks_the_backend_what_its_gpus_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.BACKEND, "why_not", lambda group: "")
    monkeypatch.setattr(cuda, "least_multiprocessors", lambda: 58)
    monkeypatch.setattr(cuda, "all_have_clusters", lambda: False)
    monkeypatch.setattr(cuda, "all_reach_each_other", lambda: True)
    monkeypatch.setattr(cuda, "model_of_all", lambda: "NVIDIA H200")
    monkeypatch.setattr(cuda, "archs", lambda: {"90"})
    case = Case(op="allreduce", backend="cuda", ranks=4, size_bytes=1 << 28)
    (point,) = plan_points([case], LocalGroup(), where=Ranks(joined="NVLink"))
    (elsewhere,) = plan_points([case], LocalGroup(), where=Ranks(joined="PCIe"))
    assert point.origin is not None and point.origin.is_fitting
    assert elsewhere.origin is not None and not elsewhere.origin.is_fitting
    assert point.plan is not None
    assert point.plan.channels == 58
    assert point.case.cluster == 1
    assert point.is_choice


@pytest.mark.parametrize(
    ("limits", "proto"),
    [
        (Limits(joined="NVLink"), "ll128"),
        (Limits(joined="NVLink", has_lines=False), "simple"),
        (Limits(joined="PCIe"), "simple"),
    ],
)
def test_lines_of_ll128_are_taken_where_they_are_known_to_be_whole(
    limits: Limits, proto: str
) -> None:
    case = Case(op="allreduce", backend="cuda", dtype="int32", ranks=4, size_bytes=1 << 20)
    assert resolve(case, limits).case.proto == proto
    asked = resolve(replace(case, proto="ll128"), limits).case
    assert asked.proto == "ll128"


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
    monkeypatch.setattr(cuda.BACKEND, "why_not", lambda group: "")
    monkeypatch.setattr(cuda, "least_multiprocessors", lambda: 80)
    monkeypatch.setattr(cuda, "all_have_clusters", lambda: False)
    monkeypatch.setattr(cuda, "all_reach_each_other", lambda: True)
    monkeypatch.setattr(cuda, "model_of_all", lambda: "Tesla V100-SXM2-16GB")
    monkeypatch.setattr(cuda, "archs", lambda: {"70"})
    where = ranks_of(("cuda",), None, LocalGroup(), (), machine_topology("dgx-1v"))
    points = plan_points(
        [
            Case(op="allreduce", backend="cuda", ranks=8, size_bytes=size)
            for size in (1 << 10, 1 << 26)
        ],
        LocalGroup(),
        where=where,
    )
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


@pytest.mark.parametrize(
    ("knobs", "limits"),
    [
        ({"channels": 6, "cluster": 4}, Limits()),
        ({"channels": 32, "cluster": 16}, Limits()),
        ({"channels": 8, "cluster": 4}, Limits(has_clusters=False)),
    ],
)
def test_clusters_that_cannot_be_are_refused(knobs: dict[str, int], limits: Limits) -> None:
    with pytest.raises(ScheduleError, match="clusters of"):
        choice(limits, op="allreduce", algo="ring", **knobs)


@pytest.mark.parametrize("ranks", [2, 4])
def test_auto_takes_sentinel_where_it_can_and_was_faster(ranks: int) -> None:
    case = Case(op="allreduce", backend="cuda", ranks=ranks, size_bytes=1 << 20)
    cases: list[tuple[Case, Limits, bool]] = [
        (case, Limits(), True),
        (replace(case, dtype="bfloat16", redop="max", size_bytes=8 << 20), Limits(), True),
        (replace(case, dtype="int32"), Limits(), False),
        (replace(case, dtype="float64"), Limits(), False),
        (replace(case, size_bytes=1 << 28), Limits(), False),
        (replace(case, transport="shm"), Limits(), False),
        (replace(case, proto="ll"), Limits(), False),
        (replace(case, slots=1, algo="oneshot"), Limits(), False),
        (replace(case, size_bytes=16 << 20), Limits(memory_bytes=16 << 20), False),
    ]
    for one, limits, is_taken in cases:
        assert (resolve(one, limits).case.proto == "sentinel") == is_taken


def test_launches_follow_each_other_closely_where_that_was_measured() -> None:
    case = Case(op="allreduce", backend="cuda", dtype="int32", proto="auto", ranks=4, size_bytes=8)
    sizes = [replace(case, size_bytes=size) for size in (8, 64 << 10, 2 << 20)]
    assert [resolve(each).case.pdl for each in sizes] == ["late", "early", "late"]
    older, alone = Limits(has_clusters=False), Limits(has_peers=False)
    assert {resolve(case, limits).case.pdl for limits in (older, alone)} == {"off"}
    assert resolve(replace(case, transport="net")).case.pdl == "off"
    with pytest.raises(ScheduleError, match="before sm_90"):
        resolve(replace(case, pdl="late"), older)
    with pytest.raises(ScheduleError, match="--pdl"):
        resolve(replace(case, size_bytes=1 << 20, transport="ce", pdl="early"))


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


def test_copy_engines_are_chosen_by_the_number_of_gpus() -> None:
    case = Case(op="broadcast", backend="cuda", ranks=2, size_bytes=256 << 20)
    chosen = [resolve(replace(case, ranks=ranks)).case.transport for ranks in (2, 4)]
    assert chosen == ["ce", "p2p"]


def test_slices_of_a_repeat_have_numbers_of_32_bits() -> None:
    plan = plan_of(
        op="allreduce", algo="ring", proto="ll", channels=1, chunk=16, size_bytes=1 << 24
    )
    slices = max(connection.slices for connection in plan.connections)
    assert slices == 6 * (1 << 24) // 64
    assert launches_counted(plan) * slices < 1 << 32 <= (launches_counted(plan) + 1) * slices


def test_a_launch_has_room_for_its_connections() -> None:
    assert ARGS.size + MAX_ENDS * END.size <= 4096 < ARGS.size + (MAX_ENDS + 1) * END.size
    plan_of(op="alltoall", algo="direct", proto="ll", ranks=36, size_bytes=1 << 16)
    with pytest.raises(ScheduleError, match="72 ends of connections: a launch has room for 70"):
        plan_of(op="alltoall", algo="direct", proto="ll", ranks=37, size_bytes=1 << 16)
