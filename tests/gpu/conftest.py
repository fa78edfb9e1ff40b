"""Skips this folder, before anything heavy is imported, unless CuPy can use two GPUs."""

import warnings
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def found_gpus() -> int:
    """The number of GPUs that CUDA shows."""
    if find_spec("cupy") is None:
        return 0
    from collbench.device.card import device_count

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy's own, of installations that do not matter here
        return device_count()


@pytest.fixture(scope="session", autouse=True)
def gpus(found_gpus: int) -> int:
    """The number of GPUs to use."""
    if found_gpus < 2:
        pytest.skip(f"needs two NVIDIA GPUs and CuPy: {found_gpus} found")
    return found_gpus
