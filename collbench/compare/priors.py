"""What two runs of one thing differ by on a kind of machine, where the files to compare do not show
it: the shipped `profiles/spread`, each made of pairs of runs between which nothing had changed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collbench.core.catalog import load
from collbench.core.limits import GROUP_POWER, GROUP_SCALES, RARE_POWER, RARE_SCALES, SEEN_POWER
from collbench.core.rows import CORES

if TYPE_CHECKING:
    import pandas as pd

Array: TypeAlias = NDArray[np.float64]
# the largest size at which latency and not the links' rate sets the time
LATENCY_UP_TO = 1 << 20
_ON_CPUS = ("cpu", "reference")
_LEAST = 1e-9  # of modelled times, which are exact


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Of every row, as differences of logarithms between runs: row, the scale of one row by itself
    (of Student's t); together and together_soon, the standard deviation of what rows share, between
    days and between runs that follow each other; repeat, of one repeat within a run; and the share
    of rows that were seen to differ by RARE_SCALES or more, by rare_size at most. group_share,
    group_size: the same of rows of one collective and backend, all of which differ alike.
    """

    row: Array
    together: Array
    together_soon: Array
    repeat: Array
    rare_share: Array
    rare_size: Array
    group_share: Array
    group_size: Array

    def rare_group(self, places: NDArray[np.intp], change: float, scale: float) -> float:
        """How likely all rows of a group change so much by chance, because their buffers or ranks
        were placed otherwise. scale: of the change of one row, where that is much.
        """
        size = max(float(np.median(self.group_size[places])), GROUP_SCALES * scale, _LEAST)
        beyond = max(abs(change) / size, 1.0)
        share = float(np.median(self.group_share[places]))
        return share / math.pow(beyond, GROUP_POWER)

    def rare(self, change: Array) -> Array:
        """How likely a single row changes so much by chance, of those that were placed anew."""
        size, least = np.abs(change), RARE_SCALES * self.row
        seen = np.clip(
            size / np.maximum(least, 1e-9), 1.0, self.rare_size / np.maximum(least, 1e-9)
        )
        beyond = np.maximum(size / np.maximum(self.rare_size, 1e-9), 1.0)
        return self.rare_share * np.maximum(seen, 1.0) ** -SEEN_POWER * beyond**-RARE_POWER


@cache
def _numbers(kind: str) -> dict[str, float]:
    """The numbers of a kind: gpu, cpu, or model, whose times are exact."""
    flat = dict.fromkeys((one.name for one in fields(Prior)), 0.0) if kind == "model" else {}
    data = {} if kind == "model" else load("spread", kind)
    for name, value in data.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{part}": float(number) for part, number in value.items()}
        elif isinstance(value, int | float):
            flat[name] = float(value)
    return flat


def prior(kinds: Sequence[str], sizes: Array) -> Prior:
    """The prior of rows of some kinds ("gpu", "cpu", "model") and sizes in bytes."""
    parts = np.where(sizes <= LATENCY_UP_TO, "latency", "bandwidth")

    def of(name: str) -> Array:
        pairs = zip(map(_numbers, kinds), parts, strict=True)
        return np.array(
            [known[name] if name in known else known[f"{name}.{part}"] for known, part in pairs]
        )

    return Prior(**{one.name: of(one.name) for one in fields(Prior)})


def machine_kinds(rows: "pd.DataFrame") -> list[str]:
    """What measured each row: "gpu", "cpu", or "model"."""
    kinds: dict[tuple[str, str, str], str] = {}
    values = list(zip(rows["backend"], rows["device"], rows["notes"], strict=True))
    for backend, device, notes in set(values):
        is_cpu = backend in _ON_CPUS or CORES.search(device) is not None
        kind = "cpu" if is_cpu else "gpu"
        kinds[backend, device, notes] = "model" if "modelled" in notes.split() else kind
    return [kinds[value] for value in values]
