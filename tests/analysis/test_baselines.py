"""compare --against: shipped references, the nearest machine, and the sizes that fall behind."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from collbench.analysis.baselines import curve_verdicts, reference
from collbench.analysis.load import load
from collbench.cli import run
from collbench.util import catalog
from collbench.util.errors import UsageError

H200 = catalog.results()["h200x4"]


def test_every_shipped_reference_is_read_and_names_machine_date_and_source() -> None:
    for name, file in catalog.results().items():
        frame = load(file).frame
        assert len(frame), name
        assert all(frame["device"].replace("", None).dropna().str.contains("NVIDIA")), name
        right = frame[frame["status"] == "ok"]
        assert all(right["versions"].str.len() > 0), name
        if name.endswith("-published"):
            assert all(right["versions"].str.contains("source github.com/")), name
            assert (right["timestamp"] == "").all() or right["timestamp"].str.match(
                r"20\d\d-\d\d-\d\d$|^$"
            ).all(), name


def test_a_file_is_normal_against_itself() -> None:
    frame = load(H200).frame
    found = curve_verdicts(frame, frame)
    assert {verdict.key.op for verdict in found} >= {"allreduce", "allgather", "alltoall"}
    assert not any(verdict.is_behind for verdict in found)
    assert all(span.least == span.most == 1.0 for verdict in found for span in verdict.spans)


def test_the_range_that_falls_behind_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_a_range_is_one_range_where_the_reference_has_fewer_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Small sizes take the same time: between two of the reference the rates of the smaller are no
    measure.
    """
    frame = load(H200).frame
    [first, *rest] = [
        one
        for _, one in frame[
            (frame["op"] == "allreduce")
            & (frame["backend"] == "nccl")
            & (frame["size_bytes"] <= 4096)
        ].iterrows()
    ]
    rows, time_us = [], max(row["time_us"] for row in (first, *rest)) / 0.895
    for size in (8 << k for k in range(10)):
        algbw = size / time_us / 1e3
        rows.append(
            first.to_dict()
            | {
                "size_bytes": size,
                "count": size // 4,
                "time_us": time_us,
                "algbw_gbs": algbw,
                "busbw_gbs": 1.5 * algbw,
            }
        )
    file = tmp_path / "slow.csv"
    pd.DataFrame(rows, columns=list(frame.columns)).to_csv(file, index=False)
    assert run(["compare", str(file), "--against", "h200x4"]) == 0
    told = capsys.readouterr().out
    assert "falls behind at 8 to 4K at 8" in told
    assert "90%" not in told.partition("bus bandwidth")[2]


def test_what_was_measured_otherwise_is_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = load(H200).frame
    alone = frame[(frame["op"] == "allreduce") & (frame["backend"] == "cuda")].copy()
    alone["notes"] = alone["notes"] + " isolated"
    alone["busbw_gbs"] /= 4  # a launch is in the time
    file = tmp_path / "alone.csv"
    alone.to_csv(file, index=False)
    assert run(["compare", str(file), "--against", "h200x4"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "nothing is comparable" in out
        and "the file has allreduce by cuda isolated on 4 ranks" in out
    )
    assert run(["compare", str(file), "--against", str(file)]) == 0
    assert "allreduce, cuda isolated, 4 ranks: normal at 8 to 1G" in capsys.readouterr().out


def test_without_a_name_the_nearest_machine_counts(capsys: pytest.CaptureFixture[str]) -> None:
    frame = load(H200).frame
    assert reference("", frame).name == "h200x4"
    more = frame.assign(ranks=8)
    assert reference("", more).name == "h200x8-published"
    with pytest.raises(UsageError, match="no shipped reference is of"):
        reference("", frame.assign(device="4 x NVIDIA Something"))
    assert run(["compare", str(H200), "--against"]) == 0
    assert "against h200x4" in capsys.readouterr().out


def test_nothing_in_common_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(H200), "--against", "a100x8-published"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "against a100x8-published: 8 x NVIDIA A100; no date" in out
        and "the file is of 4 x NVIDIA H200" in out
    )
    assert (
        "nothing is comparable: it has allreduce by nccl on 8 ranks at 32K to 16G; the file has"
        in out
    )
    assert run(["compare", str(H200), "--against", "no-such-thing"]) == 2
    err = capsys.readouterr().err
    assert (
        "there is no file or reference 'no-such-thing'" in err
        and "h200x4" in err
        and "b200x8-published" in err
    )


def published(tmp_path: Path, name: str, **values: Any) -> Path:
    """A shipped reference as somebody's file, with some columns replaced."""
    file = tmp_path / "mine.csv"
    load(catalog.results()[name]).frame.assign(**values).to_csv(file, index=False)
    return file


@pytest.mark.parametrize(
    ("device", "ranks", "nearest"),
    [
        ("8 x NVIDIA H100 80GB HBM3", 8, "h100x8-published"),
        ("2 x NVIDIA H100 PCIe", 2, "h100-pciex2-published"),
        ("4 x NVIDIA H100 PCIe", 4, "h100-pciex2-published"),
        ("4 x NVIDIA B200", 4, "b200x8-published"),
        ("72 x NVIDIA GB200", 72, "gb200x72-published"),
        ("4 x NVIDIA H200", 4, "h200x4"),
        ("2 x NVIDIA H200", 2, "h200x2"),
        ("3 x NVIDIA H200", 3, "h200x2"),
        ("6 x NVIDIA H200", 6, "h200x8-published"),
    ],
)
def test_the_nearest_is_of_the_same_model_and_form_and_of_as_many_ranks_as_can_be(
    device: str, ranks: int, nearest: str
) -> None:
    assert reference("", load(H200).frame.assign(device=device, ranks=ranks)).name == nearest


def test_a_librarys_own_choice_is_compared_with_its_own_choice(tmp_path: Path) -> None:
    frame = load(catalog.results()["b200x8-published"]).frame
    slow = frame.copy()
    slow.loc[slow["algo"] == "library", "busbw_gbs"] *= 0.5
    found = {verdict.key.ranks: verdict.spans[0].most for verdict in curve_verdicts(slow, frame)}
    assert found == dict.fromkeys(range(4, 9), 0.5), (
        "forced rows, which were not slowed, do not stand for NCCL's own choice"
    )


def test_fail_below_says_why_it_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = load(catalog.results()["a100x8-published"]).frame
    file = published(tmp_path, "a100x8-published", busbw_gbs=frame["busbw_gbs"] / 1.06)
    assert run(["compare", str(file), "--against"]) == 0
    assert run(["compare", str(file), "--against", "--fail-below", "7%"]) == 0
    capsys.readouterr()
    assert run(["compare", str(file), "--against", "--fail-below", "5%"]) == 1, "6 % more time"
    told = capsys.readouterr()
    assert "behind is below 95.2%" in told.out and "falls behind at 32K to 16G at 94%" in told.out
    assert "slower than a100x8-published by more than 5%" in told.err


def test_wrong_rows_fail_beside_a_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = load(catalog.results()["a100x8-published"]).frame
    file = published(tmp_path, "a100x8-published", status=["wrong", *["ok"] * (len(frame) - 1)])
    assert run(["compare", str(file), "--against"]) == 0
    assert run(["compare", str(file), "--against", "--fail-below", "5%"]) == 1
    assert "1 rows are wrong or failed" in capsys.readouterr().err


def test_against_goes_with_other_answers_of_one_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(H200), "--against", "--bands"]) == 0
    out = capsys.readouterr().out
    assert "worst of a band" in out and "against h200x4" in out
