"""The cuda backend with one process a GPU, under mpirun: the batches of test_cuda.py again."""

import pytest

from tests.gpu._plans import PROTOS
from tests.gpu._running import failures_of


@pytest.mark.parametrize("name", [*PROTOS, "random", "relay", "measured", "spoiled"])
def test_one_process_a_gpu(gpus: int, name: str) -> None:
    assert failures_of("mpi", gpus, name) == []
