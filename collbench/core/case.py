"""A point of a sweep: only names and numbers. It knows nothing of schedules or memory."""

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, NamedTuple

from collbench.core.collectives import OpName, collective
from collbench.core.dtypes import DtypeName, RedopName, dtype
from collbench.core.errors import UsageError
from collbench.core.knobs import Knobs, Placement
from collbench.core.together import MixPart, RankGroups, parse_groups, parse_mix
from collbench.core.uneven import (
    EVEN,
    Counts,
    CountsFile,
    busiest,
    counts_by,
    counts_in,
    is_matrix,
    refuse_skew,
)

BUFFER_GRAIN_BYTES = 64  # a rank's output begins on a cache line of its own
GUARD_BYTES = 64  # behind an output of unequal blocks, which nobody may write


class Buffers(NamedTuple):
    """Where a rank's input and output lie in its user memory, in bytes; in place they overlap.
    guard_bytes: behind the output, which stay what they were.
    """

    in_offset: int
    in_bytes: int
    out_offset: int
    out_bytes: int
    total_bytes: int
    guard_bytes: int = 0


class Block(NamedTuple):
    """A block of a rank's output: where it begins there and its size, the rank and the place in
    that rank's input that it begins with (of a reduction any rank: places are the same), in
    elements.
    """

    first: int
    size: int
    giver: int
    given_first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is to be computed, by whatever backend: `block_count` elements a block on n ranks.

    counts: of a collective of unequal blocks, as in uneven.py; block_count is then the largest.
    margin_bytes: that are left free around each buffer.
    """

    op: OpName
    n: int
    root: int
    block_count: int
    dtype: DtypeName
    redop: RedopName
    in_place: bool
    counts: Counts = ()
    margin_bytes: int = 0

    @property
    def item_bytes(self) -> int:
        return dtype(self.dtype).item_bytes

    @property
    def block_bytes(self) -> int:
        return self.block_count * self.item_bytes

    def count_of(self, giver: int, in_block: int) -> int:
        """Elements of a block of a rank's input."""
        if not self.counts:
            return self.block_count
        if is_matrix(self.op):
            return self.counts[giver * self.n + in_block]
        return self.counts[in_block if collective(self.op).inputs[0] == "n" else giver]

    def block_counts(self, buffer: Literal["in", "out"], rank: int) -> tuple[int, ...]:
        """Elements of each block of a rank's input or output."""
        what = collective(self.op)
        if buffer == "in" or not self.counts:
            blocks = what.blocks(buffer, self.n, self.root, rank)
            return tuple(self.count_of(rank, block) for block in range(blocks))
        wants = what.wants(self.n, self.root, rank)
        return tuple(self.count_of(want.ranks[0], want.in_block) for want in wants)

    def block_firsts(self, buffer: Literal["in", "out"], rank: int) -> tuple[int, ...]:
        """The element at which each block of a rank's input or output begins, and at last how many
        there are.

        >>> Problem(
        ...     op="allgatherv",
        ...     n=3,
        ...     root=0,
        ...     block_count=2,
        ...     dtype="int8",
        ...     redop="sum",
        ...     in_place=False,
        ...     counts=(2, 0, 1),
        ... ).block_firsts("out", 1)
        (0, 2, 2, 3)
        """
        return tuple(accumulate(self.block_counts(buffer, rank), initial=0))

    def _first(self, buffer: Literal["in", "out"], rank: int, block: int) -> int:
        """The same of one block, without the others where all are equal."""
        return self.block_firsts(buffer, rank)[block] if self.counts else block * self.block_count

    def blocks(self, rank: int) -> list[Block]:
        """What a rank must end with, by the collective's definition."""
        firsts = self.block_firsts("out", rank)
        return [
            Block(
                first=firsts[want.out_block],
                size=self.count_of(want.ranks[0], want.in_block),
                giver=want.ranks[0],
                given_first=self._first("in", want.ranks[0], want.in_block),
            )
            for want in collective(self.op).wants(self.n, self.root, rank)
        ]

    def buffers(self, rank: int) -> Buffers:
        """The rank's input and output in its user memory: consecutive, or overlapping in place."""
        what, item_bytes, margin = collective(self.op), self.item_bytes, self.margin_bytes
        in_bytes, out_bytes = (
            self._first(buffer, rank, what.blocks(buffer, self.n, self.root, rank)) * item_bytes
            for buffer in ("in", "out")
        )
        alias = what.alias(self.n, self.root, rank) if self.in_place else None
        if alias is None:
            guard_bytes = GUARD_BYTES if self.counts else 0
            behind_bytes = 2 * margin + in_bytes
            out_offset = -(-behind_bytes // BUFFER_GRAIN_BYTES) * BUFFER_GRAIN_BYTES
            total_bytes = out_offset + out_bytes + guard_bytes + margin
            return Buffers(margin, in_bytes, out_offset, out_bytes, total_bytes, guard_bytes)
        shift = self._first("out", rank, alias[1]) - self._first("in", rank, alias[0])
        shift *= item_bytes
        in_offset, out_offset = margin + max(shift, 0), margin + max(-shift, 0)
        end_bytes = max(in_offset + in_bytes, out_offset + out_bytes) + margin
        return Buffers(in_offset, in_bytes, out_offset, out_bytes, end_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Knobs):
    """One collective, one way to do it, one size: the knobs, and the axes of what is computed.

    size_bytes is S as the row shows it: requested sizes are rounded down to whole elements and
    equal blocks (see rounded()). skew: of a collective of unequal blocks, the formula of its counts
    or the name of their file. counts_file: what that file says; S follows from it. groups: of the
    ranks, each of which has this collective for itself, at the same time. mix: the operations of a
    grouped launch, of which op is the first and size_bytes the sum (both as in together.py).
    """

    op: OpName
    backend: str
    dtype: DtypeName = "float32"
    redop: RedopName = "sum"
    root: int = 0
    placement: Placement = "out"
    skew: str = ""
    groups: str = ""
    mix: str = ""
    ranks: int
    size_bytes: int
    counts_file: CountsFile | None = None

    def rounded(self) -> "Case":
        """The same case with the size that it really has, the root 0 where the collective has none,
        and sum where it reduces nothing.

        A size that has no element for every block stays, to be waived under its own name.
        """
        if self.mix:
            parts = [part.rounded() for part in self._operations()]
            reduces = any(collective(part.op).is_reduction for part in parts)
            return replace(
                self,
                op=parts[0].op,
                size_bytes=sum(part.size_bytes for part in parts),
                root=max(part.root for part in parts),
                redop=self.redop if reduces else "sum",
                skew=max(part.skew for part in parts),
            )
        what = collective(self.op)
        size_bytes = what.size_bytes(self.block_count, dtype(self.dtype).item_bytes, self.n)
        root = self.root if what.is_rooted else 0
        redop = self.redop if what.is_reduction else "sum"
        skew, file = self.skew, self.counts_file
        if what.uneven_of is None:
            skew, file = "", None
        elif file is not None:
            skew, size_bytes = file.name, self._size_of_counts()
        else:
            skew = skew or EVEN
            size_bytes = self._elements * dtype(self.dtype).item_bytes
        size_bytes = size_bytes or self.size_bytes
        new = size_bytes, root, redop, skew, file
        if new == (self.size_bytes, self.root, self.redop, self.skew, self.counts_file):
            return self
        return replace(
            self, size_bytes=size_bytes, root=root, redop=redop, skew=skew, counts_file=file
        )

    @property
    def _elements(self) -> int:
        """Elements of S."""
        return self.size_bytes // dtype(self.dtype).item_bytes

    def _size_of_counts(self) -> int:
        """S by the file; 0 where it does not fit the ranks."""
        try:
            total = sum(self.counts())
        except UsageError:
            return 0
        item_bytes = dtype(self.dtype).item_bytes
        return total * item_bytes // (self.n if is_matrix(self.op) else 1)

    def counts(self) -> Counts:
        """Elements of each block, where blocks may be unequal. Raises UsageError for a file with
        other counts than the ranks need.
        """
        if collective(self.op).uneven_of is None:
            return ()
        if self.counts_file is not None:
            return counts_in(self.counts_file, self.op, self.n)
        return counts_by(self.skew or EVEN, self.op, self.n, self._elements)

    def refuse_counts(self) -> None:
        """Raise UsageError where the file of counts, or their formula, does not fit the ranks."""
        for part in self._operations():
            if collective(part.op).uneven_of is None:
                continue
            if part.counts_file is not None:
                part.counts()
            else:
                refuse_skew(part.skew or EVEN, part.n)

    @property
    def imbalance(self) -> float | None:
        """What the busiest rank must send or receive, in units of what it were if all blocks were
        equal; None where they always are.
        """
        what = collective(self.op)
        if what.uneven_of is None or self.mix:
            return None
        counts = self.counts()
        elements = sum(counts) / (self.n if is_matrix(self.op) else 1)
        return busiest(self.op, self.n, counts).elements / (what.factor(self.n) * elements)

    def bottleneck(self) -> str:
        """Which rank must send or receive most, where blocks are unequal, in words."""
        share = f"{self.imbalance or 1.0:.3g}"
        if share == "1":
            return ""
        _, rank, verb = busiest(self.op, self.n, self.counts())
        return f"rank {rank} {verb} {share} times an equal share"

    @property
    def n(self) -> int:
        """Ranks of one collective."""
        return len(parse_groups(self.groups)[0]) if self.groups else self.ranks

    def fitting(self, hosts: tuple[int, ...]) -> tuple[int, ...]:
        """The hosts of ranks, where they are of so many; else none, as for one host."""
        return hosts if len(hosts) == self.ranks else ()

    @property
    def is_together(self) -> bool:
        """Whether several collectives run at once."""
        return bool(self.groups or self.mix)

    def _rank_groups(self) -> RankGroups:
        return parse_groups(self.groups) if self.groups else (tuple(range(self.ranks)),)

    def _operations(self) -> "list[Case]":
        """The operations of the mix, or the only one, each of one group."""
        mix = parse_mix(self.mix) if self.mix else (MixPart(self.op, self.size_bytes),)
        return [
            replace(self, op=op, size_bytes=size_bytes, ranks=self.n, groups="", mix="")
            for op, size_bytes in mix
        ]

    def parts(self) -> "list[CasePart]":
        """What runs at once: operation by operation, in each group of ranks."""
        return [
            CasePart(operation.rounded(), ranks, group)
            for operation in self._operations()
            for group, ranks in enumerate(self._rank_groups())
        ]

    @property
    def block_count(self) -> int:
        """Elements of one block; of unequal ones the mean; 0 of several operations."""
        if self.mix:
            return 0
        return collective(self.op).block_count(
            self.size_bytes, dtype(self.dtype).item_bytes, self.n
        )

    @property
    def in_place(self) -> bool:
        return self.placement == "in"

    def why_senseless(self) -> str:
        """Why this case means nothing whatever runs it, or an empty text."""
        if self.mix:
            return next(filter(None, (part.why_senseless() for part in self._operations())), "")
        what = collective(self.op)
        if self.ranks < 2:
            return f"{self.ranks} rank: nothing travels"
        if self.root >= self.n:
            return f"root {self.root} is not one of {self.n} ranks; choose 0 to {self.n - 1}"
        if self.in_place and not what.has_in_place:
            return f"{self.op} in place has no meaning: every rank sends what it would overwrite"
        if what.uneven_of is not None:
            return self._why_nothing_moves()
        if self.block_count == 0:
            return f"less than one {self.dtype} element" + (
                f" in each of {self.n} blocks" if what.size_in_blocks else ""
            )
        return ""

    def _why_nothing_moves(self) -> str:
        """Why unequal blocks leave nothing to do, or an empty text."""
        try:
            counts = self.counts()
        except UsageError as error:
            return error.text
        if not any(counts):
            return (
                "every count is 0: nothing travels"
                if self.counts_file is not None
                else f"less than one {self.dtype} element"
            )
        if not busiest(self.op, self.n, counts).elements:
            return "every rank sends to itself only: nothing travels"
        return ""

    def problem(self) -> Problem:
        """What is to be computed."""
        counts = self.counts()
        return Problem(
            op=self.op,
            n=self.n,
            root=self.root,
            block_count=max(counts) if counts else self.block_count,
            dtype=self.dtype,
            redop=self.redop,
            in_place=self.in_place,
            counts=counts,
        )


class CasePart(NamedTuple):
    """A collective that runs beside others, its ranks of all, and the number of their group."""

    case: Case
    ranks: tuple[int, ...]
    group: int
