"""The cuda backend from one process that drives all GPUs: bit for bit what the reference leaves,
and right by its own checks.
"""

import pytest

from tests.gpu._plans import PROTOS
from tests.gpu._running import failures_of

MODEL = "local"


@pytest.mark.parametrize("proto", PROTOS)
def test_every_pair_type_and_reduction_equals_the_reference(gpus: int, proto: str) -> None:
    assert failures_of(MODEL, gpus, proto) == []


def test_schedules_that_nobody_registered_equal_the_reference(gpus: int) -> None:
    assert failures_of(MODEL, gpus, "random") == []


def test_the_example_algorithm_of_contributing_equals_the_reference(gpus: int) -> None:
    assert failures_of(MODEL, gpus, "relay") == []


def test_unequal_blocks_equal_the_reference(gpus: int) -> None:
    assert failures_of(MODEL, gpus, "uneven") == []


def test_data_that_has_the_marker_stays_what_it_is(gpus: int) -> None:
    assert failures_of(MODEL, gpus, "special") == []


@pytest.mark.parametrize("name", ["measured", "uneven-measured"])
def test_measured_launches_are_right(gpus: int, name: str) -> None:
    assert failures_of(MODEL, gpus, name) == []


def test_several_collectives_at_once_are_right(gpus: int) -> None:
    assert failures_of(MODEL, gpus, "together") == []


def test_one_wrong_element_is_found(gpus: int) -> None:
    assert failures_of(MODEL, gpus, "spoiled") == []
