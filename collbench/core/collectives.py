"""The collectives: what each rank has, what it must end with, how big that is, and what its bus
bandwidth means.

One table, independent of schedules, plans and backends. The size S of a row is what nccl-tests
calls size: the bytes of the vector for allreduce, broadcast, reduce and sendrecv; n blocks, the
total, for allgather, reducescatter, alltoall, gather and scatter. busbw = S / t x factor makes one
number comparable across ranks and collectives: the rate that the busiest link direction must
sustain. A collective of unequal blocks (allgatherv, reducescatterv, alltoallv) is one of these with
other sizes: see uneven.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from collbench.core.errors import unknown

OpName = Literal[
    "allreduce",
    "allgather",
    "reducescatter",
    "broadcast",
    "reduce",
    "alltoall",
    "gather",
    "scatter",
    "sendrecv",
    "allgatherv",
    "reducescatterv",
    "alltoallv",
]
ALL_OPS: tuple[OpName, ...] = get_args(OpName)
UNEVEN_OPS = tuple(op for op in ALL_OPS if op.endswith("v") and op[:-1] in ALL_OPS)
OPS = tuple(op for op in ALL_OPS if op not in UNEVEN_OPS)  # those of equal blocks
_SPELLINGS = {
    "a2a": "alltoall",
    "ar": "allreduce",
    "ag": "allgather",
    "rs": "reducescatter",
    "bcast": "broadcast",
    "a2av": "alltoallv",
    "agv": "allgatherv",
    "rsv": "reducescatterv",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """One block of the output: the reduction, over `ranks`, of their input block `in_block`."""

    out_block: int
    ranks: tuple[int, ...]
    in_block: int


def _no_alias(n: int, root: int, rank: int) -> None:
    """No input block and output block of a rank are one memory in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One operation. `wants` and `alias` take (n, root, rank); `factor`, explained by a comment,
    takes n.

    start, goal: what the ranks have and what they must end with, in words. inputs, outputs: the
    blocks of a rank ("1" or "n"), and whether every rank has them or the root
    alone. alias: the (input block, output block) of a rank that are one memory in place, or None.
    follows_order: whether neighbours are neighbours in the rank order (a ring) rather than in the
    numbering of the ranks, which the definition of a shift by one names. uneven_of: the collective
    of equal blocks that this one is with unequal blocks, if it is one.
    """

    name: OpName
    start: str
    goal: str
    inputs: tuple[Literal["1", "n"], Literal["all", "root"]]
    outputs: tuple[Literal["1", "n"], Literal["all", "root"]]
    wants: Callable[[int, int, int], tuple[Want, ...]]
    factor: Callable[[int], float]
    alias: Callable[[int, int, int], tuple[int, int] | None] = _no_alias
    is_interleaved: bool = False
    is_reduction: bool = False
    follows_order: bool = True
    uneven_of: OpName | None = None

    @property
    def even(self) -> OpName:
        """The collective of equal blocks whose schedules serve this one."""
        return self.uneven_of or self.name

    @property
    def is_rooted(self) -> bool:
        """Whether the root alone has input or output."""
        return "root" in (self.inputs[1], self.outputs[1])

    @property
    def size_in_blocks(self) -> bool:
        """Whether S is n blocks, not one."""
        return "n" in (self.inputs[0], self.outputs[0])

    @property
    def has_in_place(self) -> bool:
        """False where in place has no meaning: every rank sends what it would overwrite."""
        return self.even not in ("alltoall", "sendrecv")

    def blocks(self, buffer: Literal["in", "out"], n: int, root: int, rank: int) -> int:
        """Blocks that the rank's buffer holds; 0 if the rank has no such buffer."""
        how_many, who = self.inputs if buffer == "in" else self.outputs
        return 0 if who == "root" and rank != root else (n if how_many == "n" else 1)

    def block_count(self, size_bytes: int, item_bytes: int, n: int) -> int:
        """Elements of one block: S rounded down to whole elements and to equal blocks."""
        return size_bytes // (item_bytes * (n if self.size_in_blocks else 1))

    def size_bytes(self, block_count: int, item_bytes: int, n: int) -> int:
        """S of that many elements a block: what the row shows."""
        return block_count * item_bytes * (n if self.size_in_blocks else 1)


def _share(n: int) -> float:
    return (n - 1) / n


