"""What is planted in a shipped file is found with one base, and nothing else is named."""

import numpy as np
import pandas as pd
import pytest

from collbench.analysis.changes import compare
from collbench.analysis.gate import gate_of
from collbench.results.record import KEY
from collbench.util import catalog
from tests.benchmarks.gate import DRAWS, is_clean, moved, read, slower
from tests.support.tiers import tiered

FILES = ("h100x2", "h200x2", "h200x4")
GROUPS = [name for name in DRAWS if name not in ("one row", "12 rows of a group")]
CASES = [(file, group, percent) for file in FILES for group in GROUPS for percent in (30, 20, 10)]


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return {name: read(catalog.results()[name]) for name in FILES}


@pytest.mark.parametrize(("file", "group", "percent"), tiered(CASES, CASES[2::9]))
def test_a_slower_group_is_found_and_nothing_else_is_named(
    frames: dict[str, pd.DataFrame], file: str, group: str, percent: int
) -> None:
    frame = frames[file]
    mask = DRAWS[group](frame, np.random.default_rng(1))
    if mask is None:
        assert (file, group) == ("h200x4", "collective x algo x proto x band")  # sizes by 4
        return
    found = compare(slower(frame, np.where(mask, 1 + percent / 100, 1.0)), frame)
    assert gate_of(found, 5.0).verdict == "worse"
    assert is_clean(found, set(map(tuple, frame.loc[mask, list(KEY)].astype(str).to_numpy())))


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
        assert gate_of(found, 5.0).verdict == "worse"
        assert is_clean(found, set(map(tuple, frame.loc[mask, list(KEY)].astype(str).to_numpy())))


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
        assert gate.verdict == "unjudged"
        assert len(gate.unjudged) == is_slow.sum()
