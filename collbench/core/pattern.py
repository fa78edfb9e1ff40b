"""Inputs and answers: what every rank starts with, and what the collective's definition says it
must end with.

Independent of schedules, plans and backends. Values depend on rank and index, repeat with a prime
period (so that no two chunks of usual lengths look alike), and are chosen so that every order of
reduction is exact; results are compared bit by bit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from collbench.core.case import Block
from collbench.core.collectives import OpName, collective
from collbench.core.dtypes import DTYPES, Array, Dtype, DtypeName, RedopName, divide, dtype, ufunc

PERIOD = 16381  # elements; a prime, so that it divides no chunk
MOST_RANKS = 1024  # whose input is kept, a period of each
_MAX_INPUT = 1000  # value of an input, where the type allows it
_SCALED_RANKS = 8  # of a product: more factors than these are +-1, so that float16 cannot overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """Wrong elements of one rank: how many, and the first of them by its index in the output; or
    what else is wrong with its launches, which has no index.
    """

    rank: int
    count: int
    index: int = -1
    got: str
    wanted: str


def _hash(seed: int, rank: int) -> "Array":
    """[PERIOD] of well-mixed uint32 from index, rank and seed (the finalizer of MurmurHash3,
    Appleby 2008).
    """
    mixed: Array = np.arange(PERIOD, dtype=np.uint32) * np.uint32(0x9E3779B1) + np.uint32(
        (seed * 0x85EBCA6B + rank * 0xC2B2AE35 + 1) & 0xFFFFFFFF
    )
    for multiplier in (0x85EBCA6B, 0xC2B2AE35):
        mixed ^= mixed >> np.uint32(15)
        mixed *= np.uint32(multiplier)
    mixed ^= mixed >> np.uint32(16)
    return mixed


def _spread(hashed: "Array", low: int, high: int) -> "Array":
    """Whole numbers low..high from hashes."""
    spread: Array = low + (hashed % np.uint32(high - low + 1)).astype(np.int64)
    return spread


@lru_cache(maxsize=MOST_RANKS)
def inputs(
    name: DtypeName, redop: RedopName, n: int, rank: int, is_reduction: bool = True
) -> "Array":
    """One period of a rank's input: element i of any buffer is element i mod PERIOD of this.

    >>> inputs("float32", "sum", 4, 0)[:3].dtype.name, len(inputs("float32", "sum", 4, 1))
    ('float32', 16381)
    """
    kind, index = dtype(name), np.arange(PERIOD)
    hashed = _hash(1, rank)
    signed = name != "uint8"
    if not is_reduction or redop in ("min", "max"):
        high = min(_MAX_INPUT, kind.exact_up_to)
        return _spread(hashed, -high if signed else 0, high).astype(kind.numpy())
    if redop == "prod":
        return _factors(kind, n, rank, hashed, index)
    # n times a common value, plus one here and minus one there: the sum is a multiple of n
    if redop == "avg":
        high = min(_MAX_INPUT, (kind.exact_up_to - 1) // n)
        common = _spread(_hash(2, 0), -high if signed else min(1, high), high)
        values: Array = common + ((index + rank) % n == 0) - ((index + rank) % n == 1)
        return values.astype(kind.numpy())
    high = min(_MAX_INPUT, kind.exact_up_to // n)
    if high == 0:  # more ranks than the type can count: only so many of them give a one
        return ((index + rank) % n < kind.exact_up_to).astype(kind.numpy())
    return _spread(hashed, -high if signed else 0, high).astype(kind.numpy())


def _factors(kind: Dtype, n: int, rank: int, hashed: "Array", index: "Array") -> "Array":
    """Factors: small odd integers (products wrap, exactly), or signed powers of two for floats."""
    if not kind.is_float:
        odd = _spread(hashed, 0, 3) * 2 - (3 if kind.name != "uint8" else -1)
        return odd.astype(kind.numpy())
    scaled = (index + rank) % n < _SCALED_RANKS
    exponent = np.where(scaled, _spread(hashed >> np.uint32(8), -1, 1), 0)
    sign = 1 - 2 * (hashed & np.uint32(1)).astype(np.int64)
    return (sign * 2.0**exponent).astype(kind.numpy())


@lru_cache(maxsize=256)
def reduced(name: DtypeName, redop: RedopName, n: int) -> "Array":
    """One period of the reduction over all ranks."""
    kind = dtype(name)
    total: Array = inputs(name, redop, n, 0).astype(kind.accumulator())
    for rank in range(1, n):
        ufunc(redop)(total, inputs(name, redop, n, rank).astype(total.dtype), total)
    if redop == "avg":
        divide(total, n)
    return total.astype(kind.numpy())


def compute(name: DtypeName, op: OpName, redop: RedopName, n: int) -> None:
    """Have what outputs of n ranks are made of, so that processes that are forked then share it."""
    if collective(op).is_reduction:
        reduced(name, redop, n)
        return
    for rank in range(min(n, MOST_RANKS)):
        inputs(name, redop, n, rank, is_reduction=False)


def _tiles(buffer: "Array", table: "Array", phase: int) -> Iterator[tuple["Array", "Array", int]]:
    """Pieces of a buffer, the pieces of the table that belong there, and where each starts."""
    start = 0
    while start < len(buffer):
        first = (phase + start) % PERIOD
        size = min(PERIOD - first, len(buffer) - start)
        yield buffer[start : start + size], table[first : first + size], start
        start += size


@lru_cache(maxsize=256)
def first_changed(name: DtypeName, redop: RedopName, n: int, rank: int) -> int:
    """The first element of the period at which the reduction differs from that rank's input.

    >>> first_changed("float32", "sum", 2, 0), first_changed("float32", "max", 2, 0)
    (0, 1)
    """
    return int((bits(inputs(name, redop, n, rank)) != bits(reduced(name, redop, n))).argmax())


def fill(buffer: "Array", op: OpName, redop: RedopName, n: int, rank: int, phase: int = 0) -> None:
    """Write a rank's input; `buffer` is its whole input, in the element type. Here and below, phase
    is the element of the period with which every input begins.
    """
    name = _name_of(buffer.dtype)
    table = inputs(name, redop, n, rank, collective(op).is_reduction)
    for part, values, _ in _tiles(buffer, table, phase):
        part[...] = values


@lru_cache(maxsize=256)
def equal_blocks(length: int, op: OpName, n: int, root: int, rank: int) -> tuple[Block, ...]:
    """The blocks of an output of that length, if all blocks are equal."""
    what = collective(op)
    blocks = what.blocks("out", n, root, rank)
    count = length // blocks if blocks else 0
    return tuple(
        Block(want.out_block * count, count, want.ranks[0], want.in_block * count)
        for want in what.wants(n, root, rank)
    )


def _expected(
    buffer: "Array", op: OpName, redop: RedopName, n: int, blocks: Sequence[Block], phase: int
) -> Iterator[tuple["Array", "Array", int]]:
    """Pieces of a rank's output, their expected values, and the index at which each starts."""
    what, name = collective(op), _name_of(buffer.dtype)
    for block in blocks:
        table = (
            reduced(name, redop, n)
            if what.is_reduction
            else inputs(name, redop, n, block.giver, is_reduction=False)
        )
        part = buffer[block.first : block.first + block.size]
        for piece, values, start in _tiles(part, table, phase + block.given_first):
            yield piece, values, block.first + start


