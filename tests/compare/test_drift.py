"""A machine that drifts, by its load and its clocks, is no regression: real sweeps of one code
while other jobs came and went (tests/data/drift), each against those before it.
"""

from pathlib import Path

import pandas as pd
import pytest

from collbench.compare.changes import compare
from collbench.compare.gate import gate_of
from collbench.compare.load import load
from collbench.compare.losses import LOSS_KINDS
from collbench.core.frame import frame_of
from collbench.core.limits import SAME
from collbench.core.rows import NOISE_NOTES

SERIES = Path(__file__).parent.parent / "data" / "drift"
BASES = (1, 3, 8)


def sweeps_of(name: str) -> list[pd.DataFrame]:
    """The sweeps of a series, the oldest first."""
    frame = frame_of(load(SERIES / f"{name}.csv.gz").records)
    return [rows.reset_index(drop=True) for _, rows in frame.groupby("run", sort=True)]


@pytest.fixture(scope="module")
def sweeps() -> list[pd.DataFrame]:
    return sweeps_of("series")


def codes(sweeps: list[pd.DataFrame], bases: int) -> list[int]:
    """What a gate of 5 % says of each sweep against so many before it; rows may be missing."""
    found = []
    for place in range(bases, len(sweeps)):
        changes = compare(sweeps[place], *sweeps[place - bases : place], same=SAME)
        found.append(gate_of(changes, 5.0, allowed=LOSS_KINDS).exit_code)
    return found


def test_a_comparison_of_noise_alone_is_no_regression(sweeps: list[pd.DataFrame]) -> None:
    alone = [sweep[sweep["notes"].str.contains("noisy|other-processes")] for sweep in sweeps]
    assert codes([one.reset_index(drop=True) for one in alone][:4], 1) == [5, 5, 5]


@pytest.mark.exhaustive
@pytest.mark.parametrize("bases", list(BASES), ids=lambda bases: f"{bases} bases")
def test_drift_that_no_note_shows_is_no_regression(sweeps: list[pd.DataFrame], bases: int) -> None:
    """As where a container hides the other processes, and repeats agree by chance."""
    hidden = [sweep.assign(notes=sweep["notes"].map(without_noise)) for sweep in sweeps]
    assert 1 not in codes(hidden, bases)


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_hidden", [False, True], ids=["notes", "hidden"])
def test_two_of_a_hundred_comparisons_of_other_sweeps_fail_at_most(is_hidden: bool) -> None:
    """Two repeats show little of how far a row moves."""
    later = sweeps_of("later")
    if is_hidden:
        later = [sweep.assign(notes=sweep["notes"].map(without_noise)) for sweep in later]
    found = [code for bases in BASES for code in codes(later, bases)]
    assert found.count(1) <= len(found) * 2 / 100


def without_noise(notes: str) -> str:
    return " ".join(word for word in notes.split() if not word.startswith(NOISE_NOTES))
