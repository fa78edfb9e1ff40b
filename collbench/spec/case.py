"""A point of a sweep: only names and numbers, all independent variables of a row. It knows nothing
of schedules or memory.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from collbench.spec.collectives import OpName, collective
from collbench.spec.dtypes import DtypeName, RedopName, dtype
from collbench.spec.knobs import Knobs, Placement

BUFFER_GRAIN_BYTES = 64  # a rank's output begins on a cache line of its own


class Buffers(NamedTuple):
    """Where a rank's input and output lie in its user memory, in bytes; in place they overlap."""

    in_offset: int
    in_bytes: int
    out_offset: int
    out_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is to be computed, by whatever backend: `block_count` elements a block on n ranks."""

    op: OpName
    n: int
    root: int
    block_count: int
    dtype: DtypeName
    redop: RedopName
    in_place: bool

    @property
    def item_bytes(self) -> int:
        return dtype(self.dtype).item_bytes

    @property
    def block_bytes(self) -> int:
        return self.block_count * self.item_bytes

    def buffers(self, rank: int) -> Buffers:
        """The rank's input and output in its user memory: consecutive, or overlapping in place."""
        what = collective(self.op)
        in_bytes = what.blocks("in", self.n, self.root, rank) * self.block_bytes
        out_bytes = what.blocks("out", self.n, self.root, rank) * self.block_bytes
        alias = what.alias(self.n, self.root, rank) if self.in_place else None
        if alias is None:
            out_offset = -(-in_bytes // BUFFER_GRAIN_BYTES) * BUFFER_GRAIN_BYTES
            return Buffers(0, in_bytes, out_offset, out_bytes, out_offset + out_bytes)
        shift = (alias[1] - alias[0]) * self.block_bytes
        in_offset, out_offset = max(shift, 0), max(-shift, 0)
        return Buffers(
            in_offset,
            in_bytes,
            out_offset,
            out_bytes,
            max(in_offset + in_bytes, out_offset + out_bytes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Knobs):
    """One collective, one way to do it, one size: the knobs, and the axes of what is computed.

    size_bytes is S as the row shows it: requested sizes are rounded down to whole elements and
    equal blocks (see rounded()).
    """

    op: OpName
    backend: str
    dtype: DtypeName = "float32"
    redop: RedopName = "sum"
    root: int = 0
    placement: Placement = "out"
    ranks: int
    size_bytes: int

    def rounded(self) -> "Case":
        """The same case with the size that it really has, the root 0 where the collective has none,
        and sum where it reduces nothing.

        A size that has no element for every block stays, to be waived under its own name.
        """
        what = collective(self.op)
        size_bytes = what.size_bytes(self.block_count, dtype(self.dtype).item_bytes, self.ranks)
        root = self.root if what.is_rooted else 0
        redop = self.redop if what.is_reduction else "sum"
        if (size_bytes or self.size_bytes, root, redop) == (self.size_bytes, self.root, self.redop):
            return self
        return replace(self, size_bytes=size_bytes or self.size_bytes, root=root, redop=redop)

    @property
    def block_count(self) -> int:
        """Elements of one block."""
        return collective(self.op).block_count(
            self.size_bytes, dtype(self.dtype).item_bytes, self.ranks
        )

    @property
    def in_place(self) -> bool:
        return self.placement == "in"

    def why_senseless(self) -> str:
        """Why this case means nothing whatever runs it, or an empty text."""
        what = collective(self.op)
        if self.ranks < 2:
            return f"{self.ranks} rank: nothing travels"
        if self.root >= self.ranks:
            return (
                f"root {self.root} is not one of {self.ranks} ranks; choose 0 to {self.ranks - 1}"
            )
        if self.in_place and not what.has_in_place:
            return f"{self.op} in place has no meaning: every rank sends what it would overwrite"
        if self.block_count == 0:
            return f"less than one {self.dtype} element" + (
                f" in each of {self.ranks} blocks" if what.size_in_blocks else ""
            )
        return ""

    def problem(self) -> Problem:
        """What is to be computed."""
        return Problem(
            op=self.op,
            n=self.ranks,
            root=self.root,
            block_count=self.block_count,
            dtype=self.dtype,
            redop=self.redop,
            in_place=self.in_place,
        )
