"""The collectives: what each rank has, what it must end with, how big that is, and what its bus
bandwidth means.

One table, independent of schedules, plans and backends. The size S of a row is what nccl-tests
calls size: the bytes of the vector for allreduce, broadcast, reduce and sendrecv; n blocks, the
total, for allgather, reducescatter, alltoall, gather and scatter. busbw = S / t x factor makes one
number comparable across ranks and collectives: the rate that the busiest link direction must
sustain. A collective of unequal blocks (allgatherv, reducescatterv, alltoallv) is one of these with
other sizes: see uneven.py.
"""

from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One operation, which its words and its blocks define.

    start, goal: what the ranks have and what they must end with, in words. inputs, outputs: the
    blocks of a rank ("1" or "n"), and whether every rank has them or the root alone.
    follows_order: whether neighbours are neighbours in the rank order (a ring) rather than in the
    numbering of the ranks, which the definition of a shift by one names. uneven_of: the collective
    of equal blocks that this one is with unequal blocks, if it is one.
    """

    name: OpName
    start: str
    goal: str
    inputs: tuple[Literal["1", "n"], Literal["all", "root"]]
    outputs: tuple[Literal["1", "n"], Literal["all", "root"]]
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
    def is_interleaved(self) -> bool:
        """Whether its one vector can be cut anywhere, into chunks that go their own ways."""
        return self.follows_order and not self.size_in_blocks

    @property
    def has_in_place(self) -> bool:
        """False where in place has no meaning: every rank sends what it would overwrite."""
        return self.even not in ("alltoall", "sendrecv")

    def wants(self, n: int, root: int, rank: int) -> tuple[Want, ...]:
        """What the rank must end with, block by block."""
        sources = tuple(range(n)) if self.is_reduction else (root,)
        if not self.follows_order:
            sources = ((rank - 1) % n,)
        return tuple(
            Want(
                out_block=block,
                ranks=(block,) if self.outputs[0] == "n" else sources,
                in_block=rank * (self.inputs[0] == "n"),
            )
            for block in range(self.blocks("out", n, root, rank))
        )

    def alias(self, n: int, root: int, rank: int) -> tuple[int, int] | None:
        """The (input block, output block) of a rank that are one memory in place, or None."""
        if not self.has_in_place or (self.is_rooted and rank != root):
            return None
        return rank * (self.inputs[0] == "n"), rank * (self.outputs[0] == "n")

    def factor(self, n: int) -> float:
        """What S / t is multiplied by for the rate of the busiest link direction.

        Of n blocks each rank, or the root, sends or receives the n-1 of the others: (n-1)/n of the
        total S. In an allreduce each of the S bytes is reduced with n-1 additions and then sent to
        n-1 ranks: 2(n-1) S bytes over n links. In the others all S bytes leave or enter a rank.
        """
        if self.size_in_blocks:
            return (n - 1) / n
        return 2 * ((n - 1) / n) if self.is_reduction and not self.is_rooted else 1.0

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


_BY_NAME: dict[str, Collective] = {
    one.name: one
    for one in (
        Collective(
            name="allreduce",
            start="every rank has a vector",
            goal="every rank has the sum of all vectors",
            inputs=("1", "all"),
            outputs=("1", "all"),
            is_reduction=True,
        ),
        Collective(
            name="allgather",
            start="every rank has a block",
            goal="every rank has the blocks of all ranks",
            inputs=("1", "all"),
            outputs=("n", "all"),
        ),
        Collective(
            name="reducescatter",
            start="every rank has a block for every rank",
            goal="every rank has the sum of the blocks for it",
            inputs=("n", "all"),
            outputs=("1", "all"),
            is_reduction=True,
        ),
        Collective(
            name="broadcast",
            start="the root has a vector",
            goal="every rank has the vector of the root",
            inputs=("1", "root"),
            outputs=("1", "all"),
        ),
        Collective(
            name="reduce",
            start="every rank has a vector",
            goal="the root has the sum of all vectors",
            inputs=("1", "all"),
            outputs=("1", "root"),
            is_reduction=True,
        ),
        Collective(
            name="alltoall",
            start="every rank has a block for every rank",
            goal="every rank has the blocks for it",
            inputs=("n", "all"),
            outputs=("n", "all"),
        ),
        Collective(
            name="gather",
            start="every rank has a block",
            goal="the root has the blocks of all ranks",
            inputs=("1", "all"),
            outputs=("n", "root"),
        ),
        Collective(
            name="scatter",
            start="the root has a block for every rank",
            goal="every rank has the block for it",
            inputs=("n", "root"),
            outputs=("1", "all"),
        ),
        Collective(
            name="sendrecv",
            start="every rank has a block",
            goal="every rank has the block of the rank before it",
            inputs=("1", "all"),
            outputs=("1", "all"),
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
