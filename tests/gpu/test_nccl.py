"""The nccl backend: every collective with every type, every reduction, and several collectives at
once, right by the checks that ours must pass.
"""

import pytest

from tests.gpu._running import MODELS, failures_of


@pytest.mark.parametrize("model", MODELS)
def test_every_collective_type_and_reduction(gpus: int, model: str) -> None:
    assert failures_of(model, gpus, "nccl") == []


@pytest.mark.parametrize("model", MODELS)
def test_several_collectives_at_once(gpus: int, model: str) -> None:
    assert failures_of(model, gpus, "nccl-together") == []
