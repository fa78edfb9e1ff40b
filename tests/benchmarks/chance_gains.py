"""How often `compare --env` and `--tuner` claim a gain where there is none, and how many of the
real ones they find.

Null files: NCCL's own rows of a shipped file, beside forced settings that take the same time. Each
row of a file moves by a draw of Student's t with 3 degrees of freedom, which its repeats share, as
runs differ from each other; the repeats of a row agree to 1 % or so.

    python -m tests.benchmarks.chance_gains [--files 400]
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Literal

import click
import numpy as np

from collbench.compare.load import load
from collbench.core.record import Record
from collbench.core.rows import is_own_choice
from collbench.core.text import texts_of
from collbench.tune.nccl_gains import Gains, TunerSetting, gains

# every power of two from 8 bytes to 1 GiB, four collectives
OWN_ROWS = Path(__file__).parents[2] / "profiles" / "results" / "h200x2.csv"
Judge = Literal["is_faster", "is_better"]
JUDGES: tuple[Judge, ...] = ("is_faster", "is_better")
REPEATS = 3
REPEAT_SPREAD = 0.005
SPREADS = (0.005, 0.01, 0.02, 0.03)
FORCED = [
    TunerSetting(algo, proto, channels, buffsize=0)
    for channels, algo, proto in product(
        (8, 16, 24, 32), ("ring", "chain"), ("ll", "ll128", "simple")
    )
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is true of a simulated file: the first setting takes 1/gain of the time at so many
    neighbouring sizes of each collective, from the middle on.
    """

    name: str
    gain: float = 1.0
    sizes: int = 0
    process_spread: float = 0.0


NULL = Truth(name="no gain")
NULLS = (  # how many settings a file has
    *((NULL, settings) for settings in (6, 12, 24)),
    (Truth(name="no gain, 0.5% by process", process_spread=0.005), 12),
    (Truth(name="no gain, 1% by process", process_spread=0.01), 12),
)
REAL = (
    Truth(name="5% at 16 sizes", gain=1.05, sizes=16),
    Truth(name="10% at 16 sizes", gain=1.10, sizes=16),
    Truth(name="10% at 8 sizes", gain=1.10, sizes=8),
    Truth(name="10% at 4 sizes", gain=1.10, sizes=4),
    Truth(name="25% at 2 sizes", gain=1.25, sizes=2),
    Truth(name="25% at 1 size", gain=1.25, sizes=1),
    Truth(name="50% at 1 size", gain=1.50, sizes=1),
    Truth(name="2x at 1 size", gain=2.0, sizes=1),
)


@cache
def own_rows() -> tuple[Record, ...]:
    """NCCL's own choice on plain buffers, by collective and size."""
    rows = [
        row
        for row in load(OWN_ROWS).records
        if is_own_choice(row) and row.backend == "nccl" and row.buffers == "plain"
    ]
    assert rows and texts_of(row.device for row in rows)
    return tuple(sorted(rows, key=lambda row: (row.op, row.size_bytes)))


def is_gain(truth: Truth, row: Record) -> bool:
    """Whether the truth has a gain at the size of a row."""
    sizes = [one.size_bytes for one in own_rows() if one.op == row.op]
    first = (len(sizes) - truth.sizes) // 2
    return row.size_bytes in sizes[first : first + truth.sizes]


def files(
    truth: Truth, spread: float, settings: int, count: int, seed: int
) -> Iterator[list[Record]]:
    """So many simulated files."""
    random = np.random.default_rng(seed)
    rows = own_rows()
    has_gain = [is_gain(truth, row) for row in rows]
    for _ in range(count):
        shape = (len(rows), settings + 1)
        moved = random.standard_t(3, shape) / sqrt(3) * spread
        moved = moved + random.normal(0, truth.process_spread, shape[1])
        logs = moved[..., None] + random.normal(0, REPEAT_SPREAD, (*shape, REPEATS))
        factors = np.exp(logs)
        made = []
        for (number, row), column in product(enumerate(rows), range(settings + 1)):
            speed = truth.gain if column == 1 and has_gain[number] else 1.0
            times = (row.time_us or 0.0) / speed * factors[number, column]
            timed = replace(row, repeat_times_us=tuple(times.tolist()))
            if column:
                algo, proto, channels, _ = FORCED[column - 1]
                timed = replace(timed, algo=algo, proto=proto, channels=channels)
            made.append(timed)
        yield made


def claimed(measured: Gains, judge: Judge) -> set[tuple[str, int]]:
    """Where a gain is claimed, by the repeats alone or as the tool does it: collective and size."""
    return {
        (match.op, size)
        for match, sizes in measured.items()
        for size, here in sizes.items()
        if any(getattr(one, judge) for one in here)
    }


def measure(truth: Truth, spread: float, settings: int, count: int) -> tuple[list[float], ...]:
    """Of each file the share of its sizes where a gain is claimed (with a real gain: of those that
    have it), by the repeats alone and as the tool does it.
    """
    own = own_rows()
    gaining = [row for row in own if is_gain(truth, row)]
    of = {(row.op, row.size_bytes) for row in gaining or own}
    shares: tuple[list[float], list[float]] = ([], [])
    for rows in files(truth, spread, settings, count, seed=round(1e5 * spread) + settings):
        measured = gains(rows)
        for share, judge in zip(shares, JUDGES, strict=True):
            share.append(len(claimed(measured, judge) & of) / len(of))
    return shares


def cells(judged: Iterable[Sequence[float]], count: int) -> Iterator[str]:
    """Files with a claim, and the most sizes with one in a file."""
    for shares in judged:
        yield f"{np.mean([share > 0 for share in shares]):.1%}"
        yield f"{round(max(shares) * count)}"


@click.command()
@click.option("--files", "count", default=400, help="Simulated files of each line.")
def main(count: int) -> None:
    """Print both tables."""
    sizes = len(own_rows())
    print(f"{count} files a line, {sizes} sizes each\n")
    print(
        "| nothing differs | settings | spread | claims, by repeats | most sizes | claims | most |"
    )
    print("|---|---|---|---|---|---|---|")
    for (truth, settings), spread in product(NULLS, SPREADS):
        shares = measure(truth, spread, settings, count)
        line = (truth.name, str(settings), f"{spread:.1%}", *cells(shares, sizes))
        print("| " + " | ".join(line) + " |", flush=True)
    print("\n| real gain | " + " | ".join(f"{spread:.1%}" for spread in SPREADS) + " |")
    print("|---|" + "---|" * len(SPREADS))
    for truth in REAL:
        found = [np.mean(measure(truth, spread, 12, max(1, count // 10))[1]) for spread in SPREADS]
        print(f"| {truth.name} | " + " | ".join(f"{one:.0%}" for one in found) + " |", flush=True)


if __name__ == "__main__":
    main()
