"""How often `compare` calls a change where there is none, and how often it finds one that is there.

    python -m tests.benchmarks.comparisons [--draws 300] [--plants 100]

Draws files from the spreads between six real sweeps (tests/data/spread), and from worse ones, and
prints how many comparisons in a hundred call something. It is no test: it takes minutes.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collbench.compare.changes import Changes, judge_runs, outcome
from collbench.compare.gate import gate_of
from collbench.compare.join import Joined
from collbench.compare.noise import Side
from collbench.core.limits import SAME
from collbench.core.record import COLUMNS, FLOATS, INTEGERS
from collbench.core.verdict import median_variance

DATA = Path(__file__).parent.parent / "data" / "spread" / "h200x4.csv"
GATE = 5.0  # percent
WITHIN = 0.0025  # by which repeats of a run differ
Array = NDArray[np.float64]
Spread = Callable[[np.random.Generator, int], Array]
Plant = Callable[[pd.DataFrame, np.random.Generator], Array]


class Machine:
    """Rows of a real sweep, and what was seen between runs of it."""

    def __init__(self) -> None:
        table = pd.read_csv(DATA, keep_default_na=False)
        self.runs = np.log([[median(text) for text in table[f"run{run}"]] for run in range(6)])
        self.rows = self._frame(table[["op", "backend", "algo", "proto", "size_bytes"]])
        soon = self.runs[1:] - np.median(self.runs[1:], axis=0)
        self.deviations = (soon - np.median(soon, axis=1, keepdims=True)).ravel()
        self.spreads = np.std(self.runs[1:], axis=0, ddof=1)

    @staticmethod
    def _frame(table: pd.DataFrame) -> pd.DataFrame:
        fixed: dict[str, Any] = {
            "dtype": "float32",
            "placement": "out",
            "group": "local",
            "ranks": 4,
            "hosts": 1,
            "status": "ok",
            "host": "vm",
            "device": "4 x NVIDIA H200",
            "versions": "collbench 1",
            "timestamp": "2026-11-22T13:00:00Z",
        }
        table = table.assign(**fixed, count=table["size_bytes"] // 4)
        empty = {
            name: 0 if name in INTEGERS else math.nan if name in FLOATS else ""
            for name in COLUMNS
            if name not in table
        }
        return table.assign(**empty)[list(COLUMNS)]

    def side(
        self, random: np.random.Generator, changes: Sequence[Array], repeats: int, within: float
    ) -> Side:
        """Runs whose rows differ from the machine's by `changes`, and repeats by `within`."""
        rows = len(self.rows)
        times = np.array(changes)[:, :, None] + self.runs[1][None, :, None]
        times = times + within * random.normal(size=(len(changes), rows, repeats))
        squares = ((times - times.mean(axis=2, keepdims=True)) ** 2).sum(axis=2)
        return Side(
            runs=np.median(times, axis=2).T,
            squares=squares.sum(axis=0),
            freedom=np.full(rows, len(changes) * (repeats - 1.0)),
            share=np.full(rows, float(median_variance(np.array([float(repeats)]))[0])),
        )


def median(text: str) -> float:
    """The median of times in one cell."""
    return float(np.median([float(part) for part in text.split(";")]))


MACHINE = Machine()


def as_real(random: np.random.Generator, rows: int) -> Array:
    """Each row's deviation is one that was seen in some row."""
    deviations: Array = random.choice(MACHINE.deviations, rows)
    return deviations


def student(percent: float) -> Spread:
    """Student's t with three degrees of freedom and a standard deviation."""

    def draw(random: np.random.Generator, rows: int) -> Array:
        return np.asarray(percent / 100 / math.sqrt(3) * random.standard_t(3, rows), np.float64)

    return draw


def placed_anew(random: np.random.Generator, rows: int) -> Array:
    """Two rows in a hundred are placed otherwise in each run, and 4 to 17 % off."""
    is_placed = random.random(rows) < 0.02
    off = random.choice([-1, 1], rows) * random.uniform(0.04, 0.17, rows)
    return np.asarray(as_real(random, rows) + is_placed * off, np.float64)


def own_spreads(random: np.random.Generator, rows: int) -> Array:
    """Each row has the spread that it has between real runs."""
    return np.asarray(MACHINE.spreads * random.normal(size=rows), np.float64)


SPREADS: dict[str, Spread] = {
    "as between real runs": as_real,
    "each row its own": own_spreads,
    "t3, 0.5 %": student(0.5),
    "t3, 1 %": student(1.0),
    "2 % of rows placed anew": placed_anew,
}


def nothing(rows: pd.DataFrame, random: np.random.Generator) -> Array:
    """No change."""
    return np.zeros(len(rows))


def one_row(rows: pd.DataFrame, random: np.random.Generator) -> Array:
    """One row, 10 % slower."""
    change = np.zeros(len(rows))
    change[random.integers(len(rows))] = math.log(1.1)
    return change


def share_of_rows(rows: pd.DataFrame, random: np.random.Generator) -> Array:
    """30 % of the rows, 10 % slower."""
    return np.where(random.random(len(rows)) < 0.3, math.log(1.1), 0.0)


