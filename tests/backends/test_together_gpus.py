"""Several collectives at once by the cuda backend, on GPUs made of NumPy arrays: every part's
results, alone and together; streams, regions, and what is refused.
"""

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from collbench.backends.base import Batch, GpuOptions, Samples, SessionOptions, TogetherOpener
from collbench.backends.cuda import backend as cuda
from collbench.backends.cuda.together import TOGETHER, CudaTogetherSession, TogetherRank
from collbench.backends.gpu.hang import REPORT
from collbench.backends.gpu.rank import DeviceRank
from collbench.bench.points import plan_points
from collbench.core.case import Case
from collbench.core.errors import CollbenchError, HangError, ScheduleError
from collbench.core.options import LaunchOrder
from collbench.device.layout import CONTROL_BYTES, REPORTS_AT
from collbench.device.program import DATA, ctas
from collbench.launch.local import LocalGroup
from collbench.planning.together import Together
from tests.support.gpus_in_threads import Machine, run_on, spoil
from tests.support.tiers import tiered

KNOBS: dict[str, Any] = {"channels": 2, "transport": "p2p", "threads": 64, "cluster": 1}


def planned(**knobs: Any) -> Together[Any]:
    """What the planner makes of a case."""
    case = Case(**{"op": "allreduce", "size_bytes": 1024, **knobs}).rounded()
    (point,) = plan_points([case], LocalGroup())
    assert point.together is not None, point.waived
    assert (point.waived, point.plan is None) == ("", case.backend != "cuda")
    return point.together


def job(monkeypatch: pytest.MonkeyPatch, **knobs: Any) -> Together[Any]:
    """Of the cuda backend."""
    monkeypatch.setattr(cuda.BACKEND, "why_not", lambda group: "")
    monkeypatch.setattr(cuda, "least_multiprocessors", lambda: 0)
    return planned(backend="cuda", **{**KNOBS, **knobs})


def samples_of(
    machine: Machine,
    together: Together[Any],
    monkeypatch: pytest.MonkeyPatch,
    options: GpuOptions | None = None,
    *,
    hot: bool = False,
    opener: TogetherOpener[Any] = TOGETHER,
) -> Samples:
    """One repeat, and one more."""
    run_on(machine, together.n, monkeypatch)
    given = SessionOptions(hot=hot, gpu=options or GpuOptions())
    with closing(opener.open(LocalGroup(), [together], given)) as session:
        session.run(together, Batch(iterations=2))
        return session.run(together, Batch(iterations=2))


def assert_times(
    samples: Samples, together: Together[Any], options: GpuOptions, machine: Machine
) -> None:
    """Of parts that are right: any two marks are 10 us apart here, between which there are two
    launches. Each group has a stream of its own, and alone all take the main one.
    """
    launch_s = 1e-5 if options.isolated else 5e-6
    assert samples.wrong == ()
    assert samples.seconds == (pytest.approx(launch_s),) * together.n
    assert samples.alone_s == pytest.approx(max(map(len, together.launches.orders)) * launch_s)
    groups = {part.group: part.ranks for part in together.parts}
    most = max(sum(rank in ranks for ranks in groups.values()) for rank in range(together.n))
    assert machine.most_streams == (1 if most == 1 else 1 + most)


GROUPS = [
    (4, {"groups": "0,1/2,3"}),
    (4, {"groups": "0,2/1,3", "proto": "ll"}),
    (2, {"groups": "0,1/0,1", "op": "alltoall"}),
    (4, {"groups": "0,1/2,3/0,2/1,3/1,3", "proto": "ll128"}),
    (2, {"groups": "0,1/1,0", "op": "broadcast", "proto": "simple"}),
    (3, {"groups": "0,1/1,2/2,0", "op": "reducescatter", "transport": "shm"}),
    (2, {"mix": "allreduce:1K+allgatherv:6K", "skew": "zipf:1"}),
    (4, {"mix": "allreduce:1K+alltoall:4K", "groups": "0,1/2,3/3,1", "placement": "out"}),
]


