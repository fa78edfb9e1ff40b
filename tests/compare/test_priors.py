"""What runs of a kind of machine differ by, where the files do not show it."""

import numpy as np
import pandas as pd
import pytest

from collbench.compare.priors import machine_kinds, prior
from collbench.core import catalog

SIZES = np.array([64.0, 1 << 20, 1 << 21, 1 << 30])


@pytest.mark.parametrize("kind", catalog.names("spread"))
def test_every_shipped_prior_is_complete(kind: str) -> None:
    known = prior([kind] * len(SIZES), SIZES)
    for name in ("row", "repeat", "together", "together_soon", "rare_share", "rare_size"):
        assert (getattr(known, name) > 0).all()
    assert known.together[1] > known.together[2]  # latencies share more than rates
    assert (known.together >= known.together_soon).all()


def test_times_of_the_model_are_exact() -> None:
    known = prior(["model"] * len(SIZES), SIZES)
    assert not known.row.any() and not known.together.any()
    assert not known.rare(np.full(len(SIZES), 0.01)).any()


def test_a_larger_change_is_rarer() -> None:
    known = prior(["gpu"], SIZES[:1])
    chances = [float(known.rare(np.array([change]))[0]) for change in (0.0, 0.05, 0.1, 0.2, 0.4)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] == chances[1] == known.rare_share[0]
    assert chances[1] > chances[2] > chances[3] > chances[4] > 0


def test_kinds() -> None:
    rows = pd.DataFrame(
        [
            ("cuda", "4 x NVIDIA H200", ""),
            ("nccl", "", "auto"),
            ("mpi", "AMD EPYC 9554 (64 cores)", ""),
            ("mpi", "", ""),
            ("cpu", "", "hot"),
            ("model", "model of dgx-1v", "modelled"),
        ],
        columns=["backend", "device", "notes"],
    )
    assert machine_kinds(rows) == ["gpu", "gpu", "cpu", "gpu", "cpu", "model"]