def poison(
    buffer: "Array",
    op: OpName,
    redop: RedopName,
    n: int,
    root: int,
    rank: int,
    phase: int = 0,
    step: int = 1,
    blocks: Sequence[Block] | None = None,
) -> None:
    """Overwrite a rank's output, or about one element in `step` of it and the last of each block,
    so that every bit is wrong. In place, do this before fill(). blocks: of the output, if they are
    not equal.
    """
    blocks = equal_blocks(len(buffer), op, n, root, rank) if blocks is None else blocks
    for part, values, _ in _expected(buffer, op, redop, n, blocks, phase):
        for some in (slice(None, None, step), slice(-1, None)):
            np.invert(bits(values)[some], out=bits(part)[some])


def compare(
    buffer: "Array",
    op: OpName,
    redop: RedopName,
    n: int,
    root: int,
    rank: int,
    phase: int = 0,
    blocks: Sequence[Block] | None = None,
) -> Wrong | None:
    """Compare every element of a rank's output with the definition; None if all are right. blocks:
    of the output, if they are not equal.
    """
    blocks = equal_blocks(len(buffer), op, n, root, rank) if blocks is None else blocks
    return _differing(rank, _expected(buffer, op, redop, n, blocks, phase))


def _differing(rank: int, pieces: Iterable[tuple["Array", "Array", int]]) -> Wrong | None:
    """The elements of some pieces that are not as expected."""
    count, first = 0, None
    for part, values, start in pieces:
        differs = bits(part) != bits(values)
        if differs.any():
            count += int(differs.sum())
            if first is None:
                at = int(differs.argmax())
                first = (start + at, str(part[at]), str(values[at]))
    return (
        None
        if first is None
        else Wrong(rank=rank, count=count, index=first[0], got=first[1], wanted=first[2])
    )


def guard(buffer: "Array", n: int, rank: int) -> None:
    """Write what lies behind a rank's output, which nobody may change."""
    buffer[...] = _guard(buffer, n, rank)


def compare_guard(buffer: "Array", n: int, rank: int, start: int) -> Wrong | None:
    """Compare what lies behind a rank's output of `start` elements."""
    return _differing(rank, [(buffer, _guard(buffer, n, rank), start)])


def _guard(buffer: "Array", n: int, rank: int) -> "Array":
    return inputs(_name_of(buffer.dtype), "sum", n, rank, is_reduction=False)[: len(buffer)]


def bits(values: "Array") -> "Array":
    """The same memory as whole numbers, whose comparison is that of bits."""
    return values.view(f"u{values.dtype.itemsize}")


@lru_cache
def _name_of(kind: "np.dtype[np.generic]") -> DtypeName:
    return next(name for name in DTYPES if name == kind.name)
