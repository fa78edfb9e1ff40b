"""Several of NCCL's collectives at once, on GPUs made of NumPy arrays and an NCCL made of queues:
every part's results, alone and together; communicators, buffers, hangs, and what is refused.
"""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.backends.base import Batch, GpuOptions, Samples, SessionOptions
from collbench.backends.cuda import backend as cuda
from collbench.backends.gpu import session as gpu_session
from collbench.backends.nccl.together import TOGETHER, TogetherRank
from collbench.bench.points import is_apart, plan_points
from collbench.core.case import Case
from collbench.core.errors import HangError, RefusedError, ScheduleError, UnavailableError
from collbench.core.options import LaunchMode, LaunchOrder
from collbench.core.peers import Variables, forced_by
from collbench.core.record import read
from collbench.launch.local import LocalGroup
from collbench.planning.together import Together
from tests.backends.test_together_gpus import assert_times, planned
from tests.backends.test_together_gpus import samples_of as repeated
from tests.support.commands import Capture, invoke
from tests.support.gpus_in_threads import Machine, run_on
from tests.support.nccl_in_threads import PretendedNccl, nccl_on
from tests.support.plants import PLANTS, PlantKind, plant
from tests.support.tiers import tiered

KNOBS: dict[str, Any] = {"algo": "library", "proto": "", "op": "allreduce", "size_bytes": 1024}
HANGS_S = 0.5  # so long a GPU is waited for where launches wait for each other


def job(**knobs: Any) -> Together[Any]:
    """What the planner makes of a case."""
    return planned(backend="nccl", **{**KNOBS, **knobs})


def samples_of(
    nccl: PretendedNccl,
    together: Together[Any],
    monkeypatch: pytest.MonkeyPatch,
    options: GpuOptions | None = None,
    *,
    hot: bool = False,
) -> Samples:
    """One repeat, and one more. Whatever came of them, NCCL gets all back, and nothing is called
    that it does not allow.
    """
    try:
        return repeated(nccl.machine, together, monkeypatch, options, hot=hot, opener=TOGETHER)
    finally:
        assert (nccl.faults, nccl.left()) == ([], [])


GROUPS: list[tuple[int, dict[str, Any]]] = [
    (4, {"groups": "0,1/2,3"}),
    (4, {"groups": "0,2/1,3", "op": "allgather", "placement": "in"}),
    (2, {"groups": "0,1/0,1", "op": "alltoall"}),
    (4, {"groups": "0,1/2,3/0,2/1,3/1,3", "redop": "avg", "dtype": "bfloat16"}),
    (2, {"groups": "0,1/1,0", "op": "broadcast", "root": 1, "buffers": "registered"}),
    (3, {"groups": "0,1/1,2/2,0", "op": "reducescatter", "buffers": "window"}),
    (2, {"mix": "allreduce:1K+allgatherv:6K", "skew": "zipf:1"}),
    (4, {"mix": "reduce:1K+alltoallv:4K", "groups": "0,1/2,3/3,1", "buffers": "registered"}),
    (3, {"mix": "sendrecv:600+reducescatterv:6K+scatter:1K", "skew": "zipf:1", "root": 2}),
    (4, {"mix": "gather:1K+allreduce:2K", "groups": "0,2/1,3", "placement": "in"}),
]


