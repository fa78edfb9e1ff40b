"""Litmus tests on GPUs; one is enough: between two of its blocks, through host memory, and with the
copy engine.
"""

import pytest

from collbench.bench.litmus import measure_on_gpus
from collbench.spec.litmus import catalogue, litmus


@pytest.fixture(scope="session", autouse=True)
def gpus(found_gpus: int) -> int:
    """The number of GPUs to use."""
    if found_gpus < 1:
        pytest.skip("needs an NVIDIA GPU and CuPy")
    return found_gpus


@pytest.mark.parametrize("name", [test.name for test in catalogue("gpu")])
def test_counts_every_trial_and_sees_nothing_that_the_model_forbids(name: str) -> None:
    results = list(measure_on_gpus([litmus(name, "gpu")], 1_000_000, 20.0))
    assert len(results) >= (1 if name == "copy-engine" else 2)
    for result in results:
        assert result.trials >= 1_000_000 or result.transport == "shm"
        assert result.trials > 0
        assert result.chance_count > 0, result
        assert not result.breaks_model, result


def test_protocols_may_rely_on_the_memory_of_one_gpu() -> None:
    """What no model promises and the protocols need: lines are seen whole and in order."""
    tests = [test for test in catalogue("gpu") if test.needed_by]
    results = [one for one in measure_on_gpus(tests, 10_000_000, 60.0) if not one.transport]
    assert {result.test for result in results} == {
        test.name for test in tests if test.shape != "engine"
    }
    assert not [result for result in results if result.broken]


@pytest.mark.parametrize("name", ["line-128", "line-128-reload", "mp-16-fence"])
def test_a_writer_without_its_store_order_is_caught(name: str) -> None:
    for result in measure_on_gpus([litmus(name, "gpu")], 1_000_000, 20.0, is_unordered=True):
        assert result.weak_count > 0, result
        assert result.broken == result.litmus.needed_by
