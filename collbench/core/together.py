"""Collectives at once: groups of ranks, each with a collective of its own, and several operations
in one launch.

Groups may share ranks, like the two communicators that tensor and data parallel ranks have, or be
the same ranks twice. All groups have the same size, so that one row says what each of them does.
"""

from typing import NamedTuple

from collbench.core.collectives import OpName, collective
from collbench.core.errors import UsageError
from collbench.core.units import exact_size, parse_size, parse_whole

RankGroups = tuple[tuple[int, ...], ...]
_GROUPS_HINT = "give for example 0,1/2,3"
_SPLIT_HINT = "give for example 2 (neighbours: 0,1/2,3) or %2 (by stride: 0,2/1,3)"
_MIX_HINT = "give for example allreduce:1M+allgather:4M"


class MixPart(NamedTuple):
    """One operation of a grouped launch."""

    op: OpName
    size_bytes: int


def parse_groups(text: str) -> RankGroups:
    """Groups of ranks. Raises UsageError.

    >>> parse_groups("0,1/2,3")
    ((0, 1), (2, 3))
    """
    groups = []
    for part in text.split("/"):
        ranks = [parse_whole(word.strip()) for word in part.split(",")]
        numbers = [rank for rank in ranks if rank is not None]
        if len(numbers) < len(ranks):
            raise UsageError(f"group '{part}' is not a list of ranks", _GROUPS_HINT)
        if len(set(numbers)) < len(numbers):
            raise UsageError(f"group '{part}' has a rank twice", _GROUPS_HINT)
        if len(numbers) < 2:
            raise UsageError(f"group '{part}' has one rank: nothing travels", _GROUPS_HINT)
        groups.append(tuple(numbers))
    sizes = sorted({len(group) for group in groups})
    if len(sizes) > 1:
        raise UsageError(
            f"groups of {' and '.join(map(str, sizes))} ranks: all must have as many", _GROUPS_HINT
        )
    members = {rank for group in groups for rank in group}
    for rank in range(max(members)):
        if rank not in members:
            raise UsageError(f"rank {rank} is in no group", "number the ranks from 0 on")
    return tuple(groups)


def groups_text(groups: RankGroups) -> str:
    """Groups in the form that parse_groups() reads, which rows have."""
    return "/".join(",".join(map(str, group)) for group in groups)


def split(text: str, n: int) -> RankGroups:
    """All ranks in groups: of so many neighbours, or of those that are as far apart. Raises
    UsageError.

    >>> split("2", 4), split("%2", 4)
    (((0, 1), (2, 3)), ((0, 2), (1, 3)))
    """
    number = parse_whole(text.removeprefix("%"))
    if number is None or number < 1:
        raise UsageError(f"'{text}' is not a number of ranks", _SPLIT_HINT)
    size = n // number if text.startswith("%") else number
    if n % number or size < 2:
        raise UsageError(
            f"{n} ranks cannot be split into groups of the same size, two or more, by '{text}'",
            _SPLIT_HINT,
        )
    if text.startswith("%"):
        return tuple(tuple(range(first, n, number)) for first in range(number))
    return tuple(tuple(range(first, first + number)) for first in range(0, n, number))


def parse_mix(text: str) -> tuple[MixPart, ...]:
    """The operations of a grouped launch. Raises UsageError.

    >>> parse_mix("allreduce:1M+ag:4K")
    (MixPart(op='allreduce', size_bytes=1048576), MixPart(op='allgather', size_bytes=4096))
    """
    parts = []
    for part in text.split("+"):
        name, colon, size = part.partition(":")
        if not colon:
            raise UsageError(f"'{part}' has no size", _MIX_HINT)
        size_bytes = parse_size(size)
        if size_bytes <= 0:
            raise UsageError(f"'{part}' has no bytes", _MIX_HINT)
        parts.append(MixPart(collective(name.strip()).name, size_bytes))
    if len(parts) < 2:
        raise UsageError(f"'{text}' is one operation", _MIX_HINT)
    return tuple(parts)


def mix_text(parts: tuple[MixPart, ...]) -> str:
    """A mix in the form that parse_mix() reads, which rows have."""
    return "+".join(f"{part.op}:{exact_size(part.size_bytes)}" for part in parts)