@tiered("number", range(len(GROUPS)), 3)
def test_parts_are_right_alone_and_together(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, knobs = GROUPS[number]
    nccl = nccl_on(machine := Machine(number), monkeypatch)
    options = GpuOptions(launch="stream" if number % 3 == 1 else "graph", isolated=number % 4 == 3)
    together = job(ranks=ranks, **knobs)
    samples = samples_of(nccl, together, monkeypatch, options, hot=number % 2 == 0)
    assert_times(samples, together, options, machine)
    groups = {part.group: part.ranks for part in together.parts}
    assert len(nccl.comms) == sum(map(len, groups.values()))
    assert {comm.state for comm in nccl.comms} == {"destroyed"}


@pytest.mark.parametrize("launch", ["graph", "stream"])
@tiered("kind", PLANTS, 2)
def test_what_a_library_leaves_out_is_noticed(
    kind: PlantKind, launch: LaunchMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    nccl = nccl_on(Machine(1), monkeypatch)
    together = job(ranks=4, groups="0,1/2,3")
    with plant(kind, "timed"):
        samples = samples_of(nccl, together, monkeypatch, GpuOptions(launch=launch), hot=True)
    assert samples.wrong


def test_points_of_a_session_share_communicators(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the memory that NCCL has for each part, which is large enough for all of them. Graphs end
    with their point: NCCL has memory for each.
    """
    nccl = nccl_on(Machine(1), monkeypatch)
    jobs = [
        job(ranks=4, groups="0,1/2,3", op=op, size_bytes=size, buffers=buffers)
        for op, size, buffers in (
            ("allreduce", 8192, "window"),
            ("alltoall", 4096, "window"),
            ("allreduce", 1024, "window"),
            ("allreduce", 8192, "plain"),
            ("allreduce", 512, "registered"),
        )
    ]
    run_on(nccl.machine, 4, monkeypatch)
    with closing(TOGETHER.open(LocalGroup(), jobs, SessionOptions(hot=True))) as session:
        for one in (*jobs, *jobs):
            assert session.run(one, Batch(iterations=3)).wrong == ()
        # of a part alone, and of all, each timed and proved
        assert {len(comm.graphs) for comm in nccl.comms} == {4}
        # collectives and messages have windows apart
        kinds = [what for what, *_ in nccl.held.values()]
        assert kinds.count("comm_window_register") == 2 * 4
        assert kinds.count("comm_register") == 4
    assert (len(nccl.comms), nccl.faults, nccl.left()) == (4, [], [])


@pytest.mark.parametrize(("order", "most"), [("grouped", 1 + 1 + 2), ("same", 2)])
def test_a_mix_is_a_group_on_one_communicator(
    order: LaunchOrder, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch of two collectives, a send and a receive; or one after the other."""
    nccl = nccl_on(machine := Machine(11), monkeypatch)
    mix = replace(job(ranks=2, mix="allreduce:1K+allgather:1K+sendrecv:1K"), order=order)
    assert samples_of(nccl, mix, monkeypatch).wrong == ()
    assert (max(nccl.calls), machine.most_streams, len(nccl.comms)) == (most, 1, 2)


def test_operations_of_a_communicator_have_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    nccl = nccl_on(Machine(12), monkeypatch)
    mix = replace(job(ranks=2, mix="allreduce:1K+allgather:1K"), order="crossed")
    with pytest.raises(ScheduleError, match="on which NCCL allows one order only"):
        samples_of(nccl, mix, monkeypatch)


@pytest.mark.parametrize("launch", ["graph", "stream"])
@pytest.mark.parametrize("order", ["same", "crossed"])
def test_one_launch_after_the_other(
    order: LaunchOrder, launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In crossed order every rank aborts its communicators, and NCCL gets all back."""
    nccl = nccl_on(machine := Machine(4, hangs_s=HANGS_S), monkeypatch)
    options = GpuOptions(launch=launch)
    together = replace(job(ranks=2, groups="0,1/0,1"), order=order)
    if order == "same":
        assert samples_of(nccl, together, monkeypatch, options).wrong == ()
        assert machine.most_streams == 1
    else:
        with pytest.raises(HangError, match="before allreduce of ranks 0,1, and rank 0 launches"):
            samples_of(nccl, together, monkeypatch, options)
        assert {comm.state for comm in nccl.comms} == {"aborted"}


@pytest.mark.parametrize("when", ["first", "alone", "together"])
def test_a_hang_ends_with_all_communicators_aborted(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 keeps silent from some launch on; at last other graphs hold launches of the same
    communicators, and launches of one are behind those of the other.
    """
    nccl = nccl_on(Machine(5, hangs_s=HANGS_S), monkeypatch)
    together = job(ranks=2, groups="0,1/0,1")
    if when == "first":
        options = GpuOptions(inject="drop")
    else:
        name = f"timed_{when}"
        timed, options, calls = getattr(TogetherRank, name), GpuOptions(), list[int]()

        def silent(rank: TogetherRank, *args: Any) -> Any:
            calls.append(rank.context.rank)
            if rank.context.rank == 0 and calls.count(0) > (2 if when == "alone" else 1):
                rank.options = replace(rank.options, inject="drop")
                for part in rank.parts.values():
                    part.options = rank.options
                    part.graphs.clear()
                rank.graphs.clear()
            return timed(rank, *args)

        monkeypatch.setattr(TogetherRank, name, silent)
    with pytest.raises(HangError) as caught:
        samples_of(nccl, together, monkeypatch, options)
    assert "kernels of 2 communicators need not all find room" in caught.value.message
    assert "NCCL_LAUNCH_ORDER_IMPLICIT" in caught.value.hint
    assert "aborted" in {comm.state for comm in nccl.comms if comm.rank}


@pytest.mark.parametrize(
    ("refused", "buffers", "why"),
    [
        ("comm_init_rank", "plain", "does not make a communicator: NCCL_ERROR_INVALID_USAGE"),
        ("comm_window_register", "window", "does not have window buffers: NCCL_ERROR_INV"),
        ("mem_alloc", "registered", "does not have registered buffers: NCCL_ERROR_INV"),
        ("", "registered", "NCCL does not have registered buffers here"),
        ("all_reduce", "plain", "does not do allreduce: NCCL_ERROR_INVALID_USAGE"),
    ],
)
def test_what_nccl_refuses(
    refused: str, buffers: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or has no handle for."""
    nccl = nccl_on(Machine(6), monkeypatch, refused)
    if not refused:
        monkeypatch.setattr(nccl, "comm_register", lambda *_: 0, raising=False)
    together = job(ranks=4, groups="0,1/2,3", buffers=buffers)
    with pytest.raises(RefusedError, match=why) as found:
        samples_of(nccl, together, monkeypatch)
    assert "NCCL_DEBUG" in found.value.hint


@pytest.mark.parametrize("refused", ["group_end", "all_gather"])
def test_what_nccl_refuses_in_a_group(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nccl = nccl_on(Machine(13), monkeypatch)
    mix = job(ranks=2, mix="allreduce:1K+allgather:1K")
    timed = TogetherRank.timed_together

    def refusing(rank: TogetherRank, *args: Any) -> Any:
        nccl.refused = (refused,)
        return timed(rank, *args)

    monkeypatch.setattr(TogetherRank, "timed_together", refusing)
    why = "do a group of operations" if refused == "group_end" else "do allgather"
    with pytest.raises(RefusedError, match=f"NCCL does not {why}: NCCL_ERROR_INVALID_USAGE"):
        samples_of(nccl, mix, monkeypatch)


def test_two_ranks_on_a_gpu_and_too_many_parts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    nccl = nccl_on(Machine(7), monkeypatch)
    with pytest.raises(UnavailableError, match="NCCL refuses two ranks on one GPU"):
        together = job(ranks=4, groups="0,1/2,3")
        samples_of(nccl, together, monkeypatch, GpuOptions(gpus=(0, 1, 0, 1)))
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    with pytest.raises(ScheduleError, match="2 launches at once, CUDA has 1 queues"):
        samples_of(nccl, job(ranks=2, groups="0,1/0,1"), monkeypatch)


def test_what_is_forced_has_processes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """After all others; here they are threads, and the variables are looked at."""
    nccl = nccl_on(Machine(9), monkeypatch)
    asked: list[Variables] = []

    def children(group: LocalGroup, rank: Any, n: int, variables: Variables) -> Any:
        asked.append(variables)
        return group.gpu_workers(rank, n)

    monkeypatch.setattr(gpu_session, "ChildWorkerGroup", children)
    cases = [Case(backend="nccl", ranks=4, groups="0,1/2,3", **KNOBS)]
    cases.append(replace(cases[0], algo="ring", channels=2))
    free, forced = plan_points(cases, LocalGroup())
    assert not is_apart(free.session, [free])
    assert is_apart(forced.session, [forced])
    for point, notes in ((free, ()), (forced, ("processes",))):
        assert point.together is not None
        samples = samples_of(nccl, point.together, monkeypatch)
        assert (samples.wrong, samples.notes) == ((), notes)
    (variables,) = asked
    assert variables == forced_by(cases[1]) and ("NCCL_ALGO", "Ring") in variables


def test_what_is_left_out_is_waived(monkeypatch: pytest.MonkeyPatch) -> None:
    nccl_on(Machine(8), monkeypatch)
    case = Case(backend="nccl", ranks=4, groups="0,1/2,3", **KNOBS)
    (point,) = plan_points([replace(case, algo="chain", op="allgather")], LocalGroup())
    assert "serves allreduce, not allgather" in point.waived
    mixed = replace(case, algo="ring", mix="allreduce:1K+alltoall:1K").rounded()
    (point,) = plan_points([mixed], LocalGroup())
    assert "group of sends and receives" in point.waived
    hosts = LocalGroup()
    hosts.hosts = ["a", "a", "b", "b"]
    (point,) = plan_points([case], hosts)
    assert point.waived == "groups and mixes on GPUs are of one host: start all ranks there"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "what",
    [
        ("--groups", "0,1/2,3/0,2/1,3", "--op", "allreduce", "--sizes", "1K"),
        ("--mix", "allreduce:1K+alltoall:4K", "--ranks", "4"),
    ],
)
def test_rows_of_nccl_are_compared_with_ours(
    what: tuple[str, ...], capfd: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And say what being together costs, in the same columns as on CPUs; without a ceiling: nobody
    knows what parts could reach together.
    """
    monkeypatch.setattr(cuda.BACKEND, "why_not", lambda group: "")
    monkeypatch.setattr(cuda, "least_multiprocessors", lambda: 0)
    nccl = nccl_on(Machine(10), monkeypatch)
    run_on(nccl.machine, 4, monkeypatch)
    file = tmp_path / "out.csv"
    code, out, err = invoke(
        capfd,
        *("sweep", "--backend", "cuda,nccl", "--algo", "auto", "--transport", "p2p", *what),
        *("-n", "4", "--repeats", "3", "--csv", str(file)),
    )
    assert code == 0, err
    rows = read(file)
    assert [(row.backend, row.buffers) for row in rows] == [
        ("cuda", "plain"),
        *(("nccl", buffers) for buffers in ("plain", "registered", "window")),
    ]
    for row in rows:
        assert (row.status, row.wrong, row.ranks) == ("ok", 0, 4)
        # any two marks are 10 us apart, of 4 launches
        assert (row.time_us, row.alone_us, row.over_alone) == pytest.approx((2.5, 5.0, 0.5))
        assert row.busbw_gbs == pytest.approx(rows[0].busbw_gbs)
        assert (row.ceiling_gbs, row.limit) == (None, "")
        assert not row.groups or row.algbw_gbs == pytest.approx(2 * 1024 / 2.5e-6 / 1e9)
    assert {(row.algo, row.proto, row.ctas) for row in rows[1:]} == {("library", "", 0)}
    assert "vs nccl" in out
    assert "Speedup over the fastest library: 1.00" in out
    assert (nccl.faults, nccl.left()) == ([], [])
