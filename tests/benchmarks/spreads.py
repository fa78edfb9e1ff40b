"""Print the prior of a kind of machine, from sweeps of it between which nothing changed.

    python -m tests.benchmarks.spreads monday.csv tuesday.csv wednesday.csv

Gives the numbers of profiles/spread: how far each row differs between two of the files, what the
rows of a backend share, and how many rows differ far more than others.
"""

import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from collbench.compare.join import join
from collbench.compare.load import load_all
from collbench.compare.noise import medians
from collbench.compare.priors import LATENCY_UP_TO

MAD_OF_T3 = 0.765  # of Student's t with three degrees of freedom, in its scale
FAR = 10.0  # in scales: a row that differs by so much was placed otherwise
LEAST_ROWS = 8  # that show what they share


def main(files: list[str]) -> None:
    """Print the numbers of all pairs of the files."""
    frames = [one.frame for one in load_all([Path(file) for file in files])]
    rest: list[np.ndarray] = []
    shared: dict[str, list[float]] = defaultdict(list)
    within: list[float] = []
    for new, base in combinations(frames, 2):
        joined = join(new, [base])
        rows = joined.compared
        change = medians(joined.new.runs) - medians(joined.base.runs)
        is_repeated = joined.new.freedom > 0
        within += list(joined.new.squares[is_repeated] / joined.new.freedom[is_repeated])
        part = np.where(rows["size_bytes"] <= LATENCY_UP_TO, "latency", "bandwidth")
        table = pd.DataFrame({"change": change, "part": part, "backend": rows["backend"]})
        for (_, name), group in table.groupby(["backend", "part"]):
            if len(group) >= LEAST_ROWS:
                middle = float(group["change"].median())
                shared[str(name)].append(middle)
                rest.append(group["change"].to_numpy() - middle)
    deviations = np.abs(np.concatenate(rest)) / np.sqrt(2)
    scale = float(np.median(deviations)) / MAD_OF_T3
    far = deviations > FAR * scale
    print(f"row = {scale:.4f}")
    print(f"repeat = {np.sqrt(np.median(within)) if within else np.nan:.4f}")
    print(f"rare_share = {far.mean():.4f}")
    print(f"rare_size = {deviations.max() * np.sqrt(2):.3f}  # the largest")
    for name, middles in sorted(shared.items()):
        print(f"together.{name} = {np.sqrt(np.mean(np.square(middles)) / 2):.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])
