"""`trace` on GPUs that are data only: what is shown, and what cannot be had."""

from pathlib import Path

import pytest

from collbench.core.errors import UnavailableError
from collbench.device import card
from tests.support.commands import Says, result_of
from tests.support.played import LINK_S
from tests.support.traced_gpus import TracedSession, plant

SMALL = ("--op", "allreduce", "--size", "64K")


def test_the_choice_and_the_fullest_link_come_first(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    out = says(0, "trace", "--backend", "cuda", *SMALL).words
    assert out.startswith("Chosen: ")
    assert ", pdl " in out
    assert "us, and its bytes over the fullest link (GPU0 -> GPU1, NVLink 4 x18) " in out
    assert "The chain of events that made it so long" in out
    assert [launches for _, launches in TracedSession.traced] == [43, 53, 43]
    assert TracedSession.traced[0][0] == TracedSession.traced[2][0] == "twoshot"


def test_gpus_without_cupy_name_what_to_install(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise UnavailableError("this host has GPUs, but CuPy is not installed", "pip install it")

    monkeypatch.setattr("collbench.backends.gpu.session.has_nvidia_gpus", lambda: True)
    monkeypatch.setattr(card, "load_cupy", missing)
    assert "pip install it" in says(3, "trace", "--backend", "cuda", *SMALL).err


def test_a_late_gpu_is_named(says: Says, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(TracedSession, "late", {1: 40.0})
    file = tmp_path / "chain.json"
    case = ("--backend", "cuda", *SMALL, "--algo", "ring", "--proto", "simple")
    out, err = says(0, "trace", *case, "--json", file)
    assert "rank 1 came " in out
    assert "if messages take as long one way as the other, and else to " in err
    found = result_of(file.read_text())
    assert found["late"]["rank"] == 1
    assert found["late"]["delay_us"] == pytest.approx(40 * LINK_S * 1e6, rel=0.1)
    assert 0 < found["clock_error_us"] < found["clock_limit_us"]
    assert sum(one["us"] for one in found["path"]) == pytest.approx(found["total_us"])
