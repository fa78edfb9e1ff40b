"""Inputs and answers: exact in any order, different everywhere, and compared to the last bit."""

import itertools

import numpy as np
import pytest

from collbench.core.collectives import OPS, OpName, collective
from collbench.core.dtypes import DTYPES, REDOPS, DtypeName, RedopName, divide, dtype, ufunc
from collbench.core.pattern import PERIOD, compare, fill, inputs, poison, reduced
from tests.support.tiers import tiered


def in_order(values: list[np.ndarray], redop: RedopName, kind: np.dtype) -> np.ndarray:
    """Reduce in exactly this order, rounding to the element type after every operation, as a ring
    over FIFOs does.
    """
    total = values[0].copy()
    for value in values[1:]:
        wide = total.astype(np.float32) if kind.itemsize == 2 else total
        total = ufunc(redop)(wide, value.astype(wide.dtype), np.empty_like(wide)).astype(kind)
    if redop == "avg":
        wide = total.astype(np.float32) if kind.itemsize == 2 else total
        divide(wide, len(values))
        total = wide.astype(kind)
    return total


@pytest.mark.parametrize("redop", REDOPS)
@pytest.mark.parametrize("name", DTYPES)
def test_every_order_of_reduction_gives_the_same_bits(name: DtypeName, redop: RedopName) -> None:
    kind = dtype(name).numpy()
    for n in (2, 3, 4):
        values = [inputs(name, redop, n, rank) for rank in range(n)]
        for order in itertools.permutations(values):
            assert in_order(list(order), redop, kind).tobytes() == reduced(name, redop, n).tobytes()


@tiered("n", [17, 64, 300], 1)
@pytest.mark.parametrize("redop", REDOPS)
@pytest.mark.parametrize("name", DTYPES)
def test_exact_for_many_ranks(name: DtypeName, redop: RedopName, n: int) -> None:
    kind = dtype(name).numpy()
    values = [inputs(name, redop, n, rank) for rank in range(n)]
    shuffled = [values[k] for k in np.random.default_rng(1).permutation(n)]
    assert in_order(shuffled, redop, kind).tobytes() == reduced(name, redop, n).tobytes()


@pytest.mark.parametrize("name", DTYPES)
def test_sums_agree_with_float64(name: DtypeName) -> None:
    for n in (2, 8, 64):
        exact = sum(inputs(name, "sum", n, rank).astype(np.float64) for rank in range(n))
        assert np.array_equal(reduced(name, "sum", n).astype(np.float64), exact)
        average = sum(inputs(name, "avg", n, rank).astype(np.float64) for rank in range(n)) / n
        assert np.array_equal(reduced(name, "avg", n).astype(np.float64), average)


@pytest.mark.parametrize("name", DTYPES)
def test_ranks_and_places_differ(name: DtypeName) -> None:
    values = [inputs(name, "sum", 4, rank) for rank in range(4)]
    for one, other in itertools.combinations(values, 2):
        assert (one != other).mean() > 0.6
    for shift in (1, 16, 64, 1024, 4096):
        assert (values[0][shift:] != values[0][:-shift]).mean() > 0.6


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", ["uint8", "bfloat16", "float64"])
def test_poison_is_wrong_everywhere(op: OpName, name: DtypeName) -> None:
    n, root = 3, 1
    for rank in range(n):
        blocks = collective(op).blocks("out", n, root, rank)
        buffer = np.zeros(blocks * 20_000, dtype(name).numpy())
        poison(buffer, op, "sum", n, root, rank)
        found = compare(buffer, op, "sum", n, root, rank)
        if blocks:
            assert found is not None
            assert (found.rank, found.count, found.index) == (rank, len(buffer), 0)
        else:
            assert found is None


def test_one_wrong_element_is_found_with_its_values() -> None:
    buffer = np.zeros(3 * PERIOD + 5, np.float32)
    for start in range(0, len(buffer), PERIOD):
        part = buffer[start : start + PERIOD]
        part[...] = reduced("float32", "sum", 4)[: len(part)]
    assert compare(buffer, "allreduce", "sum", 4, 0, 2) is None
    buffer[2 * PERIOD + 7] += 1
    found = compare(buffer, "allreduce", "sum", 4, 0, 2)
    assert found is not None
    assert (found.rank, found.count, found.index) == (2, 1, 2 * PERIOD + 7)
    assert float(found.got) == float(found.wanted) + 1


def test_swapped_blocks_are_found() -> None:
    n, count = 4, 1000
    buffer = np.zeros(n * count, np.float32)
    for rank in range(n):
        fill(buffer[rank * count : (rank + 1) * count], "allgather", "sum", n, rank)
    assert compare(buffer, "allgather", "sum", n, 0, 0) is None
    swapped = np.concatenate([buffer[count : 2 * count], buffer[:count], buffer[2 * count :]])
    found = compare(swapped, "allgather", "sum", n, 0, 0)
    assert found is not None
    assert found.count > count


def test_division_truncates_integers_as_c_does() -> None:
    signed, unsigned = np.array([-7, -6, 7], np.int32), np.array([7, 255], np.uint8)
    divide(signed, 2)
    divide(unsigned, 2)
    assert signed.tolist() == [-3, -3, 3]
    assert unsigned.tolist() == [3, 127]
