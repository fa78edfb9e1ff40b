"""MPI beside backends of GPUs: when its user buffers are in GPU memory, and every collective there,
on GPUs whose memory is the host's.
"""

from contextlib import closing
from typing import Any

import pytest

from collbench.backends.base import Batch, GpuOptions
from collbench.backends.mpi import backend, gpu
from collbench.bench import sweep
from collbench.bench.points import is_apart, plan_points
from collbench.bench.sweep import Sweep, cases
from collbench.cli import run
from collbench.core.case import Case
from collbench.core.collectives import OPS, collective
from collbench.core.errors import UnavailableError
from collbench.core.peers import PEERS
from collbench.launch.local import LocalGroup
from tests.support.batteries import placements
from tests.support.commands import Capture
from tests.support.host_gpu import HostMpiGpuRank, SilentMpiGpuRank
from tests.support.runs import needs_mpi


def case(op: str, n: int, size_bytes: int = 2996, **more: Any) -> Case:
    return Case(
        **{
            **{"op": op, "backend": "mpi", "algo": "library", "proto": "", "buffers": "gpu"},
            **{"ranks": n, "size_bytes": size_bytes, **more},
        }
    ).rounded()


def session_of(
    monkeypatch: pytest.MonkeyPatch, given: list[Case], kind: type[gpu.MpiGpuRank]
) -> closing[gpu.MpiGpuSession]:
    monkeypatch.setattr(gpu, "why_no_gpus", lambda: "")
    monkeypatch.setattr(gpu, "device_count", lambda: 3)
    monkeypatch.setattr(gpu, "MpiGpuRank", kind)
    return closing(gpu.MpiGpuSession(LocalGroup(), given, hot=False, options=GpuOptions()))


@pytest.mark.exhaustive
@needs_mpi
def test_every_collective_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 3
    given = [
        case(op, n, placement="in" if in_place else "out", root=n - 1, dtype=dtype)
        for op in OPS
        for in_place in placements(op)
        for dtype in (("float32",) if collective(op).is_reduction else ("bfloat16",))
        if not (op == "reducescatter" and in_place)
    ]
    batch = Batch(iterations=3, single_launches=2)
    with session_of(monkeypatch, given, HostMpiGpuRank) as session:
        found = [(one, session.run(one, batch)) for one in given]
    assert [(one.op, one.placement) for one, samples in found if samples.wrong] == []
    assert all(len(samples.launch_times_s) == 2 for _, samples in found)
    assert {samples.notes for _, samples in found} == {("host-clock",)}
    assert session.device == f"{n} x host memory"
    assert "cuda 0" in session.version


@pytest.mark.exhaustive
@needs_mpi
def test_calls_that_do_nothing_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [case("allreduce", 2), case("allreduce", 2, placement="in")]
    with session_of(monkeypatch, given, SilentMpiGpuRank) as session:
        assert [len(session.run(one, Batch(iterations=3)).wrong) for one in given] == [2, 2]


def buffers_of(*backends: str) -> dict[str, str]:
    found = cases(Sweep(sizes=(1024,), backend=backends), PEERS)
    return {one.backend: one.buffers for one in found if one.backend != "nccl"}


@pytest.mark.parametrize("has_gpus", [True, False])
def test_its_buffers_are_where_the_others_have_theirs(
    monkeypatch: pytest.MonkeyPatch, has_gpus: bool
) -> None:
    """On a host without GPUs that is the memory of the host if anything else can run there."""
    monkeypatch.setattr(sweep, "has_nvidia_gpus", lambda: has_gpus)
    assert buffers_of("cpu", "mpi") == {"cpu": "plain", "mpi": "plain"}
    assert buffers_of("mpi", "nccl") == {"mpi": "gpu"}
    assert buffers_of("cuda", "mpi", "gloo") == {
        **{"cuda": "plain", "gloo": "plain"},
        "mpi": "gpu" if has_gpus else "plain",
    }


def test_in_gpu_memory_its_ranks_come_last_and_need_no_host_memory() -> None:
    on_gpus, on_cpus = (case("allreduce", 2, 1 << 20, buffers=name) for name in ("gpu", "plain"))
    points, mpi = plan_points([on_gpus, on_cpus], LocalGroup()), backend.BACKEND
    assert [is_apart(one.session, [one]) for one in points] == [True, False]
    assert mpi.private_bytes(on_gpus, hot=True) == 0 < mpi.private_bytes(on_cpus, hot=True)


def test_an_mpi_that_takes_no_gpu_memory_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "why_not_cuda_aware", lambda: "Some MPI takes no GPU memory")
    rank = gpu.MpiGpuRank.__new__(gpu.MpiGpuRank)
    with pytest.raises(UnavailableError, match="Some MPI takes no GPU memory") as found:
        rank.device(GpuOptions())
    assert "built with CUDA" in found.value.hint


def test_more_ranks_than_gpus_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnavailableError, match="4 ranks, 3 GPUs"):
        session_of(monkeypatch, [case("allreduce", 4)], HostMpiGpuRank)


def test_without_gpus_it_is_waived_beside_them(
    monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setattr(gpu, "why_no_gpus", lambda: "this host has no NVIDIA GPU")
    monkeypatch.setattr(backend, "find_spec", lambda name: name)
    command = ["sweep", "--backend", "model,cuda,mpi", "--ranks", "2", "--sizes", "1K"]
    assert run([*command, "--algo", "ring", "--repeats", "1"]) == 0
    (row,) = (line for line in capfd.readouterr().out.splitlines() if " mpi " in line[:40])
    assert row.endswith("waived: this host has no NVIDIA GPU")
