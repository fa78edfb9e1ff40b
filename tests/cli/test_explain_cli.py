"""`explain`, `trace` and `sweep --trace` on GPUs that are data only: what is shown of the choice,
its floor, its neighbours and NCCL, and what cannot be had.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.backends.nccl import backend as nccl
from collbench.bench.points import SweepPoint, plan_points
from collbench.cli import _run_explain, run
from collbench.device import card
from collbench.spec.case import Case
from collbench.util.errors import UnavailableError
from tests.analysis.test_blame import LINK_S
from tests.support.traced_gpus import NcclStandIn, TracedSession, plant

Capture = pytest.CaptureFixture[str]
SMALL = ("--op", "allreduce", "--size", "64K")


def said(capfd: Capture, *args: str) -> str:
    """What a command that succeeds prints on one line."""
    assert run([*args]) == 0
    return " ".join(capfd.readouterr().out.split())


def test_gpus_are_explained_beside_nccl(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    out = said(capfd, "explain", *SMALL)
    assert out.startswith("allreduce of 64K, 2 ranks: ")
    assert "over p2p, " in out
    assert ", pdl " in out
    assert "us, and its bytes over the fullest link (GPU0 -> GPU1, NVLink 4 x18) " in out
    assert "A traced launch, alone behind a barrier, takes " in out
    assert "Slower: --" in out
    assert " other setting" in out or "more." in out
    assert "nccl on window buffers takes 10.0 us (10.0 to 10.0), its fastest form: " in out
    assert "There NCCL chose RING with LL and 4 channels. nccl on registered buffers takes " in out
    assert "nccl on plain buffers takes 30.0 us" in out
    assert [launches for _, launches in TracedSession.traced] == [43, 53, 43]
    assert TracedSession.traced[0][0] == TracedSession.traced[2][0] == "twoshot"


def test_what_nccl_does_not_do_or_say_is_told(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(NcclStandIn, "refuses", "window")
    monkeypatch.setattr(NcclStandIn, "log", "n1:7:7 [0] NCCL INFO Using network Socket")
    out = said(capfd, "explain", *SMALL, "--backend", "cuda")
    assert "nccl on registered buffers takes 20.0 us (20.0 to 20.0), its fastest form" in out
    assert "What NCCL chose is not known: its log does not say." in out
    assert "nccl on window buffers is not measured: NCCL does not have window buffers here." in out
    out = said(capfd, "explain", "--op", "alltoall", "--size", "64K", "--backend", "cuda")
    assert "NCCL's alltoall is sends and receives, of which its log names no choice." in out
    monkeypatch.setattr(nccl.BACKEND, "why_not", lambda group: "there is no NCCL")
    out = said(capfd, "explain", *SMALL)
    assert (
        "nccl on plain buffers and nccl on registered buffers and nccl on window buffers are not"
        " measured: there is no NCCL."
    ) in out


def test_copy_engines_are_explained_without_a_chain(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    def by_copy_engines(cases: Sequence[Case], *args: Any, **more: Any) -> list[SweepPoint]:
        ours = {"transport": "ce", "algo": "twoshot"}
        wanted = [replace(one, **ours) if one.backend == "cuda" else one for one in cases]  # type: ignore[arg-type]
        return plan_points(wanted, *args, **more)

    monkeypatch.setattr(_run_explain, "plan_points", by_copy_engines)
    out = said(capfd, "explain", "--op", "allreduce", "--size", "64M")
    assert "over ce, " in out
    assert ", pdl " not in out
    assert "Copy engines stamp nothing: where the time goes is not traced." in out
    assert not TracedSession.traced


def test_gpus_that_cannot_be_used(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(_run_explain, "device_count", lambda: 1)
    assert said(capfd, "explain", *SMALL).startswith("One GPU: nothing travels between ranks.")
    assert run(["explain", *SMALL, "--backend", "cuda"]) == 3
    assert "--backend cpu explains the CPUs" in capfd.readouterr().err
    monkeypatch.setattr(_run_explain, "why_no_gpus", lambda: "this host has no NVIDIA GPU")
    assert run(["explain", *SMALL, "--backend", "cuda"]) == 3
    assert "give --backend cpu" in capfd.readouterr().err


def test_gpus_without_cupy_name_what_to_install(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise UnavailableError("this host has GPUs, but CuPy is not installed", "pip install it")

    monkeypatch.setattr(_run_explain, "has_nvidia_gpus", lambda: True)
    monkeypatch.setattr("collbench.backends.gpu.session.has_nvidia_gpus", lambda: True)
    monkeypatch.setattr(card, "load_cupy", missing)
    assert run(["explain", *SMALL]) == 3
    assert "pip install it" in capfd.readouterr().err


def test_a_late_gpu_is_named(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(TracedSession, "late", {1: 40.0})
    file = tmp_path / "chain.json"
    case = ("--backend", "cuda", *SMALL, "--algo", "ring", "--proto", "simple")
    assert run(["trace", *case, "--json", str(file)]) == 0
    out, err = capfd.readouterr()
    assert "rank 1 came " in out
    assert "if messages take as long one way as the other, and else to " in err
    found = json.loads(file.read_text())
    assert found["late"]["rank"] == 1
    assert found["late"]["delay_us"] == pytest.approx(40 * LINK_S * 1e6, rel=0.1)
    assert 0 < found["clock_error_us"] < found["clock_limit_us"]
    assert sum(one["us"] for one in found["path"]) == pytest.approx(found["total_us"])


def test_a_sweep_traces_rows_of_gpus(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr("collbench.cli._run_sweep.recordings_of", lambda group, options: [])
    file = tmp_path / "t.json"
    points = ("--backend", "cuda", "--ranks", "2", "--sizes", "4K", "--proto", "simple,ll")
    quick = ("--iters", "1", "--repeats", "1", "--trace", str(file))
    assert run(["sweep", *points, *quick, "--algo", "ring"]) == 0
    cases = json.loads(file.read_text())["otherData"]["cases"]
    assert [case.split(",")[0] for case in cases] == [
        f"allreduce 4K by ring {proto} p2p" for proto in ("simple", "ll")
    ]
    capfd.readouterr()
    assert run(["sweep", *points, *quick, "--algo", "ring", "--transport", "ce"]) == 3
    assert "no point of this sweep can be traced" in capfd.readouterr().err
