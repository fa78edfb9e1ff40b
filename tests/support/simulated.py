"""Sweeps that are made up, of which it is known how far their runs differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from collbench.core.record import COLUMNS, FLOATS, INTEGERS, SCHEMA
from tests.support.frames import repeats
from tests.support.tables import values_of

ALGOS = ("ring", "tree", "star", "twoshot", "halving")


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Of times, as logarithms: of repeats, of a row between runs, of all rows between runs; heavy:
    rows' spreads differ by a factor of two.
    """

    repeats: int = 3
    within: float = 0.003
    between: float = 0.003
    drift: float = 0.001
    is_heavy: bool = False


NOISES = [
    Noise(),
    Noise(is_heavy=True),
    Noise(repeats=5, within=0.01, between=0.005),
    Noise(within=0.05, between=0.03, drift=0.01, is_heavy=True),
    Noise(repeats=4, within=0.002, between=0.004),
    Noise(within=0.001, between=0.0, drift=0.0),
]


def sweep(
    noise: Noise,
    seed: int,
    algos: tuple[str, ...] = ALGOS,
    sizes: int = 10,
    knobs: int = 1,
    slower: Mapping[int, float] | None = None,
) -> pd.DataFrame:
    """Rows of every algorithm, size and number of channels, as a sweep would have them; slower: by
    row, how much.
    """
    random = np.random.default_rng(seed)
    keys = list(product(algos, range(1, knobs + 1), range(sizes)))
    count = 1024 * 4 ** np.array([size for _, _, size in keys])
    spread = noise.within * np.exp(random.normal(0, 0.6 if noise.is_heavy else 0, len(keys)))
    middle = (
        np.log(5 + 0.0004 * count)
        + random.normal(0, noise.drift)
        + random.normal(0, noise.between, len(keys))
    )
    for place, more in (slower or {}).items():
        if place < len(keys):
            middle[place] += np.log1p(more)
    times = np.exp(
        middle[:, None] + spread[:, None] * random.normal(size=(len(keys), noise.repeats))
    )
    told = values_of(
        "op=allreduce backend=cuda proto=simple dtype=float32 redop=sum placement=out group=local"
        f" ranks=4 repeats={noise.repeats} status=ok run=run{seed} host=a"
    )
    told |= {
        "hosts": 1,
        "schema": SCHEMA,
        "algo": [algo for algo, _, _ in keys],
        "channels": [channels for _, channels, _ in keys],
        "size_bytes": 4 * count,
        "count": count,
        "time_us": np.median(times, axis=1),
        "repeat_times_us": [tuple(float(f"{time:.6g}") for time in row) for row in times],
        "histogram": repeats([()] * len(keys)),
        "device": "4 x GPU",
        "versions": "collbench 1; nccl 2.28 with NCCL_ALGO=Ring",
    }
    rest = {
        name: 0 if name in INTEGERS else float("nan") if name in FLOATS else "" for name in COLUMNS
    }
    return pd.DataFrame({**rest, **told})