@tiered("number", range(len(GROUPS)), 3)
def test_parts_are_right_alone_and_together(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, knobs = GROUPS[number]
    options = GpuOptions(launch="stream" if number % 3 == 1 else "graph", isolated=number % 4 == 3)
    together, machine = job(monkeypatch, ranks=ranks, **knobs), Machine(number)
    samples = samples_of(machine, together, monkeypatch, options, hot=number % 2 == 0)
    assert_times(samples, together, options, machine)


@pytest.mark.parametrize(
    ("which", "knobs"),
    [("arenas_at", {"groups": "0,1/0,1"}), ("users_at", {"mix": "allreduce:1K+alltoall:1K"})],
)
def test_parts_that_share_a_region_are_noticed(
    which: str, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    regions = CudaTogetherSession._regions

    def shared(session: CudaTogetherSession, jobs: Any) -> Any:
        parts, *sizes = regions(session, jobs)
        first, second = parts
        return [first, second._replace(**{which: getattr(first, which)})], *sizes

    monkeypatch.setattr(CudaTogetherSession, "_regions", shared)
    together = job(monkeypatch, ranks=2, proto="simple", **knobs)
    try:
        assert samples_of(Machine(1, hangs_s=1.0), together, monkeypatch).wrong
    except CollbenchError:
        assert which == "arenas_at"  # flags that another part has set


def test_launches_that_do_nothing_together_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TogetherRank, "_fork", lambda rank, queues, stream: None)
    together = job(monkeypatch, ranks=2, groups="0,1/0,1")
    wrong = samples_of(Machine(2), together, monkeypatch).wrong
    assert {one.rank for one in wrong} == {0, 1}


def test_wrong_elements_have_the_number_of_the_rank_among_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoil(monkeypatch, 3)
    wrong = samples_of(Machine(3), job(monkeypatch, ranks=4, groups="0,1/2,3"), monkeypatch).wrong
    assert {(one.rank, one.index, one.count) for one in wrong} == {(3, 2, 1)}


@pytest.mark.parametrize("order", ["same", "crossed"])
def test_one_launch_after_the_other(order: LaunchOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = job(monkeypatch, ranks=2, mix="allreduce:1K+alltoall:1K")
    together, machine = replace(mixed, order=order), Machine(4, resident=4, hangs_s=1.0)
    if order == "same":
        assert samples_of(machine, together, monkeypatch).wrong == ()
        assert machine.most_streams == 1
    else:
        with pytest.raises(HangError, match="before allreduce of ranks 0,1, and rank 0 launches"):
            samples_of(machine, together, monkeypatch)


@pytest.mark.parametrize(
    ("resident", "cluster", "fits"), [(4, 1, True), (3, 1, False), (8, 2, True), (7, 2, False)]
)
def test_parts_that_may_not_be_resident_together_are_refused(
    resident: int, cluster: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two launches of two CTAs: clusters may find only half of all places."""
    together = job(
        monkeypatch, ranks=2, groups="0,1/0,1", algo="ring", proto="simple", cluster=cluster
    )
    machine = Machine(5, resident=resident)
    if fits:
        assert samples_of(machine, together, monkeypatch).wrong == ()
        return
    with pytest.raises(ScheduleError, match=f"4 CTAs of 2 launches.*, {resident // cluster} are"):
        samples_of(machine, together, monkeypatch)


def test_operations_of_a_mix_need_no_place_beside_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They follow each other in one stream, each in the place of the one before."""
    mix = job(monkeypatch, ranks=2, mix="allreduce:1K+alltoall:1K", proto="ll", pdl="early")
    machine = Machine(8, resident=2)
    assert samples_of(machine, mix, monkeypatch).wrong == ()
    assert machine.most_streams == 1


def test_more_launches_at_once_than_cuda_has_queues_for_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = job(monkeypatch, ranks=2, groups="0,1/0,1")
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    with pytest.raises(ScheduleError, match="2 launches at once, CUDA has 1 queues"):
        samples_of(Machine(6), together, monkeypatch)
    apart = job(monkeypatch, ranks=4, groups="0,1/2,3")
    assert samples_of(Machine(6), apart, monkeypatch).wrong == ()


def test_a_hang_names_the_part_and_the_ranks_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels do not time out here: a CTA's report is put where its kernel would leave it."""
    together = job(monkeypatch, ranks=4, groups="0,1/2,3/0,2/1,3", algo="ring", proto="simple")
    wait = DeviceRank.wait

    def hang(gpu: DeviceRank, deadline_s: float) -> None:
        wait(gpu, deadline_s)
        if gpu.rank == 3 and gpu.n == 4:  # of all: when parts are together
            of_rank = parts[3][3]  # the part 1,3, where it is rank 1
            report = REPORT.pack(1, 5, 0, DATA, 1, 1, 0, 0, 7, 6)
            gpu.card.upload(of_rank.arena + REPORTS_AT, report)
            raise HangError("rank 3 was told to stop")

    parts: dict[int, dict[int, DeviceRank]] = {}
    whole = TogetherRank.divide

    def divide(rank: TogetherRank, of: Any) -> None:
        whole(rank, of)
        parts[rank.context.rank] = {number: one.gpu for number, one in rank.parts.items()}

    monkeypatch.setattr(TogetherRank, "divide", divide)
    monkeypatch.setattr(DeviceRank, "wait", hang)
    with pytest.raises(HangError) as caught:
        samples_of(Machine(7, hangs_s=1.0), together, monkeypatch)
    assert caught.value.message.startswith("rank 1 keeps the others waiting")
    assert caught.value.message.endswith(
        "rank 3 (allreduce of ranks 1,3, channel 1, track main, round 0) waited for data from rank"
        " 1: wanted 7, saw 6"
    )


def test_regions_of_a_rank_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another rank begin elsewhere: it has other parts."""
    together = job(monkeypatch, ranks=4, groups="0,1/1,2/2,3/1,3")
    run_on(Machine(8), 4, monkeypatch)
    session = CudaTogetherSession(LocalGroup(), [together], hot=True, options=GpuOptions())
    with closing(session):
        parts, arena_bytes, user_bytes = session._regions([together])
    for rank in range(4):
        own = [part for part in parts if rank in part.ranks]
        for most, starts in (
            (arena_bytes, [part.arenas_at[rank] for part in own]),
            (user_bytes, [part.users_at[rank] for part in own]),
        ):
            assert starts == sorted(set(starts))
            assert starts[-1] < most
        assert own[0].arenas_at[rank] == CONTROL_BYTES
    assert len({part.arenas_at[1] for part in parts}) == 3


def test_what_is_left_out_is_waived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.BACKEND, "why_not", lambda group: "")
    monkeypatch.setattr(cuda, "least_multiprocessors", lambda: 0)
    copied = Case(
        op="allreduce", backend="cuda", ranks=4, size_bytes=1 << 20, groups="0,1/2,3",
        transport="ce",
    )  # fmt: skip
    (point,) = plan_points([copied], LocalGroup())
    assert point.waived.startswith("copy engines take turns")
    # what is left open takes kernels where one collective would take copy engines
    large = replace(copied, op="alltoall", size_bytes=1 << 30, transport="auto")
    (point,) = plan_points([large], LocalGroup())
    assert (point.waived, point.case.transport) == ("", "p2p")
    (point,) = plan_points([replace(copied, transport="net")], LocalGroup())
    assert "messages of one collective" in point.waived
    hosts = LocalGroup()
    hosts.hosts = ["a", "a", "b", "b"]
    assert TOGETHER.why_not(hosts) == (
        "groups and mixes on GPUs are of one host: start all ranks there"
    )


def test_auto_leaves_room_for_all_parts_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"channels": 0, "threads": 0, "cluster": 0, "transport": "auto", "size_bytes": 1 << 28}
    for groups, parts in (("0,1/2,3", 1), ("0,1/2,3/0,2/1,3/0,3/1,2", 3)):
        together = job(monkeypatch, ranks=4, groups=groups, **free)
        assert max(map(len, together.launches.orders)) == parts
        assert sum(ctas(part.job) for part in together.parts[:1]) * parts <= 132