def an_algorithm(rows: pd.DataFrame, random: np.random.Generator) -> Array:
    """All rows of one of our algorithms, 5 % slower."""
    counts = rows[rows["backend"] == "cuda"].groupby("algo").size()
    algo = random.choice(counts[counts >= 8].index.to_numpy(dtype=object))
    is_ours = (rows["backend"] == "cuda").to_numpy()
    return np.where(is_ours & (rows["algo"] == algo).to_numpy(), math.log(1.05), 0.0)


def large_sizes(rows: pd.DataFrame, random: np.random.Generator) -> Array:
    """Everything from 64 MiB up, 2 % slower."""
    return np.where(rows["size_bytes"].to_numpy() >= 64 << 20, math.log(1.02), 0.0)


def nccl(rows: pd.DataFrame, random: np.random.Generator) -> Array:
    """NCCL, 2 % slower."""
    return np.where((rows["backend"] == "nccl").to_numpy(), math.log(1.02), 0.0)


PLANTS: dict[str, Plant] = {
    "one row +10 %": one_row,
    "an algorithm +5 %": an_algorithm,
    "from 64M up +2 %": large_sizes,
    "NCCL +2 %": nccl,
    "30 % of rows +10 %": share_of_rows,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What a comparison said. planted: the change of each row that was put in; net: with what the
    runs differ by chance.
    """

    changes: Changes
    planted: Array
    net: Array

    @property
    def has_called_row(self) -> bool:
        """Whether any row is called better or worse."""
        return not {"better", "worse"}.isdisjoint(self.changes.rows["verdict"])

    @property
    def is_gated(self) -> bool:
        """Whether the gate would fail."""
        return gate_of(self.changes, GATE).verdict == "worse"

    @property
    def has_found(self) -> bool:
        """Whether all rows that are slower, or a group of such rows, are called worse."""
        is_planted = self.planted > 0
        is_worse = (self.changes.rows["verdict"] == "worse").to_numpy()
        return bool(is_worse[is_planted].all()) or any(
            group.verdict == "worse" and is_planted[group.places].mean() >= 0.8
            for group in self.changes.groups
        )

    @property
    def false_sames(self) -> int:
        """How many rows that are 10 % slower, and have not become faster by chance, are called the
        same.
        """
        verdicts = self.changes.rows["verdict"].to_numpy()
        return int((verdicts[(self.planted > 0.09) & (self.net > 0.06)] == "same").sum())


def draw(seed: int, spread: Spread, bases: int, repeats: int, plant: Plant) -> Draw:
    """A comparison of a new file with some bases."""
    random, rows = np.random.default_rng(seed), MACHINE.rows
    planted = plant(rows, random)
    off = [spread(random, len(rows)) for _ in range(bases)]
    base = MACHINE.side(random, off, repeats, WITHIN)
    net = spread(random, len(rows)) + planted
    new = MACHINE.side(random, [net], repeats, WITHIN)
    columns = dict.fromkeys(("_times", "_times_base", "timestamp_base", "versions_base"), "")
    compared = rows.assign(
        **columns, side="both", _noise=False, _noise_base=False, run="new", run_base="base"
    )
    joined = Joined(compared=compared, new=new, base=base, counts={}, losses=(), remarks=())
    judged = judge_runs(joined, math.log1p(SAME), is_alike=True, is_far=False)
    changes = outcome(joined, judged, (), SAME)
    return Draw(changes=changes, planted=planted, net=net - np.median(off, axis=0))


def print_nulls(draws: int) -> None:
    """Comparisons of what did not change, in percent."""
    print(f"nothing changed, {draws} draws: comparisons in 100 that call a row | end with 1 at 5 %")
    cases = [(bases, repeats) for bases in (1, 2, 3, 5) for repeats in (1, 3, 10)]
    print(f"{'bases x repeats':26}" + "".join(f"{b} x {r}".rjust(12) for b, r in cases))
    for name, spread in SPREADS.items():
        cells = []
        for bases, repeats in cases:
            rows = gates = 0
            for seed in range(draws):
                drawn = draw(seed, spread, bases, repeats, nothing)
                rows += drawn.has_called_row
                gates += drawn.is_gated
            cells.append(f"{100 * rows / draws:.1f}|{100 * gates / draws:.1f}".rjust(12))
        print(f"{name:26}" + "".join(cells), flush=True)


def print_plants(draws: int, bases: Sequence[int] = (1, 3, 5)) -> None:
    """Comparisons that find what was planted, in percent."""
    print(f"\nplanted, {draws} draws, 3 repeats: comparisons in 100 that find it;")
    print("of 30 % of the rows, how many that are slower, chance included, are called the same")
    for count in bases:
        print(f"{f'{count} bases':26}" + "".join(name.rjust(20) for name in PLANTS))
        for name, spread in SPREADS.items():
            cells = []
            for plant in PLANTS.values():
                found = same = 0
                for seed in range(draws):
                    drawn = draw(seed, spread, count, 3, plant)
                    found += drawn.has_found
                    same += drawn.false_sames
                share = f"{100 * found / draws:.0f}"
                cells.append(f"{same} same" if plant is share_of_rows else share)
            print(f"{name:26}" + "".join(cell.rjust(20) for cell in cells), flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--plants", type=int, default=100)
    given = parser.parse_args()
    print_nulls(given.draws)
    print_plants(given.plants)


if __name__ == "__main__":
    main()
