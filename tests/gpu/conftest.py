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


@pytest.fixture(scope="module", autouse=True)
def gpus(found_gpus: int, request: pytest.FixtureRequest) -> int:
    """The number of GPUs, of which a module needs two, or as many as its LEAST_GPUS says."""
    least = getattr(request.module, "LEAST_GPUS", 2)
    if found_gpus < least:
        pytest.skip(f"needs CuPy and NVIDIA GPUs: {least}, {found_gpus} found")
    return found_gpus
