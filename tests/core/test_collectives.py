"""The table of collectives against plain definitions written out again here."""

from collections.abc import Callable

import pytest

from collbench.core.collectives import OPS, OpName, Want, collective
from collbench.core.errors import UsageError
from collbench.core.world import World

# name -> (blocks in, blocks out, S in blocks, factor) for n ranks; rooted ones as the root sees it
TABLE: dict[str, tuple[Callable[[int], float], ...]] = {
    "allreduce": (lambda n: 1, lambda n: 1, lambda n: 1, lambda n: 2 * (n - 1) / n),
    "allgather": (lambda n: 1, lambda n: n, lambda n: n, lambda n: (n - 1) / n),
    "reducescatter": (lambda n: n, lambda n: 1, lambda n: n, lambda n: (n - 1) / n),
    "broadcast": (lambda n: 1, lambda n: 1, lambda n: 1, lambda n: 1),
    "reduce": (lambda n: 1, lambda n: 1, lambda n: 1, lambda n: 1),
    "alltoall": (lambda n: n, lambda n: n, lambda n: n, lambda n: (n - 1) / n),
    "gather": (lambda n: 1, lambda n: n, lambda n: n, lambda n: (n - 1) / n),
    "scatter": (lambda n: n, lambda n: 1, lambda n: n, lambda n: (n - 1) / n),
    "sendrecv": (lambda n: 1, lambda n: 1, lambda n: 1, lambda n: 1),
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("n", [2, 3, 8])
def test_counts_and_factors(op: OpName, n: int) -> None:
    what, root = collective(op), n - 1
    blocks_in, blocks_out, size, factor = TABLE[op]
    assert what.blocks("in", n, root, root) == blocks_in(n)
    assert what.blocks("out", n, root, root) == blocks_out(n)
    assert what.factor(n) == pytest.approx(factor(n))
    assert what.block_count(int(size(n)) * 12 + 3, 4, n) == (size(n) * 12 + 3) // (4 * size(n))
    assert what.size_bytes(3, 4, n) == 12 * size(n)


def test_definitions() -> None:
    def wants(op: str, rank: int) -> tuple[Want, ...]:
        return collective(op).wants(3, 1, rank)

    everyone = (0, 1, 2)
    assert wants("allreduce", 2) == (Want(out_block=0, ranks=everyone, in_block=0),)
    assert wants("reducescatter", 2) == (Want(out_block=0, ranks=everyone, in_block=2),)
    assert wants("allgather", 0) == tuple(
        Want(out_block=j, ranks=(j,), in_block=0) for j in everyone
    )
    assert wants("alltoall", 2) == tuple(
        Want(out_block=j, ranks=(j,), in_block=2) for j in everyone
    )
    assert wants("broadcast", 2) == (Want(out_block=0, ranks=(1,), in_block=0),)
    assert wants("reduce", 1) == (Want(out_block=0, ranks=everyone, in_block=0),)
    assert wants("reduce", 0) == ()
    assert wants("gather", 1) == tuple(Want(out_block=j, ranks=(j,), in_block=0) for j in everyone)
    assert wants("gather", 2) == ()
    assert wants("scatter", 2) == (Want(out_block=0, ranks=(1,), in_block=2),)
    assert wants("sendrecv", 0) == (Want(out_block=0, ranks=(2,), in_block=0),)


def test_in_place_aliases() -> None:
    def alias(op: str, rank: int) -> tuple[int, int] | None:
        return collective(op).alias(4, 2, rank)

    assert alias("allreduce", 1) == (0, 0)
    assert alias("allgather", 3) == (0, 3)
    assert alias("reducescatter", 3) == (3, 0)
    assert alias("broadcast", 2) == (0, 0)
    assert alias("broadcast", 1) is None
    assert alias("gather", 2) == (0, 2)
    assert alias("scatter", 2) == (2, 0)
    assert alias("alltoall", 0) is None
    assert [op for op in OPS if not collective(op).has_in_place] == ["alltoall", "sendrecv"]


@pytest.mark.parametrize("spelling", ["all_reduce", "AllReduce", "all-reduce", "ALLREDUCE"])
def test_other_spellings_at_the_door(spelling: str) -> None:
    assert collective(spelling).name == "allreduce"


def test_unknown_collective() -> None:
    with pytest.raises(UsageError, match="allreduc"):
        collective("allreduc")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"n": 1}, "nothing travels"),
        ({"n": 4, "root": 4}, "root 4"),
        ({"n": 3, "order": (0, 1, 1)}, "permutation"),
        ({"n": 3, "hosts": ("a",)}, "1 hosts"),
    ],
)
def test_worlds_that_cannot_be(arguments: dict[str, int], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        World(**arguments)  # type: ignore[arg-type]
