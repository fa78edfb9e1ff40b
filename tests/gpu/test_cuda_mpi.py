"""The cuda backend with one process a rank, under mpirun: the batches of test_cuda.py again."""

import pytest

from tests.gpu._plans import PROTOS
from tests.gpu._running import failures_of, failures_with_four


@pytest.mark.parametrize("name", [*PROTOS, "random", "relay", "uneven"])
def test_plans_equal_the_reference(gpus: int, name: str) -> None:
    assert failures_with_four(gpus, name) == []


@pytest.mark.parametrize("name", ["measured", "uneven-measured", "spoiled"])
def test_measured_launches_are_checked(gpus: int, name: str) -> None:
    assert failures_of("mpi", gpus, name) == []


def test_several_collectives_at_once_are_right(gpus: int) -> None:
    """Four ranks are two groups of two, which share GPUs if necessary."""
    assert failures_with_four(gpus, "together") == []