_BY_NAME: dict[str, Collective] = {
    one.name: one
    for one in (
        Collective(
            name="allreduce",
            start="every rank has a vector",
            goal="every rank has the sum of all vectors",
            is_interleaved=True,
            is_reduction=True,
            inputs=("1", "all"),
            outputs=("1", "all"),
            wants=lambda n, root, rank: (Want(out_block=0, ranks=tuple(range(n)), in_block=0),),
            alias=lambda n, root, rank: (0, 0),
            # Each of the S bytes is reduced with n-1 additions and then sent to n-1 ranks: 2(n-1) S
            # bytes over n links
            factor=lambda n: 2 * _share(n),
        ),
        Collective(
            name="allgather",
            start="every rank has a block",
            goal="every rank has the blocks of all ranks",
            inputs=("1", "all"),
            outputs=("n", "all"),
            wants=lambda n, root, rank: tuple(
                Want(out_block=j, ranks=(j,), in_block=0) for j in range(n)
            ),
            alias=lambda n, root, rank: (0, rank),
            # Each rank receives the n-1 blocks of the others: (n-1)/n of the total S
            factor=_share,
        ),
        Collective(
            name="reducescatter",
            start="every rank has a block for every rank",
            goal="every rank has the sum of the blocks for it",
            is_reduction=True,
            inputs=("n", "all"),
            outputs=("1", "all"),
            wants=lambda n, root, rank: (Want(out_block=0, ranks=tuple(range(n)), in_block=rank),),
            alias=lambda n, root, rank: (rank, 0),
            # Each rank sends the n-1 blocks that are not its own: (n-1)/n of the total S
            factor=_share,
        ),
        Collective(
            name="broadcast",
            start="the root has a vector",
            goal="every rank has the vector of the root",
            is_interleaved=True,
            inputs=("1", "root"),
            outputs=("1", "all"),
            wants=lambda n, root, rank: (Want(out_block=0, ranks=(root,), in_block=0),),
            alias=lambda n, root, rank: (0, 0) if rank == root else None,
            # All S bytes leave the root once and enter every other rank once
            factor=lambda n: 1.0,
        ),
        Collective(
            name="reduce",
            start="every rank has a vector",
            goal="the root has the sum of all vectors",
            is_interleaved=True,
            is_reduction=True,
            inputs=("1", "all"),
            outputs=("1", "root"),
            wants=lambda n, root, rank: (
                (Want(out_block=0, ranks=tuple(range(n)), in_block=0),) if rank == root else ()
            ),
            alias=lambda n, root, rank: (0, 0) if rank == root else None,
            # S bytes leave every rank but the root, and at least S bytes enter the root
            factor=lambda n: 1.0,
        ),
        Collective(
            name="alltoall",
            start="every rank has a block for every rank",
            goal="every rank has the blocks for it",
            inputs=("n", "all"),
            outputs=("n", "all"),
            wants=lambda n, root, rank: tuple(
                Want(out_block=j, ranks=(j,), in_block=rank) for j in range(n)
            ),
            # Each rank sends n-1 of its n blocks to others: (n-1)/n of S
            factor=_share,
        ),
        Collective(
            name="gather",
            start="every rank has a block",
            goal="the root has the blocks of all ranks",
            inputs=("1", "all"),
            outputs=("n", "root"),
            wants=lambda n, root, rank: (
                tuple(Want(out_block=j, ranks=(j,), in_block=0) for j in range(n))
                if rank == root
                else ()
            ),
            alias=lambda n, root, rank: (0, root) if rank == root else None,
            # The root receives the n-1 blocks of the others: (n-1)/n of the total S
            factor=_share,
        ),
        Collective(
            name="scatter",
            start="the root has a block for every rank",
            goal="every rank has the block for it",
            inputs=("n", "root"),
            outputs=("1", "all"),
            wants=lambda n, root, rank: (Want(out_block=0, ranks=(root,), in_block=rank),),
            alias=lambda n, root, rank: (root, 0) if rank == root else None,
            # The root sends the n-1 blocks of the others: (n-1)/n of the total S
            factor=_share,
        ),
        Collective(
            name="sendrecv",
            start="every rank has a block",
            goal="every rank has the block of the rank before it",
            inputs=("1", "all"),
            outputs=("1", "all"),
            wants=lambda n, root, rank: (Want(out_block=0, ranks=((rank - 1) % n,), in_block=0),),
            # A shift by one: each rank sends S bytes to the next and receives S from the previous
            factor=lambda n: 1.0,
            follows_order=False,
        ),
    )
}
for _op in UNEVEN_OPS:
    _even = _BY_NAME[_op.removesuffix("v")]
    _BY_NAME[_op] = replace(_even, name=_op, uneven_of=_even.name)


def collective(name: str, among: Sequence[OpName] = ()) -> Collective:
    """The collective of that name; all_reduce, AllReduce and all-reduce mean allreduce. Raises
    UsageError for one that is not among those, if any are named.

    >>> collective("Reduce_Scatter").name, collective("allreduce").factor(4)
    ('reducescatter', 1.5)
    """
    known = _BY_NAME.get(name)
    if known is None:
        plain = name.lower().replace("_", "").replace("-", "")
        known = _BY_NAME.get(_SPELLINGS.get(plain, plain))
    if known is None or (among and known.name not in among):
        raise unknown("collective", name, among or ALL_OPS)
    return known
