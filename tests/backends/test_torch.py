"""PyTorch's collectives on GPUs, without any: what is waived, which rows a sweep has, the plan of
buffers; and every call and its checks on GPUs whose memory is the host's.
"""

import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.backends.base import Batch, GpuOptions, Samples, Session
from collbench.backends.gpu import session as gpu_session
from collbench.backends.gpu.rank import stride_bytes
from collbench.backends.torch import backend as torch
from collbench.backends.torch.process_group import is_copied
from collbench.bench.sweep import Sweep, cases
from collbench.cli import run
from collbench.core.case import Case
from collbench.core.collectives import OPS, collective
from collbench.core.errors import RefusedError
from collbench.core.group import RankContext
from collbench.core.peers import PEERS, forced_by
from collbench.launch.local import LocalGroup
from tests.support.batteries import placements
from tests.support.commands import Capture
from tests.support.host_gpu import HostTorchRank

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")


def case(algo: str = "library", op: str = "allreduce", n: int = 2, **more: Any) -> Case:
    of = {"op": op, "backend": "torch", "algo": algo, "proto": "", "ranks": n, "size_bytes": 2996}
    return Case(**{**of, **more}).rounded()


def why_not(
    monkeypatch: pytest.MonkeyPatch, folder: Path, version: str = "", hosts: str = "a"
) -> str:
    (folder / "version.py").write_text(version)
    found = SimpleNamespace(origin=str(folder / "__init__.py")) if version else None
    monkeypatch.setattr(torch, "find_spec", lambda name: found)
    monkeypatch.setattr(torch, "why_no_gpus", lambda: "this host has no NVIDIA GPU")
    return torch.BACKEND.why_not(SimpleNamespace(hosts=tuple(hosts)))


def test_where_it_cannot_run_it_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    of_cpus, of_gpus = "cuda: Optional[str] = None", "cuda: Optional[str] = '13.0'"
    of_cpus, of_gpus = (f"from typing import Optional\n{text}\n" for text in (of_cpus, of_gpus))
    assert why_not(monkeypatch, tmp_path).startswith("PyTorch is not installed; install it with:")
    assert why_not(monkeypatch, tmp_path, of_cpus) == "this PyTorch is built without CUDA"
    assert why_not(monkeypatch, tmp_path, of_gpus, "ab") == "PyTorch is measured on one host"
    assert why_not(monkeypatch, tmp_path, of_gpus) == "this host has no NVIDIA GPU"


def ways(*algos: str, op: Any = "allreduce") -> list[str]:
    knobs = {"algo": algos} if algos else {}
    found = cases(
        Sweep(sizes=(4096,), backend=("torch",), op=(op,), knobs=knobs, asked=frozenset(knobs)),
        PEERS,
    )
    assert {forced_by(one) for one in found} == {()}
    return [one.algo for one in found]


def test_all_its_allreduces_are_measured_unless_one_is_named() -> None:
    assert ways() == ways("auto") == ways("ring") == ["library", "oneshot", "twoshot"]
    assert ways("ring", "oneshot") == ["library", "oneshot"]
    assert ways(op="alltoall") == ["library"]


def test_each_kind_of_memory_holds_the_largest_of_its_cases() -> None:
    large, small = case(size_bytes=1 << 20), case("twoshot", size_bytes=4096)
    one = stride_bytes(small.problem())
    assert one == 8192
    assert torch.user_bytes([large, small], [2, 5]) == (2 * stride_bytes(large.problem()), 5 * one)
    assert torch.user_bytes([case("oneshot", size_bytes=4096), small], [9, 5]) == (0, 9 * one)


def test_rows_say_where_a_copy_is_included() -> None:
    session = torch.TorchSession.__new__(torch.TorchSession)
    session._processes = ()
    notes = {
        (one.algo, one.op, one.placement): session._notes_of(one)
        for one in (
            case(),
            case(placement="in"),
            case("oneshot"),
            case("twoshot"),
            case("twoshot", placement="in"),
            case(op="alltoall"),
        )
    }
    assert {key for key, note in notes.items() if note == ("copied",)} == {
        ("library", "allreduce", "out"),
        ("twoshot", "allreduce", "out"),
    }
    assert is_copied(case(op="broadcast")) and not is_copied(case(op="reducescatter"))


def test_what_pytorch_raises_is_a_refusal() -> None:
    def refuse() -> None:
        raise RuntimeError("no kernel image\nfor this device")

    rank = torch.TorchRank(RankContext(rank=0, n=2))
    rank.options, rank.calls = GpuOptions(), [(refuse, ())]
    with pytest.raises(RefusedError, match=r"^PyTorch does not do allreduce: no kernel image$"):
        rank._queue("allreduce", 0, 0)


class StandIn(Session[Case]):
    """In place of TorchSession: the two-shot is fastest."""

    device, version = "stand-in", "torch 2"

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def run(self, case: Case, batch: Batch) -> Samples:
        seconds = {"library": 8e-3, "oneshot": 4e-3, "twoshot": 2e-3}[case.algo]
        return Samples(seconds=(seconds,), notes=("modelled",))


def test_ours_are_compared_with_the_fastest_of_them(
    monkeypatch: pytest.MonkeyPatch, capfd: Capture, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch, "TorchSession", StandIn)
    monkeypatch.setattr(torch.BACKEND, "why_not", lambda group: "")
    command = ["sweep", "--backend", "torch,model", "--ranks", "2", "--sizes", "1M", "--repeats"]
    csv = tmp_path / "rows.csv"
    assert run([*command, "2", "--algo", "ring", "--csv", str(csv)]) == 0
    out = capfd.readouterr().out
    rows = [line.split()[1] for line in out.splitlines() if line.endswith("modelled")]
    assert rows == ["ring", "library", "oneshot", "twoshot"]  # new processes come last
    assert "by the algorithm that it is fastest with" in " ".join(out.split())
    assert "Speedup over the fastest library: " in out and "(torch twoshot at 1M)" in out
    heads, best = out[out.index("  size  best") :].splitlines()[:2]
    assert heads.split()[-2:] == ["torch", "algorithm"] and best.split()[-1] == "twoshot"
    assert run(["compare", str(csv)]) == 0
    report = capfd.readouterr().out
    assert "vs torch: speedup over PyTorch's own choice, by the algorithm that" in report
    assert re.search(r"vs torch +algorithm\n.* twoshot\n", report)


@needs_torch
@pytest.mark.parametrize("launch", ["graph", "stream"])
def test_every_call_is_right(monkeypatch: pytest.MonkeyPatch, launch: Any) -> None:
    monkeypatch.setattr(gpu_session, "device_count", lambda: 2)
    monkeypatch.setattr(torch, "TorchRank", HostTorchRank)
    given = [
        case(op=op, root=1, placement="in" if in_place else "out", dtype=dtype)
        for op in OPS
        for in_place in placements(op)
        for dtype in (("float32",) if collective(op).is_reduction else ("float8_e5m2",))
    ]
    given += [case("oneshot"), case("twoshot"), case("twoshot", placement="in", dtype="bfloat16")]
    options = GpuOptions(launch=launch)
    session = torch.TorchSession(LocalGroup(), given, hot=False, options=options)
    found = [(one, session.run(one, Batch(iterations=3, single_launches=2))) for one in given]
    session.close()
    assert [(one.algo, one.op, one.placement) for one, samples in found if samples.wrong] == []
    assert all(len(samples.launch_times_s) == 2 for _, samples in found)
    assert not Path(session._folder.name).exists()
