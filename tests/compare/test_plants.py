"""What is planted in a shipped file is found with one base, and nothing else is named."""

import numpy as np
import pandas as pd
import pytest

from collbench.compare.changes import compare
from collbench.compare.gate import gate_of
from collbench.core import catalog
from collbench.core.record import KEY
from tests.benchmarks.gate import DRAWS, is_clean, moved, read, slower
from tests.support.frames import repeats
from tests.support.tiers import tiered

FILES = ("h100x2", "h200x2", "h200x4")
GROUPS = [name for name in DRAWS if name not in ("one row", "12 rows of a group")]
CASES = [(file, group, percent) for file in FILES for group in GROUPS for percent in (30, 20, 10)]


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return {name: read(catalog.results()[name]) for name in FILES}


@tiered(("file", "group", "percent"), CASES, 1)
def test_a_slower_group_is_found_and_nothing_else_is_named(
    frames: dict[str, pd.DataFrame], file: str, group: str, percent: int
) -> None:
    frame = frames[file]
    mask = DRAWS[group](frame, np.random.default_rng(1))
    if mask is None:
        assert (file, group) == ("h200x4", "collective x algo x proto x band")  # sizes by 4
        return
    found = compare(slower(frame, np.where(mask, 1 + percent / 100, 1.0)), frame)
    assert gate_of(found, 5.0).verdict == "FAIL"
    assert is_clean(found, set(map(tuple, frame.loc[mask, list(KEY)].astype(str).to_numpy())))


@pytest.mark.exhaustive
def test_three_runs_find_a_slower_row_and_a_group_of_five_percent(
    frames: dict[str, pd.DataFrame],
) -> None:
    random, frame = np.random.default_rng(1), frames["h200x4"]
    bases = [moved(frame, random, 0.003).assign(run=f"base{number}") for number in range(3)]
    new = moved(frame, random, 0.003)
    assert gate_of(compare(new, *bases), 5.0).exit_code != 1
    for draw, percent in (("one row", 15), ("collective x backend x band", 6)):
        mask = DRAWS[draw](frame, random)
        assert mask is not None
        found = compare(slower(new, np.where(mask, 1 + percent / 100, 1.0)), *bases)
        assert gate_of(found, 5.0).verdict == "FAIL"
        assert is_clean(found, set(map(tuple, frame.loc[mask, list(KEY)].astype(str).to_numpy())))


@pytest.mark.exhaustive
def test_rows_that_are_noise_are_no_evidence(frames: dict[str, pd.DataFrame]) -> None:
    """Other processes slowed them down, or something else did: nobody can say."""
    frame = frames["h200x2"]
    is_slow = (frame["op"] == "allreduce").to_numpy()
    for note in ("noisy", "noisy other-processes:3.0"):
        noisy = frame.assign(notes=frame["notes"].mask(pd.Series(is_slow), note))
        found = compare(slower(noisy, np.where(is_slow, 1.5, 1.0)), frame)
        assert found.called == ()
        assert found.count("worse") == 0
        gate = gate_of(found, 5.0)
        assert gate.verdict == "UNKNOWN"
        assert len(gate.unjudged) == is_slow.sum()


@pytest.mark.exhaustive
@pytest.mark.parametrize("file", FILES)
def test_a_change_of_everything_is_one_group(frames: dict[str, pd.DataFrame], file: str) -> None:
    """Rows of noise, which are no evidence, do not stand for what did not change."""
    frame = frames[file]
    for percent in (30, 10):
        found = compare(slower(frame, np.full(len(frame), 1 + percent / 100)), frame)
        assert [group.title for group in found.called] == ["everything"]
        assert found.count("worse") > 0.97 * len(frame)


@pytest.mark.exhaustive
def test_noise_and_cold_repeats_of_some_rows_do_not_widen_the_others(
    frames: dict[str, pd.DataFrame],
) -> None:
    frame = frames["h200x2"]
    is_part = (frame["op"] == "alltoall").to_numpy()
    noisy = frame.assign(notes=frame["notes"].mask(pd.Series(is_part), "other-processes:2.0"))
    found = compare(slower(noisy, np.where(is_part, 3.0, 1.0)), frame)
    rest = found.rows[found.rows["op"] != "alltoall"]
    assert (rest["verdict"] == "same").mean() > 0.97
    gate = gate_of(found, 5.0)
    assert gate.reasons == (f"not judged: {is_part.sum()} rows of noise took over 5% longer",)
    assert "measure again on a quiet machine" in gate.remedy
    cold = frame.assign(repeat_times_us=repeats(map(first_is_cold, frame["repeat_times_us"])))
    found = compare(cold, frame)
    assert found.count("same") > 0.6 * len(frame)
    assert found.count("worse") == found.count("better") == 0
    assert found.least_row < 2


def first_is_cold(times: tuple[float, ...]) -> tuple[float, ...]:
    """The first repeat takes three times as long."""
    return (3 * times[0], *times[1:]) if len(times) > 1 else times


def test_a_gate_says_that_rows_are_over_its_limit_where_none_is_sure(
    frames: dict[str, pd.DataFrame],
) -> None:
    frame = frames["h200x2"]
    gate = gate_of(compare(slower(frame, np.full(len(frame), 1.06)), frame), 5.0)
    assert gate.reasons[0].endswith("rows took over 5% longer, which may be chance")


def test_a_file_of_ours_without_runs_is_matched_by_its_knobs(
    frames: dict[str, pd.DataFrame],
) -> None:
    frame = frames["h200x2"]
    found = compare(frame.assign(run=""), frame)
    assert found.count("same") > 0.97 * len(found.rows)
    assert (found.rows["backend"] == found.rows.get("backend_base", found.rows["backend"])).all()


def test_a_time_that_is_no_median_of_its_repeats_is_named(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["h200x2"]
    found = compare(frame.assign(time_us=frame["time_us"] * 1.5), frame)
    (remark,) = (one for one in found.remarks if "median" in one)
    assert remark.startswith(f"new: time_us of {len(frame)} rows is not the median")
