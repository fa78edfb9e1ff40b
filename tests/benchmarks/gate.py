"""What the gate of `compare` finds of changes that are planted in files of results, what else it
names, and how often it fails where nothing changed.

    python -m tests.benchmarks.gate plants FILE [BASE ...] [--draws 100]
    python -m tests.benchmarks.gate pairs FILE FILE [FILE ...]

plants: rows of FILE are made slower and compared with the bases, or with FILE itself. With --runs N
and --spread S the bases are N copies of FILE, and every row of them and of the new file is moved by
a normal S (0.003: 0.3 %).
pairs: every file against every other; nothing changed between them. Prints Markdown tables. It is
no test: it takes minutes.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path

import click
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collbench.compare.bands import band_of
from collbench.compare.changes import Changes, compare
from collbench.compare.gate import gate_of
from collbench.compare.load import load_all
from collbench.core.record import KEY
from tests.support.frames import repeats

LEAST_ROWS = 12  # of a planted group
LIMIT = 5.0  # of the gate, in percent
Mask = NDArray[np.bool_]
Draw = Callable[[pd.DataFrame, np.random.Generator], Mask | None]
Sides = Callable[[np.random.Generator], tuple[pd.DataFrame, Sequence[pd.DataFrame]]]


def read(file: Path) -> pd.DataFrame:
    """The rows of a file that are right."""
    frame = load_all([file])[0].frame
    return frame[frame["status"] == "ok"].reset_index(drop=True)


def slower(frame: pd.DataFrame, factors: NDArray[np.float64]) -> pd.DataFrame:
    """Rows that take so many times as long, in every repeat."""
    moved = [
        tuple(float(f"{time * factor:.6g}") for time in times)
        for times, factor in zip(frame["repeat_times_us"], factors, strict=True)
    ]
    return frame.assign(repeat_times_us=repeats(moved), time_us=frame["time_us"] * factors)


def moved(frame: pd.DataFrame, random: np.random.Generator, spread: float) -> pd.DataFrame:
    """Another run of the same thing: each row by itself."""
    return slower(frame, np.exp(spread * random.normal(size=len(frame))))


def group_of(*names: str) -> Draw:
    """Rows that agree in some columns and the band of sizes; None where no such group is large."""

    def draw(frame: pd.DataFrame, random: np.random.Generator) -> Mask | None:
        bands = frame["size_bytes"].map(band_of)
        columns = [frame[name] for name in names if name != "band"]
        columns += [bands] if "band" in names else []
        number = frame.groupby([column.to_numpy() for column in columns]).ngroup().to_numpy()
        counts = np.bincount(number)
        able = np.flatnonzero((counts >= LEAST_ROWS) & (counts < len(frame)))
        if not len(able):
            return None
        mask: Mask = number == random.choice(able)
        return mask

    return draw


def part_of_a_group(frame: pd.DataFrame, random: np.random.Generator) -> Mask | None:
    """Twelve rows of a collective, a backend and a band."""
    whole = group_of("op", "backend", "band")(frame, random)
    if whole is None:
        return None
    mask = np.zeros(len(frame), dtype=np.bool_)
    mask[random.choice(np.flatnonzero(whole), LEAST_ROWS, replace=False)] = True
    return mask


def sizes(least: int, most: int) -> Draw:
    """All rows of some sizes."""
    return lambda frame, random: np.asarray(frame["size_bytes"].between(least, most), np.bool_)


def one_row(frame: pd.DataFrame, random: np.random.Generator) -> Mask | None:
    """A single row."""
    mask: Mask = np.arange(len(frame)) == int(random.integers(len(frame)))
    return mask


DRAWS: dict[str, Draw] = {
    "collective x backend x band": group_of("op", "backend", "band"),
    "collective x algo x proto x band": group_of("op", "algo", "proto", "band"),
    "12 rows of a group": part_of_a_group,
    "a collective": group_of("op"),
    "an algorithm": group_of("backend", "algo"),
    "from 64M on": sizes(64 << 20, 1 << 60),
    "up to 4K": sizes(0, 4096),
    "one row": one_row,
}


def is_clean(found: Changes, planted: set[tuple[str, ...]]) -> bool:
    """Whether no clean row is called, and no group of which less than a third was planted."""
    keys = map(tuple, found.rows[list(KEY)].astype(str).to_numpy().tolist())
    is_planted = np.array([key in planted for key in keys])
    is_called = found.rows["verdict"].isin(["better", "worse"]).to_numpy()
    if (is_called & ~is_planted).any():
        return False
    return all(is_planted[group.places].mean() >= 1 / 3 for group in found.called)


def plant(sides: Sides, draw: Draw, percent: float, draws: int) -> tuple[int, int, int]:
    """So many draws; in how many the gate fails, and in how many nothing else is named."""
    count = failed = clean = 0
    for seed in range(draws):
        random = np.random.default_rng(seed)
        new, base = sides(random)
        mask = draw(new, random)
        if mask is None or not mask.any():
            continue
        count += 1
        found = compare(slower(new, np.where(mask, 1 + percent / 100, 1.0)), *base)
        failed += gate_of(found, LIMIT).verdict == "FAIL"
        keys = new.loc[mask, list(KEY)].astype(str).to_numpy().tolist()
        clean += is_clean(found, set(map(tuple, keys)))
    return count, failed, clean


def print_plants(file: Path, bases: Sequence[Path], draws: int, runs: int, spread: float) -> None:
    """The table of one file."""
    frame, known = read(file), [read(base) for base in bases]
    percents = (15, 5) if runs else (30, 20, 10)

    def sides(random: np.random.Generator) -> tuple[pd.DataFrame, Sequence[pd.DataFrame]]:
        """The new side and the base of one draw."""
        base = [moved(frame, random, spread).assign(run=f"base{number}") for number in range(runs)]
        return (moved(frame, random, spread), base) if runs else (frame, known or [frame])

    print(f"\n{file.name}, {len(frame)} rows, {runs or len(bases) or 1} bases, {draws} draws:\n")
    print("| planted | " + " | ".join(f"+{percent} %" for percent in percents) + " |")
    print("|---|" + "---|" * len(percents))
    for name, draw in DRAWS.items():
        cells = []
        for percent in percents:
            count, failed, clean = plant(sides, draw, percent, draws)
            share = 100 / count if count else 0.0
            cells.append(f"{share * failed:.0f} / {share * clean:.0f}" if count else "-")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def print_pairs(files: Sequence[Path]) -> None:
    """How often the gate fails between files of one thing."""
    frames = {file.name: read(file) for file in files}
    verdicts: list[str] = []
    for new, base in permutations(frames, 2):
        found = compare(frames[new], frames[base])
        gate = gate_of(found, LIMIT)
        verdicts.append(gate.verdict)
        if gate.verdict == "FAIL":
            print(new, base, [(one.title, round(one.ratio, 3)) for one in found.called])
    print(f"{len(verdicts)} pairs: {dict(Counter(verdicts))}")


@click.command()
@click.argument("what", type=click.Choice(("plants", "pairs")))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--draws", default=100)
@click.option("--runs", default=0)
@click.option("--spread", default=0.003)
def main(what: str, files: tuple[Path, ...], draws: int, runs: int, spread: float) -> None:
    """Print what was asked for."""
    if what == "pairs":
        print_pairs(files)
    else:
        print_plants(files[0], files[1:], draws, runs, spread)


if __name__ == "__main__":
    main()
