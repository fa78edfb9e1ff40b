"""What is no regression: one repeat that is far off, of whatever row of the shipped files, and a
machine that drifts, in real sweeps of one code (tests/data/drift), each against those before it.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from collbench.compare.best import Best, Errors, best_of
from collbench.compare.changes import compare
from collbench.compare.gate import gate_of
from collbench.compare.load import load
from collbench.compare.losses import LOSS_KINDS
from collbench.core import catalog
from collbench.core.frame import frame_of
from collbench.core.limits import SAME
from collbench.core.record import Record
from collbench.core.rows import NOISE_NOTES, by_workload, distinguishing_knobs, median_of
from collbench.core.verdict import middle
from tests.support.tiers import tiered

MEASURED = ("h100x2", "h200x2", "h200x4")
FACTORS = (0.3, 3.0, 10.0)
LIMIT = 1.05
SAMPLED = 29  # one row in so many in the quick tier


def with_times(row: Record, times: tuple[float, ...]) -> Record:
    """The row, had it been measured so."""
    rate = (row.busbw_gbs or 0.0) * median_of(row) / middle(times)
    return replace(row, repeat_times_us=times, time_us=middle(times), busbw_gbs=rate)


def planted(row: Record) -> Iterator[tuple[Record, float]]:
    """The row with each repeat replaced, and how far its other repeats disagree."""
    for place in range(len(row.repeat_times_us)):
        others = [time for k, time in enumerate(row.repeat_times_us) if k != place]
        for factor in FACTORS:
            times = [*row.repeat_times_us]
            times[place] *= factor
            yield with_times(row, tuple(times)), max(others) / min(others)


def move(before: float, after: float) -> float:
    return math.exp(abs(math.log(before / after)))


def moves(before: Best, after: Best, medians: dict[int, float]) -> Iterator[float]:
    """How far the time, the winner and each peer moved. medians: of the rows as they were."""
    yield move(before.time_us, after.time_us)
    yield move(medians[id(before.row)], medians[id(after.row)])
    for peer, rival in before.rivals.items():
        yield move(medians[id(rival)], medians[id(after.rivals[peer])])
        if peer in before.peers and peer in after.peers:
            yield move(before.peers[peer].median, after.peers[peer].median)


@tiered("every", [SAMPLED, 1], 1)
@pytest.mark.parametrize("name", MEASURED)
def test_one_repeat_turns_no_answer(name: str, every: int) -> None:
    rows = load(catalog.results()[name]).records
    workloads = by_workload(rows)
    knobs, errors = distinguishing_knobs(workloads), Errors(rows)
    cells = [here for sizes in workloads.values() for here in sizes.values()]
    tried = moved = 0
    for number, (here, place) in enumerate((c, k) for c in cells for k in range(len(c))):
        if number % every:
            continue
        before = best_of(here, knobs, errors)
        for row, apart in planted(here[place]):
            after_rows = [*here[:place], row, *here[place + 1 :]]
            known = [median_of(one) for one in here]
            medians = {id(one): time for one, time in zip(after_rows, known, strict=True)}
            medians |= {id(one): median_of(one) for one in here}
            after = best_of(after_rows, knobs, errors)
            tried += 1
            limit = max(LIMIT, apart**2)
            assert all(one <= limit for one in moves(before, after, medians)), (row, apart)
            moved += max(moves(before, after, medians)) > LIMIT
    assert tried
    assert moved <= 0.01 * tried  # rows whose other two repeats disagree, too


@tiered(("name", "is_base"), product(MEASURED, (False, True)), 1)
def test_one_repeat_of_every_row_is_no_change(name: str, is_base: bool) -> None:
    """An outlier in a repeat of each row at once, of one side."""
    frame = load(catalog.results()[name]).frame
    frame = frame[frame["status"] == "ok"]
    random = np.random.default_rng(1)
    moved = []
    for repeats in frame["repeat_times_us"]:
        times = list(repeats)
        times[random.integers(len(times))] *= random.choice(FACTORS)
        moved.append(tuple(times))
    medians = [float(np.median(times)) for times in moved]
    other = frame.assign(repeat_times_us=pd.Series(moved, frame.index), time_us=medians)
    found = compare(frame, other) if is_base else compare(other, frame)
    assert gate_of(found, 5).verdict != "FAIL"
    assert found.called == ()
    assert found.count("worse") + found.count("better") == 0


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
