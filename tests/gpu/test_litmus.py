"""Litmus tests on GPUs; one is enough: between two of its blocks, through host memory, and with the
copy engine.
"""

import pytest

from tests.support.litmus import BY_NAME, TESTS, GpuLink, measured

LEAST_GPUS = 1


def through_host(link: GpuLink) -> bool:
    """Whether both sides meet in host memory, which takes long."""
    return link.in_host and not link.by_engine


@pytest.mark.parametrize("name", BY_NAME)
def test_counts_every_trial_and_sees_nothing_that_the_model_forbids(name: str) -> None:
    results = list(measured([BY_NAME[name]], 1_000_000, 20.0))
    assert len(results) >= (1 if name == "copy-engine" else 2)
    for result in results:
        assert sum(result.counts) >= (1 if through_host(result.link) else 1_000_000)
        assert result.chance_count > 0, result
        assert result.test.is_allowed or not result.weak_count, result


def test_protocols_may_rely_on_the_memory_of_one_gpu() -> None:
    """What no model promises and the protocols need: lines are seen whole and in order."""
    tests = [test for test in TESTS if test.needed_by]
    results = [one for one in measured(tests, 10_000_000, 60.0) if one.link.is_in_one_gpu]
    assert {result.test.name for result in results} == {
        test.name for test in tests if test.shape != "engine"
    }
    assert not [result for result in results if result.weak_count]


@pytest.mark.parametrize("name", ["line-128", "line-128-reload", "mp-16-fence"])
def test_a_writer_without_its_store_order_is_caught(name: str) -> None:
    for result in measured([BY_NAME[name]], 1_000_000, 20.0, is_unordered=True):
        assert result.weak_count > 0, result
