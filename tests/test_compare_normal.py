"""compare --against: shipped references, the nearest machine, and the sizes that fall behind."""

from pathlib import Path

import pytest

from collbench import catalog
from collbench.cli import run
from collbench.compare.load import load
from collbench.compare.normal import normal, reference
from collbench.errors import UsageError

H200 = catalog.results()["h200x4"]


def test_every_shipped_reference_is_read_and_names_machine_date_and_source() -> None:
    for name, file in catalog.results().items():
        frame = load(file).frame
        assert len(frame), name
        assert all(frame["device"].replace("", None).dropna().str.contains("NVIDIA")), name
        right = frame[frame["status"] == "ok"]
        assert all(right["versions"].str.len() > 0), name


def test_a_file_is_normal_against_itself() -> None:
    frame = load(H200).frame
    found = normal(frame, frame)
    assert {verdict.op for verdict in found} >= {"allreduce", "allgather", "alltoall"}
    assert not any(verdict.is_behind for verdict in found)
    assert all(span.least == span.most == 1.0 for verdict in found for span in verdict.spans)


def test_the_range_that_falls_behind_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = load(H200).frame
    slow = frame[(frame["op"] == "allreduce") & (frame["backend"] == "nccl")].copy()
    middle = (slow["size_bytes"] >= 1 << 20) & (slow["size_bytes"] <= 16 << 20)
    slow.loc[middle, ["busbw_gbs", "algbw_gbs"]] *= 0.5
    file = tmp_path / "slow.csv"
    slow.to_csv(file, index=False)
    assert run(["compare", str(file), "--against", "h200x4"]) == 0
    out = capsys.readouterr().out
    assert "allreduce, nccl, 4 ranks: falls behind at 1M to 16M at 50%" in out
    assert run(["compare", str(file), "--against", "h200x4", "--fail-below", "20%"]) == 1
    assert run(["compare", str(H200), "--against", "h200x4", "--fail-below", "20%"]) == 0


def test_without_a_name_the_nearest_machine_counts(capsys: pytest.CaptureFixture[str]) -> None:
    frame = load(H200).frame
    assert Path(reference("", frame).name).stem == "h200x4"
    more = frame.assign(ranks=8)
    assert Path(reference("", more).name).stem == "h200x8-published"
    with pytest.raises(UsageError, match="no shipped reference is of"):
        reference("", frame.assign(device="4 x NVIDIA Something"))
    assert run(["compare", str(H200), "--against"]) == 0
    assert "against h200x4" in capsys.readouterr().out


def test_nothing_in_common_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(H200), "--against", "a100x8-published"]) == 1
    assert "nothing of a100x8-published is comparable" in capsys.readouterr().out
    assert run(["compare", str(H200), "--against", "no-such-thing"]) == 2
