"""How often `compare --against` calls a healthy machine worse or better, and how much of a real
slowdown it finds.

Files: a shipped sweep against itself, each row of the file and of the reference moved by a draw of
Student's t with 3 degrees of freedom, which its repeats share, as runs differ from each other.

    python -m tests.benchmarks.chance_against [--files 400]
"""

from collections.abc import Iterator
from math import sqrt
from pathlib import Path

import click
import numpy as np
import pandas as pd

from collbench.compare.load import load
from collbench.core.limits import BEHIND_SHARE
from tests.support.frames import against_reference

SWEEP = Path(__file__).parents[2] / "profiles" / "results" / "h200x2.csv"
OPS = ("allreduce", "allgather", "reducescatter", "alltoall")
SPREADS = (0.005, 0.01, 0.015, 0.02, 0.03)
SLOWDOWNS = ((0.85, 1), (0.85, 4), (0.85, 28), (0.7, 1), (0.7, 2), (0.7, 4), (0.5, 1), (0.5, 2))


def own_choices() -> pd.DataFrame:
    """One row for each size of four collectives: our kernels, and NCCL on plain buffers."""
    frame = load(SWEEP).frame
    is_ours = frame["op"].isin(OPS) & frame["backend"].isin(("cuda", "nccl"))
    is_plain = (frame["status"] == "ok") & (frame["buffers"] == "plain")
    return frame[is_ours & is_plain].reset_index(drop=True)


def moved(frame: pd.DataFrame, spread: float, random: np.random.Generator) -> pd.DataFrame:
    """The sweep on another day."""
    factor = np.exp(random.standard_t(3, len(frame)) / sqrt(3) * spread)
    return frame.assign(busbw_gbs=frame["busbw_gbs"] * factor)


def slowed(frame: pd.DataFrame, share: float, sizes: int) -> tuple[pd.DataFrame, set[int]]:
    """The sweep with so many neighbouring sizes of NCCL's allreduce slower."""
    here = frame.index[(frame["op"] == "allreduce") & (frame["backend"] == "nccl")]
    here = frame.loc[here].sort_values("size_bytes").index
    first = (len(here) - sizes) // 2
    late = here[first : first + sizes]
    slow = frame.copy()
    slow.loc[late, "busbw_gbs"] *= share
    return slow, set(frame.loc[late, "size_bytes"])


def nulls(frame: pd.DataFrame, spread: float, count: int) -> Iterator[tuple[bool, bool]]:
    """Of each file whether anything is called worse: by a bare limit, and as the tool does it (or
    better).
    """
    random = np.random.default_rng(round(1e5 * spread))
    for _ in range(count):
        mine, theirs = moved(frame, spread, random), moved(frame, spread, random)
        share = mine["busbw_gbs"] / theirs["busbw_gbs"]
        yield (
            bool((share < BEHIND_SHARE).any()),
            bool(against_reference(mine, theirs).rows["verdict"].isin(["better", "worse"]).any()),
        )


@click.command()
@click.option("--files", "count", default=400, help="Simulated files of each line.")
def main(count: int) -> None:
    """Print both tables."""
    frame = own_choices()
    print(f"{count} files a line, {len(frame)} sizes each\n")
    print("| spread | a size below 90% | called worse or better |\n|---|---|---|")
    for spread in SPREADS:
        before, after = np.mean(list(nulls(frame, spread, count)), axis=0)
        print(f"| {spread:.1%} | {before:.1%} | {after:.1%} |", flush=True)
    print("\n| NCCL's allreduce at | " + " | ".join(f"{one:.1%}" for one in SPREADS) + " |")
    print("|---|" + "---|" * len(SPREADS))
    for share, sizes in SLOWDOWNS:
        slow, late = slowed(frame, share, sizes)
        found = []
        for spread in SPREADS:
            random = np.random.default_rng(round(1e5 * spread))
            behind = 0
            for _ in range(max(1, count // 10)):
                rows = against_reference(
                    moved(slow, spread, random), moved(frame, spread, random)
                ).rows
                here = (rows["op"] == "allreduce") & (rows["backend"] == "nccl")
                worse = rows[here & (rows["verdict"] == "worse")]
                behind += int(worse["size_bytes"].isin(late).sum())
            found.append(behind / len(late) / max(1, count // 10))
        texts = " | ".join(f"{one:.0%}" for one in found)
        where = f"{share:.0%} at {sizes} size{'s' * (sizes > 1)}"
        print(f"| {where} | {texts} |", flush=True)


if __name__ == "__main__":
    main()
